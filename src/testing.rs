//! Runs a topology in memory, without broker, threads or clock: the engine's own tasks, taken step by step.

mod crash;
mod log;
mod message;
mod state;
mod timers;

use crate::config::Config;
use crate::edge::{Entropy, Monotonic};
use crate::job::{Barriers, Job};
use crate::membership::{Membership, member_of};
use crate::runtime::prepare::{self, Patience};
use crate::stage::Counters;
#[cfg(test)]
use crate::state::TaskState;
use crate::task::{Stepped, TaskSeat, stuck};
use crate::topology::Topology;
use crash::{CutStores, Cuts};
use log::{BROKER, TestLog};
use onceflow_storage::{MemoryStores, StoreFactory};
use onceflow_txn::Owner;
use onceflow_types::{Clock, Error, ErrorKind, ManualClock, Partition, Result, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

pub use crash::CrashPoint;
pub use message::TestMessage;
use timers::Timers;

/// How often a future is asked before time passes for it: all but waits of the engine itself is done at once.
const POLLS_MAX: usize = 16;
/// How often time passes for a future before it counts as waiting for something that never comes: 5 s.
const WAITS_MAX: usize = 5_000;
/// How much passes each time.
const WAIT: Duration = Duration::from_millis(1);
/// A new owner may have to wait for an old one's lease.
const PUBLISH_LEASE: Duration = Duration::from_millis(5);
/// How often everything is looked at until a commit gives up: a topology has no cycle, so it comes to rest.
const ROUNDS_MAX: usize = 10_000;

/// A topology, its topics and the state of its tasks, in memory. Topics have one queue unless told otherwise; internal
/// topics have theirs.
///
/// The tasks are the engine's own: they write journals, commit epochs and publish output as they do on a broker, and are
/// opened again after a crash as they are there. Only the loop around them is the caller's: nothing happens between two calls.
///
/// ```
/// use onceflow::codec::{Json, Utf8};
/// use onceflow::testing::{CrashPoint, TestDriver};
/// use onceflow::StreamBuilder;
///
/// let builder = StreamBuilder::new("word-count")?;
/// let words = builder.source("words", Utf8).key_by(|word| word.clone());
/// words.count("counts").sink("totals", "totals", Json::new());
///
/// let mut driver = TestDriver::new(&builder.build()?)?;
/// driver.send("words", b"once")?;
/// driver.commit()?;
/// driver.send("words", b"once")?;
/// driver.process()?;
/// driver.abort()?; // as a crash before the commit
/// assert!(driver.crash_at(CrashPoint::AfterDecide)?); // one in the middle of it
/// driver.commit()?;
/// assert_eq!(driver.bodies("totals"), [br#"["once",1]"#, br#"["once",2]"#]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct TestDriver {
    job: Arc<Job>,
    log: Arc<TestLog>,
    clock: ManualClock,
    cuts: Cuts,
    tasks: Vec<Seated>,
    batch_records_max: usize,
    /// What the tasks of earlier lives did.
    counted: Counters,
    /// Timers of the engine need it to be made; nothing waits for them.
    timers: Timers,
}

/// One task of the topology.
struct Seated {
    seat: TaskSeat,
    /// `None` only while it is opened again.
    task: Option<Stepped>,
}

impl TestDriver {
    /// Starts a topology with empty topics and state.
    ///
    /// # Errors
    /// What opening a task returns.
    pub fn new(topology: &Topology) -> Result<Self> {
        TestDriver::with_queues(topology, &[])
    }

    /// As [`new`](Self::new), with a number of queues for some topics.
    ///
    /// # Errors
    /// What opening a task returns.
    pub fn with_queues(topology: &Topology, queues: &[(&str, u32)]) -> Result<Self> {
        TestDriver::with_stores(topology, queues, Arc::new(MemoryStores::default()))
    }

    /// As [`with_queues`](Self::with_queues), with state in stores of the caller's choice.
    ///
    /// # Errors
    /// What opening a task returns.
    pub fn with_stores(topology: &Topology, queues: &[(&str, u32)], stores: Arc<dyn StoreFactory>) -> Result<Self> {
        TestDriver::with_config(topology, queues, stores, Config::default())
    }

