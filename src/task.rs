//! One task: the corridor as a loop.
//!
//! ```text
//!  open ──► start offsets ──► ┌─ S0 process ─► S1 seal ─► S2 prepare ─► S3 decide ─► S4 apply ─┐ ──► release
//!                             └───────── between two epochs, now and then: a snapshot ─────────┘
//!                                                                     S5 publish, beside it ◄──┘
//! ```
//!
//! A task is owned by one worker thread. Whatever fails drops it whole; it is opened again from the journal, or the job
//! stops. Nothing is repaired in place.

mod ahead;
mod channels;
mod epoch;
mod housekeeping;
mod intake;
mod journal;
mod lag;
mod open;
mod pace;
mod publish;
mod reader;
mod scan;
mod seal;
mod snapshot;
mod start;
mod step;
mod tails;
mod time;
mod upstream;

use crate::job::Job;
use crate::output::Output;
use crate::planted::{self, Bug};
use crate::signal;
use crate::stage::{Context, Counters, Stage};
use crate::state::TaskState;
use crate::status::{Line, Standing};
use crate::topology::Subtopology;
use channels::Channels;
use intake::Intake;
use onceflow_log::Link;
use onceflow_txn::{Coordinator, PassedOver};
use onceflow_types::{Offsets, Partition, Result, TaskId};
use publish::Publishing;
use reader::{Pulled, Readers};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use time::Tellings;

pub(crate) use journal::barrier;
#[cfg(feature = "fuzzing")]
pub use snapshot::{chunk_again, header_again};
pub(crate) use step::{Stepped, stuck};

/// Most that is processed before the bounds of the epoch are looked at.
const PIECE_RECORDS_MAX: usize = 128;
const PIECE_BYTES_MAX: usize = 64 << 10;

/// What the runtime wants of its tasks, from the mildest on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Control {
    /// Process.
    Run,
    /// Seal a last epoch, publish it, hand the task over.
    Drain,
    /// Stop at once; the next owner settles what is open.
    Abort,
}

/// What a task is made of while it is owned.
pub(crate) struct Task {
    job: Arc<Job>,
    id: TaskId,
    plan: Subtopology,
    line: Line,
    stage: Box<dyn Stage>,
    state: TaskState,
    output: Output,
    /// The task's partition of each source.
    sources: Vec<Partition>,
    /// The target queues of each sink, in order.
    targets: Vec<Vec<Partition>>,
    channels: Channels,
    intake: Intake,
    coordinator: Rc<RefCell<Coordinator>>,
    publishing: Rc<Publishing>,
    counters: Counters,
    /// The next offset to read, the open epoch included.
    offsets: Offsets,
    /// ... as of the last decided epoch, for everybody who only looks.
    reported: Rc<RefCell<Offsets>>,
    open: OpenEpoch,
    /// The connection of the acknowledged Claim: epochs are appended over it or not at all. What was read since then lies
    /// before them in the broker's log, so no committed offset covers a record that the broker could lose.
    link: Link,
    /// When the journal append that was acknowledged last was sent: the lease counts from there.
    append_sent_at: Option<Duration>,
    /// What the coordinator had passed over when it was shown last.
    passed_over: PassedOver,
    /// When the next snapshot is due.
    snapshot_at: Duration,
    /// What was said about event time, and to whom.
    tellings: Tellings,
}

/// The epoch that is being filled.
#[derive(Clone, Copy, Default, Debug)]
struct OpenEpoch {
    /// When its first record came; `None` without progress.
    since: Option<Duration>,
    records: usize,
}

/// Where a task sits: what the runtime knows of it before it is opened.
#[derive(Clone, Debug)]
pub(crate) struct TaskSeat {
    pub(crate) id: TaskId,
    pub(crate) plan: Subtopology,
    /// How many tasks its subtopology has.
    pub(crate) tasks: u32,
    /// Whether no task of its subtopology had a journal when the job started: only then the start policy counts.
    pub(crate) fresh: bool,
}

/// Runs a task until it is handed over, aborted or fails. One ownership; the caller opens it again. `to_hand_over`: an
/// earlier ownership of this process was not released, so a drain does not end this one before its Release.
///
/// # Errors
/// `Fenced` and `Retry`: open again after a wait. Others stop the job.
pub(crate) async fn run(
    job: &Arc<Job>,
    seat: &TaskSeat,
    line: &Line,
    mut control: signal::Receiver<Control>,
    to_hand_over: bool,
) -> Result<()> {
    let claiming = Cell::new(to_hand_over);
    let opened = tokio::select! {
        biased;
        opened = open::open(job, &seat.plan, &seat.id, line, &claiming) => opened?,
        () = given_up(&mut control, &claiming) => return Ok(()),
    };
    let (mut task, starts) = start::start(job, seat, line, opened).await?;
    let mut readers = Readers::start(job, line, starts);
    let publishing = task.publishing.clone();
    let reported = task.reported.clone();
    let consumer_group = crate::topics::consumer_group(&job.topology.job);
    let mut abort = control.clone();
    tokio::select! {
        biased;
        // A sender that is gone: the runtime was dropped.
        _ = abort.wait_for(|control| *control == Control::Abort) => Ok(()),
        error = publishing.run() => Err(error),
        () = publishing.keep_house(&consumer_group, &reported) => Ok(()),
        result = task.live(&mut readers, control) => result,
    }
}

/// Ends when an opening is to be given up: at an abort; at a drain only before its Claim was sent. A Claim that nobody
/// follows up with a Release would let the next owner wait for one.
async fn given_up(control: &mut signal::Receiver<Control>, claiming: &Cell<bool>) {
    stopped(control).await;
    if control.get() == Control::Drain && claiming.get() {
        let _ = control.wait_for(|control| *control == Control::Abort).await;
    }
}

