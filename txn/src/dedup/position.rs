//! The reader's place in one channel.

use super::Accepted;
use onceflow_types::{Sequence, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The next expected sequence, what is held behind it, and what is known about the channel's beginning.
#[derive(Clone, Debug)]
pub(super) struct Position<T> {
    pub(super) next: Sequence,
    /// Only sequences above `next`.
    pub(super) held: BTreeMap<Sequence, T>,
    pub(super) begin: Begin,
    pub(super) last_seen: Timestamp,
    /// Since when `next` has been missing; without meaning while nothing is held.
    pub(super) gap_since: Timestamp,
    changed: bool,
}

/// What lies before the reader's first message of the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begin {
    /// Nothing that could still be missing.
    Whole,
    /// Perhaps something.
    Middle {
        /// When the first message was stored.
        since: Timestamp,
        /// The first message that was new `gap_wait` later: what lies before the beginning is published as soon as a
        /// floor is above it.
        mark: Option<Sequence>,
    },
}

impl<T> Position<T> {
    pub(super) fn new(floor: Sequence, whole: bool, now: Timestamp) -> Self {
        let begin = if whole { Begin::Whole } else { Begin::Middle { since: now, mark: None } };
        Position { next: floor, held: BTreeMap::new(), begin, last_seen: now, gap_since: now, changed: false }
    }

    pub(super) fn next(&self) -> Sequence {
        self.next
    }

    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.begin == Begin::Whole
    }

    pub(super) fn begin_in_the_middle(&mut self, now: Timestamp) {
        self.begin = Begin::Middle { since: now, mark: None };
    }

    /// How many sequences below `floor` are missing; `None` when `floor` is no news. At least `next` is: what is held is
    /// above it.
    pub(super) fn missing_below(&self, floor: Sequence) -> Option<u64> {
        let span = floor.distance_from(self.next).filter(|span| *span > 0)?;
        Some(span - self.held.range(..floor).count() as u64)
    }

    /// Gives up what is missing below `floor`: hands on what is held there, then goes on at `floor`.
    pub(super) fn go_on_at(&mut self, floor: Sequence, now: Timestamp, out: &mut Vec<T>) {
        let above = self.held.split_off(&floor);
        out.extend(std::mem::replace(&mut self.held, above).into_values());
        self.next = floor;
        self.follow(now, out);
    }

    pub(super) fn take(
        &mut self,
        sequence: Sequence,
        item: T,
        held_max: usize,
        now: Timestamp,
        out: &mut Vec<T>,
    ) -> Accepted<T> {
        if sequence == self.next {
            out.push(item);
            self.next = sequence.next();
            if !self.held.is_empty() {
                self.follow(now, out);
            }
            return Accepted::New;
        }
        if sequence < self.next || self.held.contains_key(&sequence) {
            return Accepted::Duplicate;
        }
        if self.held.len() >= held_max {
            return Accepted::Full(item);
        }
        if self.held.is_empty() {
            self.gap_since = now;
        }
        self.held.insert(sequence, item);
        Accepted::Held
    }

    /// Hands on what is held from `next` on without a gap. What is still held then waits for another one, from now on.
    fn follow(&mut self, now: Timestamp, out: &mut Vec<T>) {
        while let Some(entry) = self.held.first_entry().filter(|entry| *entry.key() == self.next) {
            self.next = self.next.next();
            out.push(entry.remove());
        }
        self.gap_since = now;
    }

    /// Takes notice of a message, after what it did: the channel is alive, and may count as whole from here on (see the
    /// module `dedup`).
    pub(super) fn seen(&mut self, sequence: Sequence, floor: Sequence, new: bool, now: Timestamp, gap_wait: Duration) {
        self.last_seen = self.last_seen.max(now);
        let Begin::Middle { since, mark } = &mut self.begin else { return };
        match *mark {
            None if new && has_lasted(*since, now, gap_wait) => *mark = Some(sequence),
            Some(mark) if floor > mark && self.held.is_empty() => self.begin = Begin::Whole,
            _ => {}
        }
    }

    /// The first held sequence, when the gap before it may be passed by now.
    pub(super) fn overdue(&self, now: Timestamp, gap_wait: Duration) -> Option<Sequence> {
        let (first, _) = self.held.first_key_value()?;
        (!self.is_whole() && has_lasted(self.gap_since, now, gap_wait)).then_some(*first)
    }

    pub(super) fn is_unseen(&self, now: Timestamp, retention: Duration) -> bool {
        self.held.is_empty() && has_lasted(self.last_seen, now, retention)
    }

    /// Sets the mark; returns whether it was not set.
    pub(super) fn mark_changed(&mut self) -> bool {
        !std::mem::replace(&mut self.changed, true)
    }

    pub(super) fn clear_changed(&mut self) {
        self.changed = false;
    }
}

fn has_lasted(since: Timestamp, now: Timestamp, at_least: Duration) -> bool {
    let millis = i64::try_from(at_least.as_millis()).unwrap_or(i64::MAX);
    now >= since.saturating_add(millis)
}