    /// As [`with_stores`](Self::with_stores), with settings of the caller's choice. Those about time do not count: an epoch
    /// ends when the caller says so, or when it is full, and queues hear of event time in every epoch.
    ///
    /// # Errors
    /// What opening a task returns.
    pub fn with_config(
        topology: &Topology,
        queues: &[(&str, u32)],
        stores: Arc<dyn StoreFactory>,
        config: Config,
    ) -> Result<Self> {
        let (clock, cuts) = (ManualClock::new(Timestamp::from_millis(0)), Cuts::default());
        let log = Arc::new(TestLog::new(&topology.job, clock.clone(), cuts.clone()));
        make_topics(topology, queues, &log);
        let stores: Arc<dyn StoreFactory> = Arc::new(CutStores { inner: stores, cuts: cuts.clone() });
        let job = Arc::new(job(topology, log.clone(), stores, clock.clone(), config)?);
        let mut driver = TestDriver {
            job,
            log,
            clock,
            cuts,
            tasks: vec![],
            batch_records_max: usize::MAX,
            counted: Counters::default(),
            timers: Timers::new()?,
        };
        driver.seat()?;
        Ok(driver)
    }

    /// Stops without a last commit, as a crash does, and starts another program of the same job on the same topics and state,
    /// as an upgrade does. Of `config` what [`with_config`](Self::with_config) says counts.
    ///
    /// # Errors
    /// `Invalid` when the topology is of another job, or the settings do not allow the change; what opening a task returns.
    /// Nothing is open then: call it again, with what is allowed.
    pub fn restart_with(&mut self, topology: &Topology, config: Config) -> Result<()> {
        if topology.job != self.job.topology.job {
            return Err(Error::invalid(format!("topology is of another job: job={}", topology.job)));
        }
        self.cuts.arm(None);
        self.close();
        self.tasks.clear();
        make_topics(topology, &[], &self.log);
        self.job = Arc::new(job(topology, self.log.clone(), self.job.stores.clone(), self.clock.clone(), config)?);
        self.seat()
    }

    /// Finds the tasks of the topology, and opens them.
    fn seat(&mut self) -> Result<()> {
        let (job, entropy) = (self.job.clone(), Numbers::default());
        let patience = Patience::new(&job.config, &entropy);
        let seats = self.drive(prepare::prepare(&job.topology, &*job.log, &job.barriers, &patience))?;
        self.tasks = seats.into_iter().map(|seat| Seated { seat, task: None }).collect();
        self.open()
    }

    /// Drops every task.
    fn close(&mut self) {
        for task in self.tasks.iter_mut().filter_map(|seated| seated.task.take()) {
            self.counted = sum(self.counted, task.counters());
        }
    }

    /// Bounds the messages that a task reads at once. What comes out must not depend on it.
    pub fn batch_records_max(&mut self, records: usize) {
        self.batch_records_max = records.max(1);
    }

    /// Sets the processing time, which is also the time at which sent messages are born. What is due by then happens with
    /// the next [`process`](Self::process) or [`commit`](Self::commit).
    pub fn set_time(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    /// Lets processing time pass, and everything happen that is due then: idle sources are left out, timers fire.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn advance_time(&mut self, by: Duration) -> Result<()> {
        self.clock.advance(crate::time::millis(by));
        self.each(|task, driver| driver.drive(task.pass_time()))
    }

