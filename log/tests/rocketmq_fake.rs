//! A broker that lies, on loopback: every malformed answer is a typed error of its call or the end of its connection, and
//! the handle goes on once the broker behaves. No real broker is needed.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;

use fake::{Answer, Fake};
use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_log::{End, Log, MessageBatch, ReadLimit};
use onceflow_types::{ErrorKind, HalfHandle, Offset, Partition};
use std::time::Duration;

const PULL: i64 = 11;
const MAX_OFFSET: i64 = 30;
const END: i64 = 37;
const ROUTE: i64 = 105;
const TOPIC_CONFIG: i64 = 351;
const SEND: i64 = 310;

const LIMIT: ReadLimit = ReadLimit { records_max: 10, bytes_max: 1 << 20, wait_max: Duration::ZERO };

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn queue() -> Partition {
    Partition::new("topic", "fake", 0)
}

fn one_message() -> MessageBatch {
    let mut batch = MessageBatch::default();
    batch.push(b"", b"body").unwrap();
    batch
}

async fn open(fake: &Fake) -> RocketLog {
    let mut options = RocketOptions::new(fake.address(), "group");
    options.request_timeout = Duration::from_secs(10);
    options.dispatch_lag_max = Duration::from_millis(50);
    RocketLog::open(options).await.expect("the fake answers name server and hello questions")
}

const SENT: &str =
    r#"{"msgId":"7F000001000027100000000000000309","queueId":"0","queueOffset":"5","transactionId":"T"}"#;

#[test]
fn a_topic_is_absent_only_when_its_brokers_say_so() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let absent = Answer::fields(17, "{}");
        let there = Answer { body: br#"{"readQueueNums":4,"writeQueueNums":4}"#.to_vec(), ..Answer::fields(0, "{}") };
        // The name server has lost the broker and has it back, without its topics: it was killed or cut off.
        fake.answer(ROUTE, absent.clone());
        for (topic_config, kind) in
            [(there.clone(), ErrorKind::Retry), (Answer::hang_up(), ErrorKind::Retry), (absent, ErrorKind::Invalid)]
        {
            fake.answer(TOPIC_CONFIG, topic_config.clone());
            let error = log.partitions("topic").await.expect_err("no route");
            assert_eq!(error.kind(), kind, "{topic_config:?}: {error:?}");
            let error = log.append(&queue(), &one_message()).await.expect_err("no route");
            assert_eq!(error.kind(), kind, "{topic_config:?}: {error:?}");
        }
        log.close().await;
    });
}

#[test]
fn a_queue_is_absent_only_when_its_broker_says_so() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let config = |queues: u32| Answer {
            body: format!(r#"{{"readQueueNums":{queues},"writeQueueNums":{queues}}}"#).into_bytes(),
            ..Answer::fields(0, "{}")
        };
        let sixth = Partition::new("topic", "fake", 5);
        let of_another_broker = Partition::new("topic", "other", 0);
        for (queue, queues, kind) in
            [(&sixth, 8, ErrorKind::Retry), (&sixth, 4, ErrorKind::Invalid), (&of_another_broker, 4, ErrorKind::Retry)]
        {
            fake.answer(TOPIC_CONFIG, config(queues));
            let error = log.append(queue, &one_message()).await.expect_err("the route has four queues");
            assert_eq!(error.kind(), kind, "{queue} of {queues}: {error:?}");
        }
        log.close().await;
    });
}

#[test]
fn malformed_send_replies_fail_their_call_only() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let lies = [
            r"{}",
            r#"{"queueId":"0"}"#,
            r#"{"queueId":"abc","queueOffset":"5"}"#,
            r#"{"queueId":"2147483648000","queueOffset":"5"}"#,
            r#"{"queueId":"1","queueOffset":"5"}"#,
            r#"{"queueId":"0","queueOffset":"-1"}"#,
            r#"{"queueId":"0","queueOffset":"9223372036854775808"}"#,
            r#"{"queueId":"0","queueOffset":""}"#,
        ];
        for lie in lies {
            fake.answer(SEND, Answer::fields(0, lie));
            let error = log.append(&queue(), &one_message()).await.expect_err(lie);
            assert_eq!(error.kind(), ErrorKind::Retry, "{lie}: {error:?}");
        }
        assert_eq!(log.counters().bad_replies(), lies.len() as u64);
        fake.answer(SEND, Answer::fields(0, SENT));
        assert_eq!(log.append(&queue(), &one_message()).await.unwrap().first, Offset::new(5));
        assert_eq!(log.counters().bad_frames(), 0);
        log.close().await;
    });
}

