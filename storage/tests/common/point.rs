//! The commit point that tests, benchmark and example commit with.

use onceflow_types::{CommitPoint, Epoch, Generation, Incarnation, Nonce, Offset, Offsets, Timestamp};
use std::collections::BTreeMap;

/// A point that a store accepts for `epoch`, with nothing else in it.
pub fn point(epoch: u64) -> CommitPoint {
    CommitPoint {
        incarnation: Incarnation::new(1),
        generation: Generation::new(0),
        nonce: Nonce::new(1),
        epoch: Epoch::new(epoch),
        offsets: Offsets::default(),
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: BTreeMap::new(),
        tails: Offsets::default(),
        published_through: Epoch::ZERO,
        commit_offset: Offset::new(epoch),
        commit_checksum: 0,
        unpublished: vec![],
        journal_next: Offset::new(epoch + 1),
    }
}
