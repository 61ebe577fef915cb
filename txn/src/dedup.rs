//! The dedup reader's rule: from messages with repeats, out of order and with late copies to each one once, in order.
//!
//! Per channel the reader keeps the next expected sequence. A lower one is a duplicate and dropped. The equal one is new
//! and handed on, and what is held behind it follows. A higher one is held until the missing one arrives, or until it
//! is proven that it will not come:
//!
//! - Every message carries its channel's *floor*: the first sequence that was not counted as published when its epoch
//!   began. All below it had been visible in the queue by then. So a missing sequence below a floor lies before the
//!   place where the reader began, or was removed, or is lost. A reader that **began in the middle** hands on what it
//!   holds below the floor, goes on at the floor and counts the gap; one that has read the channel **whole** reports
//!   `DataLoss`.
//! - A reader that began in the middle also passes a gap that has lasted [`gap_wait`](DedupSettings::gap_wait), as the
//!   next message, with its floor, may be long in coming.
//!
//! A channel first seen starts at that message's floor, and is read whole when the queue was read from its first message
//! and the floor is 0. One that began in the middle counts as whole once nothing that lies before the beginning can be
//! missing any more: `gap_wait` after its first message came a message that was new, later one whose floor is above
//! that, and no gap was left. What was visible before the beginning belongs to epochs that are not after that of the new
//! message, since the epochs of a channel are published one after the other; the floor says that all of those are
//! published; so all that lies before the beginning is below what has been handed on. (A late copy does not count: none
//! is carried out that late.)
//!
//! # Time
//! `now` is the time up to which **the queue has been read**: the stored time of the message at hand, or, when a read
//! found the queue's end, the time at which that read was sent. Never the time of a reader that is behind: the missing
//! message may be the next one it reads.
//!
//! # State
//! Positions and held messages are part of the reader's own epoch state: [`changes`](DedupReader::changes) writes what
//! differs since the last call, [`restore`](DedupReader::restore) takes it back. Reading again from any earlier offset is
//! always safe.

mod key;
mod position;
mod saved;

pub use key::ChannelKey;

use crate::SEQUENCE_MAX;
use onceflow_types::{Error, Partition, Result, Sequence, Timestamp};
use position::Position;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many messages one channel may hold, unless set otherwise: the producer's 4 unpublished epochs of 4,096 messages.
pub const HELD_MAX_DEFAULT: usize = 16_384;

/// The bounds of a [`DedupReader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DedupSettings {
    /// How long a gap must have lasted before a reader that began in the middle passes it: twice the publish lease.
    pub gap_wait: Duration,
    /// How long a channel is remembered without a message: as long as the log keeps messages.
    pub retention: Duration,
    /// How many messages one channel may hold; beyond it the reader stops pulling the queue.
    pub held_max: usize,
}

impl DedupSettings {
    /// The settings that belong to the job's publish lease and the topic's retention.
    pub fn new(publish_lease: Duration, retention: Duration) -> Self {
        DedupSettings { gap_wait: publish_lease * 2, retention, held_max: HELD_MAX_DEFAULT }
    }
}

/// Where the reading of a queue began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the first message that was ever in it.
    First,
    /// Somewhere else, or nobody knows.
    Middle,
}

/// What became of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Accepted<T> {
    /// Handed on.
    New,
    /// Seen before; dropped.
    Duplicate,
    /// Kept until the ones before it are settled.
    Held,
    /// The channel holds too many. Nothing was done with the message: stop pulling its queue, and offer it again later.
    Full(T),
}

/// How many messages met which fate since the reader was made.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DedupCounts {
    /// Messages handed on.
    pub new: u64,
    /// Messages dropped as repeats.
    pub duplicates: u64,
    /// Messages that had to be held for a while.
    pub held: u64,
    /// Gaps passed over.
    pub gaps_passed: u64,
    /// Sequences in those gaps.
    pub sequences_passed: u64,
}

/// The dedup reader of any number of queues. `T` is what is handed on, such as the message's bytes.
///
/// ```
/// use onceflow_txn::{Accepted, ChannelKey, DedupReader, DedupSettings, Start};
/// use onceflow_types::{Incarnation, Name, Partition, Sequence, TaskId, Timestamp};
/// use std::time::Duration;
///
/// let queue = Partition::new("alerts", "broker-a", 0);
/// let key = ChannelKey {
///     incarnation: Incarnation::new(9),
///     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
///     sink: Name::new("alerts")?,
///     target: queue.clone(),
/// };
/// let mut reader = DedupReader::new(DedupSettings::new(Duration::from_secs(10), Duration::from_secs(72 * 3600)));
/// reader.begin(&queue, Start::First);
///
/// let mut out = Vec::new();
/// let (now, floor) = (Timestamp::from_millis(0), Sequence::new(0));
/// for (sequence, text) in [(0, "a"), (2, "c"), (0, "a again"), (1, "b")] {
///     reader.accept(&key, Sequence::new(sequence), floor, text, now, &mut out)?;
/// }
/// assert_eq!(out, ["a", "b", "c"]);
/// assert_eq!(reader.counts().duplicates, 1);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DedupReader<T> {
    settings: DedupSettings,
    /// Queues that were read from their first message on, without a hole.
    whole: BTreeSet<Partition>,
    positions: BTreeMap<ChannelKey, Position<T>>,
    /// What [`changes`](Self::changes) has to write.
    changed_queues: BTreeSet<Partition>,
    changed: BTreeSet<ChannelKey>,
    held: usize,
    counts: DedupCounts,
}

