//! The one writer: every change of the log goes through it, in one order, which is the log's order (rule 5).

mod halves;

use super::checks::Checks;
use super::chunk::{self, Draft};
use super::fault;
use super::options::EmbeddedOptions;
use super::queues::{Queue, Queues};
use super::store::{Store, Tail};
use crate::{Acked, Link, TopicSpec};
use fjall::{OwnedWriteBatch, PersistMode};
use onceflow_types::{Error, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most queues of a topic.
const QUEUES_MAX: u32 = 4_096;

/// What the writer and the handles share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) queues: Queues,
    pub(super) options: EmbeddedOptions,
    pub(super) link: Link,
    pub(super) checks: Mutex<Checks>,
    /// Rings when a half was added.
    pub(super) halves_added: Notify,
    /// A write or a sync has failed: nothing more is written.
    pub(super) failed: AtomicBool,
}

impl Shared {
    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of writing. A change is written, then [synced](Writer::sync) where that is asked for, then
/// [published](Writer::publish).
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) tails: BTreeMap<u32, Tail>,
    /// The next free place of a half.
    pub(super) place_next: u64,
    /// Where the halves begin and how old the first is.
    pub(super) oldest: Option<(u64, Timestamp)>,
    unpublished: Vec<(Arc<Queue>, Offset)>,
    /// Written to the chunks since their write buffer was last sealed.
    buffered_bytes: u64,
    /// Written to the halves and their checks since theirs were.
    buffered_half_bytes: u64,
}

/// What an entry counts for beside its value, about: key, and the memtable's own.
const ENTRY_BYTES: u64 = 128;