#[test]
fn a_half_with_an_unreadable_id_is_unknown() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        for id in
            ["", "x", "zzzzzzzzzzzzzzzz", "FFFFFFFFFFFFFFFF", "7F0000010000271\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"]
        {
            let lie = format!(r#"{{"msgId":"{id}","queueId":"0","queueOffset":"5"}}"#);
            fake.answer(SEND, Answer::fields(0, &lie));
            let error = log.prepare(&queue(), &one_message()).await.expect_err(id);
            assert_eq!(error.kind(), ErrorKind::Retry, "{id}: {error:?}");
        }
        fake.answer(SEND, Answer::fields(0, SENT));
        let prepared = log.prepare(&queue(), &one_message()).await.unwrap();
        assert_eq!((prepared.handle.commit_log_offset, prepared.handle.half_queue_offset), (0x309, 5));
        log.close().await;
    });
}

#[test]
fn every_status_that_is_not_success_is_unknown_or_refused() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        for (code, kind) in [
            (10, ErrorKind::Retry),
            (11, ErrorKind::Retry),
            (12, ErrorKind::Retry),
            (1, ErrorKind::Retry),
            (2, ErrorKind::Retry),
            (14, ErrorKind::Retry),
            (-7, ErrorKind::Retry),
            (i64::from(i32::MIN), ErrorKind::Retry),
            (13, ErrorKind::Invalid),
            (16, ErrorKind::Invalid),
            (17, ErrorKind::Invalid),
        ] {
            fake.answer(SEND, Answer::fields(code, SENT));
            let error = log.append(&queue(), &one_message()).await.expect_err("no success");
            assert_eq!(error.kind(), kind, "code {code}: {error:?}");
        }
        log.close().await;
    });
}

#[test]
fn an_end_with_an_unknown_code_is_unknown() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let handle = HalfHandle { target: queue(), commit_log_offset: 1, half_queue_offset: 2, unique_key: "K".into() };
        for (code, remark, kind) in [
            (-7, "", ErrorKind::Retry),
            (1, "OS page cache busy, please try another machine", ErrorKind::Retry),
            (1, "The producer group wrong", ErrorKind::Invalid),
            (1, "Find prepared transaction message failed", ErrorKind::DataLoss),
        ] {
            fake.answer(END, Answer { remark: remark.to_owned(), ..Answer::fields(code, "{}") });
            let error = log.end(&handle, End::Commit).await.expect_err("no success");
            assert_eq!(error.kind(), kind, "code {code} {remark}: {error:?}");
        }
        fake.answer(END, Answer::fields(0, "{}"));
        log.end(&handle, End::Commit).await.unwrap();
        log.close().await;
    });
}

#[test]
fn pulls_that_lie_are_typed_errors() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let places = |next: &str, min: &str, max: &str| {
            format!(r#"{{"nextBeginOffset":"{next}","minOffset":"{min}","maxOffset":"{max}"}}"#)
        };
        for (code, fields, kind) in [
            (0, "{}".to_owned(), ErrorKind::Retry),
            (0, places("abc", "0", "9"), ErrorKind::Retry),
            (0, places("9", "0", "9"), ErrorKind::Retry),
            (19, places("5", "0", "x"), ErrorKind::Retry),
            (21, places("0", "7", "9"), ErrorKind::DataLoss),
            (21, places("3", "0", "3"), ErrorKind::DataLoss),
            (20, places("8", "0", "9"), ErrorKind::DataLoss),
            (26, places("5", "0", "9"), ErrorKind::Retry),
        ] {
            fake.answer(PULL, Answer::fields(code, &fields));
            let error = log.read(&queue(), Offset::new(5), LIMIT).await.expect_err("a lie");
            assert_eq!(error.kind(), kind, "code {code} {fields}: {error:?}");
        }
        fake.answer(PULL, Answer { body: b"garbage".to_vec(), ..Answer::fields(0, &places("6", "0", "9")) });
        assert_eq!(log.read(&queue(), Offset::new(5), LIMIT).await.unwrap_err().kind(), ErrorKind::DataLoss);
        for code in [19, 21] {
            fake.answer(PULL, Answer::fields(code, &places("5", "0", "5")));
            assert!(log.read(&queue(), Offset::new(5), LIMIT).await.unwrap().is_empty());
        }
        log.close().await;
    });
}

