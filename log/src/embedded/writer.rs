//! The one writer: every change of the log goes through it, in one order, which is the log's order (rule 5).

use super::checks::{Checks, Waiting};
use super::chunk::{self, Draft};
use super::fault;
use super::half::{At, Checked, Half, UNIQUE_KEY};
use super::options::EmbeddedOptions;
use super::queues::{Queue, Queues};
use super::store::{Store, Tail};
use crate::{Acked, End, Link, MessageBatch, Prepared, TopicSpec, find_property};
use fjall::{OwnedWriteBatch, PersistMode};
use onceflow_types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp, UNIQUE_KEY_BYTES_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most queues of a topic.
const QUEUES_MAX: u32 = 4_096;
/// Halves beyond their retention that one prepare removes at most.
const EXPIRED_MAX: usize = 64;

/// What the writer and the handles share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) queues: Queues,
    pub(super) options: EmbeddedOptions,
    pub(super) link: Link,
    pub(super) checks: Mutex<Checks>,
    /// Rings when a half was added.
    pub(super) halves_added: Notify,
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
    failed: bool,
}

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
        Writer { shared, tails, place_next, oldest, unpublished: vec![], failed: false }
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

    /// Stores a message as a half.
    pub(super) fn prepare(&mut self, target: &Queue, group: Arc<str>, message: &MessageBatch) -> Result<Prepared> {
        let mut batch = self.begin()?;
        let (place, stored) = (self.place_next, self.shared.options.clock.now());
        let (unique_key, message) = with_unique_key(message, place, stored)?;
        let handle = HalfHandle {
            target: target.partition.clone(),
            commit_log_offset: place,
            half_queue_offset: place,
            unique_key: unique_key.as_str().into(),
        };
        let message = message.as_bytes().to_vec();
        let half = At::Half(Half { stored, target: target.id, group: group.to_string(), unique_key, message });
        let checked = Checked { checks: 0, present: place };
        batch.insert(&self.shared.store.halves, place.to_be_bytes(), half.encode(place));
        batch.insert(&self.shared.store.checks, place.to_be_bytes(), checked.encode(place));
        let expired = self.stage_expiry(&mut batch, stored)?;
        self.commit(batch)?;
        self.place_next = place + 1;
        self.oldest = expired.oldest.or(self.oldest).or(Some((place, stored)));
        let mut checks = self.shared.checks();
        expired.places.iter().for_each(|place| checks.remove(*place));
        checks.set(place, Waiting { group, due: Instant::now() + self.shared.options.check_after, checked });
        drop(checks);
        self.shared.halves_added.notify_waiters();
        Ok(Prepared { handle, link: self.shared.link.clone() })
    }

    /// Ends a half, as often as it is asked to.
    pub(super) fn end(&mut self, handle: &HalfHandle, group: &str, end: End) -> Result<Link> {
        let mut batch = self.begin()?;
        let (first, half) = self.half(handle.commit_log_offset)?;
        let target = self.target(&half)?.queue.partition.clone();
        let (given, stored) = ((&*handle.unique_key, &handle.target), (half.unique_key.as_str(), &target));
        if given != stored || handle.half_queue_offset != handle.commit_log_offset {
            return Err(Error::data_loss(format!(
                "another half message is at this place: given={given:?} stored={stored:?}"
            )));
        }
        if half.group != group {
            let text = format!("half message belongs to another group: stored={} given={group}", half.group);
            return Err(Error::invalid(text));
        }
        batch.remove(&self.shared.store.checks, first.to_be_bytes());
        let staged = match end {
            End::Commit => {
                let draft = Draft::new(half.visible()?.as_bytes(), 1);
                Some(self.stage(&mut batch, half.target, draft, half.stored)?)
            }
            End::Rollback => None,
        };
        self.commit(batch)?;
        self.shared.checks().remove(first);
        staged.map_or(Ok(()), |staged| self.written(&staged))?;
        Ok(self.shared.link.clone())
    }

    /// Gives a half that is due its next place and returns place, target and half, or gives the half up. `None`: there is no question.
    pub(super) fn check(&mut self, first: u64) -> Result<Option<(u64, Partition, Half)>> {
        let now = Instant::now();
        let Some(waiting) = self.shared.checks().get(first).cloned() else { return Ok(None) };
        if waiting.due > now {
            return Ok(None);
        }
        let mut batch = self.begin()?;
        if waiting.checked.checks >= self.shared.options.checks_max {
            tracing::warn!(place = first, group = %waiting.group, "half message was given up; it can still be ended");
            batch.remove(&self.shared.store.checks, first.to_be_bytes());
            self.commit(batch)?;
            self.shared.checks().remove(first);
            return Ok(None);
        }
        let (_, half) = self.half(first)?;
        let target = self.target(&half)?.queue.partition.clone();
        let place = self.place_next;
        let further = At::Further { stored: self.shared.options.clock.now(), first };
        let checked = Checked { checks: waiting.checked.checks + 1, present: place };
        batch.insert(&self.shared.store.halves, place.to_be_bytes(), further.encode(place));
        batch.insert(&self.shared.store.checks, first.to_be_bytes(), checked.encode(first));
        self.commit(batch)?;
        self.place_next = place + 1;
        let due = now + self.shared.options.check_interval;
        self.shared.checks().set(first, Waiting { group: waiting.group, due, checked });
        Ok(Some((place, target, half)))
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
        self.failed |= outcome.is_err();
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
        if self.failed {
            return Err(fault::failed_before());
        }
        Ok(self.shared.store.batch())
    }

    /// The batch reaches the operating system whole or not at all: fjall drops an unfinished one at the next opening.
    fn commit(&mut self, batch: OwnedWriteBatch) -> Result<()> {
        let outcome = batch.commit();
        self.failed |= outcome.is_err();
        outcome.map_err(fault::writing)
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

    fn target(&self, half: &Half) -> Result<&Tail> {
        let tail = self.tails.get(&half.target);
        tail.ok_or_else(|| Error::data_loss(format!("half message without its queue: queue={}", half.target)))
    }

    /// The half at a place, however often it was moved, and its first place.
    fn half(&self, place: u64) -> Result<(u64, Half)> {
        match self.at(place)? {
            At::Half(half) => Ok((place, half)),
            At::Further { first, .. } => match self.at(first)? {
                At::Half(half) => Ok((first, half)),
                At::Further { .. } => Err(Error::data_loss(format!("half message moved from nowhere: place={place}"))),
            },
        }
    }

    fn at(&self, place: u64) -> Result<At> {
        match self.shared.store.halves.get(place.to_be_bytes()).map_err(fault::reading)? {
            Some(value) => At::decode(place, &value),
            None => Err(Error::data_loss(format!("log no longer has the half message: place={place}"))),
        }
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

    /// Removes some halves beyond their retention; the newest stays, so that places are not given twice.
    fn stage_expiry(&self, batch: &mut OwnedWriteBatch, now: Timestamp) -> Result<Expired> {
        let retention = i64::try_from(self.shared.options.half_retention.as_millis()).unwrap_or(i64::MAX);
        let kept_since = now.saturating_add(retention.saturating_neg());
        let mut expired = Expired::default();
        let Some((from, _)) = self.oldest.filter(|(_, stored)| *stored < kept_since) else { return Ok(expired) };
        let range = from.to_be_bytes()..self.place_next.to_be_bytes();
        for entry in self.shared.store.halves.range(range).take(EXPIRED_MAX + 1) {
            let (key, value) = entry.into_inner().map_err(fault::reading)?;
            let place = super::half::place(&key)?;
            let stored = At::decode(place, &value)?.stored();
            expired.oldest = Some((place, stored));
            if stored >= kept_since || expired.places.len() == EXPIRED_MAX {
                break;
            }
            batch.remove(&self.shared.store.halves, key.clone());
            batch.remove(&self.shared.store.checks, key);
            expired.places.push(place);
        }
        Ok(expired)
    }
}

/// Halves beyond their retention.
#[derive(Default)]
struct Expired {
    places: Vec<u64>,
    /// The oldest that was looked at and may be left.
    oldest: Option<(u64, Timestamp)>,
}

/// The one message of a batch with a UNIQ_KEY: its own, or one made of time and place, in the length of RocketMQ's.
fn with_unique_key(message: &MessageBatch, place: u64, stored: Timestamp) -> Result<(String, MessageBatch)> {
    let mut messages = message.iter();
    let (Some(message), None) = (messages.next(), messages.next()) else {
        return Err(Error::invalid("a half message is one message"));
    };
    if let Some(key) = find_property(message.properties, UNIQUE_KEY) {
        let key = std::str::from_utf8(key).ok().filter(|key| !key.is_empty() && key.len() <= UNIQUE_KEY_BYTES_MAX);
        let key =
            key.ok_or_else(|| Error::invalid(format!("UNIQ_KEY must be 1 to {UNIQUE_KEY_BYTES_MAX} bytes of text")))?;
        let mut own = MessageBatch::default();
        own.push_with_flag(message.flag, message.properties, message.body)?;
        return Ok((key.to_owned(), own));
    }
    let key = format!("{:016X}{place:016X}", stored.as_millis());
    let mut properties = message.properties.to_vec();
    if properties.last().is_some_and(|last| *last != 2) {
        properties.push(2);
    }
    properties.extend_from_slice(format!("{UNIQUE_KEY}\u{1}{key}\u{2}").as_bytes());
    let mut own = MessageBatch::default();
    own.push_with_flag(message.flag, &properties, message.body)?;
    Ok((key, own))
}
