//! Stores whose writes are steps.

use super::{Cuts, Moment, Step, Victim};
use onceflow::storage::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory};
use onceflow::types::{CommitPoint, Error, Name, Result, TaskId};
use std::sync::Arc;

/// Stores whose writes are to be cut.
pub struct CutStores {
    inner: Arc<dyn StoreFactory>,
    cuts: Cuts,
}

impl CutStores {
    /// These stores under these crashes.
    pub fn new(inner: Arc<dyn StoreFactory>, cuts: Cuts) -> Self {
        CutStores { inner, cuts }
    }
}

impl std::fmt::Debug for CutStores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutStores").field("backend", &self.inner.backend()).finish_non_exhaustive()
    }
}

impl StoreFactory for CutStores {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        Ok(Box::new(CutStore { inner: self.inner.open(job, task)?, cuts: self.cuts.clone() }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        self.inner.destroy(job, task)
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn locked_place(&self) -> Option<String> {
        self.inner.locked_place()
    }
}

struct CutStore {
    inner: Box<dyn StateStore>,
    cuts: Cuts,
}

impl CutStore {
    /// A write cannot wait for the end of its process; that it failed is all that the process still learns.
    fn stop_at(&self, moment: Moment) -> Result<()> {
        match self.cuts.meet(Step::Apply, moment) {
            None | Some(Victim::Broker) => Ok(()),
            Some(Victim::Processor | Victim::Both) => Err(Error::corrupt("the process was killed")),
        }
    }
}

impl ReadStore for CutStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.get(key, value)
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        self.inner.scan(range, order)
    }
}

impl StateStore for CutStore {
    fn commit_point(&self) -> Result<Option<&CommitPoint>> {
        self.inner.commit_point()
    }

    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()> {
        self.stop_at(Moment::Before)?;
        self.inner.commit(delta, point)?;
        self.stop_at(Moment::After)
    }

    fn load(&mut self, delta: &Delta) -> Result<()> {
        self.inner.load(delta)
    }

    fn crash_consistent(&self) -> bool {
        self.inner.crash_consistent()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}