#[test]
fn unreadable_frames_close_their_connection_and_the_next_one_works() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let mut bad = 0;
        for raw in [
            vec![0, 0, 0, 0],
            vec![0, 0, 0, 3, 0, 0, 0],
            vec![0xff, 0xff, 0xff, 0xff],
            vec![0x7f, 0xff, 0xff, 0xff],
            vec![0, 0, 0, 5, 0, 0, 0, 1, b'"'],
            vec![0, 0, 0, 5, 0, 0, 0, 9, b'{'],
            vec![0, 0, 0, 6, 1, 0, 0, 2, b'{', b'}'],
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ] {
            fake.answer(MAX_OFFSET, Answer::raw(raw.clone()));
            let error = log.offsets(&queue()).await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Retry, "{raw:?}: {error:?}");
            bad += 1;
            assert_eq!(log.counters().bad_frames(), bad, "{raw:?}");
        }
        fake.answer(MAX_OFFSET, Answer::fields(0, r#"{"offset":"9"}"#));
        assert_eq!(log.offsets(&queue()).await.unwrap().next, Offset::new(9));
        assert!(log.counters().connections_opened() > bad);
        log.close().await;
    });
}

#[test]
fn replies_to_nobody_and_requests_are_skipped() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        let stray =
            |opaque: i64, flag: i64| fake::frame(&format!(r#"{{"code":0,"opaque":{opaque},"flag":{flag}}}"#), b"");
        let before = [stray(1_000_000, 1), stray(-1, 1), stray(7, 0)].concat();
        fake.answer(MAX_OFFSET, Answer { before, ..Answer::fields(0, r#"{"offset":"9"}"#) });
        assert_eq!(log.offsets(&queue()).await.unwrap().next, Offset::new(9));
        assert_eq!((log.counters().late_replies(), log.counters().unasked_frames()), (2, 1));
        log.close().await;
    });
}

#[test]
fn a_silent_broker_costs_the_deadline_and_a_lost_one_less() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let mut options = RocketOptions::new(fake.address(), "group");
        options.request_timeout = Duration::from_millis(700);
        let log = RocketLog::open(options).await.unwrap();
        let link = |acked: onceflow_log::Acked| acked.link.connection;
        fake.answer(SEND, Answer::fields(0, SENT));
        let first = link(log.append(&queue(), &one_message()).await.unwrap());
        fake.answer(SEND, Answer::silence());
        assert_eq!(log.append(&queue(), &one_message()).await.unwrap_err().kind(), ErrorKind::Retry);
        // A connection on which nothing came while a request timed out is given up.
        fake.answer(SEND, Answer::fields(0, SENT));
        let second = link(log.append(&queue(), &one_message()).await.unwrap());
        assert!(second > first);
        fake.answer(SEND, Answer::hang_up());
        assert_eq!(log.append(&queue(), &one_message()).await.unwrap_err().kind(), ErrorKind::Retry);
        fake.answer(SEND, Answer::fields(0, SENT));
        assert!(link(log.append(&queue(), &one_message()).await.unwrap()) > second);
        log.close().await;
    });
}

#[test]
fn malformed_check_backs_are_not_delivered() {
    runtime().block_on(async {
        let fake = Fake::start().await;
        let log = open(&fake).await;
        for header in [
            r#"{"code":39,"opaque":1,"flag":2,"extFields":{}}"#,
            r#"{"code":39,"opaque":2,"flag":2,"extFields":{"commitLogOffset":"abc","tranStateTableOffset":"1"}}"#,
            r#"{"code":39,"opaque":3,"flag":2,"extFields":{"commitLogOffset":"5","tranStateTableOffset":"1"}}"#,
            "\"",
        ] {
            fake.push_to_producers(fake::frame(header, b"no message")).await;
        }
        let waited = tokio::time::timeout(Duration::from_millis(300), log.next_check_back()).await;
        assert!(waited.is_err(), "a malformed check-back was delivered: {waited:?}");
        fake.answer(SEND, Answer::fields(0, SENT));
        log.append(&queue(), &one_message()).await.unwrap();
        log.close().await;
    });
}