/// A chunk that is part of a batch and not yet written.
struct Staged {
    queue: u32,
    first: Offset,
    next: Offset,
    stored: Timestamp,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        tails: Vec<Tail>,
        oldest: Option<(u64, Timestamp)>,
        place_next: u64,
    ) -> Writer {
        let tails = tails.into_iter().map(|tail| (tail.queue.id, tail)).collect();
        Writer { shared, tails, place_next, oldest, unpublished: vec![], buffered_bytes: 0, buffered_half_bytes: 0 }
    }

    /// Appends a draft to a queue.
    pub(super) fn append(&mut self, queue: u32, draft: Draft) -> Result<Acked> {
        let mut batch = self.begin()?;
        let now = self.shared.options.clock.now();
        let staged = self.stage(&mut batch, queue, draft, now)?;
        self.commit(batch)?;
        let first = staged.first;
        self.written(&staged)?;
        Ok(Acked { first, link: self.shared.link.clone() })
    }

    /// Creates the queues that a topic lacks.
    pub(super) fn create_topic(&mut self, spec: &TopicSpec) -> Result<()> {
        let count = self.queue_count(spec)?;
        let broker = self.shared.options.broker.clone();
        let exist = self.shared.queues.of_topic(&spec.topic, &broker).len();
        let mut batch = self.begin()?;
        let (mut id, mut created) = (self.tails.last_key_value().map_or(0, |(id, _)| id + 1), vec![]);
        for number in (0..count).skip(exist) {
            let partition = Partition::new(spec.topic.clone(), broker.clone(), number);
            self.shared.store.put_queue(&mut batch, &partition, id);
            created.push(Tail::empty(id, partition));
            id += 1;
        }
        self.commit(batch)?;
        for tail in created {
            self.shared.queues.insert(tail.queue.clone());
            self.tails.insert(tail.queue.id, tail);
        }
        Ok(())
    }

    /// Stores how far a consumer group has come.
    pub(super) fn report(&mut self, group: &str, offsets: &Offsets) -> Result<()> {
        let mut batch = self.begin()?;
        for (partition, next) in offsets.iter() {
            let queue = self.shared.queues.find(partition)?;
            self.shared.store.put_report(&mut batch, group, queue.id, next);
        }
        self.commit(batch)
    }

    /// Makes everything written so far durable. `Err` holds for the rest of the writer's life.
    pub(super) fn sync(&mut self) -> fjall::Result<()> {
        let outcome = self.shared.store.database.persist(PersistMode::SyncData);
        self.shared.failed.fetch_or(outcome.is_err(), Ordering::AcqRel);
        outcome
    }

    /// Shows readers everything written so far, then drops what is beyond the retention.
    pub(super) fn publish(&mut self) {
        let published = std::mem::take(&mut self.unpublished);
        for (queue, next) in &published {
            queue.publish(*next);
        }
        let Some(retention) = self.shared.options.retention_bytes else { return };
        for (queue, _) in published {
            // The append is done whatever becomes of this; the next one tries again.
            if let Err(error) = self.retain(queue.id, retention) {
                tracing::error!(partition = %queue.partition, ?error, "old records could not be dropped");
            }
        }
    }

    fn begin(&self) -> Result<OwnedWriteBatch> {
        if self.shared.failed.load(Ordering::Acquire) {
            return Err(fault::failed_before());
        }
        Ok(self.shared.store.batch())
    }

    /// The batch reaches the operating system whole or not at all: fjall drops an unfinished one at the next opening.
    fn commit(&mut self, batch: OwnedWriteBatch) -> Result<()> {
        // Before the write: what fails here has changed nothing.
        self.seal_when_full()?;
        self.shared.store.wait_for_flush()?;
        // Which buffer an entry goes to does not matter: too high a count only seals early.
        self.buffered_bytes += batch.len() as u64 * ENTRY_BYTES;
        self.buffered_half_bytes += batch.len() as u64 * ENTRY_BYTES;
        let outcome = batch.commit();
        self.shared.failed.fetch_or(outcome.is_err(), Ordering::AcqRel);
        outcome.map_err(fault::writing)
    }

    /// Seals the write buffers that are full.
    fn seal_when_full(&mut self) -> Result<()> {
        let limit = self.shared.options.write_buffer_bytes;
        let store = &self.shared.store;
        if self.buffered_bytes > limit {
            self.buffered_bytes = 0;
            store.chunks.rotate_memtable().map_err(fault::writing)?;
        }
        if self.buffered_half_bytes > limit {
            self.buffered_half_bytes = 0;
            store.halves.rotate_memtable().map_err(fault::writing)?;
            store.checks.rotate_memtable().map_err(fault::writing)?;
        }
        Ok(())
    }

    fn stage(&self, batch: &mut OwnedWriteBatch, queue: u32, draft: Draft, born: Timestamp) -> Result<Staged> {
        let tail = self.tails.get(&queue).ok_or_else(|| Error::bug(format!("queue without a tail: queue={queue}")))?;
        let now = self.shared.options.clock.now();
        let stored = now.max(tail.stored);
        let (key, next) = (chunk::key(queue, tail.next), tail.next.plus(draft.count()));
        let value = draft.finish(&key, born, stored);
        let staged = Staged { queue, first: tail.next, next, stored, bytes: value.len() as u64 };
        batch.insert(&self.shared.store.chunks, key, value);
        Ok(staged)
    }

    fn written(&mut self, staged: &Staged) -> Result<()> {
        let tail = self.tails.get_mut(&staged.queue).ok_or_else(|| Error::bug("queue without a tail"))?;
        tail.last = staged.first;
        tail.next = staged.next;
        tail.stored = staged.stored;
        tail.bytes += staged.bytes;
        self.buffered_bytes += staged.bytes;
        self.unpublished.push((tail.queue.clone(), staged.next));
        Ok(())
    }

    /// Drops old chunks once a queue has grown an eighth beyond its retention. The last chunk stays: it holds the
    /// queue's next offset.
    fn retain(&mut self, queue: u32, retention: u64) -> Result<()> {
        let Some(tail) = self.tails.get_mut(&queue) else { return Ok(()) };
        if tail.bytes <= retention.saturating_add(retention / 8) {
            return Ok(());
        }
        let mut dropped = vec![];
        let mut first = tail.queue.first();
        let range = chunk::key(queue, first)..=chunk::key(queue, tail.last);
        for entry in self.shared.store.chunks.range(range) {
            let (key, value) = entry.into_inner().map_err(fault::reading)?;
            first = chunk::base(&key)?;
            let left = tail.bytes.saturating_sub(value.len() as u64);
            if left < retention || first == tail.last {
                break;
            }
            tail.bytes = left;
            dropped.push(key);
        }
        // Readers are kept off first; a crash in between brings the chunks back, and a later append drops them again.
        tail.queue.retire(first);
        let mut batch = self.begin()?;
        for key in dropped {
            batch.remove(&self.shared.store.chunks, key);
        }
        self.commit(batch)
    }

    fn queue_count(&self, spec: &TopicSpec) -> Result<u32> {
        let count = match &spec.queues {
            crate::Queues::PerBroker(count) => *count,
            crate::Queues::SameAs(other) => {
                let queues = self.shared.queues.of_topic(other, &self.shared.options.broker);
                if queues.is_empty() {
                    return Err(Error::invalid(format!("no such topic: topic={other}")));
                }
                u32::try_from(queues.len()).unwrap_or(u32::MAX)
            }
        };
        if count == 0 || count > QUEUES_MAX {
            return Err(Error::invalid(format!("topic must have 1 to {QUEUES_MAX} queues: given={count}")));
        }
        Ok(count)
    }
}
