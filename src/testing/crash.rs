//! Crashes at named steps of an epoch.

use onceflow_storage::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory};
use onceflow_types::{CommitPoint, Error, Name, Result, TaskId};
use std::sync::{Arc, Mutex, PoisonError};

/// Where in an epoch a [`TestDriver`](super::TestDriver) can crash: before a step, or after it and before anybody knows. The
/// steps are those of `docs/commit-protocol.md`; whatever the place, what comes out in the end is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CrashPoint {
    /// Before the first half message of a `Transactional` sink is stored.
    BeforePrepare,
    /// After the first half message was stored.
    AfterPrepare,
    /// Before the Commit is in the journal: the epoch has not happened.
    BeforeDecide,
    /// After the Commit is in the journal: the epoch has happened, and its owner does not know.
    AfterDecide,
    /// Before the store is written.
    BeforeApply,
    /// After the store was written.
    AfterApply,
    /// Before the first message of the epoch becomes visible.
    BeforePublish,
    /// After the first message became visible.
    AfterPublish,
}

impl CrashPoint {
    /// All of them, in the order of an epoch.
    pub const ALL: [CrashPoint; 8] = [
        CrashPoint::BeforePrepare,
        CrashPoint::AfterPrepare,
        CrashPoint::BeforeDecide,
        CrashPoint::AfterDecide,
        CrashPoint::BeforeApply,
        CrashPoint::AfterApply,
        CrashPoint::BeforePublish,
        CrashPoint::AfterPublish,
    ];

    fn place(self) -> (Step, bool) {
        match self {
            CrashPoint::BeforePrepare => (Step::Prepare, false),
            CrashPoint::AfterPrepare => (Step::Prepare, true),
            CrashPoint::BeforeDecide => (Step::Decide, false),
            CrashPoint::AfterDecide => (Step::Decide, true),
            CrashPoint::BeforeApply => (Step::Apply, false),
            CrashPoint::AfterApply => (Step::Apply, true),
            CrashPoint::BeforePublish => (Step::Publish, false),
            CrashPoint::AfterPublish => (Step::Publish, true),
        }
    }
}

/// A step with an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Prepare,
    Decide,
    Apply,
    Publish,
}

/// Where the driver is to crash, and whether it has. Clones share it.
#[derive(Clone, Default, Debug)]
pub(super) struct Cuts(Arc<Mutex<Cut>>);

#[derive(Clone, Copy, Default, Debug)]
struct Cut {
    at: Option<CrashPoint>,
    crashed: bool,
}

impl Cuts {
    /// Crashes at the next effect of this kind; `None`: at none.
    pub(super) fn arm(&self, at: Option<CrashPoint>) {
        self.update(|cut| *cut = Cut { at, crashed: false });
    }

    pub(super) fn crashed(&self) -> bool {
        self.update(|cut| cut.crashed)
    }

    fn update<R>(&self, change: impl FnOnce(&mut Cut) -> R) -> R {
        // Plain assignments: a poisoned lock still guards whole data.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all is over here.
    fn reach(&self, step: Option<Step>, after: bool) -> bool {
        self.update(|cut| {
            let here = |at: CrashPoint| step.is_some_and(|step| at.place() == (step, after));
            cut.crashed |= cut.at.is_some_and(here);
            cut.crashed
        })
    }

    /// Never returns once the driver has crashed.
    pub(super) async fn alive(&self) {
        self.before(None).await;
    }

    pub(super) async fn before(&self, step: Option<Step>) {
        if self.reach(step, false) {
            std::future::pending::<()>().await;
        }
    }

    pub(super) async fn after(&self, step: Option<Step>) {
        if self.reach(step, true) {
            std::future::pending::<()>().await;
        }
    }
}

/// Stores that crash with the driver.
pub(super) struct CutStores {
    pub(super) inner: Arc<dyn StoreFactory>,
    pub(super) cuts: Cuts,
}

impl StoreFactory for CutStores {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        let inner = self.inner.open(job, task)?;
        Ok(Box::new(CutStore { inner, cuts: self.cuts.clone() }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        self.inner.destroy(job, task)
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}

struct CutStore {
    inner: Box<dyn StateStore>,
    cuts: Cuts,
}

impl CutStore {
    fn reach(&self, after: bool) -> Result<()> {
        if self.cuts.reach(Some(Step::Apply), after) {
            Err(Error::retry("the test driver has crashed"))
        } else {
            Ok(())
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
        self.reach(false)?;
        self.inner.commit(delta, point)?;
        self.reach(true)
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
