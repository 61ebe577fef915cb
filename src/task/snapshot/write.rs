//! When and how a snapshot is written.
//!
//! # Crash story
//! | cut | what is left |
//! | --- | --- |
//! | before or between the chunks | chunks that no record names; the log deletes them by age |
//! | after the chunks, record unsent or lost | the same; the older snapshot still counts |
//! | after the record | the new snapshot counts, whether its writer saw the acknowledgement or not |

use super::super::Task;
use super::chunk::{AROUND_BYTES_MAX, Chunk, Header, PIECE_BYTES_MAX, SUM_BYTES};
use crate::edge::{Backoff, Entropy};
use crate::job::Job;
use onceflow_log::{Log, MessageBatch, ReadLimit};
use onceflow_storage::{Delta, KeyRange, Order};
use onceflow_txn::SnapshotLocation;
use onceflow_types::wire::{checksum, checksum_append};
use onceflow_types::{CommitPoint, Error, ErrorKind, Offset, Partition, Result, TaskId, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// What one entry costs in a Delta beside its key and value, in bytes, at most.
const ENTRY_BYTES: usize = 16;

/// When an opened task writes its first snapshot, on the monotonic clock. How old the last one is cannot be known without
/// reading the journal from its beginning; but nothing that is needed is older than the journal's first readable
/// record. So: when that record is as old as the settings allow, or soon when it is older already or cannot be read.
pub(in crate::task) async fn first_due(job: &Job, journal: &Partition) -> Duration {
    let (now, limit) = (job.monotonic.now(), job.config.snapshot_time);
    let soon = job.config.publish_lease;
    let Ok(first) = first_stored(&*job.log, journal).await else { return now + soon };
    let age = first.map_or(0, |first| job.clock.now().as_millis().saturating_sub(first.as_millis()));
    let left = limit.saturating_sub(Duration::from_millis(u64::try_from(age).unwrap_or(0)));
    now + if left.is_zero() { soon } else { spread(left, &*job.entropy) }
}

/// When the first readable record was stored; `None` when there is none.
async fn first_stored(log: &dyn Log, journal: &Partition) -> Result<Option<Timestamp>> {
    let range = log.offsets(journal).await?;
    if range.first >= range.next {
        return Ok(None);
    }
    let limit = ReadLimit { records_max: 1, bytes_max: 1, wait_max: Duration::ZERO };
    let batch = log.read(journal, range.first, limit).await?;
    Ok(batch.iter().next().map(|record| record.stored()))
}

/// Cuts a time by up to an eighth at random, so that the tasks of a job do not all pause together.
fn spread(time: Duration, entropy: &dyn Entropy) -> Duration {
    let share = entropy.draw().map_or(0, |draw| u32::try_from(draw % 1_000).unwrap_or(0));
    time.saturating_sub(time / 8_000 * share)
}

impl Task {
    /// Whether it is time for a snapshot.
    pub(in crate::task) fn snapshot_is_due(&self) -> bool {
        self.job.monotonic.now() >= self.snapshot_at
    }

    /// Writes a snapshot between two epochs. Chunks that the log does not take are no reason to drop the task: it tries
    /// again later.
    pub(in crate::task) async fn write_snapshot(&mut self) -> Result<()> {
        self.publish_everything().await;
        let Some(point) = self.coordinator.borrow().snapshot_point() else {
            // Nothing was ever committed.
            self.snapshot_at = self.job.monotonic.now() + self.job.config.snapshot_time;
            return Ok(());
        };
        match self.write_chunks(&point).await {
            Ok(location) => {
                self.record_snapshot(location).await?;
                self.snapshot_at = self.job.monotonic.now() + spread(self.job.config.snapshot_time, &*self.job.entropy);
                metrics::counter!("onceflow_snapshots_total").increment(1);
                tracing::info!(task = %self.id, epoch = %point.epoch, through = %point.journal_next, "snapshot written");
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                let wait = self.job.config.backoff_max.min(self.job.config.snapshot_time);
                self.snapshot_at = self.job.monotonic.now() + wait;
                tracing::warn!(task = %self.id, error = %error.report(), "snapshot not written, trying again later");
                Ok(())
            }
            Err(error) => Err(error.context("snapshot")),
        }
    }

    /// The header and all entries, each chunk acknowledged.
    async fn write_chunks(&self, point: &CommitPoint) -> Result<SnapshotLocation> {
        let overlay = self.state.overlay();
        assert!(overlay.delta().is_empty() && overlay.sealed().len() == 0, "a snapshot inside an epoch");
        let claim = self.coordinator.borrow().fold().claim().cloned();
        let mut writer = Writer::new(&self.job, &self.id)?;
        writer.unit(&Header { point: point.clone(), claim }.encode()).await?;
        let mut entries = overlay.base().scan(KeyRange::all(), Order::Ascending)?;
        let (mut unit, mut bytes) = (Delta::default(), 0);
        while let Some((key, value)) = entries.next()? {
            let more = key.len() + value.len() + ENTRY_BYTES;
            if bytes > 0 && bytes + more > PIECE_BYTES_MAX {
                writer.entries(&unit).await?;
                unit.clear();
                bytes = 0;
            }
            unit.put(key, value);
            bytes += more;
        }
        if !unit.is_empty() {
            writer.entries(&unit).await?;
        }
        writer.finish()
    }
}

/// Appends chunks one after the other.
struct Writer<'t> {
    job: &'t Job,
    task: &'t TaskId,
    partition: Partition,
    snapshot: u128,
    /// The number of the next chunk.
    number: u32,
    sum: u32,
    /// Where chunk 0 lies.
    first: Option<Offset>,
    piece_bytes_max: usize,
}

