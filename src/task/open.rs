//! Opening a task: read the journal, claim it, bring the store up to date (`docs/commit-protocol.md`, take-over).

use super::journal::{Journal, Stretch, barrier_at};
use super::snapshot::{self, Restored, Restoring};
use crate::edge::{Backoff, nonce, sleep};
use crate::job::Job;
use crate::status::{Line, RestoreProgress, Standing};
use crate::topology::Subtopology;
use onceflow_log::Link;
use onceflow_storage::{Delta, StateStore};
use onceflow_txn::{
    Action, Changes, Claim, CommitPermit, Coordinator, Decoded, Event, JournalRecord, Opening, Owner, PublishPlan,
    ReadRecord,
};
use onceflow_types::{Error, ErrorKind, Generation, Incarnation, Offset, Result, TaskId};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a new owner looks whether the old one has handed over.
const HAND_OVER_LOOK: Duration = Duration::from_millis(50);

/// A task that this process owns.
pub(crate) struct Opened {
    pub(crate) store: Box<dyn StateStore>,
    pub(crate) coordinator: Coordinator,
    pub(crate) journal: Journal,
    pub(crate) generation: Generation,
    pub(crate) incarnation: Incarnation,
    /// Decided epochs that may not be published.
    pub(crate) plans: Vec<PublishPlan>,
    /// Whether to wait for the publish lease of the old owner.
    pub(crate) wait: bool,
    /// When the own Claim was read back or acknowledged in place.
    pub(crate) claimed_at: Duration,
    /// When the acknowledged Claim was sent: nobody newer was there then.
    pub(crate) lease_from: Duration,
    /// The connection that carried the acknowledged Claim.
    pub(crate) link: Link,
}

/// Opens `task`; sets `claiming` before it sends its Claim.
///
/// # Errors
/// `Fenced` when another instance claimed it first, `Retry` when the log is away, others stop the job.
pub(crate) async fn open(
    job: &Job,
    plan: &Subtopology,
    task: &TaskId,
    line: &Line,
    claiming: &Cell<bool>,
) -> Result<Opened> {
    line.update(|status| {
        status.state = Standing::Restoring;
        status.restore = RestoreProgress::default();
        status.lag = 0;
        status.protocol.openings += 1;
    });
    let journal_topic = crate::topics::journal(&job.topology.job, &plan.name);
    let journal = Journal::new(job.log.clone(), task.partition(journal_topic), job.monotonic);
    let seat = Seat { job, plan, task, line, claiming };
    match attempt(&seat, &journal).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            // Local state is a cache of the journal: drop it and build it again, once.
            tracing::warn!(%task, error = %error.report(), "local state is damaged, rebuilding it from the journal");
            job.stores.destroy(&job.topology.job, task)?;
            attempt(&seat, &journal).await
        }
        other => other,
    }
}

/// What an opening is about.
#[derive(Clone, Copy)]
struct Seat<'j> {
    job: &'j Job,
    plan: &'j Subtopology,
    task: &'j TaskId,
    line: &'j Line,
    claiming: &'j Cell<bool>,
}

async fn attempt(seat: &Seat<'_>, journal: &Journal) -> Result<Opened> {
    let Seat { job, plan, task, line, claiming } = *seat;
    let mut store = job.stores.open(&job.topology.job, task)?;
    let (mut first, mut end) = journal.range().await?;
    let restoring = |range| Restoring { job, task, line, journal, range };
    let mut point = store.commit_point()?.cloned();
    let previous;
    if snapshot::is_needed(point.as_ref(), first) {
        // The end may lag, and the snapshot that is needed may be the last thing that was written.
        barrier_at(job, &task.broker).await?;
        (first, end) = journal.range().await?;
        Restored { store, point, claim: previous } = restoring((first, end)).restore(store).await?;
    } else if let Some(point) = &point {
        previous = claim_at(journal, point.generation, first, end).await?;
    } else {
        Restored { store, point, claim: previous } = restoring((first, end)).shorten(store).await?;
    }
    let previous_owner = previous.as_ref().map(|claim| claim.owner.clone());
    let internal = plan.sinks.iter().filter(|sink| sink.internal).map(|sink| sink.name.clone());
    let opening = Opening {
        nonce: nonce(&*job.entropy)?,
        owner: job.owner.clone(),
        topology_hash: job.topology.hash,
        upgrade: job.config.allow_upgrade,
        point,
        previous,
        journal_first: first,
        internal_sinks: internal.collect(),
        tries_max: job.config.tries_max,
    };
    let (coordinator, actions) = Coordinator::open(opening)?;
    let opener = Opener {
        job,
        line,
        claiming,
        journal,
        coordinator,
        store,
        end,
        ahead: None,
        previous_owner,
        waiting_since: None,
        backoff: Backoff::new(job.config.backoff_first, job.config.backoff_max),
        lease_from: Duration::ZERO,
        link: None,
    };
    opener.run(actions.into()).await
}

/// The Claim of a generation, when the journal still has it.
async fn claim_at(journal: &Journal, generation: Generation, first: Offset, end: Offset) -> Result<Option<Claim>> {
    let offset = Offset::new(generation.get());
    if offset < first || offset >= end {
        return Ok(None);
    }
    let records = journal.read(offset, false).await?;
    Ok(records.into_iter().next().and_then(|record| match record.decoded {
        Decoded::Record(JournalRecord::Claim(claim)) if record.offset == offset => Some(claim),
        _ => None,
    }))
}