    /// Moves event time on to `time` in all sources of the topology, as if a newer record had come in each of their queues.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    pub fn advance_event_time(&mut self, time: Timestamp) -> Result<()> {
        self.each(|task, driver| {
            task.raise_event_time(time)?;
            driver.drive(task.pass_time())
        })
    }

    /// Sends a message to queue 0.
    ///
    /// # Errors
    /// `Invalid` when the topology neither reads nor writes the topic.
    pub fn send(&mut self, topic: &str, body: &[u8]) -> Result<()> {
        self.send_with(topic, 0, b"", body)
    }

    /// Sends a message with encoded properties to a queue.
    ///
    /// # Errors
    /// `Invalid` when there is no such queue.
    pub fn send_with(&mut self, topic: &str, queue: u32, properties: &[u8], body: &[u8]) -> Result<()> {
        self.log.produce(&Partition::new(topic, BROKER, queue), properties, body, self.clock.now())
    }

    /// Lets every task work on what there is to read, without committing. Only an epoch that is full is committed.
    ///
    /// # Errors
    /// The first error of a task. The driver can go on only after [`abort`](Self::abort).
    pub fn process(&mut self) -> Result<()> {
        let records_max = self.batch_records_max;
        self.each(|task, driver| driver.drive(task.process(records_max)))
    }

    /// Processes, commits and publishes until nothing moves any more, repartition topics included.
    ///
    /// # Errors
    /// The first error of a task. The driver can go on only after [`abort`](Self::abort).
    pub fn commit(&mut self) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            self.process()?;
            let mut moved = false;
            self.each(|task, driver| {
                moved |= driver.drive(task.commit())?;
                Ok(())
            })?;
            if !moved {
                return Ok(());
            }
        }
        Err(Error::bug("the topology does not come to rest"))
    }

    /// Drops what is not committed, as a crash does, and opens every task again.
    ///
    /// # Errors
    /// What opening a task returns.
    pub fn abort(&mut self) -> Result<()> {
        self.cuts.arm(None);
        self.close();
        self.open()
    }

    /// Processes and commits as [`commit`](Self::commit) does, up to the next time that a task comes to `point`; there
    /// everything crashes, and is opened again. Returns whether a task came there; if not, all is committed.
    ///
    /// # Errors
    /// The first error of a task, and what opening a task returns.
    pub fn crash_at(&mut self, point: CrashPoint) -> Result<bool> {
        self.cuts.arm(Some(point));
        let result = self.commit();
        let crashed = self.cuts.crashed();
        self.cuts.arm(None);
        match result {
            Err(_) if crashed => {
                self.abort()?;
                Ok(true)
            }
            other => other.map(|()| crashed),
        }
    }

    /// All messages of a topic, queue by queue, as a reader sees them that drops repeats: frames unpacked, the engine's own
    /// properties taken off.
    pub fn read(&self, topic: &str) -> Vec<TestMessage> {
        let queues = (0..self.log.queues(topic)).map(|queue| Partition::new(topic, BROKER, queue));
        queues.flat_map(|queue| message::read(&self.log, &queue, &self.job.topology)).collect()
    }

    /// The bodies of [`read`](Self::read).
    pub fn bodies(&self, topic: &str) -> Vec<Vec<u8>> {
        self.read(topic).into_iter().map(|message| message.body).collect()
    }

    /// The state of a task, in the order of subtopologies and queues. What is changed becomes part of the open epoch.
    #[cfg(test)]
    pub(crate) fn state_mut(&mut self, task: usize) -> Option<&mut TaskState> {
        let task = self.tasks.get_mut(task)?.task.as_mut()?;
        task.touch();
        Some(task.state_mut())
    }

    /// What all stages did so far, aborted epochs included.
    pub fn counters(&self) -> Counters {
        let tasks = self.tasks.iter().filter_map(|seated| seated.task.as_ref());
        tasks.fold(self.counted, |all, task| sum(all, task.counters()))
    }

    /// Opens every task that is not open.
    fn open(&mut self) -> Result<()> {
        let mut tasks = std::mem::take(&mut self.tasks);
        let opened = tasks.iter_mut().filter(|seated| seated.task.is_none()).try_for_each(|seated| {
            let line = self.job.board.line(&seated.seat.id);
            seated.task = Some(self.drive(Stepped::open(&self.job, &seated.seat, &line))?);
            Ok(())
        });
        self.tasks = tasks;
        opened
    }

    /// Takes a step with every task, in the order of subtopologies and queues.
    fn each(&mut self, mut step: impl FnMut(&mut Stepped, &Self) -> Result<()>) -> Result<()> {
        let mut tasks = std::mem::take(&mut self.tasks);
        let mut open = tasks.iter_mut().filter_map(|seated| seated.task.as_mut());
        let result = open.try_for_each(|task| step(task, self));
        self.tasks = tasks;
        result
    }

    /// Runs a future to its end on this thread, in or outside a runtime of the caller's.
    fn drive<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let _entered = self.timers.enter();
        let mut future = pin!(future);
        let mut cx = PollContext::from_waker(Waker::noop());
        for _ in 0..WAITS_MAX {
            for _ in 0..POLLS_MAX {
                match future.as_mut().poll(&mut cx) {
                    Poll::Ready(result) => return result,
                    Poll::Pending if self.cuts.crashed() => return Err(crashed()),
                    Poll::Pending => {}
                }
            }
            self.timers.let_pass(WAIT);
        }
        Err(stuck())
    }
}

