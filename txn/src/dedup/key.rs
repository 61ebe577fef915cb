//! The name of a channel, as a reader knows it.

use crate::Identity;
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{
    BROKER_BYTES_MAX, Error, Incarnation, NAME_BYTES_MAX, Name, Partition, Result, TaskId, decode_partition,
    encode_partition,
};

/// A channel: all messages of one task of one incarnation, from one sink to one queue. Another incarnation is another
/// channel, so a reset job is not taken for a repetition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelKey {
    /// The incarnation of the task's journal.
    pub incarnation: Incarnation,
    /// The task.
    pub task: TaskId,
    /// The sink.
    pub sink: Name,
    /// The queue that the messages are read from.
    pub target: Partition,
}

impl ChannelKey {
    /// The channel of a message that was read from `target`.
    pub fn of(identity: &Identity, target: &Partition) -> ChannelKey {
        ChannelKey {
            incarnation: identity.incarnation,
            task: identity.task.clone(),
            sink: identity.sink.clone(),
            target: target.clone(),
        }
    }

    /// Appends the key: `partition · incarnation u128 · subtopology text · broker text · queue count · sink text`, so that
    /// the channels of one queue stand together.
    pub fn encode(&self, to: &mut Vec<u8>) {
        encode_partition(&self.target, to);
        to.put_u128(self.incarnation.get());
        to.put_str(self.task.subtopology.as_str());
        to.put_str(&self.task.broker);
        to.put_count(self.task.queue.into());
        to.put_str(self.sink.as_str());
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// `Corrupt` for anything else.
    pub fn decode(from: &mut Decoder<'_>) -> Result<ChannelKey> {
        let target = decode_partition(from)?;
        let incarnation = Incarnation::new(from.u128()?);
        let task = TaskId {
            subtopology: name(from)?,
            broker: from.str(BROKER_BYTES_MAX)?.into(),
            queue: u32::try_from(from.count()?).map_err(|_| Error::corrupt("queue number is too large"))?,
        };
        Ok(ChannelKey { incarnation, task, sink: name(from)?, target })
    }
}

fn name(from: &mut Decoder<'_>) -> Result<Name> {
    Name::new(from.str(NAME_BYTES_MAX)?).map_err(|e| Error::corrupt("bad name").with_source(e))
}