struct Opener<'j> {
    job: &'j Job,
    line: &'j Line,
    claiming: &'j Cell<bool>,
    journal: &'j Journal,
    coordinator: Coordinator,
    store: Box<dyn StateStore>,
    /// The journal's end when the opening began, or when it was looked at last.
    end: Offset,
    /// What is being read up to there.
    ahead: Option<Stretch>,
    /// Whose Claim the store's point hangs from.
    previous_owner: Option<Owner>,
    /// Since when the old owner is waited for.
    waiting_since: Option<Duration>,
    backoff: Backoff,
    lease_from: Duration,
    /// The connection of the last acknowledgement.
    link: Option<Link>,
}

impl Opener<'_> {
    async fn run(mut self, mut actions: VecDeque<Action>) -> Result<Opened> {
        while let Some(action) = actions.pop_front() {
            let event = match action {
                Action::Read { from, through } => self.read(from, through).await?,
                Action::Append { record, resend } => self.append(&record, resend).await?,
                Action::Apply(permit) => {
                    replay(&mut *self.store, &permit)?;
                    self.line.count(|counters| counters.epochs_replayed += 1);
                    Event::Applied
                }
                Action::Owned { generation, incarnation, plans, wait } => {
                    let link = self.link.ok_or_else(|| Error::bug("an owner without an acknowledged claim"))?;
                    if let Some(point) = self.coordinator.point_between_epochs() {
                        self.store.commit(&Delta::default(), &point)?;
                    }
                    return Ok(Opened {
                        link,
                        claimed_at: self.job.monotonic.now(),
                        store: self.store,
                        coordinator: self.coordinator,
                        journal: self.journal.clone(),
                        generation,
                        incarnation,
                        plans,
                        wait,
                        lease_from: self.lease_from,
                    });
                }
                Action::Stop(error) => return Err(error),
                other => return Err(Error::bug(format!("unexpected action while opening: {other:?}"))),
            };
            actions.extend(self.coordinator.step(event));
        }
        Err(Error::bug("an opening ended without an owner"))
    }

    async fn read(&mut self, from: Offset, through: Option<Offset>) -> Result<Event> {
        // Behind the end there is nothing to read; whether that is right is judged by the Claim's acknowledgement.
        if through.is_none() && from >= self.end {
            if !self.is_to_be_handed_over() {
                return Ok(Event::Read { records: vec![], at_end: true });
            }
            sleep(HAND_OVER_LOOK).await;
            self.end = self.end.max(self.journal.range().await?.1);
            if from >= self.end {
                return Ok(Event::Read { records: vec![], at_end: false });
            }
        }
        let records = match through {
            Some(_) => self.journal.read(from, true).await?,
            None => self.read_ahead(from).await?,
        };
        let next = records.last().map_or(from, |last| last.offset.next());
        let end = self.end.get().max(next.get());
        self.line.update(|status| (status.restore.at, status.restore.end) = (next.get(), end));
        // The end is judged by the next call, when these are folded.
        Ok(Event::Read { records, at_end: false })
    }

    /// The next records before the end.
    async fn read_ahead(&mut self, from: Offset) -> Result<Vec<ReadRecord>> {
        let goes_on = |stretch: &Stretch| stretch.at() == from && from < stretch.end();
        let mut stretch = self.ahead.take().filter(goes_on).unwrap_or_else(|| self.journal.stretch(from, self.end));
        let records = stretch.read().await?;
        self.ahead = Some(stretch);
        // A log that answers at once would leave no turn to whoever shares the thread, or wants to stop this.
        tokio::task::yield_now().await;
        Ok(records)
    }

    /// Whether somebody who is alive owns the task and has not released it yet. He is about to: this process would not
    /// open the task if its members were not his. So there is no fencing and no waiting for leases in an orderly move; if he
    /// takes too long, or is gone, the Claim settles it.
    fn is_to_be_handed_over(&mut self) -> bool {
        let fold = self.coordinator.fold();
        let owner = fold.claim().map(|claim| &claim.owner).or(self.previous_owner.as_ref());
        if fold.generation().is_none()
            || fold.released()
            || !owner.is_some_and(|o| self.job.membership.is_other_member(o))
        {
            return false;
        }
        let now = self.job.monotonic.now();
        let since = *self.waiting_since.get_or_insert(now);
        now.saturating_sub(since) < self.job.config.drain_time_max
    }

    async fn append(&mut self, record: &[u8], resend: bool) -> Result<Event> {
        if resend {
            self.line.count(|counters| counters.append_retries += 1);
            self.backoff.wait(&*self.job.entropy).await;
        }
        self.claiming.set(true);
        match self.journal.append(None, record).await {
            Ok(appended) => {
                self.lease_from = appended.sent_at;
                self.link = Some(appended.link);
                self.line.count(|counters| counters.journal_bytes += record.len() as u64);
                Ok(Event::Acknowledged(appended.offset))
            }
            Err(error) if error.kind() == ErrorKind::Retry => Ok(Event::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// Applies an epoch that was read from the journal.
fn replay(store: &mut dyn StateStore, permit: &CommitPermit) -> Result<()> {
    match permit.changes() {
        Changes::Journal(changes) => store.commit(&Delta::decode(changes)?, permit.point()),
        Changes::Sealed => Err(Error::bug("a sealed epoch while opening")),
    }
}