fn crashed() -> Error {
    Error::new(ErrorKind::Retry, "the test driver has crashed where it was told to")
}

fn sum(one: Counters, other: Counters) -> Counters {
    Counters {
        records_in: one.records_in + other.records_in,
        records_out: one.records_out + other.records_out,
        skipped: one.skipped + other.skipped,
        retried: one.retried + other.retried,
        dead_letters: one.dead_letters + other.dead_letters,
        failed: one.failed + other.failed,
        late: one.late + other.late,
        missing_keys: one.missing_keys + other.missing_keys,
    }
}

/// The topics that are not the job's own.
fn make_topics(topology: &Topology, queues: &[(&str, u32)], log: &TestLog) {
    let given = |topic: &str| queues.iter().find(|(name, _)| *name == topic).map_or(1, |(_, queues)| *queues);
    for plan in &topology.subtopologies {
        let sinks = plan.sinks.iter().filter(|sink| !sink.internal).map(|sink| &sink.topic);
        let sources = plan.sources.iter().filter(|source| !source.internal).map(|source| &source.topic);
        sinks.chain(sources).for_each(|topic| log.make(topic, given(topic)));
    }
}

fn job(
    topology: &Topology,
    log: Arc<TestLog>,
    stores: Arc<dyn StoreFactory>,
    clock: ManualClock,
    config: Config,
) -> Result<Job> {
    // The same owner in every life: nobody waits for one that is known to be dead.
    let config = Config { watermark_time: Duration::ZERO, publish_lease: PUBLISH_LEASE, ..config };
    let owner = Owner { host: "test-driver".into(), directory: "test-driver".into() };
    let member = member_of(&owner)?;
    Ok(Job {
        topology: topology.clone(),
        config: Arc::new(config),
        log,
        stores,
        clock: Arc::new(clock),
        entropy: Arc::new(Numbers::default()),
        monotonic: Monotonic::start(),
        owner,
        barriers: Barriers::default(),
        board: Arc::default(),
        membership: Membership::new(member.clone(), BTreeSet::from([member])),
        views: Arc::default(),
        mailboxes: Arc::default(),
        backlog: Arc::default(),
    })
}

/// Numbers that are not random: one after the other.
#[derive(Default, Debug)]
struct Numbers(AtomicU64);

impl Entropy for Numbers {
    fn draw(&self) -> Result<u128> {
        Ok(u128::from(self.0.fetch_add(1, Ordering::Relaxed)) + 1)
    }
}

/// A point that a store accepts for `epoch`, with nothing else in it.
#[cfg(test)]
pub(crate) fn commit_point(epoch: u64) -> onceflow_types::CommitPoint {
    use onceflow_types::{Epoch, Generation, Incarnation, Nonce, Offset, Offsets};
    onceflow_types::CommitPoint {
        incarnation: Incarnation::new(1),
        generation: Generation::ZERO,
        nonce: Nonce::new(1),
        epoch: Epoch::new(epoch),
        offsets: Offsets::default(),
        watermarks: std::collections::BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: std::collections::BTreeMap::new(),
        tails: Offsets::default(),
        published_through: Epoch::ZERO,
        commit_offset: Offset::ZERO,
        commit_checksum: 0,
        unpublished: vec![],
        journal_next: Offset::ZERO,
    }
}

impl fmt::Debug for TestDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDriver")
            .field("tasks", &self.tasks.len())
            .field("now", &self.clock.now())
            .finish_non_exhaustive()
    }
}
