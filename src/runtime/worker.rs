//! Workers: each owns some tasks, and either a thread with a current-thread runtime or a share of its caller's.

use super::Failure;
use crate::edge::Backoff;
use crate::job::Job;
use crate::signal;
use crate::status::{Line, Standing};
use crate::task::{Control, TaskSeat, run, stopped};
use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use onceflow_types::{Error, ErrorKind, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self as local, LocalSet};

/// The first wait of a fenced owner: whoever fenced it is to have time to get going.
const FENCED_WAIT_FIRST: Duration = Duration::from_secs(1);

/// Where the tasks of a job run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Host {
    /// On threads of their own.
    #[default]
    Threads,
    /// On the caller's thread, among the other futures of its `LocalSet`.
    Caller,
}

/// A running worker.
#[derive(Debug)]
pub(super) enum Worker {
    /// On a thread of its own: what says that it has finished, and the thread.
    Thread(Option<oneshot::Receiver<()>>, Option<thread::JoinHandle<()>>),
    /// On the caller's thread.
    Local(Option<local::JoinHandle<()>>),
}

impl Worker {
    /// Ends when the worker has. Cancel safe.
    pub(super) async fn finished(&mut self) {
        match self {
            Worker::Thread(finished, thread) => {
                if let Some(receiver) = finished {
                    // An error means that the thread is gone without a word: finished, too.
                    let _ = receiver.await;
                    *finished = None;
                }
                if let Some(thread) = thread.take() {
                    // It catches panics; the job's failure says what there was.
                    let _ = thread.join();
                }
            }
            Worker::Local(handle) => {
                if let Some(future) = handle {
                    // As above.
                    let _ = future.await;
                    *handle = None;
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Whoever drops the job wants it stopped at once. A thread sees that by its control.
        if let Worker::Local(Some(future)) = self {
            future.abort();
        }
    }
}

/// A task to run, until its control or the job's says otherwise.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) seat: TaskSeat,
    pub(super) control: signal::Receiver<Control>,
}

/// The workers of a process, as whoever hands out tasks sees them.
#[derive(Debug)]
pub(super) struct Crew(Vec<(mpsc::UnboundedSender<Order>, usize)>);

impl Crew {
    /// Gives a task to the worker that has got the fewest.
    pub(super) fn give(&mut self, order: Order) {
        if let Some((worker, given)) = self.0.iter_mut().min_by_key(|(_, given)| *given) {
            *given += 1;
            // A worker that is gone has said why; the task's control shows that nobody runs it.
            let _ = worker.send(order);
        }
    }

    /// Ends the giving. An order that was on its way to a worker while that one ended lies in a channel that only this side
    /// still holds; whoever waits for the end of its task would wait for ever.
    pub(super) fn dismiss(&mut self) {
        self.0.clear();
    }
}

/// Starts the workers, without tasks.
pub(super) fn start(
    host: Host,
    job: &Arc<Job>,
    tasks: usize,
    control: &signal::Sender<Control>,
    failure: &Failure,
) -> Result<(Vec<Worker>, Crew)> {
    let count = match host {
        Host::Threads => job.config.worker_threads().min(tasks).max(1),
        Host::Caller => 1,
    };
    let (mut workers, mut crew) = (vec![], vec![]);
    for number in 0..count {
        let setup = Setup { job: job.clone(), control: control.clone(), failure: failure.clone() };
        let (sender, orders) = mpsc::unbounded_channel();
        let name = format!("onceflow-worker-{number}");
        workers.push(host.start(name, failure_of(&setup), move || async move { setup.run(orders).await })?);
        crew.push((sender, 0));
    }
    Ok((workers, Crew(crew)))
}

/// What to do with an error that ends a worker.
fn failure_of(setup: &Setup) -> impl Fn(Error) + Send + 'static {
    let setup = setup.clone();
    move |error| setup.fail(error)
}

impl Host {
    /// Runs a future on a thread of its own, or among the caller's; `fail` is told of a panic.
    pub(super) fn start<F: Future<Output = ()> + 'static>(
        self,
        name: String,
        fail: impl Fn(Error) + Send + 'static,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Worker> {
        match self {
            Host::Threads => start_thread(name, fail, work),
            Host::Caller => Ok(start_local(fail, work())),
        }
    }
}

fn start_thread<F: Future<Output = ()> + 'static>(
    name: String,
    fail: impl Fn(Error) + Send + 'static,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<Worker> {
    let (done, finished) = oneshot::channel();
    let run = move || {
        // A user's function may panic. What the tasks held is dropped with them, as after any error.
        let outcome = catch_unwind(AssertUnwindSafe(|| block_on(work())));
        if let Err(error) = outcome.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            fail(error);
        }
        // Nobody may wait any more.
        let _ = done.send(());
    };
    let thread = thread::Builder::new().name(name).spawn(run);
    let thread = thread.map_err(|e| Error::retry("a thread of the job cannot be started").with_source(e))?;
    Ok(Worker::Thread(Some(finished), Some(thread)))
}

fn start_local(fail: impl Fn(Error) + 'static, work: impl Future<Output = ()> + 'static) -> Worker {
    let run = async move {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            fail(panicked(&*panic));
        }
    };
    Worker::Local(Some(local::spawn_local(run)))
}

fn block_on(work: impl Future<Output = ()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::retry("a runtime of the job cannot be started").with_source(e))?;
    LocalSet::new().block_on(&runtime, work);
    Ok(())
}

