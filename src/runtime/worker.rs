//! Workers: each owns some tasks, and either a thread with a current-thread runtime or a share of its caller's.

use super::{Failure, check_backs};
use crate::edge::Backoff;
use crate::job::Job;
use crate::status::Standing;
use crate::task::{Control, TaskSeat, run};
use futures_util::future::{FutureExt, join_all};
use onceflow_types::{Error, ErrorKind, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
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

/// Deals the tasks out to the workers and starts these.
pub(super) fn start(
    host: Host,
    job: &Arc<Job>,
    seats: Vec<TaskSeat>,
    control: &watch::Sender<Control>,
    failure: &Failure,
) -> Result<Vec<Worker>> {
    let workers = match host {
        Host::Threads => job.config.worker_threads().min(seats.len()).max(1),
        Host::Caller => 1,
    };
    let mut shares: Vec<Vec<TaskSeat>> = vec![vec![]; workers];
    for (seat, share) in seats.into_iter().zip((0..workers).cycle()) {
        if let Some(share) = shares.get_mut(share) {
            share.push(seat);
        }
    }
    let start_one = |(number, share)| {
        let setup = Setup { job: job.clone(), control: control.clone(), failure: failure.clone() };
        match host {
            Host::Threads => setup.start_thread(number, share),
            Host::Caller => Ok(setup.start_local(share)),
        }
    };
    shares.into_iter().enumerate().map(start_one).collect()
}

/// What to say of a panic; the panic hook has told where it was.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::bug(format!("a worker panicked: {}", text.unwrap_or("no message")))
}

#[derive(Clone)]
struct Setup {
    job: Arc<Job>,
    control: watch::Sender<Control>,
    failure: Failure,
}

impl Setup {
    fn start_thread(self, number: usize, seats: Vec<TaskSeat>) -> Result<Worker> {
        let (done, finished) = oneshot::channel();
        let run = move || {
            // A user's function may panic. What the tasks held is dropped with them, as after any error.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.block_on(number, &seats)));
            if let Err(error) = outcome.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                self.fail(error);
            }
            // Nobody may wait any more.
            let _ = done.send(());
        };
        let thread = thread::Builder::new().name(format!("onceflow-worker-{number}")).spawn(run);
        let thread = thread.map_err(|e| Error::retry("worker thread cannot be started").with_source(e))?;
        Ok(Worker::Thread(Some(finished), Some(thread)))
    }

    fn start_local(self, seats: Vec<TaskSeat>) -> Worker {
        let run = async move {
            if let Err(panic) = AssertUnwindSafe(self.run(0, &seats)).catch_unwind().await {
                self.fail(panicked(&*panic));
            }
        };
        Worker::Local(Some(local::spawn_local(run)))
    }

    fn block_on(&self, number: usize, seats: &[TaskSeat]) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::retry("worker runtime cannot be started").with_source(e))?;
        LocalSet::new().block_on(&runtime, self.run(number, seats));
        Ok(())
    }

    /// Runs the tasks to their end. The first worker answers check-backs, too.
    async fn run(&self, number: usize, seats: &[TaskSeat]) {
        let tasks = join_all(seats.iter().map(|seat| self.supervise(seat)));
        if number > 0 {
            tasks.await;
            return;
        }
        tokio::select! {
            biased;
            _ = tasks => {}
            () = check_backs::answer_all(&self.job) => {}
        }
    }

    /// Opens and runs a task again and again, until it is handed over or something stops the job.
    async fn supervise(&self, seat: &TaskSeat) {
        let config = &self.job.config;
        let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
        let mut fenced = Backoff::new(FENCED_WAIT_FIRST, config.backoff_max.max(FENCED_WAIT_FIRST));
        let mut healthy_at = self.job.monotonic.now();
        let mut epoch = None;
        loop {
            let result = run(&self.job, seat, self.control.subscribe()).await;
            let Err(error) = result else { return };
            // Nothing is handed over then, and whoever waits for the drain must know. A fenced task is another's to hand over.
            if *self.control.borrow() == Control::Drain && error.kind() != ErrorKind::Fenced {
                return self.fail(error.context(format!("task {}", seat.id)));
            }
            let now = self.job.monotonic.now();
            let reached = seat.line.status().epoch;
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
                seat.line.update(|status| status.state = Standing::Failed);
                return self.fail(error.context(format!("task {}", seat.id)));
            }
            tracing::warn!(task = %seat.id, error = %error.report(), wait_ms = wait.as_millis(), "task dropped, opening it again");
            seat.line.update(|status| {
                status.state = Standing::Waiting;
                status.protocol.fenced += u64::from(error.kind() == ErrorKind::Fenced);
            });
            let mut control = self.control.subscribe();
            tokio::select! {
                biased;
                () = crate::edge::sleep(wait) => {}
                _ = control.wait_for(|control| *control != Control::Run) => return,
            }
        }
    }

    /// Keeps the first error and drains everything else.
    fn fail(&self, error: Error) {
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
