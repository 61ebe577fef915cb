//! One function for each decoder that reads bytes from outside, and one for each state machine that takes what others
//! sent. `cargo xtask fuzz` runs them under libFuzzer, `tests/hostile_bytes.rs` on the committed corpus, on random and on
//! damaged bytes in every test run. Each takes any bytes and panics only when a rule is broken.
//!
//! Most formats end in a checksum, which random changes never hit; so such a decoder sees the bytes as they are and once
//! more with a good checksum behind them.

#[cfg(feature = "avro")]
mod codecs;
mod operations;
#[cfg(feature = "fuzzing")]
mod remote;

#[cfg(feature = "avro")]
pub use codecs::{avro, avro_readers};
pub use operations::{coordinator_operations, dedup_operations, fold_operations};
#[cfg(feature = "fuzzing")]
pub use remote::{capped_inflate, pull_body, remoting_frame, snapshot_chunk, snapshot_header};

use onceflow_log::{MessageBatch, MessageIter, PROPERTIES_BYTES_MAX, Properties, find_property};
use onceflow_storage::{Delta, task_directory};
use onceflow_txn::{Answer, CheckBackView, Decoded, EpochBody, Frame, IDENTITY_PROPERTY, Identity, verdict};
use onceflow_types::wire::checksum;
use onceflow_types::{CommitPoint, Name, TaskId, check_topic};
use std::path::{Component, Path};

/// A target's name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets; the name is that of the folder under `fuzz/corpus`, too.
pub const TARGETS: &[Target] = &[
    ("journal_record", journal_record),
    ("epoch_body", epoch_body),
    ("frame", frame),
    ("identity", identity),
    ("message_batch", message_batch),
    ("delta", delta),
    ("commit_point", commit_point),
    ("properties", properties),
    ("names", names),
    ("check_back", check_back),
    ("fold_operations", fold_operations),
    ("coordinator_operations", coordinator_operations),
    ("dedup_operations", dedup_operations),
    #[cfg(feature = "avro")]
    ("avro", avro),
    #[cfg(feature = "fuzzing")]
    ("remoting_frame", remoting_frame),
    #[cfg(feature = "fuzzing")]
    ("pull_body", pull_body),
    #[cfg(feature = "fuzzing")]
    ("capped_inflate", capped_inflate),
    #[cfg(feature = "fuzzing")]
    ("snapshot_chunk", snapshot_chunk),
    #[cfg(feature = "fuzzing")]
    ("snapshot_header", snapshot_header),
];

/// The most that a decoder may inflate to here.
const INFLATED_BYTES_MAX: usize = 1 << 20;

/// The bytes with their checksum behind them.
fn summed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &checksum(bytes).to_le_bytes()].concat()
}

/// A journal record.
pub fn journal_record(bytes: &[u8]) {
    for bytes in [bytes, &summed(bytes)] {
        if let Ok(Decoded::Record(record)) = onceflow_txn::decode(bytes) {
            let again = onceflow_txn::decode(&record.encode()).expect("an encoded record decodes");
            assert!(matches!(again, Decoded::Record(same) if same == record));
        }
    }
}

/// The body of an epoch.
pub fn epoch_body(bytes: &[u8]) {
    if let Ok(body) = EpochBody::decode(bytes) {
        let again = EpochBody::decode(&body.encode().expect("a decoded body encodes")).expect("and decodes");
        assert_eq!(again, body);
    }
}

/// A framed message.
pub fn frame(bytes: &[u8]) {
    for bytes in [bytes, &summed(bytes)] {
        let Ok(frame) = Frame::decode(bytes, INFLATED_BYTES_MAX) else { continue };
        let mut scratch = vec![];
        let Ok(messages) = frame.messages(&mut scratch) else { continue };
        assert!(messages.len() <= INFLATED_BYTES_MAX);
        let mut again = vec![];
        let (base, records) = (frame.base_time, frame.records);
        Frame::encode_timed_into(&mut again, &frame.identity, base, records, frame.time, messages, true);
        let again = Frame::decode(&again, INFLATED_BYTES_MAX).expect("an encoded frame decodes");
        assert_eq!(
            (&again.identity, again.base_time, again.records, again.time),
            (&frame.identity, frame.base_time, frame.records, frame.time)
        );
    }
}

