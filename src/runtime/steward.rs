//! Shares the job's tasks with the other processes, for as long as the job runs.
//!
//! ```text
//!  every look:  members ──► changed? ──► last owners ──► assignment ──► mine: start it; not mine: drain it, Release
//!               queues  ──► new?     ──┘                                (the new owner waits for that, then claims)
//! ```
//!
//! Nothing here decides who owns a task: Claims do. A wrong view costs time, never a record.

use super::assignment::{Owners, assign};
use super::check_backs;
use super::owners::last_owners;
use super::prepare::{Patience, find_seats, make_own_topics};
use super::worker::{Crew, Order};
use crate::edge::sleep;
use crate::job::Job;
use crate::signal;
use crate::status::Standing;
use crate::task::{Control, TaskSeat, stopped};
use futures_util::future::join_all;
use onceflow_log::MemberId;
use onceflow_types::{Error, Result, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Every so many looks at the members comes one at the queues of the sources,
const LOOKS_PER_QUEUE_LOOK: u32 = 5;
/// ... and every so many one at the owners, although nothing has changed.
const LOOKS_PER_OWNER_LOOK: u32 = 15;
/// Longest wait for the log to take the end of the membership.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// A task that runs here.
struct Running {
    /// Closed when it has ended.
    control: signal::Sender<Control>,
    since: Duration,
    /// Since when it is being handed over.
    draining: Option<Duration>,
}

pub(super) struct Steward {
    job: Arc<Job>,
    crew: Crew,
    group: String,
    own: MemberId,
    /// All tasks of the job.
    seats: BTreeMap<TaskId, TaskSeat>,
    running: BTreeMap<TaskId, Running>,
    wanted: Owners,
    /// Whether everybody owned what they are to own when that was looked at last.
    settled: bool,
    looks: u32,
}

impl Steward {
    /// For the tasks of `seats`; the members were seen already.
    pub(super) fn new(job: Arc<Job>, crew: Crew, seats: Vec<TaskSeat>) -> Steward {
        let group = crate::topics::consumer_group(&job.topology.job);
        Steward {
            own: job.membership.own(),
            group,
            crew,
            seats: seats.into_iter().map(|seat| (seat.id.clone(), seat)).collect(),
            running: BTreeMap::new(),
            wanted: Owners::new(),
            settled: false,
            looks: 0,
            job,
        }
    }

    /// Starts the tasks that are this process's by what is known now.
    pub(super) async fn begin(&mut self) {
        self.assign_or_count().await;
        self.act();
    }

    /// Looks and acts until the job stops, answers check-backs meanwhile, and leaves the group when all tasks have ended.
    pub(super) async fn run(mut self, mut control: signal::Receiver<Control>) {
        let job = self.job.clone();
        tokio::select! {
            biased;
            () = self.keep_looking(&mut control) => {}
            () = check_backs::answer_all(&job) => {}
        }
    }

    async fn keep_looking(&mut self, control: &mut signal::Receiver<Control>) {
        let look_time = self.job.config.members_look_time;
        loop {
            tokio::select! {
                biased;
                () = stopped(control) => break,
                () = sleep(look_time) => {}
            }
            tokio::select! {
                biased;
                () = stopped(control) => break,
                () = self.look() => {}
            }
        }
        self.stay_until_the_end(control).await;
    }

    async fn look(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        let changed = self.look_at_members().await;
        let found = self.looks.is_multiple_of(LOOKS_PER_QUEUE_LOOK) && self.look_at_queues().await;
        let again = self.looks.is_multiple_of(LOOKS_PER_OWNER_LOOK);
        if changed || found || again || !self.settled {
            self.assign_or_count().await;
        }
        self.act();
    }

    async fn assign_or_count(&mut self) {
        if let Err(error) = self.assign().await {
            self.failed("owners of tasks", &error);
        }
    }

    /// Says whether the members are others than before. What was seen last goes on to count when nothing can be seen.
    async fn look_at_members(&mut self) -> bool {
        match self.job.log.members(&self.group, &self.own).await {
            Ok(members) => {
                let changed = self.job.membership.saw(members);
                if changed {
                    let status = self.job.membership.status();
                    tracing::info!(member = %self.own, members = ?status.members, "other members");
                    metrics::counter!("onceflow_members_changes_total").increment(1);
                }
                changed
            }
            Err(error) => {
                self.failed("members", &error);
                false
            }
        }
    }

    fn failed(&self, what: &str, error: &Error) {
        tracing::debug!(member = %self.own, what, error = %error.report(), "not seen, going on with what was seen last");
        self.job.membership.update(|status| status.looks_failed += 1);
    }

    /// Says whether there are new tasks. Their queues were not there when the job began, so they are read from the first
    /// message.
    async fn look_at_queues(&mut self) -> bool {
        match self.find_new().await {
            Ok(new) => {
                for seat in &new {
                    tracing::info!(task = %seat.id, "new queue");
                    self.job.membership.update(|status| status.tasks_found += 1);
                }
                let found = !new.is_empty();
                self.seats.extend(new.into_iter().map(|seat| (seat.id.clone(), seat)));
                found
            }
            Err(error) => {
                // A topic that was deleted is for the tasks that read it to report.
                self.failed("queues of the sources", &error);
                false
            }
        }
    }

    async fn find_new(&self) -> Result<Vec<TaskSeat>> {
        let Job { topology, log, config, entropy, barriers, .. } = &*self.job;
        let mut grown = false;
        for source in
            topology.subtopologies.iter().flat_map(|plan| plan.sources.iter().map(move |source| (plan, source)))
        {
            let (plan, source) = source;
            if source.internal {
                continue;
            }
            let queues = log.partitions(&source.topic).await?;
            let task = |queue: onceflow_types::Partition| TaskId {
                subtopology: plan.name.clone(),
                broker: queue.broker,
                queue: queue.queue,
            };
            grown |= queues.into_iter().any(|queue| !self.seats.contains_key(&task(queue)));
        }
        if !grown {
            return Ok(vec![]);
        }
        let patience = Patience::none(config, &**entropy);
        make_own_topics(topology, &**log, barriers, &patience).await?;
        let seats = find_seats(topology, &**log, &patience).await?;
        let new = seats.into_iter().filter(|seat| !self.seats.contains_key(&seat.id));
        Ok(new.map(|seat| TaskSeat { fresh: false, ..seat }).collect())
    }

    /// Finds out who is to own which task.
    async fn assign(&mut self) -> Result<()> {
        let members = self.job.membership.status().members;
        let tasks: BTreeSet<TaskId> = self.seats.keys().cloned().collect();
        if members.len() == 1 {
            // Nobody to share with, and nothing to look up.
            self.wanted = tasks.into_iter().map(|task| (task, self.own.clone())).collect();
            self.settled = true;
            return Ok(());
        }
        self.settled = false;
        let last = last_owners(&self.job, self.seats.values()).await?;
        self.wanted = assign(&tasks, &members, &last);
        self.settled = self.wanted == last;
        Ok(())
    }

    /// Starts what is to run here and does not, hands over what is not.
    fn act(&mut self) {
        self.reap();
        let now = self.job.monotonic.now();
        let tasks: Vec<TaskId> = self.seats.keys().cloned().collect();
        for task in tasks {
            let mine = self.wanted.get(&task) == Some(&self.own);
            match (mine, self.running.get_mut(&task)) {
                (true, None) => self.take(&task, now),
                (true, Some(running)) if running.draining.is_none() => {}
                (false, None) => self.job.board.line(&task).update(|status| {
                    (status.state, status.generation, status.lag) = (Standing::Standby, None, 0);
                }),
                (_, Some(running)) => running.give(&task, &self.job, now),
            }
        }
        self.claim_anew(now);
    }

    /// Forgets what has ended.
    fn reap(&mut self) {
        let ended = self.running.extract_if(.., |_, running| running.control.is_closed());
        for (task, running) in ended {
            if let Some(since) = running.draining {
                let took = self.job.monotonic.now().saturating_sub(since);
                tracing::info!(%task, member = %self.own, looked_after_ms = took.as_millis(), "task given");
            }
            // Ended by itself: the job is stopping, or nobody runs it. Looking again does no harm.
            self.settled = false;
        }
    }

    fn take(&mut self, task: &TaskId, now: Duration) {
        let Some(seat) = self.seats.get(task) else { return };
        let (control, own) = signal::channel(Control::Run);
        self.job.board.line(task).update(|status| status.state = Standing::Waiting);
        self.job.membership.update(|status| status.tasks_taken += 1);
        tracing::debug!(%task, member = %self.own, "task taken");
        self.crew.give(Order { seat: seat.clone(), control: own });
        self.running.insert(task.clone(), Running { control, since: now, draining: None });
    }

    /// Others see the owner of a task by its Claim. One that is about to leave the journal by age is made anew, one task a
    /// look: Release, and at a later look Claim. Snapshots come at most every third of the retention.
    fn claim_anew(&mut self, now: Duration) {
        let age_max = self.job.config.snapshot_time.saturating_mul(2);
        let old = |running: &Running| running.draining.is_none() && now.saturating_sub(running.since) > age_max;
        // One that still waits for its old owner has no Claim that could go.
        let owned = |task: &TaskId| self.job.board.line(task).status().state == Standing::Running;
        if self.job.membership.status().members.len() > 1
            && let Some((_, running)) = self.running.iter_mut().find(|(task, running)| old(running) && owned(task))
        {
            running.drain(now);
        }
    }

    /// Signs of life until every task has ended: before that nobody may think that this process is gone and claim what it
    /// is about to hand over. After an abort there is no leaving, as after a crash.
    async fn stay_until_the_end(&mut self, control: &mut signal::Receiver<Control>) {
        self.crew.dismiss();
        let ended = join_all(self.running.values().map(|running| running.control.closed()));
        let alive = async {
            loop {
                sleep(self.job.config.members_look_time).await;
                // Only to be seen.
                let _ = self.job.log.members(&self.group, &self.own).await;
            }
        };
        tokio::select! {
            biased;
            _ = control.wait_for(|control| *control == Control::Abort) => return,
            _ = ended => {}
            () = alive => {}
        }
        let left = tokio::select! {
            biased;
            left = self.job.log.leave(&self.group, &self.own) => left,
            () = sleep(LEAVE_TIME_MAX) => Err(Error::retry("no answer")),
        };
        if let Err(error) = left {
            tracing::warn!(member = %self.own, error = %error.report(), "others will see silence instead of the end");
        }
    }
}

impl Running {
    fn drain(&mut self, now: Duration) {
        self.draining = Some(now);
        self.control.send(Control::Drain);
    }

    /// Hands the task over; when that takes too long the next owner's Claim settles what is open.
    fn give(&mut self, task: &TaskId, job: &Job, now: Duration) {
        match self.draining {
            None => {
                self.drain(now);
                job.membership.update(|status| status.tasks_given += 1);
                metrics::counter!("onceflow_tasks_given_total").increment(1);
            }
            Some(since) if now.saturating_sub(since) > job.config.drain_time_max => {
                tracing::warn!(%task, "hand-over took too long, giving the task up without a release");
                self.control.send(Control::Abort);
            }
            Some(_) => {}
        }
    }
}