/// What to say of a panic; the panic hook has told where it was.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::bug(format!("a worker panicked: {}", text.unwrap_or("no message")))
}

#[derive(Clone)]
pub(super) struct Setup {
    pub(super) job: Arc<Job>,
    pub(super) control: signal::Sender<Control>,
    pub(super) failure: Failure,
}

impl Setup {
    /// Runs the tasks that it is given until the job stops and they have ended.
    async fn run(&self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut tasks = FuturesUnordered::new();
        let mut control = self.control.subscribe();
        let (mut stopping, mut closed) = (false, false);
        while !(stopping && tasks.is_empty()) {
            tokio::select! {
                biased;
                order = orders.recv(), if !closed => match order {
                    Some(order) => tasks.push(self.supervise(order)),
                    None => closed = true,
                },
                Some(()) = tasks.next() => {}
                () = stopped(&mut control), if !stopping => stopping = true,
            }
        }
    }

    /// Runs a task under the stronger of two controls: the job's, and its own.
    async fn supervise(&self, order: Order) {
        let Order { seat, control } = order;
        let (both, merged) = signal::channel(Control::Run);
        tokio::select! {
            biased;
            () = merge(self.control.subscribe(), control, both) => {}
            () = self.run_again(&seat, merged) => {}
        }
    }

    /// Opens and runs a task again and again, until it is handed over or something stops the job.
    async fn run_again(&self, seat: &TaskSeat, mut control: signal::Receiver<Control>) {
        let config = &self.job.config;
        let line = self.job.board.line(&seat.id);
        let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
        let mut fenced = Backoff::new(FENCED_WAIT_FIRST, config.backoff_max.max(FENCED_WAIT_FIRST));
        let mut healthy_at = self.job.monotonic.now();
        let mut epoch = None;
        let mut draining = false;
        loop {
            // Once a drain has failed the task is opened only to be handed over.
            let result = run(&self.job, seat, &line, control.clone(), draining).await;
            let Err(error) = result else { return };
            draining = control.get() == Control::Drain;
            if draining && !self.may_hand_over_later(&error) {
                return self.not_handed_over(seat, &line, error);
            }
            let now = self.job.monotonic.now();
            let reached = line.status().epoch;
            if epoch.replace(reached) != Some(reached) {
                healthy_at = now;
                backoff.reset();
                fenced.reset();
            }
            let wait = match error.kind() {
                ErrorKind::Fenced => fenced.next(&*self.job.entropy),
                ErrorKind::Retry | ErrorKind::Corrupt => backoff.next(&*self.job.entropy),
                _ => Duration::MAX,
            };
            if wait == Duration::MAX || now.saturating_sub(healthy_at) > config.outage_max {
                line.update(|status| status.state = Standing::Failed);
                return self.fail(error.context(format!("task {}", seat.id)));
            }
            tracing::warn!(task = %seat.id, error = %error.report(), wait_ms = wait.as_millis(), "task dropped, opening it again");
            let is_fenced = error.kind() == ErrorKind::Fenced;
            line.update(|status| {
                status.state = Standing::Waiting;
                status.protocol.fenced += u64::from(is_fenced);
            });
            let mut members = self.job.membership.watch();
            let limit = if draining { Control::Abort } else { Control::Drain };
            tokio::select! {
                biased;
                _ = control.wait_for(|control| *control >= limit) => {
                    return if draining { self.not_handed_over(seat, &line, error) };
                }
                () = crate::edge::sleep(wait) => {}
                // Whoever fenced it may be gone.
                Ok(()) = members.changed(), if is_fenced => {}
            }
        }
    }

    /// Whether a drain that failed is worth another try: the job ends, nobody else waits for the task, and what was away
    /// may come back within [`drain_time_max`](crate::Config::drain_time_max).
    fn may_hand_over_later(&self, error: &Error) -> bool {
        self.control.get() == Control::Drain && matches!(error.kind(), ErrorKind::Retry | ErrorKind::Corrupt)
    }

    /// A drain that failed for good. When the job drains, whoever waits for it must know that nothing was handed over; when the
    /// task goes to another member, that one's Claim settles what is open. A fenced task is another's to hand over.
    fn not_handed_over(&self, seat: &TaskSeat, line: &Line, error: Error) {
        if error.kind() == ErrorKind::Fenced {
            line.count(|counters| counters.fenced += 1);
            return;
        }
        if self.control.get() != Control::Run {
            return self.fail(error.context(format!("task {}", seat.id)));
        }
        tracing::warn!(task = %seat.id, error = %error.report(), "task given up without a release");
    }

    /// Keeps the first error and drains everything else.
    pub(super) fn fail(&self, error: Error) {
        tracing::error!(error = %error.report(), kind = error.kind().as_str(), "job stops");
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.control.send_if_modified(|control| {
            let running = *control == Control::Run;
            if running {
                *control = Control::Drain;
            }
            running
        });
    }
}

/// Keeps `both` at the stronger of two controls. Ends when nobody listens, or nobody is left to say anything.
async fn merge(mut job: signal::Receiver<Control>, mut task: signal::Receiver<Control>, both: signal::Sender<Control>) {
    loop {
        let wanted = job.get().max(task.get());
        both.send_if_modified(|control| std::mem::replace(control, wanted) != wanted);
        let alive = tokio::select! {
            biased;
            changed = job.changed() => changed,
            changed = task.changed() => changed,
        };
        if alive.is_err() {
            // A runtime that is gone has dropped the sender: that means stop.
            both.send(Control::Abort);
            return std::future::pending().await;
        }
    }
}
