//! Crashes at named steps of the protocol: a log and stores that stop the processor, the broker or both at the n-th one.

use crate::world::Net;
use async_trait::async_trait;
use onceflow::log::{
    Acked, CheckBack, End, Link, Log, MemberId, MessageBatch, OffsetRange, Prepared, ReadLimit, RecordBatch, TopicSpec,
    Verdict,
};
use onceflow::storage::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore, StoreFactory};
use onceflow::txn::{Decoded, JournalRecord, decode};
use onceflow::types::{CommitPoint, Error, HalfHandle, Name, Offset, Offsets, Partition, Result, TaskId, Timestamp};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A step of the protocol that changes something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// How long a broker is away.
const BROKER_AWAY: Duration = Duration::from_millis(400);

#[derive(Default)]
struct State {
    waiting: VecDeque<Cut>,
    seen: u32,
    dead: bool,
}

/// The crashes that are to come; shared with whoever carries them out.
#[derive(Clone)]
pub(crate) struct Cuts {
    net: Net,
    state: Arc<Mutex<State>>,
    pub(crate) crashed: Arc<Notify>,
}

impl Cuts {
    pub(crate) fn new(net: &Net, cuts: &[Cut]) -> Self {
        let state = State { waiting: cuts.iter().copied().collect(), ..State::default() };
        Cuts { net: net.clone(), state: Arc::new(Mutex::new(state)), crashed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have not happened.
    pub(crate) fn left(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The processor is dead and can be started again.
    pub(crate) fn take_dead(&self) -> bool {
        std::mem::take(&mut self.lock().dead)
    }

    /// Counts a step; the crash, if it is due here.
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
        if victim != Victim::Processor {
            self.kill_brokers();
        }
        self.crashed.notify_one();
        Some(victim)
    }

    fn kill_brokers(&self) {
        let mut world = self.net.lock();
        for broker in world.brokers.values_mut() {
            broker.kill();
        }
        drop(world);
        self.net.at(Instant::now() + BROKER_AWAY, |world| {
            for broker in world.brokers.values_mut().filter(|broker| !broker.up) {
                broker.start();
            }
        });
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

/// The log of a process that is to be cut.
pub(crate) struct CutLog {
    inner: Arc<dyn Log>,
    cuts: Cuts,
}

impl CutLog {
    pub(crate) fn new(inner: Arc<dyn Log>, cuts: Cuts) -> Self {
        CutLog { inner, cuts }
    }
}

impl std::fmt::Debug for CutLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutLog").finish_non_exhaustive()
    }
}

/// Which step an append is.
fn step_of(partition: &Partition, batch: &MessageBatch) -> Step {
    let topic = &*partition.topic;
    if topic.ends_with("-barrier") {
        return Step::Barrier;
    }
    if topic.ends_with("-snapshot") {
        return Step::Chunk;
    }
    let record = batch.iter().next().map(|message| decode(message.body));
    match record {
        Some(Ok(Decoded::Record(JournalRecord::Claim(_)))) => Step::Claim,
        Some(Ok(Decoded::Record(JournalRecord::Delta(_)))) => Step::Delta,
        Some(Ok(Decoded::Record(JournalRecord::Commit(_)))) => Step::Commit,
        Some(Ok(Decoded::Record(JournalRecord::Snapshot(_)))) => Step::Snapshot,
        Some(Ok(Decoded::Record(JournalRecord::Release(_)))) => Step::Release,
        _ => Step::Send,
    }
}

#[async_trait]
impl Log for CutLog {
    fn message_bytes_max(&self) -> usize {
        self.inner.message_bytes_max()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        self.inner.create_topic(spec).await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.inner.partitions(topic).await
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        self.inner.offsets(partition).await
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        self.inner.offset_at(partition, time).await
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        self.inner.read(partition, from, limit).await
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.cuts.at(Some(step_of(partition, batch)), self.inner.append(partition, batch)).await
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.cuts.at(Some(step_of(partition, batch)), self.inner.append_over(link, partition, batch)).await
    }

    fn is_open(&self, link: &Link) -> bool {
        self.inner.is_open(link)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        self.cuts.at(Some(Step::Prepare), self.inner.prepare(target, batch)).await
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let step = (end == End::Commit).then_some(Step::End);
        self.cuts.at(step, self.inner.end(handle, end)).await
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        self.inner.next_check_back().await
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        self.inner.answer_check_back(check, verdict).await
    }

    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        self.inner.members(group, own).await
    }

    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        self.inner.leave(group, own).await
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        self.inner.report_offsets(group, offsets).await
    }
}

/// Stores whose writes are to be cut.
pub(crate) struct CutStores {
    inner: Arc<dyn StoreFactory>,
    cuts: Cuts,
}

impl CutStores {
    pub(crate) fn new(inner: Arc<dyn StoreFactory>, cuts: Cuts) -> Self {
        CutStores { inner, cuts }
    }
}

impl StoreFactory for CutStores {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        Ok(Box::new(CutStore { inner: self.inner.open(job, task)?, cuts: self.cuts.clone() }))
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        self.inner.destroy(job, task)
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn locked_place(&self) -> Option<String> {
        self.inner.locked_place()
    }
}

struct CutStore {
    inner: Box<dyn StateStore>,
    cuts: Cuts,
}

impl CutStore {
    /// A write cannot wait for the end of its process; that it failed is all that the process still learns.
    fn stop_at(&self, moment: Moment) -> Result<()> {
        match self.cuts.meet(Step::Apply, moment) {
            None | Some(Victim::Broker) => Ok(()),
            Some(Victim::Processor | Victim::Both) => Err(Error::corrupt("the process was killed")),
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
        self.stop_at(Moment::Before)?;
        self.inner.commit(delta, point)?;
        self.stop_at(Moment::After)
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
