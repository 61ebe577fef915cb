//! The log whose calls are steps.

use super::{Cuts, Step};
use async_trait::async_trait;
use onceflow::log::{
    Acked, CheckBack, End, Link, Log, MemberId, MessageBatch, OffsetRange, Prepared, ReadLimit, RecordBatch, TopicSpec,
    Verdict,
};
use onceflow::txn::{Decoded, JournalRecord, decode};
use onceflow::types::{HalfHandle, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The log of a process that is to be cut.
pub struct CutLog {
    inner: Arc<dyn Log>,
    cuts: Cuts,
}

impl CutLog {
    /// This log under these crashes.
    pub fn new(inner: Arc<dyn Log>, cuts: Cuts) -> Self {
        CutLog { inner, cuts }
    }
}

impl std::fmt::Debug for CutLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutLog").finish_non_exhaustive()
    }
}

/// Which step an append is.
fn step_of(partition: &Partition, batch: &MessageBatch) -> Step {
    let topic = &*partition.topic;
    if topic.ends_with("-barrier") {
        return Step::Barrier;
    }
    if topic.ends_with("-snapshot") {
        return Step::Chunk;
    }
    let record = batch.iter().next().map(|message| decode(message.body));
    match record {
        Some(Ok(Decoded::Record(JournalRecord::Claim(_)))) => Step::Claim,
        Some(Ok(Decoded::Record(JournalRecord::Delta(_)))) => Step::Delta,
        Some(Ok(Decoded::Record(JournalRecord::Commit(_)))) => Step::Commit,
        Some(Ok(Decoded::Record(JournalRecord::Snapshot(_)))) => Step::Snapshot,
        Some(Ok(Decoded::Record(JournalRecord::Release(_)))) => Step::Release,
        _ => Step::Send,
    }
}

#[async_trait]
impl Log for CutLog {
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
        self.inner.offsets(partition).await
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        self.inner.offset_at(partition, time).await
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        self.inner.read(partition, from, limit).await
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.cuts.at(Some(step_of(partition, batch)), self.inner.append(partition, batch)).await
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.cuts.at(Some(step_of(partition, batch)), self.inner.append_over(link, partition, batch)).await
    }

    fn is_open(&self, link: &Link) -> bool {
        self.inner.is_open(link)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        self.cuts.at(Some(Step::Prepare), self.inner.prepare(target, batch)).await
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let step = (end == End::Commit).then_some(Step::End);
        self.cuts.at(step, self.inner.end(handle, end)).await
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        self.inner.next_check_back().await
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        self.inner.answer_check_back(check, verdict).await
    }

    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        self.inner.members(group, own).await
    }

    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        self.inner.leave(group, own).await
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        self.inner.report_offsets(group, offsets).await
    }
}
