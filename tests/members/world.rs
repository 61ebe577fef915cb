//! One job on one log, its processes, and the load.

use crate::faulty::group::Group;
use crate::faulty::ledger::{Entry, Ledger, SOURCE, entry, memory, quick};
use crate::faulty::{FaultyLog, pause};
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MemberId, MessageBatch, Queues, TopicSpec};
use onceflow::storage::StoreFactory;
use onceflow::types::TaskId;
use onceflow::{Config, Runtime, Standing};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// How long a test waits for what must come, looked at every few milliseconds.
const LOOKS_MAX: usize = 8_000;
const LOOK_TIME: Duration = Duration::from_millis(5);
/// Keys of each queue.
const KEYS: u64 = 3;

pub(crate) struct World {
    pub(crate) plain: Arc<dyn Log>,
    pub(crate) group: Arc<Group>,
    pub(crate) ledger: Ledger,
    pub(crate) config: Config,
    _directory: TempDir,
}

/// A process of the job.
pub(crate) struct Process {
    pub(crate) log: Arc<FaultyLog>,
    pub(crate) runtime: Runtime,
}

/// What was put into the input so far, in the order of each queue.
#[derive(Clone)]
pub(crate) struct Load {
    log: Arc<dyn Log>,
    topic: String,
    next: Arc<AtomicU64>,
    entries: Arc<std::sync::Mutex<Vec<Entry>>>,
    stop: Arc<AtomicBool>,
}

impl World {
    pub(crate) async fn new(ledger: Ledger, queues: u32) -> World {
        let directory = tempfile::tempdir().unwrap();
        let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
        let plain: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path(), options).unwrap());
        let config = Config {
            members_look_time: Duration::from_millis(10),
            read_records_max: 20,
            epoch_records_max: 20,
            ..quick()
        };
        let world = World { plain, group: Arc::default(), ledger, config, _directory: directory };
        world.queues(&world.ledger.input(), queues).await;
        world.queues(&world.ledger.output(), 2).await;
        world
    }

    /// Makes a topic, or lets it grow.
    pub(crate) async fn queues(&self, topic: &str, queues: u32) {
        self.plain.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(queues) }).await.unwrap();
    }

    pub(crate) async fn start(&self) -> Process {
        self.start_with(memory()).await
    }

    pub(crate) async fn start_with(&self, stores: Arc<dyn StoreFactory>) -> Process {
        let log = FaultyLog::new(self.plain.clone());
        log.join(self.group.clone());
        let runtime = self.ledger.start(&log, &stores, self.config.clone()).await;
        Process { log, runtime }
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            log: self.plain.clone(),
            topic: self.ledger.input(),
            next: Arc::default(),
            entries: Arc::default(),
            stop: Arc::default(),
        }
    }

    /// Waits until the reader view holds the output of everything that was put in, and checks it.
    pub(crate) async fn exact(&self, load: &Load) -> onceflow::TopicCounts {
        let entries = load.entries();
        let mut seen = 0;
        for _ in 0..LOOKS_MAX {
            seen = self.ledger.view(&self.plain).await.0.len();
            if seen >= entries.len() {
                return self.ledger.check(&self.plain, &entries).await.unwrap();
            }
            pause(LOOK_TIME).await;
        }
        panic!("{}: seen={seen} wanted={}", self.ledger.job, entries.len());
    }

    /// Copies in the raw output that a plain consumer sees.
    pub(crate) async fn copies(&self) -> usize {
        let mut seen = BTreeMap::new();
        for queue in self.plain.partitions(&self.ledger.output()).await.unwrap() {
            let range = self.plain.offsets(&queue).await.unwrap();
            let limit =
                onceflow::log::ReadLimit { records_max: 100_000, bytes_max: 64 << 20, wait_max: Duration::ZERO };
            let mut next = range.first;
            while next < range.next {
                let batch = self.plain.read(&queue, next, limit).await.unwrap();
                batch.iter().for_each(|record| *seen.entry(record.body().unwrap().to_vec()).or_insert(0usize) += 1);
                next = batch.next_offset().unwrap();
            }
        }
        seen.values().map(|copies| copies - 1).sum()
    }
}

