//! The reference backend: a map in memory.

use crate::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory, check_commit, check_load};
use onceflow_types::{CommitPoint, Error, Name, Result, TaskId};
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of one task in memory. The reference for every other backend, and the fastest one while state fits.
///
/// A store of its own (`MemoryStore::default()`) is gone when it is dropped; one that [`MemoryStores`] opened hands its
/// state back on drop, to be opened again within the process. After the process ends, the journal rebuilds it.
#[derive(Default)]
pub struct MemoryStore {
    state: State,
    home: Option<(MemoryStores, Id)>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    point: Option<CommitPoint>,
}

impl State {
    fn apply(&mut self, delta: &Delta) {
        for (key, change) in delta {
            match (change, self.entries.get_mut(key)) {
                (Some(value), Some(old)) => {
                    old.clear();
                    old.extend_from_slice(value);
                }
                (Some(value), None) => {
                    self.entries.insert(key.to_vec(), value.to_vec());
                }
                (None, _) => {
                    self.entries.remove(key);
                }
            }
        }
    }
}

impl ReadStore for MemoryStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.state.entries.get(key);
        value.extend_from_slice(found.map(Vec::as_slice).unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        // A tree panics on a range whose end lies before its start: ask for one that is empty instead.
        let bounds = if range.is_empty() {
            (Bound::Included(&[][..]), Bound::Excluded(&[][..]))
        } else {
            (range.start, range.end.as_ref().map(Vec::as_slice))
        };
        Ok(Box::new(MemoryCursor { entries: self.state.entries.range::<[u8], _>(bounds), order }))
    }
}

struct MemoryCursor<'s> {
    entries: btree_map::Range<'s, Vec<u8>, Vec<u8>>,
    order: Order,
}

impl Cursor for MemoryCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let entry = match self.order {
            Order::Ascending => self.entries.next(),
            Order::Descending => self.entries.next_back(),
        };
        Ok(entry.map(|(key, value)| (key.as_slice(), value.as_slice())))
    }
}

impl StateStore for MemoryStore {
    fn commit_point(&self) -> Result<Option<&CommitPoint>> {
        Ok(self.state.point.as_ref())
    }

    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()> {
        check_commit(self.state.point.as_ref(), delta, point)?;
        delta.check()?;
        self.state.apply(delta);
        self.state.point = Some(point.clone());
        Ok(())
    }

    fn load(&mut self, delta: &Delta) -> Result<()> {
        check_load(self.state.point.as_ref())?;
        delta.check()?;
        self.state.apply(delta);
        Ok(())
    }

    fn crash_consistent(&self) -> bool {
        // Nothing survives a crash, and nothing is the state before the first commit.
        true
    }

    fn backend(&self) -> &'static str {
        "memory"
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        if let Some((stores, id)) = self.home.take() {
            stores.lock().insert(id, Some(std::mem::take(&mut self.state)));
        }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("entries", &self.state.entries.len()).finish_non_exhaustive()
    }
}

type Id = (Name, TaskId);

/// The memory stores of a process, by job and task. A clone is a handle to the same stores.
///
/// ```
/// use onceflow_storage::{MemoryStores, StoreFactory};
/// use onceflow_types::{ErrorKind, Name, TaskId};
///
/// let stores = MemoryStores::default();
/// let job = Name::job("payments")?;
/// let task = TaskId { subtopology: Name::new("sums")?, broker: "broker-a".into(), queue: 0 };
/// let first = stores.open(&job, &task)?;
/// assert_eq!(stores.open(&job, &task).err().map(|e| e.kind()), Some(ErrorKind::Fenced));
/// drop(first);
/// assert!(stores.open(&job, &task).is_ok());
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryStores {
    // `None` while a handle is open.
    tasks: Arc<Mutex<BTreeMap<Id, Option<State>>>>,
}

impl MemoryStores {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Option<State>>> {
        // Every change under the lock is one call, so a panic elsewhere leaves nothing half done.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreFactory for MemoryStores {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        let id = (job.clone(), task.clone());
        let mut tasks = self.lock();
        let slot = tasks.entry(id.clone()).or_insert_with(|| Some(State::default()));
        let Some(mut state) = slot.take() else {
            return Err(Error::fenced(format!("store is open elsewhere: job={job} task={task}")));
        };
        if state.point.is_none() {
            // Rule 12: entries that no commit made valid.
            state.entries.clear();
        }
        Ok(Box::new(MemoryStore { state, home: Some((self.clone(), id)) }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        let id = (job.clone(), task.clone());
        let mut tasks = self.lock();
        if let Some(None) = tasks.get(&id) {
            return Err(Error::fenced(format!("store is open elsewhere: job={job} task={task}")));
        }
        tasks.remove(&id);
        Ok(())
    }

    fn backend(&self) -> &'static str {
        "memory"
    }
}

impl fmt::Debug for MemoryStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStores").finish_non_exhaustive()
    }
}
