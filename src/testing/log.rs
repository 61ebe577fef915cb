//! A log in memory that does what a log should, at once, until it is told to stop.

use super::crash::{Cuts, Step};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use onceflow_log::{
    Acked, Body, CheckBack, End, Entry, Link, Log, MessageBatch, OffsetRange, Prepared, Queues, ReadLimit, RecordBatch,
    TopicSpec, Verdict,
};
use onceflow_txn::{Decoded, JournalRecord, decode};
use onceflow_types::{Clock, Error, HalfHandle, ManualClock, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the one broker.
pub(super) const BROKER: &str = "test";
/// As on RocketMQ: 4 MiB less 64 KiB.
const MESSAGE_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// The topics of a test driver.
pub(super) struct TestLog {
    state: Mutex<State>,
    clock: ManualClock,
    cuts: Cuts,
    /// Begins the names of the journal topics.
    journals: String,
    /// Topics of the engine's own that are no output: barriers and snapshots.
    own: [String; 2],
}

#[derive(Default)]
struct State {
    topics: BTreeMap<Arc<str>, Vec<Vec<Stored>>>,
    halves: Vec<(Partition, Stored)>,
}

#[derive(Clone)]
struct Stored {
    properties: Bytes,
    body: Bytes,
    born: Timestamp,
    kept: Timestamp,
}

impl TestLog {
    pub(super) fn new(job: &onceflow_types::Name, clock: ManualClock, cuts: Cuts) -> Self {
        let own = [crate::topics::barrier(job), crate::topics::snapshot(job)];
        TestLog { state: Mutex::default(), clock, cuts, journals: format!("{job}-journal-"), own }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one push: a poisoned lock still guards whole data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic, with at least one queue.
    pub(super) fn make(&self, topic: &str, queues: u32) {
        let mut state = self.lock();
        let queues = queues.max(1) as usize;
        let topic = state.topics.entry(topic.into()).or_default();
        if topic.len() < queues {
            topic.resize(queues, vec![]);
        }
    }

    /// Puts a message into a queue, as a producer elsewhere does.
    pub(super) fn produce(&self, partition: &Partition, properties: &[u8], body: &[u8], born: Timestamp) -> Result<()> {
        let stored = Stored {
            properties: Bytes::copy_from_slice(properties),
            body: Bytes::copy_from_slice(body),
            born,
            kept: self.clock.now(),
        };
        self.lock().queue_mut(partition)?.push(stored);
        Ok(())
    }

    /// How many queues a topic has; 0 for one that there is not.
    pub(super) fn queues(&self, topic: &str) -> u32 {
        self.lock().topics.get(topic).map_or(0, |queues| u32::try_from(queues.len()).unwrap_or(u32::MAX))
    }

    /// All records of a queue.
    pub(super) fn records(&self, partition: &Partition) -> Result<RecordBatch> {
        let state = self.lock();
        let queue = state.queue(partition)?;
        Ok(batch(partition, queue, 0))
    }

    fn store(&self, partition: &Partition, messages: &MessageBatch) -> Result<Acked> {
        let now = self.clock.now();
        let mut state = self.lock();
        let queue = state.queue_mut(partition)?;
        let first = Offset::new(queue.len() as u64);
        queue.extend(messages.iter().map(|message| Stored {
            properties: Bytes::copy_from_slice(message.properties),
            body: Bytes::copy_from_slice(message.body),
            born: now,
            kept: now,
        }));
        Ok(Acked { first, link: link() })
    }

    /// Which step of an epoch an append is.
    fn step(&self, partition: &Partition, messages: &MessageBatch) -> Option<Step> {
        if partition.topic.starts_with(&self.journals) {
            let record = messages.iter().next().and_then(|message| decode(message.body).ok());
            let commits = matches!(record, Some(Decoded::Record(JournalRecord::Commit(_))));
            return commits.then_some(Step::Decide);
        }
        let own = self.own.iter().any(|topic| **topic == *partition.topic);
        (!own).then_some(Step::Publish)
    }
}

impl State {
    fn queue(&self, partition: &Partition) -> Result<&Vec<Stored>> {
        let queue = self.topics.get(&partition.topic).and_then(|queues| queues.get(partition.queue as usize));
        queue.filter(|_| &*partition.broker == BROKER).ok_or_else(|| no_queue(partition))
    }

    fn queue_mut(&mut self, partition: &Partition) -> Result<&mut Vec<Stored>> {
        let queues = self.topics.get_mut(&partition.topic).filter(|_| &*partition.broker == BROKER);
        queues.and_then(|queues| queues.get_mut(partition.queue as usize)).ok_or_else(|| no_queue(partition))
    }
}

fn no_queue(partition: &Partition) -> Error {
    Error::invalid(format!("no such queue: topic={} queue={}", partition.topic, partition.queue))
}

fn link() -> Link {
    Link::new(BROKER, 1)
}

/// The messages of a queue from an offset on.
fn batch(partition: &Partition, messages: &[Stored], from: usize) -> RecordBatch {
    let mut raw = BytesMut::new();
    let mut entries = Vec::with_capacity(messages.len());
    let mut put = |bytes: &[u8]| {
        let start = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        raw.extend_from_slice(bytes);
        start..u32::try_from(raw.len()).unwrap_or(u32::MAX)
    };
    for (at, message) in (from..).zip(messages) {
        let (properties, body) = (put(&message.properties), put(&message.body));
        let (born, stored) = (message.born, message.kept);
        entries.push(Entry { offset: Offset::new(at as u64), born, stored, body: Body::Plain(body), properties });
    }
    RecordBatch::new(partition.clone(), raw.freeze(), Bytes::new(), entries)
}

#[async_trait]
impl Log for TestLog {
    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        let queues = match &spec.queues {
            Queues::PerBroker(queues) => *queues,
            Queues::SameAs(other) => self.queues(other),
        };
        self.make(&spec.topic, queues);
        Ok(())
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        match self.queues(topic) {
            0 => Err(Error::invalid(format!("no such topic: topic={topic}"))),
            queues => Ok((0..queues).map(|queue| Partition::new(topic, BROKER, queue)).collect()),
        }
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        self.cuts.alive().await;
        let next = self.lock().queue(partition)?.len() as u64;
        Ok(OffsetRange { first: Offset::ZERO, next: Offset::new(next) })
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        let state = self.lock();
        let queue = state.queue(partition)?;
        let at = queue.iter().position(|message| message.kept >= time).unwrap_or(queue.len());
        Ok(Offset::new(at as u64))
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        self.cuts.alive().await;
        limit.check()?;
        let state = self.lock();
        let queue = state.queue(partition)?;
        let start = usize::try_from(from.get()).unwrap_or(usize::MAX);
        let Some(rest) = queue.get(start..) else {
            return Err(Error::data_loss(format!("offset is not readable: offset={from} next={}", queue.len())));
        };
        let mut bytes = 0;
        let fits = rest.iter().take(limit.records_max).take_while(|message| {
            let room = bytes == 0 || bytes + message.body.len() <= limit.bytes_max;
            bytes += message.body.len() + message.properties.len();
            room
        });
        let count = fits.count();
        let records = batch(partition, rest.get(..count).unwrap_or_default(), start);
        Ok(records.with_end(Offset::new(queue.len() as u64)))
    }

    async fn append(&self, partition: &Partition, messages: &MessageBatch) -> Result<Acked> {
        let step = self.step(partition, messages);
        self.cuts.before(step).await;
        let acked = self.store(partition, messages);
        self.cuts.after(step).await;
        acked
    }

    async fn append_over(&self, _: &Link, partition: &Partition, messages: &MessageBatch) -> Result<Acked> {
        self.append(partition, messages).await
    }

    fn is_open(&self, _: &Link) -> bool {
        true
    }

    async fn prepare(&self, target: &Partition, messages: &MessageBatch) -> Result<Prepared> {
        self.cuts.before(Some(Step::Prepare)).await;
        let message = messages.iter().next().map(|message| Stored {
            properties: Bytes::copy_from_slice(message.properties),
            body: Bytes::copy_from_slice(message.body),
            born: self.clock.now(),
            kept: self.clock.now(),
        });
        let Some(message) = message else { return Err(Error::bug("a half message without a message")) };
        let number = {
            let mut state = self.lock();
            state.queue(target)?;
            state.halves.push((target.clone(), message));
            state.halves.len() as u64 - 1
        };
        self.cuts.after(Some(Step::Prepare)).await;
        let handle = HalfHandle {
            target: target.clone(),
            commit_log_offset: number,
            half_queue_offset: number,
            unique_key: format!("half-{number}").into(),
        };
        Ok(Prepared { handle, link: link() })
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        if end == End::Rollback {
            return Ok(link());
        }
        self.cuts.before(Some(Step::Publish)).await;
        {
            let mut state = self.lock();
            let number = usize::try_from(handle.commit_log_offset).unwrap_or(usize::MAX);
            let Some((target, mut message)) = state.halves.get(number).cloned() else {
                return Err(Error::data_loss(format!("no such half message: number={number}")));
            };
            message.kept = self.clock.now();
            state.queue_mut(&target)?.push(message);
        }
        self.cuts.after(Some(Step::Publish)).await;
        Ok(link())
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        std::future::pending().await
    }

    async fn answer_check_back(&self, _: &CheckBack, _: Verdict) -> Result<()> {
        Ok(())
    }

    async fn report_offsets(&self, _: &str, _: &Offsets) -> Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestLog").field("journals", &self.journals).finish_non_exhaustive()
    }
}
