//! Worker threads: each owns some tasks and one current-thread runtime.

use super::{Failure, check_backs};
use crate::edge::Backoff;
use crate::job::Job;
use crate::status::Standing;
use crate::task::{self, Control, TaskSeat};
use futures_util::future::join_all;
use onceflow_types::{Error, ErrorKind, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;

/// The first wait of a fenced owner: whoever fenced it is to have time to get going.
const FENCED_WAIT_FIRST: Duration = Duration::from_secs(1);

/// A running worker thread.
#[derive(Debug)]
pub(super) struct Worker {
    finished: Option<oneshot::Receiver<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Ends when the thread has. Cancel safe.
    pub(super) async fn finished(&mut self) {
        if let Some(finished) = &mut self.finished {
            // An error means that the thread is gone without a word: finished, too.
            let _ = finished.await;
            self.finished = None;
        }
        if let Some(thread) = self.thread.take() {
            // It catches panics; the job's failure says what there was.
            let _ = thread.join();
        }
    }
}

/// Deals the tasks out to the worker threads and starts these.
pub(super) fn start(
    job: &Arc<Job>,
    seats: Vec<TaskSeat>,
    control: &watch::Sender<Control>,
    failure: &Failure,
) -> Result<Vec<Worker>> {
    let threads = job.config.worker_threads().min(seats.len()).max(1);
    let mut shares: Vec<Vec<TaskSeat>> = vec![vec![]; threads];
    for (seat, share) in seats.into_iter().zip((0..threads).cycle()) {
        if let Some(share) = shares.get_mut(share) {
            share.push(seat);
        }
    }
    let start_one = |(number, share)| {
        let setup = Setup { job: job.clone(), control: control.clone(), failure: failure.clone() };
        setup.start(number, share)
    };
    shares.into_iter().enumerate().map(start_one).collect()
}

/// What to say of a panic; the panic hook has told where it was.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::bug(format!("a worker thread panicked: {}", text.unwrap_or("no message")))
}

#[derive(Clone)]
struct Setup {
    job: Arc<Job>,
    control: watch::Sender<Control>,
    failure: Failure,
}

impl Setup {
    fn start(self, number: usize, seats: Vec<TaskSeat>) -> Result<Worker> {
        let (done, finished) = oneshot::channel();
        let run = move || {
            // A user's function may panic. What the tasks held is dropped with them, as after any error.
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run(number, &seats)));
            if let Err(error) = outcome.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                self.fail(error);
            }
            // Nobody may wait any more.
            let _ = done.send(());
        };
        let thread = std::thread::Builder::new().name(format!("onceflow-worker-{number}")).spawn(run);
        let thread = thread.map_err(|e| Error::retry("worker thread cannot be started").with_source(e))?;
        Ok(Worker { finished: Some(finished), thread: Some(thread) })
    }

    fn run(&self, number: usize, seats: &[TaskSeat]) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::retry("worker runtime cannot be started").with_source(e))?;
        LocalSet::new().block_on(&runtime, async {
            let tasks = join_all(seats.iter().map(|seat| self.supervise(seat)));
            if number > 0 {
                tasks.await;
                return;
            }
            tokio::select! {
                _ = tasks => {}
                () = check_backs::answer_all(&self.job) => {}
            }
        });
        Ok(())
    }

    /// Opens and runs a task again and again, until it is handed over or something stops the job.
    async fn supervise(&self, seat: &TaskSeat) {
        let config = &self.job.config;
        let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
        let mut fenced = Backoff::new(FENCED_WAIT_FIRST, config.backoff_max.max(FENCED_WAIT_FIRST));
        let mut healthy_at = self.job.monotonic.now();
        let mut epoch = None;
        loop {
            let result = task::run(&self.job, seat, self.control.subscribe()).await;
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