impl Process {
    pub(crate) fn member(&self) -> MemberId {
        self.runtime.membership().member
    }

    /// Tasks that run here.
    pub(crate) fn owned(&self) -> Vec<TaskId> {
        self.in_state(Standing::Running)
    }

    pub(crate) fn in_state(&self, state: Standing) -> Vec<TaskId> {
        self.runtime.status().into_iter().filter(|(_, status)| status.state == state).map(|(task, _)| task).collect()
    }

    pub(crate) fn fenced(&self) -> u64 {
        self.runtime.status().values().map(|status| status.protocol.fenced).sum()
    }

    /// SIGKILL: nothing is handed over, and the connections close.
    pub(crate) async fn kill(self, world: &World) {
        let member = self.member();
        drop(self.runtime);
        self.log.reborn().await;
        world.group.gone(&member);
    }

    /// SIGTERM.
    pub(crate) async fn stop(self) {
        self.runtime.drain().await.unwrap();
    }
}

/// Waits until the processes own all `tasks` tasks between them, each one once, with loads that differ by one at most.
pub(crate) async fn shared(processes: &[&Process], tasks: usize) {
    let mut loads: Vec<Vec<TaskId>> = vec![];
    for _ in 0..LOOKS_MAX {
        loads = processes.iter().map(|process| process.owned()).collect();
        let (least, most) = (loads.iter().map(Vec::len).min().unwrap(), loads.iter().map(Vec::len).max().unwrap());
        if loads.iter().flatten().collect::<std::collections::BTreeSet<_>>().len() == tasks
            && loads.iter().map(Vec::len).sum::<usize>() == tasks
            && most - least <= 1
        {
            return;
        }
        pause(LOOK_TIME).await;
    }
    let statuses: Vec<_> =
        processes.iter().map(|process| (process.runtime.membership(), process.runtime.status())).collect();
    panic!("not shared: {loads:?}\n{statuses:#?}");
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        pause(LOOK_TIME).await;
    }
    panic!("never: {what}");
}

impl Load {
    /// Puts `count` entries into each of these queues. Each key lies in one queue, so its order is known.
    pub(crate) async fn put(&self, queues: std::ops::Range<u32>, count: u64) {
        let all = self.log.partitions(&self.topic).await.unwrap();
        for queue in queues {
            let mut batch = MessageBatch::default();
            let mut new = vec![];
            for _ in 0..count {
                let id = self.next.fetch_add(1, Ordering::SeqCst);
                let entry = entry(id, &format!("{queue}-{}", id % KEYS), id as i64 * 7 % 100 + 1);
                batch.push(&[], &serde_json::to_vec(&entry).unwrap()).unwrap();
                new.push(entry);
            }
            self.log.append(&all[queue as usize], &batch).await.unwrap();
            self.entries.lock().unwrap().extend(new);
        }
    }

    /// Puts entries into the queues again and again until it is stopped.
    pub(crate) fn keep_putting(&self, queues: u32) -> tokio::task::JoinHandle<()> {
        self.stop.store(false, Ordering::SeqCst);
        let load = self.clone();
        tokio::spawn(async move {
            while !load.stop.load(Ordering::SeqCst) {
                load.put(0..queues, 3).await;
                pause(Duration::from_millis(10)).await;
            }
        })
    }

    pub(crate) async fn stop(&self, putting: tokio::task::JoinHandle<()>) {
        self.stop.store(true, Ordering::SeqCst);
        putting.await.unwrap();
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap().clone()
    }
}

/// The tasks that read the input.
pub(crate) fn sources(tasks: Vec<TaskId>) -> Vec<TaskId> {
    tasks.into_iter().filter(|task| task.subtopology.as_str() == SOURCE).collect()
}
