//! Running a job in this process: topics, tasks, worker threads, sharing with other processes, drain.

mod assignment;
mod check_backs;
mod owners;
pub(crate) mod prepare;
mod steward;
mod worker;

use crate::codec::{Key, StateValue};
use crate::config::Config;
use crate::edge::{Entropy, Monotonic, SystemEntropy, sleep};
use crate::job::{Barriers, Job};
use crate::membership::{Membership, member_of};
use crate::output::message_room;
use crate::query::Query;
use crate::signal;
use crate::status::{MembershipStatus, Standing, TaskStatus};
use crate::task::{Control, barrier};
use crate::topology::{Subtopology, Topology};
use onceflow_log::{Log, MESSAGE_OVERHEAD_BYTES};
use onceflow_storage::StoreFactory;
use onceflow_txn::{Owner, PART_BYTES_MAX};
use onceflow_types::{Clock, Error, Result, SystemClock, TaskId};
use prepare::Patience;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steward::Steward;
use worker::{Host, Setup, Worker};

/// How often a caller that waits for the job looks at it.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// The least that a log must take in one message: a Delta, or a Commit with its body, and room for their other fields.
const LOG_MESSAGE_BYTES_MIN: usize = PART_BYTES_MAX + (256 << 10);

/// A running job. Dropping it stops the job at once, as a crash would; [`drain`](Self::drain) hands everything over.
#[derive(Debug)]
pub struct Runtime {
    job: Arc<Job>,
    control: signal::Sender<Control>,
    workers: Vec<Worker>,
    failure: Failure,
}

/// The first error that stopped the job.
type Failure = Arc<Mutex<Option<Error>>>;

/// What a [`Runtime`] is made of.
pub struct RuntimeBuilder {
    topology: Topology,
    log: Arc<dyn Log>,
    stores: Arc<dyn StoreFactory>,
    config: Config,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    machine: Option<String>,
    host: Host,
}

impl RuntimeBuilder {
    /// Sets the bounds and time-outs.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets where processing time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets where random numbers come from.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Names the machine that this process runs on, instead of its host name and boot id. An owner of a task counts as dead
    /// when it was on the same machine with state in the same locked directory: two machines must never share a name.
    pub fn machine(mut self, name: impl Into<String>) -> Self {
        self.machine = Some(name.into());
        self
    }

    /// Runs all tasks on the caller's thread, among the other futures of the `tokio::task::LocalSet` in which
    /// [`start`](Self::start) is called, instead of on threads of their own. With a paused tokio clock, a seeded
    /// [`Entropy`] and a log and stores that do the same each time, so does the job: that is how it is simulated.
    pub fn on_this_thread(mut self) -> Self {
        self.host = Host::Caller;
        self
    }

    /// Checks the topics, makes those that the job owns, and starts the worker threads. Tasks open in the background.
    ///
    /// # Errors
    /// `Invalid` when a setting, a topic or a right is missing; `Retry` when the log cannot be reached within
    /// [`start_time_max`](Config::start_time_max).
    pub async fn start(self) -> Result<Runtime> {
        self.config.check()?;
        let config = fitted(self.config, self.log.message_bytes_max())?;
        let owner = owner(self.machine, &*self.stores, &*self.entropy)?;
        let member = member_of(&owner)?;
        let barriers = Barriers::default();
        let (seats, members) = {
            let patience = Patience::new(&config, &*self.entropy);
            let seats = prepare::prepare(&self.topology, &*self.log, &barriers, &patience).await?;
            let group = crate::topics::consumer_group(&self.topology.job);
            let members = patience.of(|| self.log.members(&group, &member)).await;
            (seats, members.map_err(|error| error.context("members of the job"))?)
        };
        tracing::info!(%member, members = ?members, "job starts");
        let job = Arc::new(Job {
            topology: self.topology,
            config: Arc::new(config),
            log: self.log,
            stores: self.stores,
            clock: self.clock,
            entropy: self.entropy,
            monotonic: Monotonic::start(),
            owner,
            barriers,
            board: Arc::default(),
            membership: Membership::new(member, members),
            views: Arc::default(),
            mailboxes: Arc::default(),
            backlog: Arc::default(),
        });
        let (control, _) = signal::channel(Control::Run);
        let failure = Failure::default();
        let (mut workers, crew) = worker::start(self.host, &job, seats.len(), &control, &failure)?;
        let mut steward = Steward::new(job.clone(), crew, seats);
        steward.begin().await;
        let watched = control.subscribe();
        let setup = Setup { job: job.clone(), control: control.clone(), failure: failure.clone() };
        let fail = move |error| setup.fail(error);
        workers.push(self.host.start("onceflow-steward".to_owned(), fail, move || steward.run(watched))?);
        Ok(Runtime { job, control, workers, failure })
    }
}

