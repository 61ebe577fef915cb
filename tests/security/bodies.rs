//! Bodies, keys and properties from hell: each is a record error with a known offset, a policy decides, the queue moves on.

use crate::faulty::ledger::{append_batch, memory, quick, read_view};
use crate::{PATIENCE, log_with};
use onceflow::codec::{Json, Utf8};
use onceflow::log::{MessageBatch, Properties, find_property};
use onceflow::topology::{StartPolicy, StreamBuilder};
use onceflow::types::ErrorKind;
use onceflow::{DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, ErrorPolicy, Runtime, TopicReader};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    cents: i64,
    #[serde(default)]
    note: Option<serde_json::Value>,
}

/// Bodies, and the sum that a good one adds.
fn bodies() -> Vec<(&'static str, Vec<u8>, Option<i64>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!(r#"{{"cents":1,"note":{open}1{close}}}"#).into_bytes()
    };
    let sized = |bytes: usize| {
        let around = r#"{"cents":4,"note":""}"#.len();
        format!(r#"{{"cents":4,"note":"{}"}}"#, "x".repeat(bytes - around)).into_bytes()
    };
    vec![
        ("good", text(r#"{"cents":1}"#), Some(1)),
        ("empty", vec![], None),
        ("one byte", text("{"), None),
        ("one quote", text("\""), None),
        ("invalid UTF-8", b"{\"cents\":1,\"note\":\"\xff\xfe\"}".to_vec(), None),
        ("truncated", text(r#"{"cents":1"#), None),
        ("deep lists", deep("[", "]"), None),
        ("deep maps", deep(r#"{"a":"#, "}"), None),
        ("a field twice", text(r#"{"cents":1,"cents":2}"#), None),
        ("1e400", text(r#"{"cents":1e400}"#), None),
        ("2^63", text(r#"{"cents":9223372036854775808}"#), None),
        ("2^64", text(r#"{"cents":18446744073709551616}"#), None),
        ("-0", text(r#"{"cents":-0}"#), None),
        ("NaN", text(r#"{"cents":NaN}"#), None),
        ("byte order mark", b"\xef\xbb\xbf{\"cents\":1}".to_vec(), None),
        ("two values", text(r#"{"cents":1}{"cents":1}"#), None),
        ("NUL inside", b"{\"cents\":1,\"note\":\"\0\"}".to_vec(), None),
        ("1 MiB", sized(1 << 20), Some(4)),
        ("the largest", sized((4 << 20) - (64 << 10)), Some(4)),
        ("good again", text(r#"{"cents":1}"#), Some(1)),
    ]
}

#[tokio::test]
async fn every_hostile_body_is_a_dead_letter_with_its_offset_and_the_queue_moves_on() {
    let (log, _directory) = log_with(&["payments", "sums", "bad"]).await;
    let bodies = bodies();
    for (_, body, _) in &bodies {
        let mut batch = MessageBatch::default();
        batch.push(b"", body).unwrap();
        append_batch(&*log, "payments", &batch).await;
    }
    let builder = StreamBuilder::new("hostile").unwrap();
    let payments = builder.source("payments", Json::<Payment>::new()).start(StartPolicy::Earliest);
    let payments = payments.on_error(ErrorPolicy::dead_letter("bad"));
    payments.map(|payment| payment.cents).sink("sums", "sums", Json::new());
    let runtime = Runtime::builder(builder.build().unwrap(), log.clone(), memory()).config(quick());
    let mut runtime = runtime.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    runtime.drain().await.unwrap();

    let (sums, ..) = read_view(&log, "sums", "hostile").await;
    let sums: Vec<i64> = sums.iter().map(|sum| serde_json::from_slice(&sum.body).unwrap()).collect();
    assert_eq!(sums, bodies.iter().filter_map(|(.., sum)| *sum).collect::<Vec<_>>());
    let (letters, ..) = read_view(&log, "bad", "hostile").await;
    let offset = |properties: &[u8]| find_property(properties, DEAD_LETTER_OFFSET).map(<[u8]>::to_vec).unwrap();
    let found: Vec<_> = letters.iter().map(|letter| offset(&letter.properties)).collect();
    let wanted = bodies.iter().enumerate().filter(|(_, (.., sum))| sum.is_none());
    let wanted: Vec<_> = wanted.map(|(offset, _)| offset.to_string().into_bytes()).collect();
    assert_eq!(found, wanted);
    for letter in &letters {
        let error = find_property(&letter.properties, DEAD_LETTER_ERROR).unwrap();
        assert!(error.starts_with(b"body is not the expected json"), "{}", String::from_utf8_lossy(error));
    }
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_with_both_sizes() {
    let (log, _directory) = log_with(&["payments"]).await;
    let max = log.message_bytes_max();
    let mut batch = MessageBatch::default();
    batch.push(b"", &vec![b'x'; max + 1]).unwrap();
    let queue = log.partitions("payments").await.unwrap().remove(0);
    let error = log.append(&queue, &batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.report().contains(&max.to_string()), "{}", error.report());
    assert_eq!(log.offsets(&queue).await.unwrap().next.get(), 0);
}

/// Keys that a message cannot carry, or that would mean something else to RocketMQ.
#[tokio::test]
async fn hostile_keys_and_properties_forge_nothing() {
    let (log, _directory) = log_with(&["words", "out", "bad"]).await;
    let long = "k".repeat(64 << 10);
    let words = ["", "a", "a b", "a\0b", "ab", "abc", "a\u{1}TRAN_MSG\u{1}true", "a\u{2}PGROUP\u{1}x\u{2}", &long];
    for word in words {
        let mut batch = MessageBatch::default();
        batch.push(b"", word.as_bytes()).unwrap();
        append_batch(&*log, "words", &batch).await;
    }
    let builder = StreamBuilder::new("keys").unwrap();
    let source = builder.source("words", Utf8).start(StartPolicy::Earliest);
    let sink = source.sink("out", "out", Utf8).message_keys(|word: &String| word.clone());
    sink.property("note", |word: &String| Some(word.clone())).on_error(ErrorPolicy::dead_letter("bad"));
    let runtime = Runtime::builder(builder.build().unwrap(), log.clone(), memory()).config(quick());
    let mut runtime = runtime.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    runtime.drain().await.unwrap();

    let (records, ..) = read_view(&log, "out", "keys").await;
    let seen: Vec<_> = records.iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()).collect();
    assert_eq!(seen, words[1..6]);
    for record in &records {
        assert_eq!(find_property(&record.properties, "note"), Some(&record.body[..]));
        assert!(find_property(&record.properties, "PGROUP").is_none_or(|group| group != b"x"));
    }
    let (letters, ..) = read_view(&log, "bad", "keys").await;
    assert_eq!(letters.len(), 4, "an empty body, two keys with separators, one that is too long");
}

#[test]
fn properties_have_a_limit_and_no_separators() {
    let mut properties = Properties::default();
    for (name, value) in [("a", "b\u{1}"), ("a", "b\u{2}"), ("a\u{1}", "b"), ("a\u{2}", "b"), ("", "b")] {
        assert_eq!(properties.push(name, value).unwrap_err().kind(), ErrorKind::Record, "{name:?} {value:?}");
    }
    assert_eq!(properties.push("a", &"x".repeat(32_768)).unwrap_err().kind(), ErrorKind::Record);
    assert!(properties.as_bytes().is_empty(), "nothing was added");
    properties.push("a", &"x".repeat(32_767 - 3)).unwrap();
    assert_eq!(properties.push("b", "").unwrap_err().kind(), ErrorKind::Record);
}

/// A dead letter must not carry what would steer the broker: it would be a half of another group, or delayed.
#[tokio::test]
async fn reserved_names_set_by_users_do_not_reach_the_output() {
    let (log, _directory) = log_with(&["in", "bad", "out"]).await;
    let names = ["TRAN_MSG", "PGROUP", "UNIQ_KEY", "DELAY", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TIMER_DELAY_MS", "mine"];
    let properties: String = names.iter().map(|name| format!("{name}\u{1}forged\u{2}")).collect();
    let mut batch = MessageBatch::default();
    batch.push(properties.as_bytes(), b"no number").unwrap();
    append_batch(&*log, "in", &batch).await;
    let builder = StreamBuilder::new("reserved").unwrap();
    let numbers = builder.source("in", Json::<i64>::new()).start(StartPolicy::Earliest);
    numbers.on_error(ErrorPolicy::dead_letter("bad")).sink("out", "out", Json::new());
    let runtime = Runtime::builder(builder.build().unwrap(), log.clone(), memory()).config(quick());
    let mut runtime = runtime.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    runtime.drain().await.unwrap();
    let job = onceflow::types::Name::job("reserved").unwrap();
    let mut reader = TopicReader::open(Arc::clone(&log), "bad", job).await.unwrap();
    let letters = reader.read_to_end().await.unwrap();
    assert_eq!(letters.len(), 1);
    for name in names {
        let kept = find_property(&letters[0].properties, name) == Some(b"forged");
        assert_eq!(kept, name == "mine", "{name}");
    }
}
