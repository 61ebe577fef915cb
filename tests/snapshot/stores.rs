//! Stores that count what is done to them, and whose process ends at a chosen step of a loading.

use onceflow::storage::{Backend, Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory, StoreOptions};
use onceflow::types::{CommitPoint, Error, Name, Result, TaskId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub struct TestStores {
    inner: StoreOptions,
    pub counts: Arc<Counts>,
}

#[derive(Default, Debug)]
pub struct Counts {
    pub destroyed: AtomicU64,
    pub pieces_loaded: AtomicU64,
    pub keys_loaded: AtomicU64,
    /// The process ends at this step, once: before a piece, after it, ..., before the first commit, after it. 0: never.
    pub cut_at: AtomicU64,
    /// Steps since a store was opened that was empty; the largest such number.
    pub steps: AtomicU64,
    pub cuts: AtomicU64,
    /// Openings that showed entries without a point.
    pub halves_accepted: AtomicU64,
}

impl TestStores {
    pub fn new(directory: &Path) -> Arc<TestStores> {
        Arc::new(TestStores { inner: StoreOptions::new(Backend::Fjall, directory), counts: Arc::default() })
    }
}

impl StoreFactory for TestStores {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        let inner = self.inner.open(job, task)?;
        if inner.commit_point()?.is_none() && inner.scan(KeyRange::all(), Order::Ascending)?.next()?.is_some() {
            self.counts.halves_accepted.fetch_add(1, SeqCst);
        }
        Ok(Box::new(TestStore { inner, counts: self.counts.clone(), steps: 0 }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        self.counts.destroyed.fetch_add(1, SeqCst);
        self.inner.destroy(job, task)
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn locked_place(&self) -> Option<String> {
        self.inner.locked_place()
    }
}

struct TestStore {
    inner: Box<dyn StateStore>,
    counts: Arc<Counts>,
    steps: u64,
}

impl TestStore {
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        self.counts.steps.fetch_max(self.steps, SeqCst);
        if self.counts.cut_at.compare_exchange(self.steps, 0, SeqCst, SeqCst).is_err() {
            return Ok(());
        }
        self.counts.cuts.fetch_add(1, SeqCst);
        Err(Error::retry("the process ends here"))
    }
}

impl ReadStore for TestStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.get(key, value)
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        self.inner.scan(range, order)
    }
}

impl StateStore for TestStore {
    fn commit_point(&self) -> Result<Option<&CommitPoint>> {
        self.inner.commit_point()
    }

    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()> {
        if self.inner.commit_point()?.is_some() {
            return self.inner.commit(delta, point);
        }
        self.step()?;
        self.inner.commit(delta, point)?;
        self.step()
    }

    fn load(&mut self, delta: &Delta) -> Result<()> {
        self.step()?;
        self.counts.pieces_loaded.fetch_add(1, SeqCst);
        self.counts.keys_loaded.fetch_add(delta.len() as u64, SeqCst);
        self.inner.load(delta)?;
        self.step()
    }

    fn crash_consistent(&self) -> bool {
        self.inner.crash_consistent()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}
