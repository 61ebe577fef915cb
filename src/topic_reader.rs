//! Reading a job's output outside the engine: each record once, in order per channel.

use bytes::Bytes;
use onceflow_log::{Log, Message as Framed, MessageIter, ReadLimit, RecordRef, find_property};
use onceflow_txn::{
    Accepted, ChannelKey, DedupCounts, DedupReader, DedupSettings, Frame, IDENTITY_PROPERTY, Identity, Start,
};
use onceflow_types::{Clock, Error, ErrorKind, Name, Offset, Partition, Result, SystemClock, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Most records of one read.
const READ_RECORDS_MAX: usize = 4_096;
/// Most bytes of one read, and most that one frame may inflate to.
const READ_BYTES_MAX: usize = 4 << 20;
const INFLATED_BYTES_MAX: usize = 16 << 20;
/// The producers' publish lease and the topic's retention that the reader assumes: the defaults of both.
const PUBLISH_LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_hours(7 * 24);

/// A record of a job's output.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OutputRecord {
    /// The queue it was read from.
    pub partition: Partition,
    /// The offset of the message that holds it.
    pub offset: Offset,
    /// Its event time for a framed record, else when the message was born.
    pub timestamp: Timestamp,
    /// Its properties, encoded; see [`find_property`](crate::log::find_property).
    pub properties: Bytes,
    /// Its body.
    pub body: Bytes,
}

/// What a [`TopicReader`] met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TopicCounts {
    /// Messages in the queues.
    pub messages: u64,
    /// Messages that were not the job's.
    pub foreign: u64,
    /// What the dedup rule did with the rest.
    pub dedup: DedupCounts,
}

/// Reads all queues of a topic from their first message and hands on what one job wrote: each record once, in order per
/// channel, framed or not (the dedup reader's rule, `docs/commit-protocol.md`). What others wrote is counted and skipped.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use onceflow::log::{Log, Queues, TopicSpec, embedded::{EmbeddedLog, EmbeddedOptions}};
/// use onceflow::{TopicReader, types::Name};
/// use std::{sync::Arc, time::Duration};
///
/// # let directory = tempfile::tempdir()?;
/// let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path(), EmbeddedOptions::default())?);
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// log.create_topic(&TopicSpec { topic: "alerts".into(), queues: Queues::PerBroker(1) }).await?;
/// let mut reader = TopicReader::open(log, "alerts", Name::job("fraud")?).await?;
/// assert!(reader.read_to_end().await?.is_empty());
/// # Ok::<(), onceflow::types::Error>(())
/// # })?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct TopicReader {
    log: Arc<dyn Log>,
    /// Whose output; `None` for everybody's messages, plain ones included.
    job: Option<Name>,
    queues: Vec<(Partition, Offset)>,
    dedup: DedupReader<Message>,
    messages: u64,
    foreign: u64,
}

/// A whole message that waits for its turn.
#[derive(Clone, Debug)]
struct Message {
    partition: Partition,
    offset: Offset,
    born: Timestamp,
    properties: Bytes,
    body: Bytes,
}

impl TopicReader {
    /// A reader of `topic` for the output of `job`, at the first message of each queue.
    ///
    /// # Errors
    /// `Invalid` when there is no such topic, `Retry` when the log cannot be reached.
    pub async fn open(log: Arc<dyn Log>, topic: &str, job: Name) -> Result<TopicReader> {
        TopicReader::of(log, topic, Some(job)).await
    }

