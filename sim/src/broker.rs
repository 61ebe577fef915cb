//! A model of one RocketMQ broker: a commit log, consume queues that follow it, half messages, check-backs, and what a
//! crash takes with it. It behaves as the calibration suite found real ones to behave (`docs/calibration.md`, and F1 to F15
//! of the reliability goals):
//!
//! - a commit of a half writes the message once more, whatever was done with the half before, also after a rollback or
//!   after the broker gave it up;
//! - the operation record that ends the checks of a half is written up to 3 s later, and lost with the process;
//! - each check writes the half again at a new place, to any live handle of its group; after the last it is given up;
//! - queues show a message some time after it is stored, in commit-log order over all queues;
//! - loss of power takes any end of the log that no acknowledged append lies behind. An END's reply acknowledges nothing.

use crate::dice::Dice;
use bytes::Bytes;
use onceflow::types::{Partition, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes that one entry takes in the model's commit log: only the order of places matters.
pub(crate) const ENTRY_BYTES: u64 = 64;
/// How late an operation record is written (`transactionOpBatchInterval`).
const OP_LATE_MAX: Duration = Duration::from_secs(3);
/// How old a half is when it is asked about first (`transactionTimeOut`), and the time between two checks. The interval is
/// shorter than the broker's 30 s, for more checks in a run.
const CHECK_FIRST: Duration = Duration::from_secs(6);
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// After so many checks a half is given up (`transactionCheckMax`).
const CHECKS_MAX: u32 = 15;

/// A message as stored.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) born: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) properties: Bytes,
    pub(crate) body: Bytes,
}

/// One place of the commit log.
#[derive(Clone, Debug)]
enum Entry {
    Message(Stored),
    Half(Half),
    /// The half first stored at this place needs no more checks.
    Op(usize),
    /// Another place of a half, written for a check.
    Rewritten(usize),
}

/// A half message as stored.
#[derive(Clone, Debug)]
pub(crate) struct Half {
    pub(crate) target: Partition,
    pub(crate) group: Arc<str>,
    pub(crate) unique_key: Arc<str>,
    pub(crate) message: Stored,
}

/// A half that is still asked about.
#[derive(Clone, Debug)]
struct Open {
    next_check: Instant,
    checks: u32,
    /// Its present place.
    place: usize,
    /// When its operation record is written; `None`: nobody has ended it.
    op_at: Option<Instant>,
}

type QueueId = (Arc<str>, u32);

/// A consume queue.
#[derive(Debug, Default)]
struct Queue {
    /// The first offset that retention has left.
    first: u64,
    /// Places in the commit log with the time from which they are shown, from offset 0.
    entries: Vec<(usize, Instant)>,
    changed: Arc<Notify>,
}

/// A question about a half.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) half: Half,
    pub(crate) place: u64,
    pub(crate) half_queue_offset: u64,
}

/// The broker.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) name: Arc<str>,
    /// Whether the process runs.
    pub(crate) up: bool,
    /// Grows with each start.
    pub(crate) life: u64,
    log: Vec<Entry>,
    /// What no crash takes: the length of the log when an append was last acknowledged.
    kept: usize,
    /// When the last entry is shown; later ones are never shown before.
    shown_at: Instant,
    queues: BTreeMap<QueueId, Queue>,
    halves: BTreeMap<usize, Open>,
    keys: u64,
}

/// A read of a queue.
pub(crate) enum Reading {
    /// The queue is not there.
    NoQueue,
    /// Outside what can be read.
    Outside { first: u64, next: u64 },
    /// These, from the asked offset on; the queue ends at `next`.
    Records { records: Vec<Stored>, next: u64 },
    /// Nothing yet: to be asked again after the notification, or at the time.
    Nothing(Arc<Notify>, Option<Instant>),
}

