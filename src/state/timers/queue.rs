//! The next timers of one kind, in memory.

use super::stored::Stored;
use super::{Due, LAST};
use crate::state::TaskState;
use onceflow_types::{Result, Timestamp};
use std::collections::BTreeMap;

/// How many bytes may be allocated for what is due, for each timer that may be in memory, before fewer are kept.
const BYTES_EACH: usize = 64;

/// The timers of one kind, the next of them in memory.
///
/// What is set and taken within one epoch never reaches the state. All else is written to it at [`seal`](Self::seal), or
/// when there is no room; what is taken or removed is deleted from it at once, if it lies there.
#[derive(Debug)]
pub(super) struct Queue {
    stored: Stored,
    /// All timers before `end`, each with whether it lies in the state. Empty only when there are no timers.
    next: BTreeMap<Due, bool>,
    /// All timers from here on lie in the state alone; `None` when there are none.
    end: Option<Due>,
    /// The time of the first one; the end of time when there is none.
    front: Timestamp,
    /// No timer before this waits to be written; `None` when none waits.
    unwritten: Option<Due>,
    /// Allocated for what is due.
    bytes: usize,
    timers_max: usize,
}

impl Queue {
    /// Reads the first timers that lie in the state.
    pub(super) fn open(stored: Stored, timers_max: usize, state: &TaskState) -> Result<Self> {
        let end = Some(Due::from(Timestamp::MIN));
        let (next, front) = (BTreeMap::new(), Timestamp::MAX);
        let mut queue = Queue { stored, next, end, front, unwritten: None, bytes: 0, timers_max };
        queue.refill(state)?;
        Ok(queue)
    }

    #[inline]
    pub(super) fn front(&self) -> Timestamp {
        self.front
    }

    pub(super) fn first(&self) -> Option<&Due> {
        self.next.first_key_value().map(|(due, _)| due)
    }

    /// Whether a timer is among those that are kept in memory.
    fn is_near(&self, due: &Due) -> bool {
        self.end.as_ref().is_none_or(|end| due < end)
    }

    pub(super) fn set(&mut self, due: Due, state: &mut TaskState) {
        if !self.is_near(&due) {
            self.stored.put(&due, state);
            return;
        }
        self.front = self.front.min(due.time);
        if self.unwritten.as_ref().is_none_or(|first| due < *first) {
            self.unwritten = Some(due.clone());
        }
        let bytes = due.what.allocated();
        if let std::collections::btree_map::Entry::Vacant(place) = self.next.entry(due) {
            place.insert(false);
            self.bytes += bytes;
            self.make_room(state);
        }
    }

    pub(super) fn remove(&mut self, due: &Due, state: &mut TaskState) -> Result<()> {
        if !self.is_near(due) {
            self.stored.delete(due, state);
            return Ok(());
        }
        if let Some(is_stored) = self.next.remove(due) {
            self.forget(due, is_stored, state)?;
        }
        Ok(())
    }

    /// Takes out the first timer, if it is due at `now`.
    pub(super) fn take(&mut self, now: Timestamp, state: &mut TaskState) -> Result<Option<Due>> {
        if self.front > now.min(LAST) {
            return Ok(None);
        }
        let Some((due, is_stored)) = self.next.pop_first() else { return Ok(None) };
        self.forget(&due, is_stored, state)?;
        Ok(Some(due))
    }

    /// A timer has left memory for ever.
    fn forget(&mut self, due: &Due, is_stored: bool, state: &mut TaskState) -> Result<()> {
        self.bytes -= due.what.allocated();
        if is_stored {
            self.stored.delete(due, state);
        }
        if self.next.is_empty() {
            return self.refill(state);
        }
        self.find_front();
        Ok(())
    }

    fn find_front(&mut self) {
        self.front = self.next.first_key_value().map_or(Timestamp::MAX, |(due, _)| due.time);
    }

    /// Whether so many timers, with so much allocated, are more than may be in memory.
    fn is_over(&self, timers: usize, bytes: usize) -> bool {
        timers > self.timers_max || bytes > self.timers_max.saturating_mul(BYTES_EACH)
    }

    /// Leaves the later half of the timers to the state, when there are too many. Never the first.
    fn make_room(&mut self, state: &mut TaskState) {
        if !self.is_over(self.next.len(), self.bytes) {
            return;
        }
        let half = (self.next.len() / 2).max(1);
        let Some(end) = self.next.keys().nth(half).cloned() else { return };
        for (due, is_stored) in self.next.split_off(&end) {
            self.bytes -= due.what.allocated();
            if !is_stored {
                self.stored.put(&due, state);
            }
        }
        self.end = Some(end);
    }

    /// Reads the next timers from the state, half of those that may be in memory, when there are none in memory.
    fn refill(&mut self, state: &TaskState) -> Result<()> {
        if let Some(from) = self.end.take() {
            let (next, bytes, most) = (&mut self.next, &mut self.bytes, self.timers_max.div_ceil(2));
            let end = &mut self.end;
            self.stored.read(&from, state, |due| {
                if next.len() >= most || *bytes > most.saturating_mul(BYTES_EACH) {
                    *end = Some(due);
                    return false;
                }
                *bytes += due.what.allocated();
                next.insert(due, true);
                true
            })?;
        }
        self.find_front();
        Ok(())
    }

    /// Writes what waits for it into the state. It stays in memory.
    pub(super) fn seal(&mut self, state: &mut TaskState) {
        let Some(from) = self.unwritten.take() else { return };
        for (due, is_stored) in self.next.range_mut(from..) {
            if !*is_stored {
                self.stored.put(due, state);
                *is_stored = true;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn timers(&self) -> usize {
        self.next.len()
    }

    #[cfg(test)]
    pub(super) fn end(&self) -> Option<&Due> {
        self.end.as_ref()
    }
}