impl<T> DedupReader<T> {
    /// A reader without positions.
    pub fn new(settings: DedupSettings) -> Self {
        DedupReader {
            settings,
            whole: BTreeSet::new(),
            positions: BTreeMap::new(),
            changed_queues: BTreeSet::new(),
            changed: BTreeSet::new(),
            held: 0,
            counts: DedupCounts::default(),
        }
    }

    /// Says where the reading of a queue begins. Needed once, before its first message, and not after
    /// [`restore`](Self::restore); a queue of which nothing was said began in the middle.
    pub fn begin(&mut self, target: &Partition, start: Start) {
        let changed = match start {
            Start::First => self.whole.insert(target.clone()),
            Start::Middle => self.whole.remove(target),
        };
        if changed {
            self.changed_queues.insert(target.clone());
        }
    }

    /// Says that messages of a queue were skipped, such as those that retention removed before they were read: its
    /// channels have begun in the middle from here on.
    pub fn hole(&mut self, target: &Partition, now: Timestamp) {
        self.begin(target, Start::Middle);
        for (key, position) in self.positions.iter_mut().filter(|(key, _)| key.target == *target) {
            position.begin_in_the_middle(now);
            mark_changed(key, position, &mut self.changed);
        }
    }

    /// Takes the message with this `sequence` and `floor` that was read from `key.target`, and appends to `out` what is
    /// handed on because of it, in order. See the [module](self) for `now`.
    ///
    /// # Errors
    /// `DataLoss` when the floor proves that a message of a channel that was read whole is gone; `Record` when sequence
    /// and floor contradict each other. Nothing has changed then.
    pub fn accept(
        &mut self,
        key: &ChannelKey,
        sequence: Sequence,
        floor: Sequence,
        item: T,
        now: Timestamp,
        out: &mut Vec<T>,
    ) -> Result<Accepted<T>> {
        if floor > sequence || sequence > SEQUENCE_MAX {
            return Err(Error::record(format!("sequence out of range: sequence={sequence} floor={floor}")));
        }
        let position = if let Some(position) = self.positions.get_mut(key) {
            position
        } else {
            let whole = floor == Sequence::ZERO && self.whole.contains(&key.target);
            self.positions.entry(key.clone()).or_insert_with(|| Position::new(floor, whole, now))
        };
        let (before, handed) = (position.held(), out.len());
        if let Some(missing) = position.missing_below(floor) {
            if position.is_whole() {
                return Err(data_loss(key, position.next(), floor));
            }
            self.counts.gaps_passed += 1;
            self.counts.sequences_passed += missing;
            position.go_on_at(floor, now, out);
        }
        let accepted = position.take(sequence, item, self.settings.held_max, now, out);
        position.seen(sequence, floor, !matches!(accepted, Accepted::Duplicate), now, self.settings.gap_wait);
        mark_changed(key, position, &mut self.changed);
        self.held = self.held + position.held() - before;
        self.counts.new += (out.len() - handed) as u64;
        match accepted {
            Accepted::Duplicate => self.counts.duplicates += 1,
            Accepted::Held => self.counts.held += 1,
            Accepted::New | Accepted::Full(_) => {}
        }
        Ok(accepted)
    }

    /// Passes the gaps of a queue that have lasted long enough, in channels that began in the middle, and appends what is
    /// handed on to `out`. To be called when a read found the queue's end; `now` as in the [module](self).
    pub fn pass_gaps(&mut self, target: &Partition, now: Timestamp, out: &mut Vec<T>) {
        if self.held == 0 {
            return;
        }
        for (key, position) in self.positions.iter_mut().filter(|(key, _)| key.target == *target) {
            let Some(first) = position.overdue(now, self.settings.gap_wait) else { continue };
            let (before, handed) = (position.held(), out.len());
            self.counts.gaps_passed += 1;
            self.counts.sequences_passed += position.missing_below(first).unwrap_or_default();
            position.go_on_at(first, now, out);
            mark_changed(key, position, &mut self.changed);
            self.held = self.held + position.held() - before;
            self.counts.new += (out.len() - handed) as u64;
        }
    }

    /// Forgets the channels of a queue that have been unseen for longer than the retention and hold nothing; `now` as in
    /// the [module](self).
    pub fn forget_unseen(&mut self, target: &Partition, now: Timestamp) {
        let retention = self.settings.retention;
        let changed = &mut self.changed;
        self.positions.retain(|key, position| {
            let forget = key.target == *target && position.is_unseen(now, retention);
            if forget {
                changed.insert(key.clone());
            }
            !forget
        });
    }

    /// The sequence that a channel waits for; `None` for an unknown channel.
    pub fn next(&self, key: &ChannelKey) -> Option<Sequence> {
        self.positions.get(key).map(Position::next)
    }

    /// How many messages are held now.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many channels are known.
    pub fn channels(&self) -> usize {
        self.positions.len()
    }

    /// What happened so far.
    pub fn counts(&self) -> DedupCounts {
        self.counts
    }
}

fn mark_changed<T>(key: &ChannelKey, position: &mut Position<T>, changed: &mut BTreeSet<ChannelKey>) {
    if position.mark_changed() {
        changed.insert(key.clone());
    }
}

#[cold]
fn data_loss(key: &ChannelKey, next: Sequence, floor: Sequence) -> Error {
    Error::data_loss(format!(
        "published messages are gone from a queue that was read whole: target={} task={} sink={} incarnation={} \
         missing_from={next} floor={floor}",
        key.target, key.task, key.sink, key.incarnation
    ))
}
