//! From the output of an epoch to messages with an identity: halves to prepare, and the outbox.

use super::channels::Channels;
use crate::config::Config;
use crate::output::{OutputMessage, QueueOutput, SourcePosition};
use crate::topology::{Delivery, SinkPlan};
use onceflow_log::{MESSAGE_OVERHEAD_BYTES, MessageBatch};
use onceflow_txn::{Frame, FrameTime, IDENTITY_PROPERTY, Identity, IdentityWriter, OutboxBatch};
use onceflow_types::{
    Channel, Epoch, Error, Generation, Incarnation, Name, Partition, Result, Sequence, TaskId, Timestamp,
};

/// One message of a `Transactional` sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Prepared {
    pub(super) channel: Channel,
    pub(super) sequence: Sequence,
    pub(super) message: MessageBatch,
}

/// The output of a sealed epoch.
#[derive(Default, Debug)]
pub(super) struct SealedOutput {
    pub(super) halves: Vec<Prepared>,
    pub(super) outbox: Vec<OutboxBatch>,
}

/// Whose output is sealed.
pub(super) struct Sealing<'t> {
    pub(super) job: &'t Name,
    pub(super) task: &'t TaskId,
    pub(super) incarnation: Incarnation,
    pub(super) generation: Generation,
    pub(super) epoch: Epoch,
    /// The task's partition of each source.
    pub(super) sources: &'t [Partition],
    pub(super) config: &'t Config,
    pub(super) channels: &'t mut Channels,
    /// What is said about event time, by a sink whose frames do so.
    pub(super) time: Option<FrameTime>,
    pub(super) sealed: SealedOutput,
}

