//! A broker, or somebody who speaks through one, with hostile check-backs and offsets. No real broker is needed.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;

use fake::{Answer, Fake};
use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_log::{Log, MessageBatch, ReadLimit, Verdict, find_property};
use onceflow_types::{ErrorKind, Offset, Partition, Timestamp};
use std::io::Read;
use std::time::Duration;

const PULL: i64 = 11;
const SEARCH: i64 = 29;
const MAX_OFFSET: i64 = 30;
const MIN_OFFSET: i64 = 31;
const END: i64 = 37;
const SEND: i64 = 310;
const SENT: &str = r#"{"msgId":"7F000001000027100000000000000309","queueId":"0","queueOffset":"5"}"#;
const LIMIT: ReadLimit = ReadLimit { records_max: 10, bytes_max: 1 << 20, wait_max: Duration::ZERO };

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn queue() -> Partition {
    Partition::new("topic", "fake", 0)
}

async fn open(fake: &Fake, check_backs_max: usize) -> RocketLog {
    let mut options = RocketOptions::new(fake.address(), "group");
    options.dispatch_lag_max = Duration::from_millis(50);
    options.check_backs_max = check_backs_max;
    RocketLog::open(options).await.unwrap()
}

/// A message as a broker stores it; drawn in `log/src/remoting/stored.rs`.
fn stored(offset: i64, sys_flag: i32, times: i64, body: &[u8], properties: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(0xDAA3_20A7_u32.to_be_bytes());
    bytes.extend((crc32fast::hash(body) & 0x7fff_ffff).to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(sys_flag.to_be_bytes());
    for _ in 0..2 {
        bytes.extend(times.to_be_bytes());
        bytes.extend([127, 0, 0, 1, 0, 0, 0, 9]);
    }
    bytes.extend([0; 12]);
    bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes.extend(b"\x05topic");
    bytes.extend(u16::try_from(properties.len()).unwrap().to_be_bytes());
    bytes.extend(properties.as_bytes());
    let total = u32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&total.to_be_bytes());
    bytes
}

fn question(places: (&str, &str), message: &[u8]) -> Vec<u8> {
    let (log, half) = places;
    let fields =
        format!(r#""commitLogOffset":"{log}","tranStateTableOffset":"{half}","msgId":"K","transactionId":"K""#);
    fake::frame(&format!(r#"{{"code":39,"opaque":1,"flag":2,"extFields":{{{fields}}}}}"#), message)
}

fn half(group: &str, key: &str) -> Vec<u8> {
    stored(7, 0, 1, b"body", &format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{group}\u{2}UNIQ_KEY\u{1}{key}\u{2}"))
}

#[test]
fn a_check_back_says_whose_half_it_is_and_where_it_lies() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        fake.push_to_producers(question(("777", "8"), &half("group", "K"))).await;
        let check = log.next_check_back().await.unwrap();
        assert_eq!((&*check.unique_key, find_property(&check.properties, "PGROUP")), ("K", Some(b"group".as_slice())));
        assert_eq!(check.ticket.target, queue());
        assert_eq!((check.ticket.commit_log_offset, check.ticket.half_queue_offset), (777, 8));
        fake.answer(END, Answer::fields(0, "{}"));
        log.answer_check_back(&check, Verdict::Rollback).await.unwrap();
        fake.answer(END, Answer { remark: "nobody knows".to_owned(), ..Answer::fields(1, "{}") });
        let error = log.answer_check_back(&check, Verdict::Rollback).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        log.answer_check_back(&check, Verdict::Unknown).await.unwrap();
        log.close().await;
    });
}

#[test]
fn check_backs_of_strangers_are_counted_and_dropped() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let good = half("group", "K");
        let bad = [
            question(("777", "8"), &half("another-group", "K")),
            question(("777", "8"), &half("", "K")),
            question(("777", "8"), &half("group", "")),
            question(("777", "8"), &stored(7, 0, 1, b"body", "")),
            question(("-1", "8"), &good),
            question(("777", "9223372036854775808"), &good),
            question(("abc", "8"), &good),
            question(("777", "8"), b""),
            question(("777", "8"), b"no message"),
            question(("777", "8"), &good[..good.len() - 1]),
            question(("777", "8"), &[&good[..], b"x"].concat()),
            fake::frame(r#"{"code":39,"opaque":1,"flag":2}"#, &good),
        ];
        for frame in &bad {
            fake.push_to_producers(frame.clone()).await;
        }
        fake.push_to_producers(question(("1", "2"), &half("group", "last"))).await;
        assert_eq!(&*log.next_check_back().await.unwrap().unique_key, "last", "what came before was dropped");
        assert_eq!(log.counters().check_backs_bad(), bad.len() as u64);
        assert_eq!((log.counters().bad_frames(), log.counters().check_backs_dropped()), (0, 0));
        log.close().await;
    });
}

