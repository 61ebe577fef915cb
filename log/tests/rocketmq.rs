//! The contract suite and what only a real broker can show. `cargo xtask test` starts a RocketMQ that is there for tests:
//! topics are made and left behind. `ONCEFLOW_CHECK_BACK_SECONDS` says how long one check-back may take there, and
//! `ONCEFLOW_CHECKS_MAX` the broker's limit; without them the cases about check-backs are left out. `ONCEFLOW_BROKER_CRASH`
//! is a shell command that kills that broker, starts it again and waits until it serves.
#![cfg(all(feature = "rocketmq", feature = "contract"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use async_trait::async_trait;
use onceflow_log::contract::{self, Notes, Subject};
use onceflow_log::rocketmq::{Credentials, RocketLog, RocketOptions};
use onceflow_log::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow_types::{Clock, ErrorKind, Offset, Offsets, Partition, SystemClock};
use std::sync::Arc;
use std::time::Duration;

/// What `cargo xtask test` sets.
fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

fn name_server() -> String {
    environment("ONCEFLOW_NAME_SERVER")
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn unique(what: &str) -> String {
    format!("{what}-{}-{}", SystemClock.now(), std::process::id())
}

struct RealBroker(String);

#[async_trait]
impl Subject for RealBroker {
    fn notes(&self) -> Notes {
        Notes {
            visible_within: Duration::from_secs(30),
            check_back_within: number_of("ONCEFLOW_CHECK_BACK_SECONDS").map(Duration::from_secs),
            checks_max: number_of("ONCEFLOW_CHECKS_MAX").and_then(|max| u32::try_from(max).ok()),
            members_within: Some(Duration::from_secs(20)),
        }
    }

    async fn log(&self, group: &str) -> Arc<dyn Log> {
        // With time for a broker that has just come back on a busy machine.
        let options = RocketOptions { request_timeout: Duration::from_secs(30), ..RocketOptions::new(&self.0, group) };
        Arc::new(RocketLog::open(options).await.expect("the broker is there"))
    }

    async fn crash(&self) {
        let command = environment("ONCEFLOW_BROKER_CRASH");
        let run = move || std::process::Command::new("sh").arg("-c").arg(command).status();
        let ended = tokio::task::spawn_blocking(run).await.unwrap();
        assert!(ended.unwrap().success(), "ONCEFLOW_BROKER_CRASH failed");
    }
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn a_real_broker_keeps_the_contract() {
    runtime().block_on(contract::run_all(&RealBroker(name_server())));
}

async fn room(address: &str, queues: u32) -> (RocketLog, Vec<Partition>) {
    room_of(address, &unique("group"), queues).await
}

async fn room_of(address: &str, group: &str, queues: u32) -> (RocketLog, Vec<Partition>) {
    let log = RocketLog::open(RocketOptions::new(address, group)).await.unwrap();
    let topic = unique("topic");
    let spec = TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(queues) };
    log.create_topic(&spec).await.unwrap();
    let queues = log.partitions(&topic).await.unwrap();
    (log, queues)
}

/// Aim: a handle may be used from many runtimes that come and go. Method: open it on one, drop that, append on others.
#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn a_handle_outlives_the_runtime_it_was_opened_on() {
    let address = name_server();
    let (log, queues) = runtime().block_on(room(&address, 1));
    let mut batch = MessageBatch::default();
    batch.push(b"", b"body").unwrap();
    for number in 0..3 {
        let small = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let acked = small.block_on(log.append(&queues[0], &batch)).unwrap();
        assert_eq!(acked.first, Offset::new(number));
    }
    runtime().block_on(log.close());
    let error = runtime().block_on(log.append(&queues[0], &batch)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn links_are_equal_over_one_connection_and_differ_over_two() {
    let address = name_server();
    runtime().block_on(async {
        let (one, queues) = room(&address, 1).await;
        let two = RocketLog::open(RocketOptions::new(&address, unique("group"))).await.unwrap();
        let mut batch = MessageBatch::default();
        batch.push(b"", b"body").unwrap();
        let first = one.append(&queues[0], &batch).await.unwrap().link;
        let prepared = one.prepare(&queues[0], &batch).await.unwrap();
        assert_eq!(first, prepared.link);
        assert_eq!(first, one.end(&prepared.handle, onceflow_log::End::Rollback).await.unwrap());
        assert_ne!(first, two.append(&queues[0], &batch).await.unwrap().link);
        one.close().await;
        two.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn offsets_can_be_reported() {
    let address = name_server();
    runtime().block_on(async {
        let group = unique("group");
        let (log, queues) = room_of(&address, &group, 3).await;
        let offsets: Offsets = queues.iter().map(|queue| (queue.clone(), Offset::ZERO)).collect();
        let limit = ReadLimit { records_max: 1, bytes_max: 1, wait_max: Duration::ZERO };
        // A pull makes the broker know the group.
        log.read(&queues[0], Offset::ZERO, limit).await.unwrap();
        log.report_offsets(&group, &offsets).await.unwrap();
        let error =
            log.report_offsets(&unique("nobody"), &offsets).await.expect_err("no reader of that group was seen");
        assert_eq!(error.kind(), ErrorKind::Retry, "{error:?}");
        log.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn reserved_properties_are_refused() {
    let address = name_server();
    runtime().block_on(async {
        let (log, queues) = room(&address, 1).await;
        for name in ["TRAN_MSG", "PGROUP", "DELAY", "TIMER_DELAY_MS", "CHECK_IMMUNITY_TIME_IN_SECONDS"] {
            let mut batch = MessageBatch::default();
            batch.push(format!("{name}\x011\x02").as_bytes(), b"body").unwrap();
            for error in [log.append(&queues[0], &batch).await.err(), log.prepare(&queues[0], &batch).await.err()] {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Invalid), "{name}");
            }
        }
        log.close().await;
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn wrong_credentials_fail_at_open_and_never_show() {
    let address = environment("ONCEFLOW_ACL_NAME_SERVER");
    let (user, password) = (environment("ONCEFLOW_ACL_USER"), environment("ONCEFLOW_ACL_PASSWORD"));
    runtime().block_on(async {
        let with = |credentials| RocketOptions { credentials, ..RocketOptions::new(&address, unique("group")) };
        let wrong = Credentials::new(&user, "canary-secret");
        for refused in [with(None), with(Some(wrong))] {
            let error = RocketLog::open(refused).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
            assert!(!format!("{error:?}").contains("canary-secret"));
        }
        let log = RocketLog::open(with(Some(Credentials::new(&user, &password)))).await.unwrap();
        assert!(!format!("{log:?}").contains(&password));
        let spec = TopicSpec { topic: unique("topic").into(), queues: Queues::PerBroker(1) };
        log.create_topic(&spec).await.unwrap();
        let queue = log.partitions(&spec.topic).await.unwrap().remove(0);
        let mut batch = MessageBatch::default();
        batch.push(b"", b"one").unwrap();
        log.append(&queue, &batch).await.unwrap();
        let prepared = log.prepare(&queue, &batch).await.unwrap();
        log.end(&prepared.handle, onceflow_log::End::Commit).await.unwrap();
        batch.push(b"", b"two").unwrap();
        log.append(&queue, &batch).await.unwrap();
        let limit = ReadLimit { records_max: 10, bytes_max: 1 << 20, wait_max: Duration::from_secs(5) };
        assert!(!log.read(&queue, Offset::ZERO, limit).await.unwrap().is_empty());
        log.close().await;
    });
}

#[test]
fn an_absent_name_server_is_an_error_in_time() {
    runtime().block_on(async {
        let mut options = RocketOptions::new("127.0.0.1:1", "group");
        options.request_timeout = Duration::from_secs(2);
        options.start_time_max = Duration::ZERO;
        let opened = tokio::time::timeout(Duration::from_secs(30), RocketLog::open(options)).await.expect("rule 11");
        let error = opened.expect_err("nobody listens there");
        assert_eq!(error.kind(), ErrorKind::Retry, "{error:?}");
        assert!(error.to_string().contains("name server"), "{error}");
    });
}