impl<'t> Writer<'t> {
    fn new(job: &'t Job, task: &'t TaskId) -> Result<Self> {
        let topic: Arc<str> = crate::topics::snapshot(&job.topology.job).into();
        let room = job.log.message_bytes_max().saturating_sub(AROUND_BYTES_MAX);
        Ok(Writer {
            job,
            task,
            partition: Partition { topic, broker: task.broker.clone(), queue: 0 },
            snapshot: job.entropy.draw()?,
            number: 0,
            sum: checksum(&[]),
            first: None,
            piece_bytes_max: PIECE_BYTES_MAX.min(room).max(1),
        })
    }

    async fn entries(&mut self, entries: &Delta) -> Result<()> {
        let mut bytes = Vec::with_capacity(entries.bytes());
        entries.encode(&mut bytes);
        self.unit(&bytes).await
    }

    async fn unit(&mut self, bytes: &[u8]) -> Result<()> {
        let mut pieces = bytes.chunks(self.piece_bytes_max).peekable();
        while let Some(piece) = pieces.next() {
            let (number, more) = (self.number, pieces.peek().is_some());
            let chunk = Chunk { task: self.task.clone(), snapshot: self.snapshot, number, more, piece }.encode();
            let offset = self.append(&chunk).await?;
            self.first.get_or_insert(offset);
            self.sum = checksum_append(self.sum, chunk.get(..chunk.len() - SUM_BYTES).unwrap_or_default());
            self.number = number.checked_add(1).ok_or_else(|| Error::invalid("state is too large for a snapshot"))?;
        }
        Ok(())
    }

    /// Appends one chunk until it is acknowledged; a copy of an earlier try does no harm.
    async fn append(&self, chunk: &[u8]) -> Result<Offset> {
        let config = &self.job.config;
        let mut batch = MessageBatch::default();
        batch.push(&[], chunk)?;
        let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
        let mut tries = 1;
        loop {
            match self.job.log.append(&self.partition, &batch).await {
                Err(error) if error.kind() == ErrorKind::Retry && tries < config.tries_max => tries += 1,
                other => return other.map(|acked| acked.first),
            }
            backoff.wait(&*self.job.entropy).await;
        }
    }

    fn finish(self) -> Result<SnapshotLocation> {
        let first = self.first.ok_or_else(|| Error::bug("a snapshot without a header"))?;
        Ok(SnapshotLocation { partition: self.partition, first, chunks: self.number, checksum: self.sum })
    }
}