impl Sealing<'_> {
    /// Adds the messages of one sink and target queue.
    pub(super) fn queue(&mut self, sink: &SinkPlan, target: &Partition, output: &QueueOutput) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let channel = Channel { sink: sink.name.clone(), target: target.clone() };
        match sink.delivery {
            Delivery::Transactional => self.halves(&channel, output),
            Delivery::Outbox { framed: false } => self.plain(channel, output),
            Delivery::Outbox { framed: true } => self.framed(&channel, output),
        }
    }

    fn identity(&self, channel: &Channel, sequence: Sequence, floor: Sequence) -> Identity {
        Identity {
            job: self.job.clone(),
            incarnation: self.incarnation,
            task: self.task.clone(),
            generation: self.generation,
            epoch: self.epoch,
            sink: channel.sink.clone(),
            sequence,
            floor,
            source: None,
        }
    }

    fn source(&self, position: Option<SourcePosition>) -> Option<(&Partition, onceflow_types::Offset)> {
        let position = position?;
        Some((self.sources.get(position.source as usize)?, position.offset))
    }

    fn halves(&mut self, channel: &Channel, output: &QueueOutput) -> Result<()> {
        let (first, floor) = self.channels.take(channel, output.len() as u64);
        let mut writer = IdentityWriter::of(&self.identity(channel, first, floor));
        let mut properties = vec![];
        for (sequence, message) in (first.get()..).map(Sequence::new).zip(output.iter()) {
            self.properties(&mut properties, &mut writer, sequence, &message);
            let mut single = MessageBatch::default();
            single.push(&properties, message.body)?;
            self.sealed.halves.push(Prepared { channel: channel.clone(), sequence, message: single });
        }
        Ok(())
    }

    fn plain(&mut self, channel: Channel, output: &QueueOutput) -> Result<()> {
        let (first, floor) = self.channels.take(&channel, output.len() as u64);
        let mut writer = IdentityWriter::of(&self.identity(&channel, first, floor));
        let mut properties = vec![];
        let mut batch = Batch::new(channel, first);
        for (sequence, message) in (first.get()..).map(Sequence::new).zip(output.iter()) {
            self.properties(&mut properties, &mut writer, sequence, &message);
            batch.push(&properties, message.body, self.config.send_bytes_max, &mut self.sealed.outbox)?;
        }
        batch.close(&mut self.sealed.outbox);
        Ok(())
    }

    /// The message's own properties, and its identity behind them.
    fn properties(
        &self,
        to: &mut Vec<u8>,
        writer: &mut IdentityWriter,
        sequence: Sequence,
        message: &OutputMessage<'_>,
    ) {
        to.clear();
        to.extend_from_slice(message.properties);
        to.extend_from_slice(IDENTITY_PROPERTY.as_bytes());
        to.push(1);
        writer.append(sequence, self.source(message.source), to);
        to.push(2);
    }

    /// Packs records into frames; a frame is one message and has one sequence.
    fn framed(&mut self, channel: &Channel, output: &QueueOutput) -> Result<()> {
        let mut records = MessageBatch::default();
        let mut base = Timestamp::MIN;
        let mut batch: Option<Batch> = None;
        // The watermark holds behind all records of the epoch, so only the last frame can say it.
        let said = self.time.take();
        for message in output.iter() {
            let bytes = MESSAGE_OVERHEAD_BYTES + message.properties.len() + message.body.len();
            let full = records.as_bytes().len() + bytes > self.config.frame_bytes_max;
            let mut offset = offset_from(base, message.timestamp);
            if !records.is_empty() && (full || offset.is_none()) {
                self.close_frame(channel, base, &mut records, &mut batch)?;
            }
            if records.is_empty() {
                (base, offset) = (message.timestamp, Some(0));
            }
            let offset = offset.ok_or_else(|| Error::bug("a record time out of its frame's range"))?;
            records.push_with_flag(offset, message.properties, message.body)?;
        }
        self.time = said;
        self.close_frame(channel, base, &mut records, &mut batch)?;
        if let Some(batch) = batch {
            batch.close(&mut self.sealed.outbox);
        }
        Ok(())
    }

    /// A frame without records, which only says how far event time has come.
    pub(super) fn watermark_only(&mut self, sink: &SinkPlan, target: &Partition) -> Result<()> {
        let channel = Channel { sink: sink.name.clone(), target: target.clone() };
        let mut batch = None;
        self.close_frame(&channel, Timestamp::from_millis(0), &mut MessageBatch::default(), &mut batch)?;
        if let Some(batch) = batch {
            batch.close(&mut self.sealed.outbox);
        }
        Ok(())
    }

    fn close_frame(
        &mut self,
        channel: &Channel,
        base: Timestamp,
        records: &mut MessageBatch,
        batch: &mut Option<Batch>,
    ) -> Result<()> {
        let (sequence, floor) = self.channels.take(channel, 1);
        let count = u32::try_from(records.len()).map_err(|_| Error::bug("too many records in a frame"))?;
        let mut body = Vec::with_capacity(records.as_bytes().len() + 256);
        Frame::encode_timed_into(
            &mut body,
            &self.identity(channel, sequence, floor),
            base,
            count,
            self.time,
            records.as_bytes(),
            self.config.frame_compression,
        );
        records.clear();
        let batch = batch.get_or_insert_with(|| Batch::new(channel.clone(), sequence));
        batch.push(&[], &body, self.config.send_bytes_max, &mut self.sealed.outbox)
    }
}

/// A record's time relative to its frame, in milliseconds, when that fits into the message's flag.
fn offset_from(base: Timestamp, time: Timestamp) -> Option<i32> {
    i32::try_from(time.as_millis().checked_sub(base.as_millis())?).ok()
}

/// Messages of one channel that are sent in one request.
struct Batch {
    channel: Channel,
    first: Sequence,
    messages: MessageBatch,
}

impl Batch {
    fn new(channel: Channel, first: Sequence) -> Self {
        Batch { channel, first, messages: MessageBatch::default() }
    }

    fn push(&mut self, properties: &[u8], body: &[u8], bytes_max: usize, outbox: &mut Vec<OutboxBatch>) -> Result<()> {
        let bytes = self.messages.as_bytes().len() + MESSAGE_OVERHEAD_BYTES + properties.len() + body.len();
        if !self.messages.is_empty() && bytes > bytes_max {
            let next = self.first.plus(self.messages.len() as u64);
            let full = std::mem::replace(self, Batch::new(self.channel.clone(), next));
            full.close(outbox);
        }
        self.messages.push(properties, body)
    }

    fn close(self, outbox: &mut Vec<OutboxBatch>) {
        // A batch never holds more than a 32-bit number of messages: their bytes are bounded.
        let count = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        if count > 0 {
            outbox.push(OutboxBatch {
                channel: self.channel,
                first: self.first,
                count,
                messages: self.messages.into_bytes(),
            });
        }
    }
}