/// Anybody who knows the group can send a half whose body inflates a thousandfold. Nothing looks at the body.
#[test]
fn the_body_of_a_check_back_is_never_inflated() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let bomb = zstd::encode_all(std::io::repeat(0).take(2 << 30), 1).unwrap();
        let properties = "PGROUP\u{1}group\u{2}UNIQ_KEY\u{1}bomb\u{2}";
        let message = stored(7, 1 | 0x2 << 8, 1, &bomb, properties);
        fake.push_to_producers(question(("777", "8"), &message)).await;
        assert_eq!(&*log.next_check_back().await.unwrap().unique_key, "bomb");
        // The same as a pull: its place is known, and it is a record that cannot be decoded.
        let places = r#"{"nextBeginOffset":"8","minOffset":"0","maxOffset":"8"}"#;
        fake.answer(PULL, Answer { body: message, ..Answer::fields(0, places) });
        let read = log.read(&queue(), Offset::new(7), LIMIT).await.unwrap();
        let record = read.iter().next().unwrap();
        assert!(record.body().is_err() && record.offset() == Offset::new(7));
        log.close().await;
    });
}

#[test]
fn ten_thousand_checks_at_once_are_bounded_and_hold_nothing_up() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 100).await;
        let frames: Vec<u8> =
            (0..10_000).flat_map(|n| question(("1", "2"), &half("group", &format!("K{n}")))).collect();
        fake.push_to_producers(frames).await;
        fake.answer(SEND, Answer::fields(0, SENT));
        let mut batch = MessageBatch::default();
        batch.push(b"", b"body").unwrap();
        // Its reply comes behind them on the same connection.
        log.append(&queue(), &batch).await.unwrap();
        assert_eq!(log.counters().check_backs_dropped(), 9_900);
        for number in 0..100 {
            assert_eq!(*log.next_check_back().await.unwrap().unique_key, format!("K{number}"));
        }
        log.close().await;
    });
}

#[test]
fn hostile_offsets_are_errors_and_never_a_place() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let answer = |code, value: &str| fake.answer(code, Answer::fields(0, &format!(r#"{{"offset":"{value}"}}"#)));
        for hostile in ["-1", "-9223372036854775808", "9223372036854775808", "1.5", "", " 1", "0x10"] {
            answer(MIN_OFFSET, "0");
            answer(MAX_OFFSET, hostile);
            assert_eq!(log.offsets(&queue()).await.unwrap_err().kind(), ErrorKind::Retry, "{hostile}");
        }
        answer(MAX_OFFSET, "9223372036854775807");
        assert_eq!(log.offsets(&queue()).await.unwrap().next.get(), i64::MAX as u64);
        // A queue that shrank between the two questions has nothing.
        answer(MIN_OFFSET, "9");
        answer(MAX_OFFSET, "5");
        let range = log.offsets(&queue()).await.unwrap();
        assert_eq!((range.first.get(), range.next.get()), (5, 5));
        log.close().await;
    });
}

#[test]
fn a_pull_with_a_gap_a_repeat_or_another_place_is_data_loss_and_moves_nothing() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let pull =
            |offsets: &[i64]| offsets.iter().flat_map(|offset| stored(*offset, 0, 1, b"x", "")).collect::<Vec<_>>();
        let cases: [(&[i64], &str); 8] = [
            (&[5, 7], "8"),
            (&[5, 5], "6"),
            (&[6], "7"),
            (&[4], "5"),
            (&[-1], "0"),
            (&[i64::MIN], "0"),
            (&[i64::MAX], "9223372036854775807"),
            (&[5], "9"),
        ];
        for (offsets, next) in cases {
            let places = format!(r#"{{"nextBeginOffset":"{next}","minOffset":"0","maxOffset":"9"}}"#);
            fake.answer(PULL, Answer { body: pull(offsets), ..Answer::fields(0, &places) });
            let error = log.read(&queue(), Offset::new(5), LIMIT).await.expect_err("a lie");
            assert_eq!(error.kind(), ErrorKind::DataLoss, "{offsets:?}: {error:?}");
        }
        let places = r#"{"nextBeginOffset":"7","minOffset":"0","maxOffset":"7"}"#;
        fake.answer(PULL, Answer { body: pull(&[5, 6]), ..Answer::fields(0, places) });
        assert_eq!(log.read(&queue(), Offset::new(5), LIMIT).await.unwrap().len(), 2);
        log.close().await;
    });
}

