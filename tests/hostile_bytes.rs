//! The fuzz functions on random bytes, on damaged real ones, and on whatever the corpus holds. `cargo +nightly fuzz run
//! TARGET` in `fuzz/` goes further.
#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../fuzz/src/lib.rs"]
mod targets;

use onceflow::log::MessageBatch;
use onceflow::storage::Delta;
use onceflow::txn::{EpochBody, Frame, Identity, JournalRecord, Release};
use onceflow::types::{Epoch, Generation, Incarnation, Name, Sequence, TaskId, Timestamp};
use proptest::prelude::*;

const TARGETS: [fn(&[u8]); 7] = [
    targets::journal_record,
    targets::epoch_body,
    targets::frame,
    targets::identity,
    targets::message_batch,
    targets::delta,
    targets::commit_point,
];

fn identity() -> Identity {
    Identity {
        job: Name::job("fraud").expect("a name"),
        incarnation: Incarnation::new(9),
        task: TaskId { subtopology: Name::new("score").expect("a name"), broker: "broker-a".into(), queue: 3 },
        generation: Generation::new(12),
        epoch: Epoch::new(5),
        sink: Name::new("alerts").expect("a name"),
        sequence: Sequence::new(40),
        floor: Sequence::new(38),
        source: None,
    }
}

/// Real bytes of each kind, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let release = Release { incarnation: Incarnation::new(1), generation: Generation::new(2), epoch: Epoch::new(3) };
    let body = EpochBody { changes: vec![7; 300], halves: vec![], outbox: vec![] };
    let mut batch = MessageBatch::default();
    batch.push(b"KEYS\x01a\x02", &[5; 100]).expect("a message");
    let mut frame = vec![];
    Frame::encode_into(&mut frame, &identity(), Timestamp::from_millis(1), 1, batch.as_bytes(), true);
    let mut delta = Delta::default();
    delta.put(b"key", b"value");
    delta.delete(b"other");
    let mut changes = vec![];
    delta.encode(&mut changes);
    vec![
        JournalRecord::Release(release).encode(),
        body.encode().expect("a body"),
        frame,
        identity().to_property().into_bytes(),
        batch.into_bytes(),
        changes,
    ]
}

proptest! {
    #[test]
    fn random_bytes_break_no_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        TARGETS.iter().for_each(|target| target(&bytes));
    }

    #[test]
    fn damaged_bytes_break_no_decoder(sample in 0..6usize, place: proptest::sample::Index, byte: u8, cut: proptest::sample::Index) {
        let mut bytes = samples().swap_remove(sample);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        TARGETS.iter().for_each(|target| target(&bytes));
        bytes.truncate(cut.index(bytes.len()));
        TARGETS.iter().for_each(|target| target(&bytes));
    }
}

#[test]
fn the_samples_themselves_are_good() {
    let samples = samples();
    assert!(onceflow::txn::decode(&samples[0]).is_ok());
    assert!(EpochBody::decode(&samples[1]).is_ok());
    assert!(Frame::decode(&samples[2], 1 << 20).is_ok());
    assert!(Identity::from_property(&samples[3]).is_ok());
    assert!(MessageBatch::from_bytes(samples[4].clone()).is_ok());
    assert!(Delta::decode(&samples[5]).is_ok());
    samples.iter().for_each(|sample| TARGETS.iter().for_each(|target| target(sample)));
}
