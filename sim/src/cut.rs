//! Crashes at named steps of the protocol: a log and stores, around any others, that stop the processor, the broker or both
//! at the n-th one. The simulation and real processes share them; what a crash does is for a [`Crash`] to say.

mod log;
mod store;

pub use log::CutLog;
pub use store::CutStores;

use onceflow::types::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A step of the protocol that changes something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Step {
    /// The Claim of an owner.
    Claim,
    /// S2: a half message.
    Prepare,
    /// S2: a piece of a large body.
    Delta,
    /// S3: the decision.
    Commit,
    /// S4: the write of the store.
    Apply,
    /// S5: the END of a half.
    End,
    /// S5: plain messages.
    Send,
    /// The proof that ENDs are kept.
    Barrier,
    /// A piece of a snapshot.
    Chunk,
    /// The record of a snapshot.
    Snapshot,
    /// The clean hand-over.
    Release,
}

impl Step {
    /// All steps.
    pub const ALL: [Step; 11] = [
        Step::Claim,
        Step::Prepare,
        Step::Delta,
        Step::Commit,
        Step::Apply,
        Step::End,
        Step::Send,
        Step::Barrier,
        Step::Chunk,
        Step::Snapshot,
        Step::Release,
    ];
}

/// On which side of a step's effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Moment {
    /// Nothing has happened.
    Before,
    /// It has happened, and nobody was told.
    After,
}

impl Moment {
    /// Both sides.
    pub const ALL: [Moment; 2] = [Moment::Before, Moment::After];
}

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Victim {
    /// The process of the job.
    Processor,
    /// The broker.
    Broker,
    /// Both.
    Both,
}

impl Victim {
    /// Each.
    pub const ALL: [Victim; 3] = [Victim::Processor, Victim::Broker, Victim::Both];
}

/// A crash at the n-th step of a kind, counted from the crash before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cut {
    /// The step.
    pub step: Step,
    /// The side of its effect.
    pub moment: Moment,
    /// Which one, from 1.
    pub nth: u32,
    /// Who is killed.
    pub victim: Victim,
}

impl fmt::Display for Cut {
    /// One word, as for a file: `commit-after-broker`, and `commit-3-after-broker` for the third one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nth = if self.nth > 1 { format!("-{}", self.nth) } else { String::new() };
        let text = format!("{:?}{nth}-{:?}-{:?}", self.step, self.moment, self.victim);
        f.write_str(&text.to_lowercase())
    }
}

/// Carries crashes out.
pub trait Crash: Send + Sync + 'static {
    /// Kills who is to be killed, now, on the thread that is at the step; nothing that this thread owns goes on meanwhile.
    /// Where the processor is to be killed a real process does not return from here. One that returns is taken for dead:
    /// the step, and every one after it, never ends.
    fn kill(&self, victim: Victim);
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Cut>,
    seen: u32,
    dead: bool,
}

/// The crashes that are to come, one after the other.
#[derive(Clone)]
pub struct Cuts {
    crash: Arc<dyn Crash>,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuts").field("waiting", &self.lock().waiting).finish_non_exhaustive()
    }
}

impl Cuts {
    /// These crashes, carried out so.
    pub fn new(cuts: &[Cut], crash: Arc<dyn Crash>) -> Self {
        let state = State { waiting: cuts.iter().copied().collect(), ..State::default() };
        Cuts { crash, state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have not happened.
    pub fn left(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether the processor is dead; it can be started again then.
    pub(crate) fn take_dead(&self) -> bool {
        std::mem::take(&mut self.lock().dead)
    }

    /// Counts a step, and kills where that is due.
    fn meet(&self, step: Step, moment: Moment) -> Option<Victim> {
        let victim = {
            let mut state = self.lock();
            let next = *state.waiting.front()?;
            if (next.step, next.moment) != (step, moment) {
                return None;
            }
            state.seen += 1;
            if state.seen < next.nth {
                return None;
            }
            state.waiting.pop_front();
            state.seen = 0;
            state.dead |= next.victim != Victim::Broker;
            next.victim
        };
        self.crash.kill(victim);
        Some(victim)
    }

    /// Does a step under the crash that is due there. A dead processor waits for its end.
    async fn at<T>(&self, step: Option<Step>, call: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(step) = step else { return call.await };
        if self.lock().dead {
            std::future::pending::<()>().await;
        }
        self.stop_at(self.meet(step, Moment::Before)).await?;
        let result = call.await;
        if result.is_ok() {
            self.stop_at(self.meet(step, Moment::After)).await?;
        }
        result
    }

    async fn stop_at(&self, victim: Option<Victim>) -> Result<()> {
        match victim {
            None => Ok(()),
            Some(Victim::Broker) => Err(Error::retry("the broker was killed")),
            Some(Victim::Processor | Victim::Both) => std::future::pending().await,
        }
    }
}
