//! Chunks: one append, stored under one key.
//!
//! The key is the queue's id (4 bytes) and the offset of its first message (8 bytes), both big-endian, so that a queue's
//! chunks lie one after the other. The value is [sealed](super::sealed); it holds, numbers little-endian:
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | born: when the producer made the messages, milliseconds since 1970 |
//! | 8 | stored: when the log stored them; does not go back within a queue |
//! | 4 | how many messages there are, 1 or more |
//! | n | the messages in the encoding of [`MessageBatch`](crate::MessageBatch) |

use super::fault::damaged;
use super::sealed::{self, SEAL_BYTES};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Offset, Result, Timestamp};

/// A chunk's place.
pub(super) type Key = [u8; 12];

/// Bytes between the seal and the messages.
const HEAD_BYTES: usize = 20;

/// The key of the chunk that begins at `base`.
pub(super) fn key(queue: u32, base: Offset) -> Key {
    let mut key = [0; 12];
    let (queue_part, base_part) = key.split_at_mut(4);
    queue_part.copy_from_slice(&queue.to_be_bytes());
    base_part.copy_from_slice(&base.get().to_be_bytes());
    key
}

/// The offset in a key.
pub(super) fn base(key: &[u8]) -> Result<Offset> {
    match key.split_at_checked(4).map(|(_, base)| base.try_into()) {
        Some(Ok(base)) => Ok(Offset::new(u64::from_be_bytes(base))),
        _ => Err(Error::data_loss("key of a chunk is damaged")),
    }
}

/// A chunk that waits for its place.
#[derive(Debug)]
pub(super) struct Draft {
    value: Vec<u8>,
    count: u32,
}

impl Draft {
    /// Takes a copy of `count` encoded messages.
    pub(super) fn new(messages: &[u8], count: u32) -> Draft {
        let mut value = sealed::unsealed(HEAD_BYTES + messages.len());
        value.extend_from_slice(&[0; HEAD_BYTES]);
        value.extend_from_slice(messages);
        Draft { value, count }
    }

    /// How many messages there are.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// The finished value.
    pub(super) fn finish(mut self, key: &Key, born: Timestamp, stored: Timestamp) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.put_i64(born.as_millis());
        head.put_i64(stored.as_millis());
        head.put_u32(self.count);
        for (slot, byte) in self.value.iter_mut().skip(SEAL_BYTES).zip(head) {
            *slot = byte;
        }
        sealed::seal(key, &mut self.value);
        self.value
    }
}

/// A chunk as read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'v> {
    pub(super) base: Offset,
    pub(super) born: Timestamp,
    pub(super) stored: Timestamp,
    pub(super) count: u32,
    pub(super) messages: &'v [u8],
}

impl<'v> Chunk<'v> {
    /// Reads and checks a chunk; its messages are not walked.
    ///
    /// # Errors
    /// `DataLoss` when it is damaged.
    pub(super) fn open(key: &[u8], value: &'v [u8]) -> Result<Chunk<'v>> {
        let base = base(key)?;
        damaged("chunk", Chunk::decode(key, base, value)).map_err(|error| error.context(format!("offset={base}")))
    }

    fn decode(key: &[u8], base: Offset, value: &'v [u8]) -> Result<Chunk<'v>> {
        let mut held = Decoder::new(sealed::open(key, value)?);
        let born = Timestamp::from_millis(held.i64()?);
        let stored = Timestamp::from_millis(held.i64()?);
        let count = held.u32()?;
        Ok(Chunk { base, born, stored, count, messages: held.rest() })
    }

    /// The offset after its last message.
    pub(super) fn next(&self) -> Offset {
        self.base.plus(u64::from(self.count))
    }
}
