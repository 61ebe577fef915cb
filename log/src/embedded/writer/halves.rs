//! Changes of half messages.

use super::Writer;
use crate::embedded::checks::Waiting;
use crate::embedded::chunk::Draft;
use crate::embedded::fault;
use crate::embedded::half::{self, At, Checked, Half, UNIQUE_KEY};
use crate::embedded::queues::Queue;
use crate::embedded::store::Tail;
use crate::{End, Link, MessageBatch, Prepared, find_property};
use fjall::OwnedWriteBatch;
use onceflow_types::{Error, HalfHandle, Partition, Result, Timestamp, UNIQUE_KEY_BYTES_MAX};
use std::sync::Arc;
use tokio::time::Instant;

/// Halves beyond their retention that one prepare removes at most.
const EXPIRED_MAX: usize = 64;

impl Writer {
    /// Stores a message as a half.
    pub(in crate::embedded) fn prepare(
        &mut self,
        target: &Queue,
        group: Arc<str>,
        message: &MessageBatch,
    ) -> Result<Prepared> {
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
        let encoded = half.encode(place);
        self.buffered_half_bytes += encoded.len() as u64;
        batch.insert(&self.shared.store.halves, place.to_be_bytes(), encoded);
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
    pub(in crate::embedded) fn end(&mut self, handle: &HalfHandle, group: &str, end: End) -> Result<Link> {
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
    pub(in crate::embedded) fn check(&mut self, first: u64) -> Result<Option<(u64, Partition, Half)>> {
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
        let encoded = further.encode(place);
        self.buffered_half_bytes += encoded.len() as u64;
        batch.insert(&self.shared.store.halves, place.to_be_bytes(), encoded);
        batch.insert(&self.shared.store.checks, first.to_be_bytes(), checked.encode(first));
        self.commit(batch)?;
        self.place_next = place + 1;
        let due = now + self.shared.options.check_interval;
        self.shared.checks().set(first, Waiting { group: waiting.group, due, checked });
        Ok(Some((place, target, half)))
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

    /// Removes some halves beyond their retention; the newest stays, so that places are not given twice.
    fn stage_expiry(&self, batch: &mut OwnedWriteBatch, now: Timestamp) -> Result<Expired> {
        let retention = i64::try_from(self.shared.options.half_retention.as_millis()).unwrap_or(i64::MAX);
        let kept_since = now.saturating_add(retention.saturating_neg());
        let mut expired = Expired::default();
        let Some((from, _)) = self.oldest.filter(|(_, stored)| *stored < kept_since) else { return Ok(expired) };
        let range = from.to_be_bytes()..self.place_next.to_be_bytes();
        for entry in self.shared.store.halves.range(range).take(EXPIRED_MAX + 1) {
            let (key, value) = entry.into_inner().map_err(fault::reading)?;
            let place = half::place(&key)?;
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
