//! From what was read to what the stages see: frames unpacked, repeats dropped, gaps held (the dedup reader's rule).

use super::reader::Pulled;
use super::upstream::Upstreams;
use crate::job::Job;
use crate::planted::{self, Bug};
use crate::stage::{Context, SourceBatch, SourceRecord, Stage};
use crate::state::{TableId, TaskState};
use crate::status::{Line, ProtocolCounters};
use crate::topic_reader::{framed_records, identity_of, is_framed};
use crate::topology::Subtopology;
use bytes::Bytes;
use onceflow_log::RecordRef;
use onceflow_storage::Order;
use onceflow_txn::{Accepted, ChannelKey, DedupCounts, DedupReader, DedupSettings, Frame, Identity, Start};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, ErrorKind, Name, Offset, Partition, Result, Timestamp};

/// The table of the task's state that holds the dedup reader's positions and held messages.
pub(super) const INPUTS_TABLE: &str = "onceflow-inputs";
/// Why a held message's body could not be had; the reason given when it was read is not kept.
const BODY_LOST: &str = "body cannot be decoded";

/// A message with an identity, kept until its turn comes; most often at once.
#[derive(Clone, Debug)]
struct Kept {
    offset: Offset,
    timestamp: Timestamp,
    body: Result<Bytes, &'static str>,
    properties: Bytes,
}

/// The way in for one task.
#[derive(Debug)]
pub(super) struct Intake {
    job: Name,
    table: TableId,
    dedup: DedupReader<Kept>,
    upstreams: Upstreams,
    /// Whether each source is a topic that the job itself made.
    internal: Vec<bool>,
    inflated_bytes_max: usize,
    turn: Vec<Kept>,
    scratch: Vec<u8>,
    foreign: u64,
    shown: (DedupCounts, u64),
}

/// How a message is read.
enum Message {
    /// Without identity: as it is.
    Plain,
    /// Of a channel.
    Channelled(Box<Identity>),
    /// On an internal topic, but not this job's.
    Foreign,
}

impl Intake {
    /// Takes the positions back from the task's state.
    pub(super) fn open(job: &Job, plan: &Subtopology, state: &mut TaskState) -> Result<Intake> {
        let table = state.table(&Name::new(INPUTS_TABLE)?)?;
        let upstreams = Upstreams::open(plan, state)?;
        let settings = DedupSettings {
            held_max: job.config.held_messages_max,
            ..DedupSettings::new(job.config.publish_lease, job.config.channel_retention)
        };
        let mut dedup = DedupReader::new(settings);
        let mut entries = state.scan(table, Order::Ascending)?;
        while let Some((key, value)) = entries.next()? {
            dedup.restore(key.get(2..).unwrap_or_default(), value, decode_kept)?;
        }
        drop(entries);
        Ok(Intake {
            job: job.topology.job.clone(),
            table,
            dedup,
            upstreams,
            internal: plan.sources.iter().map(|source| source.internal).collect(),
            inflated_bytes_max: job.config.frame_inflated_bytes_max,
            turn: vec![],
            scratch: vec![],
            foreign: 0,
            shown: (DedupCounts::default(), 0),
        })
    }

    /// Says where the reading of a partition begins, once.
    pub(super) fn begin(&mut self, partition: &Partition, start: Option<Offset>) {
        let start = if start == Some(Offset::ZERO) { Start::First } else { Start::Middle };
        self.dedup.begin(partition, start);
    }

