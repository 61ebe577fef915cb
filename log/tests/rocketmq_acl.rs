//! What a broker with access control refuses is an error of kind `Invalid`, at once, and nothing of it happens: wrong and
//! missing keys at the start, a key that was changed, rights that are missing or taken away while a log is open.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/acl.rs"]
mod acl;

use acl::{KEY, User, admin, master, unique};
use onceflow_log::rocketmq::RocketLog;
use onceflow_log::{End, Log, MemberId, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow_types::{ErrorKind, Offset, Partition, Result};
use std::time::Duration;

const LIMIT: ReadLimit = ReadLimit { records_max: 10, bytes_max: 1 << 20, wait_max: Duration::ZERO };

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

async fn topic(log: &RocketLog, name: &str) -> Partition {
    let topic = unique(name);
    let spec = TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(1) };
    log.create_topic(&spec).await.unwrap();
    log.partitions(&topic).await.unwrap().remove(0)
}

fn message() -> MessageBatch {
    let mut batch = MessageBatch::default();
    batch.push(b"", b"body").unwrap();
    batch
}

fn is_refused<T>(what: &str, result: Result<T>) {
    let Err(error) = result else { panic!("{what} was allowed") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {}", error.report());
}

/// A queue holds so many messages, and now one more.
async fn holds(master: &RocketLog, queue: &Partition, messages: u64) {
    assert_eq!(master.append(queue, &message()).await.unwrap().first, Offset::new(messages), "{queue}");
}

/// Four messages.
async fn writes(log: &RocketLog, queue: &Partition) -> Result<()> {
    log.append(queue, &message()).await?;
    let mut two = message();
    two.push(b"", b"body")?;
    log.append(queue, &two).await?;
    let half = log.prepare(queue, &message()).await?;
    log.end(&half.handle, End::Commit).await.map(drop)
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn access_control_rights_are_needed_topic_by_topic() {
    run(async {
        let master = master().await;
        let (both, read, write) =
            (topic(&master, "both").await, topic(&master, "read").await, topic(&master, "w").await);
        let none = topic(&master, "none").await;
        for queue in [&read, &none] {
            master.append(queue, &message()).await.unwrap();
        }
        let user = User::new("careful", &unique("group"));
        user.allow(&user.of_group(), "Sub,Get");
        for (queue, actions) in [(&both, "Pub,Sub,Get"), (&read, "Sub,Get"), (&write, "Pub,Get")] {
            user.allow(&format!("Topic:{}", queue.topic), actions);
        }
        let log = user.open(KEY).await.unwrap();
        writes(&log, &both).await.unwrap();
        writes(&log, &write).await.unwrap();
        assert_eq!(log.read(&read, Offset::ZERO, LIMIT).await.unwrap().len(), 1);
        for queue in [&read, &none] {
            is_refused("append", log.append(queue, &message()).await);
            is_refused("prepare", log.prepare(queue, &message()).await);
        }
        for queue in [&write, &none] {
            is_refused("read", log.read(queue, Offset::ZERO, LIMIT).await);
        }
        is_refused("offsets", log.offsets(&none).await);
        let new = TopicSpec { topic: unique("new").into(), queues: Queues::PerBroker(1) };
        is_refused("a new topic", log.create_topic(&new).await);
        // Refusals neither leave anything behind nor spoil the connection.
        for queue in [&read, &none] {
            holds(&master, queue, 1).await;
        }
        writes(&log, &both).await.unwrap();
        log.close().await;
        master.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn access_control_rights_are_needed_for_the_group() {
    run(async {
        let master = master().await;
        let queue = topic(&master, "topic").await;
        let user = User::new("lonely", &unique("group"));
        user.allow(&format!("Topic:{}", queue.topic), "Pub,Sub,Get");
        let log = user.open(KEY).await.unwrap();
        let me = MemberId::new("me").unwrap();
        is_refused("read", log.read(&queue, Offset::ZERO, LIMIT).await);
        is_refused("members", log.members(&user.group, &me).await);
        user.allow(&user.of_group(), "Sub,Get");
        writes(&log, &queue).await.unwrap();
        log.read(&queue, Offset::ZERO, LIMIT).await.unwrap();
        assert_eq!(log.members(&user.group, &me).await.unwrap().len(), 1);
        is_refused("another group's members", log.members(&unique("theirs"), &me).await);
        log.close().await;
        master.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn access_control_rights_that_are_taken_away_are_missed_at_the_next_request() {
    run(async {
        let master = master().await;
        let queue = topic(&master, "topic").await;
        let user = User::new("fallen", &unique("group"));
        let right = format!("Topic:{}", queue.topic);
        user.allow(&right, "Pub,Sub,Get");
        user.allow(&user.of_group(), "Sub,Get");
        let log = user.open(KEY).await.unwrap();
        writes(&log, &queue).await.unwrap();
        let half = log.prepare(&queue, &message()).await.unwrap();
        user.forbid(&right);
        is_refused("append", log.append(&queue, &message()).await);
        is_refused("prepare", log.prepare(&queue, &message()).await);
        is_refused("end", log.end(&half.handle, End::Commit).await);
        is_refused("read", log.read(&queue, Offset::ZERO, LIMIT).await);
        holds(&master, &queue, 4).await;
        user.allow(&right, "Pub,Sub,Get");
        log.end(&half.handle, End::Commit).await.unwrap();
        log.close().await;
        master.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn access_control_a_key_that_was_changed_is_refused_from_then_on_and_the_new_one_works() {
    run(async {
        let master = master().await;
        let queue = topic(&master, "topic").await;
        let user = User::new("rotated", &unique("group"));
        user.allow(&format!("Topic:{}", queue.topic), "Pub,Sub,Get");
        let log = user.open(KEY).await.unwrap();
        log.append(&queue, &message()).await.unwrap();
        admin(&format!("updateUser -c DefaultCluster -u {} -p second-key", user.name));
        is_refused("append", log.append(&queue, &message()).await);
        is_refused("prepare", log.prepare(&queue, &message()).await);
        is_refused("a start with the old key", user.open(KEY).await);
        holds(&master, &queue, 1).await;
        let new = user.open("second-key").await.unwrap();
        assert_eq!(new.append(&queue, &message()).await.unwrap().first, Offset::new(2));
        for log in [log, new, master] {
            log.close().await;
        }
    });
}