    /// A reader of all messages of `topic`, at the first one of each queue. Those of Onceflow jobs come once and in order.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn of_everybody(log: Arc<dyn Log>, topic: &str) -> Result<TopicReader> {
        TopicReader::of(log, topic, None).await
    }

    async fn of(log: Arc<dyn Log>, topic: &str, job: Option<Name>) -> Result<TopicReader> {
        let dedup = DedupReader::new(DedupSettings::new(PUBLISH_LEASE, RETENTION));
        let mut reader = TopicReader { log, job, queues: vec![], dedup, messages: 0, foreign: 0 };
        reader.look_for_queues(topic).await?;
        Ok(reader)
    }

    /// Takes in the queues that its topic has got since.
    pub(crate) async fn look_for_queues(&mut self, topic: &str) -> Result<()> {
        for partition in self.log.partitions(topic).await? {
            if self.queues.iter().any(|(known, _)| *known == partition) {
                continue;
            }
            let first = self.log.offsets(&partition).await?.first;
            self.dedup.begin(&partition, if first == Offset::ZERO { Start::First } else { Start::Middle });
            self.queues.push((partition, first));
        }
        Ok(())
    }

    /// Everything up to the ends of the queues as they are now. Not cancel safe: what was read may be lost.
    ///
    /// # Errors
    /// `DataLoss` when a message that was there is gone; `Retry` when the log cannot be reached.
    pub async fn read_to_end(&mut self) -> Result<Vec<OutputRecord>> {
        let mut records = vec![];
        self.for_each(|record| records.push(record)).await?;
        Ok(records)
    }

    /// Hands everything up to the ends of the queues as they are now to `take`, queue by queue; for topics that do not
    /// fit into memory. Not cancel safe.
    ///
    /// # Errors
    /// As [`read_to_end`](Self::read_to_end).
    pub async fn for_each(&mut self, mut take: impl FnMut(OutputRecord)) -> Result<()> {
        for index in 0..self.queues.len() {
            self.read_queue(index, &mut take).await?;
        }
        Ok(())
    }

    /// What the reader met so far.
    pub fn counts(&self) -> TopicCounts {
        TopicCounts { messages: self.messages, foreign: self.foreign, dedup: self.dedup.counts() }
    }

    /// How many messages wait for one before them.
    pub fn held(&self) -> usize {
        self.dedup.held()
    }

    async fn read_queue(&mut self, index: usize, take: &mut impl FnMut(OutputRecord)) -> Result<()> {
        let Some((partition, from)) = self.queues.get(index).cloned() else { return Ok(()) };
        let asked_at = SystemClock.now();
        let end = self.log.offsets(&partition).await?.next;
        let (mut next, mut turn) = (from, vec![]);
        while next < end {
            let limit = ReadLimit {
                records_max: READ_RECORDS_MAX,
                bytes_max: READ_BYTES_MAX,
                wait_max: Duration::from_millis(100),
            };
            let batch = self.log.read(&partition, next, limit).await?;
            for record in batch.iter() {
                self.accept(&partition, record, &mut turn)?;
            }
            for message in turn.drain(..) {
                message.unpack(take)?;
            }
            next = batch.next_offset().unwrap_or(next);
            if let Some(queue) = self.queues.get_mut(index) {
                queue.1 = next;
            }
        }
        self.dedup.pass_gaps(&partition, asked_at, &mut turn);
        turn.iter().try_for_each(|message| message.unpack(take))
    }

    fn accept(&mut self, partition: &Partition, record: RecordRef<'_>, turn: &mut Vec<Message>) -> Result<()> {
        self.messages += 1;
        let identity = identity_of(record, INFLATED_BYTES_MAX).ok().flatten();
        let is_wanted = |identity: &Identity| self.job.as_ref().is_none_or(|job| identity.is_of(job));
        let identity = identity.filter(is_wanted);
        if identity.is_none() {
            self.foreign += 1;
            if self.job.is_some() {
                return Ok(());
            }
        }
        let message = Message {
            partition: partition.clone(),
            offset: record.offset(),
            born: record.born(),
            properties: record.properties_shared(),
            body: record.body_shared().map_err(|reason| {
                Error::data_loss(format!("{reason}: partition={partition} offset={}", record.offset()))
            })?,
        };
        let Some(identity) = identity else {
            turn.push(message);
            return Ok(());
        };
        let (key, stored) = (ChannelKey::of(&identity, partition), record.stored());
        match self.dedup.accept(&key, identity.sequence, identity.floor, message, stored, turn)? {
            Accepted::Full(_) => Err(Error::new(
                ErrorKind::Retry,
                format!("too many messages wait for one before them: partition={partition} held={}", self.dedup.held()),
            )),
            Accepted::New | Accepted::Duplicate | Accepted::Held => Ok(()),
        }
    }
}

impl Message {
    fn unpack(&self, take: &mut impl FnMut(OutputRecord)) -> Result<()> {
        if !is_framed(&self.properties, &self.body) {
            take(self.record(self.born, self.properties.clone(), self.body.clone()));
            return Ok(());
        }
        let frame = Frame::decode(&self.body, INFLATED_BYTES_MAX)?;
        let mut scratch = vec![];
        let messages = Bytes::copy_from_slice(frame.messages(&mut scratch)?);
        for record in framed_records(frame.base_time, &messages) {
            let (time, message) = record?;
            let share = |part: &[u8]| if part.is_empty() { Bytes::new() } else { messages.slice_ref(part) };
            take(self.record(time, share(message.properties), share(message.body)));
        }
        Ok(())
    }

    fn record(&self, timestamp: Timestamp, properties: Bytes, body: Bytes) -> OutputRecord {
        OutputRecord { partition: self.partition.clone(), offset: self.offset, timestamp, properties, body }
    }
}

/// The records of a frame with their event times: each carries its own relative to the frame's, in its flag.
pub(crate) fn framed_records(
    base: Timestamp,
    messages: &[u8],
) -> impl Iterator<Item = Result<(Timestamp, Framed<'_>)>> {
    let time = move |message: &Framed<'_>| base.saturating_add(i64::from(message.flag));
    MessageIter::new(messages).map(move |message| message.map(|message| (time(&message), message)))
}

/// Whether a message is a frame of records. One with an identity in its property is not, whatever its body looks like:
/// a user's record may begin like a frame, or be one that another job made.
pub(crate) fn is_framed(properties: &[u8], body: &[u8]) -> bool {
    Frame::is_frame(body) && find_property(properties, IDENTITY_PROPERTY).is_none()
}

/// The identity that a message carries: in its property, else in its frame; `None` for one without. Of a frame whose
/// records are longer than `inflated_bytes_max` nothing is believed; nothing is inflated.
///
/// ```
/// use onceflow::log::{Body, Entry, RecordBatch};
/// use onceflow::types::{Offset, Partition, Timestamp};
///
/// let now = Timestamp::from_millis(0);
/// let entry = Entry { offset: Offset::ZERO, born: now, stored: now, body: Body::Plain(0..5), properties: 0..0 };
/// let queue = Partition::new("alerts", "broker-a", 0);
/// let batch = RecordBatch::new(queue, "hello".into(), "".into(), vec![entry]);
/// let record = batch.iter().next().expect("one record");
/// assert_eq!(onceflow::identity_of(record, 1 << 20)?, None, "an ordinary producer's message");
/// # Ok::<(), onceflow::types::Error>(())
/// ```
///
/// # Errors
/// `Invalid` for an identity of a newer version, `Record` for one that is not whole: a stranger's message.
pub fn identity_of(record: RecordRef<'_>, inflated_bytes_max: usize) -> Result<Option<Identity>> {
    if let Some(body) = record.body().ok().filter(|body| is_framed(record.properties(), body)) {
        return Ok(Some(Frame::decode(body, inflated_bytes_max)?.identity));
    }
    record.property(IDENTITY_PROPERTY).map(Identity::from_property).transpose()
}
