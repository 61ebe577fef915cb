//! A log whose queues lose their beginning when told to, that damages snapshots, and that stops dead at a chosen step.

use async_trait::async_trait;
use onceflow::log::{
    Acked, CheckBack, End, Link, Log, MessageBatch, OffsetRange, Prepared, ReadLimit, RecordBatch, TopicSpec, Verdict,
};
use onceflow::txn::{Decoded, JournalRecord, Snapshot, decode};
use onceflow::types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Where the process dies: from that step on nothing of a snapshot is answered any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Before the chunk with this number, counted over all tasks, is stored.
    BeforeChunk(usize),
    /// After it is stored, before that is known.
    AfterChunk(usize),
    /// Before a Snapshot record is stored.
    BeforeRecord,
    /// After it is stored, before that is known.
    AfterRecord,
}

#[derive(Debug)]
pub struct TestLog {
    inner: Arc<dyn Log>,
    state: Mutex<State>,
    cut_reached: Notify,
}

#[derive(Default, Debug)]
struct State {
    first: BTreeMap<Partition, Offset>,
    /// What is stored, but not shown yet: these queues seem to end here.
    hidden_from: BTreeMap<Partition, Offset>,
    damage: bool,
    cut: Option<Cut>,
    dead: bool,
    chunks: usize,
}

enum Kind {
    Chunk,
    Record,
    Other,
}

impl TestLog {
    pub fn new(inner: Arc<dyn Log>) -> Arc<TestLog> {
        Arc::new(TestLog { inner, state: Mutex::default(), cut_reached: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Everything before `first` is deleted.
    pub fn truncate(&self, partition: &Partition, first: Offset) {
        self.state().first.insert(partition.clone(), first);
    }

    /// Everything from `end` on is not shown before a barrier is.
    pub fn hide(&self, partition: &Partition, end: Offset) {
        self.state().hidden_from.insert(partition.clone(), end);
    }

    /// From now on one bit of each chunk's content is changed.
    pub fn damage_chunks(&self, damage: bool) {
        self.state().damage = damage;
    }

    pub fn arm(&self, cut: Cut) {
        let mut state = self.state();
        (state.cut, state.dead, state.chunks) = (Some(cut), false, 0);
    }

    pub async fn cut_reached(&self) {
        self.cut_reached.notified().await;
    }

    /// A new process: nothing is cut.
    pub fn revive(&self) {
        let mut state = self.state();
        (state.cut, state.dead) = (None, false);
    }

    fn first(&self, partition: &Partition) -> Offset {
        self.state().first.get(partition).copied().unwrap_or(Offset::ZERO)
    }

    /// All Snapshot records of a journal with their offsets, in order.
    pub async fn snapshots(&self, journal: &Partition) -> Vec<(Offset, Snapshot)> {
        let range = self.offsets(journal).await.unwrap();
        let (mut next, mut found) = (range.first, vec![]);
        while next < range.next {
            let limit = ReadLimit { records_max: 1_000, bytes_max: 4 << 20, wait_max: Duration::ZERO };
            let batch = self.read(journal, next, limit).await.unwrap();
            for record in batch.iter() {
                if let Ok(Decoded::Record(JournalRecord::Snapshot(snapshot))) = decode(record.body().unwrap()) {
                    found.push((record.offset(), *snapshot));
                }
            }
            next = batch.next_offset().unwrap();
        }
        found
    }

    /// Takes note of an append that is about to happen; whether it must not.
    fn dies(&self, kind: &Kind, after: bool) -> bool {
        let mut state = self.state();
        if matches!(kind, Kind::Other) {
            return false;
        }
        let dies = match (kind, state.cut) {
            (Kind::Chunk, Some(Cut::BeforeChunk(number))) => !after && state.chunks == number,
            (Kind::Chunk, Some(Cut::AfterChunk(number))) => after && state.chunks == number,
            (Kind::Record, Some(Cut::BeforeRecord)) => !after,
            (Kind::Record, Some(Cut::AfterRecord)) => after,
            _ => false,
        };
        if dies && !state.dead {
            state.dead = true;
            self.cut_reached.notify_one();
        }
        if after && matches!(kind, Kind::Chunk) {
            state.chunks += 1;
        }
        state.dead
    }
}

fn kind(partition: &Partition, batch: &MessageBatch) -> Kind {
    if partition.topic.ends_with("-snapshot") {
        return Kind::Chunk;
    }
    let is_record = |body| matches!(decode(body), Ok(Decoded::Record(JournalRecord::Snapshot(_))));
    if batch.iter().any(|message| is_record(message.body)) { Kind::Record } else { Kind::Other }
}

fn damaged(batch: &MessageBatch) -> MessageBatch {
    let mut damaged = MessageBatch::default();
    for message in batch.iter() {
        let mut body = message.body.to_vec();
        let last = body.len() - 1;
        body[last] ^= 1;
        damaged.push(message.properties, &body).unwrap();
    }
    damaged
}

#[async_trait]
impl Log for TestLog {
    fn message_bytes_max(&self) -> usize {
        self.inner.message_bytes_max()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        self.inner.create_topic(spec).await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.inner.partitions(topic).await
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        let range = self.inner.offsets(partition).await?;
        let hidden_from = self.state().hidden_from.get(partition).copied();
        let next = hidden_from.map_or(range.next, |end| end.min(range.next));
        Ok(OffsetRange { first: range.first.max(self.first(partition)), next })
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        Ok(self.inner.offset_at(partition, time).await?.max(self.first(partition)))
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        if from < self.first(partition) {
            return Err(Error::data_loss(format!("deleted: asked={from} first={}", self.first(partition))));
        }
        self.inner.read(partition, from, limit).await
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        if partition.topic.ends_with("-barrier") {
            self.state().hidden_from.clear();
        }
        let kind = kind(partition, batch);
        if self.dies(&kind, false) {
            std::future::pending::<()>().await;
        }
        let damage = self.state().damage && matches!(kind, Kind::Chunk);
        let acked = match damage {
            true => self.inner.append(partition, &damaged(batch)).await?,
            false => self.inner.append(partition, batch).await?,
        };
        if self.dies(&kind, true) {
            std::future::pending::<()>().await;
        }
        Ok(acked)
    }

    async fn append_over(&self, _link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        // The log below is embedded: its connection never breaks.
        self.append(partition, batch).await
    }

    fn is_open(&self, link: &Link) -> bool {
        self.inner.is_open(link)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        self.inner.prepare(target, batch).await
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        self.inner.end(handle, end).await
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        self.inner.next_check_back().await
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        self.inner.answer_check_back(check, verdict).await
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        self.inner.report_offsets(group, offsets).await
    }
}