#[test]
fn an_end_that_cannot_be_is_refused_and_one_before_the_records_says_nothing() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let body = stored(5, 0, 1, b"x", "");
        let answer = |end: &str| {
            let places = format!(r#"{{"nextBeginOffset":"6","minOffset":"0"{end}}}"#);
            fake.answer(PULL, Answer { body: body.clone(), ..Answer::fields(0, &places) });
        };
        for hostile in ["", r#","maxOffset":"x""#, r#","maxOffset":"-1""#] {
            answer(hostile);
            let error = log.read(&queue(), Offset::new(5), LIMIT).await.expect_err("no end");
            assert_eq!(error.kind(), ErrorKind::Retry, "{hostile}: {error:?}");
        }
        for (end, remaining) in [("0", 0), ("6", 0), ("9", 3), ("9223372036854775807", i64::MAX as u64 - 6)] {
            answer(&format!(r#","maxOffset":"{end}""#));
            assert_eq!(log.read(&queue(), Offset::new(5), LIMIT).await.unwrap().remaining(), remaining, "{end}");
        }
        log.close().await;
    });
}

#[test]
fn times_at_the_extremes_are_times() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        let places = r#"{"nextBeginOffset":"1","minOffset":"0","maxOffset":"1"}"#;
        for time in [i64::MIN, -1, 0, i64::MAX] {
            fake.answer(PULL, Answer { body: stored(0, 0, time, b"x", ""), ..Answer::fields(0, places) });
            let read = log.read(&queue(), Offset::ZERO, LIMIT).await.unwrap();
            let record = read.iter().next().unwrap();
            assert_eq!((record.born().as_millis(), record.stored().as_millis()), (time, time));
        }
        log.close().await;
    });
}

/// Half a frame and then nothing; a reply twice; a reply after its caller gave up.
#[test]
fn replies_that_come_in_pieces_twice_or_late_harm_their_call_only() {
    run(async {
        let fake = Fake::start().await;
        let mut options = RocketOptions::new(fake.address(), "group");
        options.request_timeout = Duration::from_millis(700);
        let log = RocketLog::open(options).await.unwrap();
        let queue = queue();
        let look = || log.offset_at(&queue, Timestamp::from_millis(1));
        let whole = fake::frame(r#"{"code":0,"opaque":0,"flag":1,"extFields":{"offset":"9"}}"#, b"");
        fake.answer(SEARCH, Answer::raw(whole[..whole.len() / 2].to_vec()));
        assert_eq!(look().await.unwrap_err().kind(), ErrorKind::Retry);
        // A connection that carried nothing is given up, so this is the first request of a new one.
        let first = fake::frame(r#"{"code":0,"opaque":0,"flag":1,"extFields":{"offset":"9"}}"#, b"");
        fake.answer(SEARCH, Answer { before: first.repeat(2), ..Answer::fields(0, r#"{"offset":"9"}"#) });
        assert_eq!(look().await.unwrap(), Offset::new(9));
        fake.answer(SEARCH, Answer::fields(0, r#"{"offset":"7"}"#));
        assert_eq!(look().await.unwrap(), Offset::new(7));
        assert_eq!(log.counters().late_replies(), 2, "two of three replies to one request");
        log.close().await;
    });
}

#[test]
fn reserved_properties_never_leave() {
    run(async {
        let fake = Fake::start().await;
        let log = open(&fake, 10).await;
        fake.answer(SEND, Answer::fields(0, SENT));
        for name in ["TRAN_MSG", "PGROUP", "DELAY", "TIMER_DELAY_MS", "CHECK_IMMUNITY_TIME_IN_SECONDS"] {
            let mut batch = MessageBatch::default();
            batch.push(format!("{name}\u{1}1\u{2}").as_bytes(), b"body").unwrap();
            for error in [log.append(&queue(), &batch).await.err(), log.prepare(&queue(), &batch).await.err()] {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Invalid), "{name}");
            }
        }
        let mut batch = MessageBatch::default();
        batch.push(format!("a\u{1}{}\u{2}", "x".repeat(32_750)).as_bytes(), b"body").unwrap();
        let error = log.append(&queue(), &batch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "no room for UNIQ_KEY: {error}");
        log.close().await;
    });
}