impl Runtime {
    /// Starts to describe a runtime for `topology` on `log`, with state in `stores`.
    pub fn builder(topology: Topology, log: Arc<dyn Log>, stores: Arc<dyn StoreFactory>) -> RuntimeBuilder {
        RuntimeBuilder {
            topology,
            log,
            stores,
            config: Config::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            machine: None,
            host: Host::default(),
        }
    }

    /// All tasks of the job as they are here now; those that other members work on are `Standby`, with what was last known
    /// of them here.
    pub fn status(&self) -> BTreeMap<TaskId, TaskStatus> {
        self.job.board.status()
    }

    /// Who shares the job's tasks, as this process sees it now.
    pub fn membership(&self) -> MembershipStatus {
        self.job.membership.status()
    }

    /// Asks for the committed values of an operator with one value per key, by its name: `count`, `sum`, `aggregate` and the
    /// other running ones, and `join_table` for its table; a value or map that a processor names is `operator#name`, and the keys of a map are pairs.
    /// `V` is what the operator keeps (a `u64` for `count`). Only tasks that run in this process are asked.
    ///
    /// ```
    /// use onceflow::codec::{Json, Utf8};
    /// use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
    /// use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
    /// use onceflow::storage::{Backend, StoreOptions};
    /// use onceflow::types::Partition;
    /// use onceflow::{Runtime, StartPolicy, StreamBuilder};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let folder = folder.path();
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
    /// let builder = StreamBuilder::new("words")?;
    /// let words = builder.source("words", Utf8).start(StartPolicy::Earliest).key_by(|word| word.clone());
    /// words.count("counts").sink("counts", "counts", Json::new());
    /// # let log = Arc::new(EmbeddedLog::open(folder.join("log"), EmbeddedOptions::default())?);
    /// # for topic in ["words", "counts"] {
    /// #     log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await?;
    /// # }
    /// # let mut batch = MessageBatch::default();
    /// # batch.push(&[], b"once")?;
    /// # log.append(&Partition::new("words", "local", 0), &batch).await?;
    /// let stores = Arc::new(StoreOptions::new(Backend::Fjall, folder.join("state")));
    /// let mut job = Runtime::builder(builder.build()?, log, stores).start().await?;
    /// job.wait_caught_up(Duration::from_secs(30)).await?;
    ///
    /// let counts = job.query::<String, u64>("counts")?;
    /// assert_eq!(counts.get(&"once".to_owned()).await?, Some(1));
    /// assert_eq!(counts.get(&"never".to_owned()).await?, None);
    /// job.drain().await?;
    /// # Ok::<(), onceflow::types::Error>(())
    /// # })?;
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` when the topology has no operator of that name with state.
    pub fn query<K: Key, V: StateValue>(&self, name: &str) -> Result<Query<K, V>> {
        let Job { topology, mailboxes, board, .. } = &*self.job;
        let plan = topology.subtopologies.iter().find(|plan| plan.has_table(name));
        let plan = plan.ok_or_else(|| Error::invalid(format!("no operator with state has this name: name={name}")))?;
        Ok(Query::new(mailboxes.clone(), board.clone(), plan.name.clone(), name))
    }

    /// Ends when the job has stopped: with the error that stopped it, or `Ok` after a drain. Cancel safe.
    ///
    /// # Errors
    /// What stopped the job; its kind says what to do.
    pub async fn wait(&mut self) -> Result<()> {
        for worker in &mut self.workers {
            worker.finished().await;
        }
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Seals a last epoch of each task, publishes it, hands the tasks over and stops. What is away meanwhile is tried
    /// again. After [`drain_time_max`](Config::drain_time_max) it stops all the same.
    ///
    /// # Errors
    /// `Retry` when a task could not be handed over in time: nothing is lost, and the next start settles what is open, but
    /// plain consumers of its output wait for the publish lease then. Others stopped the job before or during the drain.
    pub async fn drain(mut self) -> Result<()> {
        self.control.send_if_modified(|control| {
            let running = *control == Control::Run;
            if running {
                *control = Control::Drain;
            }
            running
        });
        let limit = self.job.config.drain_time_max;
        let drained = tokio::select! {
            biased;
            result = self.wait() => Some(result),
            () = sleep(limit) => None,
        };
        match drained {
            Some(result) => result,
            None => {
                self.control.send(Control::Abort);
                self.wait().await?;
                let (limit_ms, tasks) = (limit.as_millis(), self.not_handed_over());
                Err(Error::retry(format!(
                    "the drain took too long, the next start settles what is open: limit_ms={limit_ms} not_handed_over={tasks}"
                )))
            }
        }
    }

    /// The names of the tasks that ended here without a Release.
    fn not_handed_over(&self) -> String {
        let here = |status: &TaskStatus| !matches!(status.state, Standing::Released | Standing::Standby);
        let names = self.status().into_iter().filter(|(_, status)| here(status)).map(|(task, _)| task.to_string());
        names.collect::<Vec<_>>().join(",")
    }

    /// Whether everything that was in the sources when this was called is processed, decided and published, through all
    /// subtopologies, and can be read by everybody. The last is made sure of by a barrier on each broker. Only tasks of
    /// this process are looked at; of those that other members work on it says nothing.
    ///
    /// # Errors
    /// `Retry` when the log cannot be reached; what stopped the job, if it has stopped.
    pub async fn caught_up(&self) -> Result<bool> {
        for subtopology in self.in_flow_order() {
            let status = self.status();
            let tasks = status.iter().filter(|(task, _)| task.subtopology == subtopology.name);
            for (task, _) in tasks.filter(|(_, status)| status.state != Standing::Standby) {
                if !self.task_caught_up(subtopology, task).await? {
                    return Ok(false);
                }
            }
        }
        for queue in self.job.barriers.all() {
            barrier(&*self.job.log, &queue).await?;
        }
        Ok(true)
    }

    async fn task_caught_up(&self, plan: &Subtopology, task: &TaskId) -> Result<bool> {
        let mut ends = vec![];
        for source in &plan.sources {
            let partition = task.partition(source.topic.clone());
            if !self.job.log.partitions(&source.topic).await?.contains(&partition) {
                continue;
            }
            let end = self.job.log.offsets(&partition).await?.next;
            ends.push((partition, end));
        }
        // Read after the ends: what its offsets cover was processed, and what they let fire has been decided, or shows here.
        let Some(status) = self.status().remove(task) else { return Ok(false) };
        let processed = ends.iter().all(|(partition, end)| status.offsets.get(partition).is_some_and(|at| at >= *end));
        Ok(processed && !status.time_behind && status.published_through >= status.epoch)
    }

    /// Waits until [`caught_up`](Self::caught_up), at most `time_max`; says whether it is. Cancel safe.
    ///
    /// # Errors
    /// What stopped the job.
    pub async fn wait_caught_up(&mut self, time_max: Duration) -> Result<bool> {
        let deadline = self.job.monotonic.now() + time_max;
        while self.job.monotonic.now() < deadline {
            if self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return self.wait().await.map(|()| false);
            }
            match self.caught_up().await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.kind() == onceflow_types::ErrorKind::Retry => {}
                Err(error) => return Err(error),
            }
            sleep(LOOK_TIME).await;
        }
        Ok(false)
    }

    /// The subtopologies, each behind those that feed it.
    fn in_flow_order(&self) -> Vec<&Subtopology> {
        let mut rest: Vec<&Subtopology> = self.job.topology.subtopologies.iter().collect();
        let mut ordered = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let fed: BTreeSet<&str> = rest.iter().flat_map(|s| &s.sinks).map(|sink| &*sink.topic).collect();
            let (ready, later): (Vec<_>, Vec<_>) = rest
                .iter()
                .copied()
                .partition(|subtopology| subtopology.sources.iter().all(|source| !fed.contains(&*source.topic)));
            if ready.is_empty() {
                // A cycle through a topic: any order is as good.
                ordered.extend(rest);
                return ordered;
            }
            ordered.extend(ready);
            rest = later;
        }
        ordered
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.control.send(Control::Abort);
    }
}

/// The settings with their sizes cut to what the log takes in one message.
fn fitted(mut config: Config, message_bytes_max: usize) -> Result<Config> {
    if message_bytes_max < LOG_MESSAGE_BYTES_MIN {
        return Err(Error::invalid(format!(
            "the log's limit for a message is too small for a journal record: \
             bytes_max={message_bytes_max} needed={LOG_MESSAGE_BYTES_MIN}"
        )));
    }
    let room = message_room(message_bytes_max);
    config.frame_bytes_max = config.frame_bytes_max.min(room);
    config.send_bytes_max = config.send_bytes_max.min(room);
    // A frame that its own reader refuses would be nobody's message there.
    let inflated = config.frame_inflated_bytes_max;
    if inflated < room + MESSAGE_OVERHEAD_BYTES {
        return Err(Error::invalid(format!(
            "frame_inflated_bytes_max must hold the largest message: given={inflated} least={}",
            room + MESSAGE_OVERHEAD_BYTES
        )));
    }
    Ok(config)
}

/// Who claims tasks here. With state in a locked directory the same owner is known to be dead when the lock is free.
fn owner(machine: Option<String>, stores: &dyn StoreFactory, entropy: &dyn Entropy) -> Result<Owner> {
    let unique = || entropy.draw().map(|draw| format!("{draw:032x}"));
    let directory = stores.locked_place().map_or_else(unique, Ok)?;
    let host = machine.or_else(this_machine).map_or_else(unique, Ok)?;
    Ok(Owner { host, directory })
}

/// This machine since it was started.
fn this_machine() -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let (name, boot) = (read("/proc/sys/kernel/hostname")?, read("/proc/sys/kernel/random/boot_id")?);
    Some(format!("{name} {boot}"))
}
