//! A process of a job: it can be killed between any two of its steps, and stand still for a while.

use crate::cut::{CutLog, CutStores, Cuts};
use crate::dice::{Dice, DiceEntropy};
use crate::log::SimLog;
use crate::plant::Plant;
use crate::world::{ClientId, Net, SimClock};
use futures_util::future::try_join_all;
use onceflow::log::Log;
use onceflow::storage::StoreFactory;
use onceflow::types::Result;
use onceflow::{Config, Runtime, Topology, topics};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// What a process runs.
pub(crate) struct Program {
    pub(crate) topologies: Vec<Topology>,
    pub(crate) config: Config,
    pub(crate) stores: Arc<dyn StoreFactory>,
    /// Crashes at named steps, if there are to be any.
    pub(crate) cuts: Option<Cuts>,
}

/// A running process.
pub(crate) struct Process {
    gate: Rc<Gate>,
    drain: watch::Sender<bool>,
    handle: JoinHandle<Option<Result<()>>>,
}

impl Process {
    /// Starts a process.
    pub(crate) fn start(net: &Net, client: ClientId, program: Program, dice: &mut Dice) -> Process {
        let (drain, drained) = watch::channel(false);
        let (net, entropy) = (net.clone(), dice.fork());
        let inside = LocalSet::new();
        let result = Rc::new(RefCell::new(None));
        let kept = result.clone();
        inside.spawn_local(async move {
            let outcome = live(net, client, program, entropy, drained).await;
            *kept.borrow_mut() = Some(outcome);
        });
        let gate = Rc::new(Gate::default());
        let gated = Gated { inside, gate: gate.clone() };
        let handle = spawn_local(async move {
            gated.await;
            result.take()
        });
        Process { gate, drain, handle }
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.is_finished()
    }

    /// How it ended; waits for that. `None`: it panicked.
    pub(crate) async fn ended(self) -> Option<Result<()>> {
        self.handle.await.ok().flatten()
    }

    /// Stops it where it is. When this returns, nothing of it is left.
    pub(crate) async fn kill(self) {
        self.handle.abort();
        // It was aborted: that is its result.
        let _ = self.handle.await;
    }

    /// Asks it to hand its tasks over and end.
    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }

    pub(crate) fn pause(&self) {
        self.gate.paused.set(true);
    }

    pub(crate) fn resume(&self) {
        self.gate.paused.set(false);
        if let Some(waker) = self.gate.waker.take() {
            waker.wake();
        }
    }
}

/// The process's program.
async fn live(
    net: Net,
    client: ClientId,
    program: Program,
    mut dice: Dice,
    drained: watch::Receiver<bool>,
) -> Result<()> {
    let Program { topologies, config, mut stores, cuts } = program;
    if let Some(cuts) = &cuts {
        stores = Arc::new(CutStores::new(stores, cuts.clone()));
    }
    let jobs = topologies.into_iter().map(|topology| {
        let mut log: Arc<dyn Log> = Arc::new(SimLog::open(&net, client, &topics::producer_group(&topology.job)));
        if let Some(cuts) = &cuts {
            log = Arc::new(CutLog::new(log, cuts.clone()));
        }
        let builder = Runtime::builder(topology, log, stores.clone())
            .config(config.clone())
            .clock(Arc::new(SimClock(net.clone())))
            .entropy(Arc::new(DiceEntropy::new(if net.has(Plant::SameNonce) { Dice::new(1) } else { dice.fork() })))
            // Machines differ by their directories; the real host's name would make a seed another run elsewhere.
            .machine("sim")
            .on_this_thread();
        let mut drained = drained.clone();
        async move {
            let mut runtime = builder.start().await?;
            tokio::select! {
                biased;
                _ = drained.wait_for(|drained| *drained) => {}
                result = runtime.wait() => return result,
            }
            runtime.drain().await
        }
    });
    let jobs: Vec<_> = jobs.collect();
    try_join_all(jobs).await.map(drop)
}

#[derive(Default)]
struct Gate {
    paused: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Everything that runs in the process, behind its gate.
struct Gated {
    inside: LocalSet,
    gate: Rc<Gate>,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.gate.paused.get() {
            *self.gate.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.inside).poll(cx)
    }
}