/// The identity property of a message.
pub fn identity(bytes: &[u8]) {
    let content = bytes.iter().rposition(|byte| *byte == b';').map_or(bytes, |at| &bytes[..=at]);
    let summed = [content, format!("{:08x}", checksum(content)).as_bytes()].concat();
    for bytes in [bytes, &summed] {
        if let Ok(identity) = Identity::from_property(bytes) {
            assert_eq!(identity.to_property().as_bytes(), bytes, "an identity has one form");
        }
    }
}

/// Messages in RocketMQ's batch encoding, and their properties.
pub fn message_batch(bytes: &[u8]) {
    let whole = MessageIter::new(bytes).collect::<Result<Vec<_>, _>>();
    let batch = MessageBatch::from_bytes(bytes.to_vec());
    assert_eq!(whole.is_ok(), batch.is_ok());
    for message in whole.unwrap_or_default() {
        assert!(message.body.len() + message.properties.len() < bytes.len());
        let _ = find_property(message.properties, "KEYS");
    }
}

/// The changes of an epoch.
pub fn delta(bytes: &[u8]) {
    if let Ok(delta) = Delta::decode(bytes) {
        let mut again = vec![];
        delta.encode(&mut again);
        assert_eq!(again, bytes, "a delta has one form");
    }
}

/// A commit point.
pub fn commit_point(bytes: &[u8]) {
    if let Ok(point) = CommitPoint::decode(bytes) {
        let mut again = vec![];
        point.encode(&mut again);
        assert_eq!(again, bytes, "a commit point has one form");
    }
}

/// Properties: as an encoding from outside, and as names and values (lines, alternately) from a user. What a user puts in
/// comes out, and nothing else does: no value can forge another property.
pub fn properties(bytes: &[u8]) {
    for name in ["KEYS", "", IDENTITY_PROPERTY] {
        let found = find_property(bytes, name);
        assert!(found.is_none_or(|value| value.len() < bytes.len()));
    }
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut properties = Properties::default();
    let mut taken: Vec<(&str, &str)> = vec![];
    for pair in lines.chunks_exact(2) {
        if properties.push(pair[0], pair[1]).is_ok() {
            taken.push((pair[0], pair[1]));
        }
    }
    assert!(properties.as_bytes().len() <= PROPERTIES_BYTES_MAX);
    for line in &lines {
        let last = taken.iter().rev().find(|(name, _)| name == line).map(|(_, value)| value.as_bytes());
        assert_eq!(find_property(properties.as_bytes(), line), last, "{line:?}");
    }
}

/// Names of jobs, tasks and topics: whatever passes the check stays inside the state directory.
pub fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (job, subtopology, broker) = (part(), part(), part());
    for topic in [job, subtopology, broker] {
        let _ = check_topic(topic);
    }
    let fallback = Name::new("s").expect("a name");
    let job = Name::job(job).unwrap_or_else(|_| fallback.clone());
    let subtopology = Name::new(subtopology).unwrap_or(fallback);
    let task = TaskId { subtopology, broker: broker.into(), queue: u32::MAX };
    let root = Path::new("/state");
    let directory = task_directory(root, &job, &task);
    let below: Vec<_> = directory.strip_prefix(root).expect("inside the root").components().collect();
    assert_eq!(below.len(), 2, "{directory:?}");
    for folder in below {
        assert!(matches!(folder, Component::Normal(name) if name.len() <= 255), "{directory:?}");
    }
}

/// A check-back's properties, and what they are answered. A task of which nothing is known never says Rollback; a half of
/// the current owner that is not decided, or decided and listed and not published, never does either.
pub fn check_back(bytes: &[u8]) {
    let Some(property) = find_property(bytes, IDENTITY_PROPERTY) else { return };
    let Ok(identity) = Identity::from_property(property) else { return };
    let key = find_property(bytes, "UNIQ_KEY").map(String::from_utf8_lossy).unwrap_or_default();
    assert_eq!(verdict(&CheckBackView::default(), &identity, &key), Answer::Unknown);
    let fold = operations::fold_with_epochs();
    let mut view = CheckBackView::of(&fold);
    let current =
        Some(identity.incarnation) == fold.incarnation() && fold.generation().is_some_and(|g| identity.generation >= g);
    let needed = identity.epoch > fold.published_through();
    if current && needed {
        assert_eq!(verdict(&view, &identity, &key), Answer::Unknown, "not listed yet");
    }
    view.list(identity.epoch, [key.as_ref().into()]);
    if current && needed {
        assert_eq!(verdict(&view, &identity, &key), Answer::Unknown, "listed and not published");
    } else {
        assert_eq!(verdict(&view, &identity, &key), Answer::Rollback, "superseded, or published");
    }
}