/// Ends when the job, or this task here, is to run no longer.
pub(crate) async fn stopped(control: &mut signal::Receiver<Control>) {
    // A runtime that is gone has dropped the sender: that, too, means stop.
    let _ = control.wait_for(|control| *control != Control::Run).await;
}

impl Task {
    async fn live(&mut self, readers: &mut Readers, mut control: signal::Receiver<Control>) -> Result<()> {
        self.line.update(|status| status.state = Standing::Running);
        if self.epoch_has_progress() {
            // The start offsets: committed before any record is processed, so that they are resolved once.
            self.commit_epoch().await?;
        }
        self.begin_time()?;
        self.pass_time(&mut control).await?;
        let mut mailbox = self.job.mailboxes.open(&self.id);
        loop {
            mailbox.answer_all(&self.state, &*self.job.clock);
            if self.snapshot_is_due() && !self.epoch_has_progress() {
                self.write_snapshot().await?;
            }
            let timer = crate::edge::sleep(self.deadline().saturating_sub(self.job.monotonic.now()));
            tokio::select! {
                biased;
                () = stopped(&mut control) => break,
                () = timer => {
                    if self.epoch_is_due() {
                        self.commit_epoch().await?;
                    }
                }
                pulled = readers.next() => self.work_through(pulled?).await?,
                question = mailbox.next() => question.answer(&self.state, self.job.clock.now()),
            }
            self.pass_time(&mut control).await?;
        }
        let wanted = control.get();
        match wanted {
            Control::Abort => Ok(()),
            _ => self.hand_over().await,
        }
    }

    /// Piece by piece: what a user's program makes of a record is known afterwards only, and must not outgrow the epoch.
    async fn work_through(&mut self, pulled: Pulled) -> Result<()> {
        let Pulled { source, batch, read_at } = pulled;
        let (mut pieces, mut records_max) = (batch.into_pieces(), 1);
        while let Some(batch) = pieces.take(records_max, PIECE_BYTES_MAX) {
            let before = self.fill();
            self.process(&Pulled { source, batch, read_at })?;
            let large = self.fill().saturating_sub(before) > self.job.config.epoch_output_bytes_max / 4;
            records_max = if large { 1 } else { PIECE_RECORDS_MAX.min(records_max * 2) };
            if self.epoch_is_full() {
                self.commit_epoch().await?;
            }
        }
        Ok(())
    }

    /// Bytes of output and changes of the open epoch.
    fn fill(&self) -> usize {
        self.output.bytes() + self.state.overlay().delta().bytes()
    }

    /// S0 for one batch.
    fn process(&mut self, pulled: &Pulled) -> Result<()> {
        let (now, limits) = (self.job.clock.now(), self.limits());
        let begun = self.job.monotonic.now();
        let mut cx = Context::new(&mut self.state, &mut self.output, &mut self.counters, now).with_limits(limits);
        self.intake.process(&mut *self.stage, pulled, &mut cx)?;
        let took = self.job.monotonic.now().saturating_sub(begun);
        self.publishing.pace.borrow_mut().processed(pulled.source, &pulled.batch, took);
        if let Some(next) = pulled.batch.next_offset() {
            let partition = pulled.batch.partition();
            assert!(self.offsets.get(partition) <= Some(next), "an offset went back: {partition}");
            self.offsets.set(partition, next);
        }
        self.open.records += pulled.batch.len();
        if !pulled.batch.is_empty() || !self.output.is_empty() {
            self.open.since.get_or_insert(self.job.monotonic.now());
        }
        self.show_progress();
        Ok(())
    }

    /// Shows what the open epoch has come to.
    fn show_progress(&self) {
        let (behind, open) = (self.state.times().is_behind(), self.epoch_has_progress());
        let lag = self.publishing.pace.borrow().lag();
        self.line.update(|status| {
            status.stages = self.counters;
            status.lag = lag;
            // What fired last still has to be decided.
            status.time_behind = behind || (status.time_behind && open);
        });
    }

    fn epoch_has_progress(&self) -> bool {
        self.open.since.is_some()
    }

    fn epoch_is_full(&self) -> bool {
        let config = &self.job.config;
        self.open.records >= config.epoch_records_max
            || self.output.bytes() >= config.epoch_output_bytes_max
            || self.state.overlay().delta().bytes() >= config.epoch_state_bytes_max
            || self.halves() >= config.epoch_halves_max
    }

    /// How many half messages the open epoch would have.
    fn halves(&self) -> usize {
        let transactional = self.plan.sinks.iter().zip(self.output.sinks());
        let transactional = transactional.filter(|(plan, _)| plan.delivery == crate::topology::Delivery::Transactional);
        transactional.flat_map(|(_, output)| output.queues()).map(crate::output::QueueOutput::len).sum()
    }

    /// A last epoch, everything published and proven, Release.
    async fn hand_over(&mut self) -> Result<()> {
        if self.epoch_has_progress() {
            self.commit_epoch().await?;
        }
        if !planted::is(Bug::ReleasesUnpublished) {
            self.publish_everything().await;
        }
        self.release().await?;
        self.line.update(|status| status.state = Standing::Released);
        Ok(())
    }

    /// Waits until every decided epoch is published and proven.
    async fn publish_everything(&self) {
        self.publishing.publisher.borrow_mut().want_proof();
        self.publishing.work.notify_one();
        while self.publishing.publisher.borrow().unpublished() > 0 {
            self.publishing.progress.notified().await;
            self.publishing.publisher.borrow_mut().want_proof();
            self.publishing.work.notify_one();
        }
    }
}
