//! A model of the disk under the stores of one machine: commits are whole or not at all, the last ones may be undone by loss
//! of power, and calls may fail.

use crate::dice::Dice;
use crate::fault::Fault;
use crate::plant::Plant;
use crate::world::Net;
use onceflow::storage::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory};
use onceflow::types::{CommitPoint, Error, Name, Result, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many commits loss of power can undo.
const UNSYNCED_MAX: usize = 6;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// What one commit left.
#[derive(Clone, Default)]
struct Image {
    entries: Arc<Entries>,
    point: Option<CommitPoint>,
}

/// One task's directory: the images that loss of power can bring back, the newest last.
#[derive(Default)]
struct Directory {
    images: VecDeque<Image>,
    open: bool,
    damaged: bool,
}

/// The disk of a machine. It outlives the processes there.
#[derive(Clone)]
pub(crate) struct Disk {
    machine: u32,
    net: Net,
    directories: Arc<Mutex<BTreeMap<(Name, TaskId), Directory>>>,
}

impl Disk {
    pub(crate) fn new(machine: u32, net: &Net) -> Self {
        Disk { machine, net: net.clone(), directories: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Name, TaskId), Directory>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine loses power: each store goes back to one of its last commits, or is damaged.
    pub(crate) fn lose_power(&self, dice: &mut Dice) {
        for directory in self.lock().values_mut() {
            // Its first commits may all be undone, too.
            let first = usize::from(directory.images.len() < UNSYNCED_MAX);
            let undone = dice.below((directory.images.len() + first) as u64);
            let left = directory.images.len() - usize::try_from(undone).unwrap_or(0);
            directory.images.truncate(left);
            directory.damaged |= dice.happens(100);
        }
    }

    fn fails(&self, fault: Fault) -> bool {
        let mut world = self.net.lock();
        let rate = world.rates.of(fault);
        // Stores are asked more often than brokers.
        let happens = world.dice.happens(rate.div_ceil(4)) && rate > 0;
        if happens {
            world.counts.fault(fault);
        }
        happens
    }
}

impl StoreFactory for Disk {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        let gone = self.fails(Fault::DiskGone);
        let half = gone && self.net.lock().dice.happens(500);
        let mut directories = self.lock();
        let directory = directories.entry((job.clone(), task.clone())).or_default();
        if directory.open {
            return Err(Error::fenced(format!("store is open elsewhere: job={job} task={task}")));
        }
        if gone && half {
            directory.images.clear();
        }
        if directory.damaged || (gone && !half) {
            directory.damaged = true;
            return Err(Error::corrupt("the store is damaged"));
        }
        directory.open = true;
        let image = directory.images.back().cloned().unwrap_or_default();
        Ok(Box::new(SimStore { disk: self.clone(), id: (job.clone(), task.clone()), image, failed: false }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        let mut directories = self.lock();
        if directories.get(&(job.clone(), task.clone())).is_some_and(|directory| directory.open) {
            return Err(Error::fenced(format!("store is open elsewhere: job={job} task={task}")));
        }
        directories.remove(&(job.clone(), task.clone()));
        Ok(())
    }

    fn backend(&self) -> &'static str {
        "sim"
    }

    fn locked_place(&self) -> Option<String> {
        Some(format!("machine-{}", self.machine))
    }
}

struct SimStore {
    disk: Disk,
    id: (Name, TaskId),
    image: Image,
    failed: bool,
}

impl SimStore {
    fn check(&self) -> Result<()> {
        if self.failed { Err(Error::corrupt("the handle is dead after a failed commit")) } else { Ok(()) }
    }

    fn changed(&self, delta: &Delta) -> Entries {
        let mut entries = (*self.image.entries).clone();
        for (key, change) in delta {
            match change {
                Some(value) => entries.insert(key.to_vec(), value.to_vec()),
                None => entries.remove(key),
            };
        }
        entries
    }

    fn keep(&self, image: Image) {
        let mut directories = self.disk.lock();
        let directory = directories.entry(self.id.clone()).or_default();
        directory.images.push_back(image);
        while directory.images.len() > UNSYNCED_MAX {
            directory.images.pop_front();
        }
    }
}

impl ReadStore for SimStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.check()?;
        value.clear();
        if self.disk.fails(Fault::DiskRead) {
            if self.disk.net.has(Plant::UnreadableIsAbsent) {
                return Ok(false);
            }
            return Err(Error::corrupt("an entry cannot be read"));
        }
        let found = self.image.entries.get(key);
        value.extend_from_slice(found.map(Vec::as_slice).unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        self.check()?;
        let ends = self.disk.fails(Fault::DiskRead);
        if ends && !self.disk.net.has(Plant::ScanEndsEarly) {
            return Err(Error::corrupt("a scan cannot start"));
        }
        let inside = |key: &[u8]| range.contains(key);
        let entries: Vec<(&[u8], &[u8])> = self
            .image
            .entries
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .filter(|(key, _)| inside(key) && !ends)
            .collect();
        Ok(Box::new(SimCursor { entries, order }))
    }
}

struct SimCursor<'s> {
    entries: Vec<(&'s [u8], &'s [u8])>,
    order: Order,
}

impl Cursor for SimCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        Ok(match self.order {
            Order::Ascending => Some(self.entries.remove(0)),
            Order::Descending => self.entries.pop(),
        })
    }
}

impl StateStore for SimStore {
    fn commit_point(&self) -> Result<Option<&CommitPoint>> {
        self.check()?;
        Ok(self.image.point.as_ref())
    }

    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()> {
        self.check()?;
        onceflow::storage::check_commit(self.image.point.as_ref(), delta, point)?;
        delta.check()?;
        let image = Image { entries: Arc::new(self.changed(delta)), point: Some(point.clone()) };
        if self.disk.net.has(Plant::TwoWrites) {
            self.keep(Image { entries: self.image.entries.clone(), ..image.clone() });
        }
        if self.disk.fails(Fault::DiskError) {
            if self.disk.net.has(Plant::WriteErrorIgnored) {
                self.image = Image { entries: self.image.entries.clone(), point: image.point };
                self.keep(self.image.clone());
                return Ok(());
            }
            self.failed = true;
            if self.disk.net.lock().dice.happens(500) {
                self.keep(image);
            }
            return Err(Error::corrupt("the write failed"));
        }
        self.disk.net.lock().counts.commits += 1;
        self.image = image.clone();
        self.keep(image);
        Ok(())
    }

    fn load(&mut self, delta: &Delta) -> Result<()> {
        self.check()?;
        onceflow::storage::check_load(self.image.point.as_ref())?;
        self.image.entries = Arc::new(self.changed(delta));
        Ok(())
    }

    fn crash_consistent(&self) -> bool {
        true
    }

    fn backend(&self) -> &'static str {
        "sim"
    }
}

impl Drop for SimStore {
    fn drop(&mut self) {
        if let Some(directory) = self.disk.lock().get_mut(&self.id) {
            directory.open = false;
        }
    }
}
