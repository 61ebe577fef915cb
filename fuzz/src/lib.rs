//! One function for each decoder that reads bytes from outside, called by the fuzz targets here and by the property
//! tests of the workspace (`tests/hostile_bytes.rs`). Each takes any bytes and panics only when a rule is broken: what
//! decodes must encode to something that decodes to the same.

use onceflow_log::{MessageBatch, MessageIter, find_property};
use onceflow_storage::Delta;
use onceflow_txn::{Decoded, EpochBody, Frame, Identity};
use onceflow_types::CommitPoint;

/// The most that a decoder may inflate to here.
const INFLATED_BYTES_MAX: usize = 1 << 20;

/// A journal record.
pub fn journal_record(bytes: &[u8]) {
    if let Ok(Decoded::Record(record)) = onceflow_txn::decode(bytes) {
        let again = onceflow_txn::decode(&record.encode()).expect("an encoded record decodes");
        assert!(matches!(again, Decoded::Record(same) if same == record));
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
    let Ok(frame) = Frame::decode(bytes, INFLATED_BYTES_MAX) else { return };
    let mut scratch = vec![];
    let Ok(messages) = frame.messages(&mut scratch) else { return };
    assert!(messages.len() <= INFLATED_BYTES_MAX);
    let mut again = vec![];
    Frame::encode_into(&mut again, &frame.identity, frame.base_time, frame.records, messages, true);
    let again = Frame::decode(&again, INFLATED_BYTES_MAX).expect("an encoded frame decodes");
    assert_eq!((&again.identity, again.base_time, again.records), (&frame.identity, frame.base_time, frame.records));
}

/// The identity property of a message.
pub fn identity(bytes: &[u8]) {
    if let Ok(identity) = Identity::from_property(bytes) {
        assert_eq!(identity.to_property().as_bytes(), bytes, "an identity has one form");
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