    /// Hands a batch to the stage: each message of a channel once and in order, all others as they are.
    pub(super) fn process(&mut self, stage: &mut dyn Stage, pulled: &Pulled, cx: &mut Context<'_>) -> Result<()> {
        let partition = pulled.batch.partition();
        if pulled.batch.is_empty() {
            self.dedup.pass_gaps(partition, pulled.read_at, &mut self.turn);
            self.dedup.forget_unseen(partition, pulled.read_at);
            return self.hand_on(stage, pulled.source, partition, cx);
        }
        let internal = self.internal.get(pulled.source).copied().unwrap_or(false);
        let mut plain = SourceBatch { partition, records: Vec::with_capacity(pulled.batch.len()) };
        for record in pulled.batch.iter() {
            match self.message(record, internal)? {
                Message::Plain => plain.records.push(SourceRecord {
                    body: record.body(),
                    properties: record.properties(),
                    timestamp: record.born(),
                    offset: record.offset(),
                }),
                Message::Foreign => self.foreign += 1,
                Message::Channelled(identity) => {
                    flush(stage, pulled.source, &mut plain, cx)?;
                    self.accept(partition, &identity, record)?;
                    self.hand_on(stage, pulled.source, partition, cx)?;
                }
            }
        }
        flush(stage, pulled.source, &mut plain, cx)
    }

    fn message(&self, record: RecordRef<'_>, internal: bool) -> Result<Message> {
        let identity = match identity_of(record, self.inflated_bytes_max) {
            Ok(Some(identity)) => identity,
            Err(error) if error.kind() == ErrorKind::Invalid => {
                return Err(error.context(format!("offset {}", record.offset())));
            }
            // What is not whole is nobody's identity: a stranger's message.
            Ok(None) | Err(_) => return Ok(if internal { Message::Foreign } else { Message::Plain }),
        };
        if internal && !identity.is_of(&self.job) {
            return Ok(Message::Foreign);
        }
        Ok(Message::Channelled(Box::new(identity)))
    }

    fn accept(&mut self, partition: &Partition, identity: &Identity, record: RecordRef<'_>) -> Result<()> {
        let key = ChannelKey::of(identity, partition);
        let kept = Kept {
            offset: record.offset(),
            timestamp: record.born(),
            body: record.body_shared(),
            properties: record.properties_shared(),
        };
        if planted::is(Bug::NoDedup) {
            self.turn.push(kept);
            return Ok(());
        }
        let floor = if planted::is(Bug::MaximumOnly) { identity.sequence } else { identity.floor };
        match self.dedup.accept(&key, identity.sequence, floor, kept, record.stored(), &mut self.turn)? {
            Accepted::New | Accepted::Duplicate | Accepted::Held => Ok(()),
            Accepted::Full(_) => Err(Error::retry(format!(
                "too many messages are held back while one before them is missing: partition={partition} channel={key:?} \
                 held={}",
                self.dedup.held()
            ))),
        }
    }

    /// Whose turn it is goes to the stage.
    fn hand_on(
        &mut self,
        stage: &mut dyn Stage,
        source: usize,
        partition: &Partition,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        for kept in self.turn.drain(..) {
            let mut batch = SourceBatch { partition, records: vec![] };
            let mut time = None;
            match &kept.body {
                Ok(body) if is_framed(&kept.properties, body) => {
                    let unpacked = unpack(body, self.inflated_bytes_max, &mut self.scratch, kept.offset);
                    // Whole by its checksum, yet no records: a stranger's. The source's error policy decides.
                    batch.records = match unpacked {
                        Ok((frame, records)) => {
                            time = frame.time.map(|said| (frame.identity.task, said));
                            records
                        }
                        Err(_) => vec![kept.undecodable("frame does not hold records")],
                    };
                }
                Ok(body) => batch.records.push(SourceRecord { body: Ok(body), ..kept.undecodable(BODY_LOST) }),
                Err(reason) => batch.records.push(kept.undecodable(reason)),
            }
            flush(stage, source, &mut batch, cx)?;
            if let Some(watermark) = time.and_then(|(task, said)| self.upstreams.said(source, &task, said)) {
                stage.heard(source, watermark, cx)?;
            }
        }
        Ok(())
    }