impl Broker {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Broker {
            name,
            up: true,
            life: 1,
            log: vec![],
            kept: 0,
            shown_at: Instant::now(),
            queues: BTreeMap::new(),
            halves: BTreeMap::new(),
            keys: 0,
        }
    }

    /// Adds the queues below `count` that a topic does not have yet.
    pub(crate) fn add_queues(&mut self, topic: &Arc<str>, count: u32) {
        for queue in 0..count {
            self.queues.entry((topic.clone(), queue)).or_default();
        }
    }

    /// The queue numbers of a topic.
    pub(crate) fn queues_of(&self, topic: &str) -> Vec<u32> {
        self.queues.keys().filter(|(name, _)| &**name == topic).map(|(_, queue)| *queue).collect()
    }

    /// All queues.
    pub(crate) fn all_queues(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.queues.keys().map(|(topic, queue)| (topic, *queue))
    }

    fn queue(&self, partition: &Partition) -> Option<&Queue> {
        self.queues.get(&(partition.topic.clone(), partition.queue))
    }

    pub(crate) fn has(&self, partition: &Partition) -> bool {
        self.queue(partition).is_some()
    }

    /// The first readable offset and the one after the last that is shown.
    pub(crate) fn range(&self, partition: &Partition, now: Instant) -> Option<(u64, u64)> {
        let queue = self.queue(partition)?;
        Some((queue.first, shown(queue, now) as u64))
    }

    /// The next offset of a queue, shown or not: the model's truth.
    pub(crate) fn end(&self, partition: &Partition) -> u64 {
        self.queue(partition).map_or(0, |queue| queue.entries.len() as u64)
    }

    /// Stores a message; returns its offset. Nothing is acknowledged yet.
    pub(crate) fn append(&mut self, partition: &Partition, message: Stored, lag: Duration) -> u64 {
        let id = (partition.topic.clone(), partition.queue);
        self.shown_at = self.shown_at.max(Instant::now() + lag);
        let queue = self.queues.entry(id).or_default();
        let offset = queue.entries.len() as u64;
        queue.entries.push((self.log.len(), self.shown_at));
        queue.changed.notify_waiters();
        self.log.push(Entry::Message(message));
        offset
    }

    /// An append got SEND_OK: nothing up to here is ever lost.
    pub(crate) fn acknowledge(&mut self) {
        self.kept = self.log.len();
    }

    /// Stores a half; returns its place and its place among halves. Nothing is acknowledged yet.
    pub(crate) fn prepare(&mut self, half: Half) -> (u64, u64) {
        let place = self.log.len();
        let open = Open { next_check: Instant::now() + CHECK_FIRST, checks: 0, place, op_at: None };
        self.halves.insert(place, open);
        self.log.push(Entry::Half(half));
        (offset_of(place), place as u64)
    }

    /// A new UNIQ_KEY.
    pub(crate) fn unique_key(&mut self) -> String {
        self.keys += 1;
        format!("{}-{:08}", self.name, self.keys)
    }

    /// The half at a commit-log offset, whichever of its places that is.
    pub(crate) fn half_at(&self, offset: u64) -> Option<(usize, &Half)> {
        let place = usize::try_from(offset / ENTRY_BYTES).ok()?;
        match self.log.get(place)? {
            Entry::Half(half) => Some((place, half)),
            Entry::Rewritten(first) => match self.log.get(*first)? {
                Entry::Half(half) => Some((*first, half)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Carries out an END: the message becomes visible once more, and the half is asked about no longer, as soon as the
    /// operation record is written.
    pub(crate) fn end_half(&mut self, first: usize, commit: bool, dice: &mut Dice, lag: Duration) {
        let Some(Entry::Half(half)) = self.log.get(first).cloned() else { return };
        if commit {
            self.append(&half.target, half.message, lag);
        }
        let late = dice.millis(0, u64::try_from(OP_LATE_MAX.as_millis()).unwrap_or(0));
        if let Some(open) = self.halves.get_mut(&first) {
            open.op_at.get_or_insert(Instant::now() + late);
        }
    }

    /// Writes operation records that are due, and returns the halves to ask about now.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Check> {
        let due: Vec<usize> =
            self.halves.iter().filter(|(_, open)| is_due(open.op_at, now)).map(|(at, _)| *at).collect();
        for first in due {
            self.halves.remove(&first);
            self.log.push(Entry::Op(first));
        }
        let asked: Vec<usize> =
            self.halves.iter().filter(|(_, open)| open.next_check <= now).map(|(at, _)| *at).collect();
        let mut checks = vec![];
        for first in asked {
            checks.extend(self.ask_about(first, now));
        }
        checks
    }

    fn ask_about(&mut self, first: usize, now: Instant) -> Option<Check> {
        let place = self.log.len();
        let open = self.halves.get_mut(&first)?;
        open.checks += 1;
        open.next_check = now + CHECK_INTERVAL;
        open.place = place;
        if open.checks > CHECKS_MAX {
            self.halves.remove(&first);
            return None;
        }
        self.log.push(Entry::Rewritten(first));
        match self.log.get(first) {
            Some(Entry::Half(half)) => {
                Some(Check { half: half.clone(), place: offset_of(place), half_queue_offset: place as u64 })
            }
            _ => None,
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        self.halves.values().map(|open| open.op_at.unwrap_or(open.next_check).min(open.next_check)).min()
    }

    /// Reads at most `records_max` messages from `from` on.
    pub(crate) fn read(&self, partition: &Partition, from: u64, records_max: usize, bytes_max: usize) -> Reading {
        let Some(queue) = self.queue(partition) else { return Reading::NoQueue };
        let now = Instant::now();
        let next = shown(queue, now);
        if from < queue.first || from > next as u64 {
            return Reading::Outside { first: queue.first, next: next as u64 };
        }
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut records = vec![];
        for (place, _) in queue.entries.get(from..next).unwrap_or_default() {
            let Some(Entry::Message(message)) = self.log.get(*place) else { break };
            bytes += message.body.len() + message.properties.len();
            if records.len() >= records_max || (bytes > bytes_max && !records.is_empty()) {
                break;
            }
            records.push(message.clone());
        }
        if records.is_empty() {
            return Reading::Nothing(queue.changed.clone(), queue.entries.get(next).map(|(_, at)| *at));
        }
        Reading::Records { records, next: next as u64 }
    }

    /// Every message of a queue, shown or not, also those that retention has removed: the model's truth.
    pub(crate) fn all(&self, partition: &Partition) -> impl Iterator<Item = &Stored> {
        let entries = self.queue(partition).map(|queue| &*queue.entries).unwrap_or_default();
        entries.iter().filter_map(|(place, _)| match self.log.get(*place) {
            Some(Entry::Message(message)) => Some(message),
            _ => None,
        })
    }

    /// The first offset whose message was stored at or after `time`.
    pub(crate) fn offset_at(&self, partition: &Partition, time: Timestamp) -> u64 {
        self.all(partition).take_while(|message| message.at < time).count() as u64
    }

    /// Removes the messages of a queue below `first`, as retention does; says whether there were any.
    pub(crate) fn trim(&mut self, partition: &Partition, first: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&(partition.topic.clone(), partition.queue)) else { return false };
        let first = first.min(queue.entries.len() as u64);
        let trims = first > queue.first;
        queue.first = queue.first.max(first);
        trims
    }

    /// Whether no crash takes the message at an offset.
    pub(crate) fn keeps(&self, partition: &Partition, offset: u64) -> bool {
        let place = usize::try_from(offset).ok().and_then(|offset| self.queue(partition)?.entries.get(offset));
        place.is_some_and(|(place, _)| *place < self.kept)
    }

    /// The process is killed. What it had in memory is gone: operation records that were not written.
    pub(crate) fn kill(&mut self) {
        self.up = false;
        for open in self.halves.values_mut() {
            open.op_at = None;
        }
    }

    /// The machine loses power: also some end of the log is gone that no acknowledged append lies behind. Returns how many
    /// entries were lost.
    pub(crate) fn lose_power(&mut self, dice: &mut Dice) -> usize {
        self.kill();
        let loose = self.log.len() - self.kept;
        let lost = usize::try_from(dice.below(loose as u64 + 1)).unwrap_or(0);
        self.truncate(self.log.len() - lost);
        lost
    }

    fn truncate(&mut self, len: usize) {
        self.log.truncate(len);
        for queue in self.queues.values_mut() {
            queue.entries.retain(|(place, _)| *place < len);
            queue.first = queue.first.min(queue.entries.len() as u64);
        }
        self.find_open_halves();
    }

    /// Reads the log again, as a broker does at its start: which halves have no operation record?
    fn find_open_halves(&mut self) {
        let mut open = BTreeMap::new();
        for (place, entry) in self.log.iter().enumerate() {
            match entry {
                Entry::Half(_) => {
                    let next_check = Instant::now() + CHECK_FIRST;
                    open.insert(place, Open { next_check, checks: 0, place, op_at: None });
                }
                Entry::Rewritten(first) => {
                    if let Some(half) = open.get_mut(first) {
                        half.checks += 1;
                        half.place = place;
                    }
                }
                Entry::Op(first) => {
                    open.remove(first);
                }
                Entry::Message(_) => {}
            }
        }
        open.retain(|_, half| half.checks <= CHECKS_MAX);
        self.halves = open;
    }

    /// The process starts again.
    pub(crate) fn start(&mut self) {
        self.up = true;
        self.life += 1;
        // What was stored is dispatched before the broker serves.
        let now = Instant::now();
        self.shown_at = now;
        for queue in self.queues.values_mut() {
            for (_, shown_at) in &mut queue.entries {
                *shown_at = (*shown_at).min(now);
            }
        }
    }

    /// How long the commit log is.
    pub(crate) fn entries(&self) -> usize {
        self.log.len()
    }
}

fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

const fn offset_of(place: usize) -> u64 {
    place as u64 * ENTRY_BYTES
}

/// How many entries of a queue are shown.
fn shown(queue: &Queue, now: Instant) -> usize {
    queue.entries.partition_point(|(_, at)| *at <= now)
}
