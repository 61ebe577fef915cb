//! The handle by which a half message is ended, however late.

use crate::wire::{Decoder, Encode};
use crate::{Partition, Result};
use std::sync::Arc;

/// Longest UNIQ_KEY, in bytes. RocketMQ's own have 32.
pub const UNIQUE_KEY_BYTES_MAX: usize = 128;

/// Where a broker stored a half message. END_TRANSACTION looks it up by `commit_log_offset`, also after the broker has
/// given up checking it (FACTS: run against 5.5.0), as long as the commit-log file exists.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HalfHandle {
    /// The queue in which the message becomes visible; its broker holds the half.
    pub target: Partition,
    /// The half's place in the broker's commit log, in bytes.
    pub commit_log_offset: u64,
    /// The half's place in the broker's half queue.
    pub half_queue_offset: u64,
    /// The UNIQ_KEY of the send that was acknowledged; each try of a send has its own.
    pub unique_key: Arc<str>,
}

impl HalfHandle {
    /// Appends the handle without its target, which the caller's channel names:
    /// `commit_log_offset count · half_queue_offset count · unique_key text`.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.put_count(self.commit_log_offset);
        to.put_count(self.half_queue_offset);
        to.put_str(&self.unique_key);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// `Corrupt` for anything else.
    pub fn decode(target: Partition, from: &mut Decoder<'_>) -> Result<HalfHandle> {
        Ok(HalfHandle {
            target,
            commit_log_offset: from.count()?,
            half_queue_offset: from.count()?,
            unique_key: from.str(UNIQUE_KEY_BYTES_MAX)?.into(),
        })
    }
}