    /// Tells a stage that was just opened what upstream tasks have said before.
    pub(super) fn remind(&self, stage: &mut dyn Stage, cx: &mut Context<'_>) -> Result<()> {
        self.upstreams.heard().try_for_each(|(source, watermark)| stage.heard(source, watermark, cx))
    }

    /// How far a source is by what upstream tasks have said; `MIN` when nobody has.
    pub(super) fn upstream_time(&self, source: usize) -> Timestamp {
        self.upstreams.watermark(source).time
    }

    /// Writes the positions that changed into the open epoch.
    pub(super) fn seal(&mut self, state: &mut TaskState) {
        self.upstreams.seal(state);
        let prefix = self.table.prefix();
        let mut full = vec![];
        self.dedup.changes(encode_kept, |key, value| {
            full.clear();
            full.extend_from_slice(&prefix);
            full.extend_from_slice(key);
            match value {
                Some(value) => state.put(&full, value),
                None => state.delete(&full),
            }
        });
    }

    /// Adds what happened since the last call to the task's counters.
    pub(super) fn show(&mut self, line: &Line) {
        let (now, foreign) = (self.dedup.counts(), self.foreign);
        let (before, foreign_before) = std::mem::replace(&mut self.shown, (now, foreign));
        line.count(|counters: &mut ProtocolCounters| {
            counters.duplicates_dropped += now.duplicates - before.duplicates;
            counters.messages_held += now.held - before.held;
            counters.gaps_passed += now.gaps_passed - before.gaps_passed;
            counters.foreign_messages += foreign - foreign_before;
        });
    }
}

fn flush(stage: &mut dyn Stage, source: usize, batch: &mut SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()> {
    if !batch.records.is_empty() {
        stage.process(source, batch, cx)?;
        batch.records.clear();
    }
    Ok(())
}

impl Kept {
    fn undecodable(&self, reason: &'static str) -> SourceRecord<'_> {
        SourceRecord { body: Err(reason), properties: &self.properties, timestamp: self.timestamp, offset: self.offset }
    }
}

/// A frame and its records, as many as it says.
fn unpack<'m>(
    body: &'m [u8],
    inflated_bytes_max: usize,
    scratch: &'m mut Vec<u8>,
    offset: Offset,
) -> Result<(Frame<'m>, Vec<SourceRecord<'m>>)> {
    let frame = Frame::decode(body, inflated_bytes_max)?;
    let mut records = Vec::new();
    for record in framed_records(frame.base_time, frame.messages(scratch)?) {
        let (timestamp, message) = record?;
        records.push(SourceRecord { body: Ok(message.body), properties: message.properties, timestamp, offset });
    }
    if records.len() != frame.records as usize {
        return Err(Error::record(format!(
            "frame lies about its records: says={} has={}",
            frame.records,
            records.len()
        )));
    }
    Ok((frame, records))
}

/// `offset count · timestamp i64 · u8 1 and body bytes, or u8 0 · properties bytes`.
fn encode_kept(kept: &Kept, to: &mut Vec<u8>) {
    to.put_count(kept.offset.get());
    to.put_i64(kept.timestamp.as_millis());
    match &kept.body {
        Ok(body) => {
            to.put_u8(1);
            to.put_bytes(body);
        }
        Err(_) => to.put_u8(0),
    }
    to.put_bytes(&kept.properties);
}

fn decode_kept(bytes: &[u8]) -> Result<Kept> {
    let mut from = Decoder::new(bytes);
    let offset = Offset::new(from.count()?);
    let timestamp = Timestamp::from_millis(from.i64()?);
    let body = match from.u8()? {
        0 => Err(BODY_LOST),
        1 => Ok(Bytes::copy_from_slice(from.bytes(bytes.len())?)),
        kind => return Err(Error::corrupt(format!("unknown kind of a held message: kind={kind}"))),
    };
    let properties = Bytes::copy_from_slice(from.bytes(bytes.len())?);
    from.finish()?;
    Ok(Kept { offset, timestamp, body, properties })
}
