//! A small job with a known answer: entries in, the running sum of each key out.

use super::{FaultyLog, pause};
use onceflow::codec::Json;
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::storage::{MemoryStores, StoreFactory};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::txn::{Fold, decode};
use onceflow::types::wire::checksum;
use onceflow::types::{Error, Name, Offset, TaskId};
use onceflow::{Config, OutputRecord, Runtime, TopicCounts, TopicReader};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The name of the job's subtopology that reads the input: that of its source.
pub const SOURCE: &str = "entries";
/// How long a job may take to what a test waits for, looked at every few milliseconds.
const LOOKS_MAX: usize = 10_000;
const LOOK_TIME: Duration = Duration::from_millis(3);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub id: u64,
    pub key: String,
    pub value: i64,
}

/// What the job puts out for each entry; the id is that of the entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sum {
    pub id: u64,
    pub key: String,
    pub count: u64,
    pub sum: i64,
}

pub fn entry(id: u64, key: &str, value: i64) -> Entry {
    Entry { id, key: key.to_owned(), value }
}

/// `from..to`, over three keys.
pub fn entries(from: u64, to: u64) -> Vec<Entry> {
    (from..to).map(|id| entry(id, ["A", "B", "C"][id as usize % 3], id as i64 * 7 % 100 + 1)).collect()
}

#[derive(Clone, Debug)]
pub struct Ledger {
    pub job: String,
    pub delivery: Delivery,
    /// Through a topic of the job's own.
    pub repartition: bool,
    /// Where a source begins that was never read.
    pub start: StartPolicy,
}

/// Why a wait ended.
#[derive(Debug)]
pub enum Settled {
    /// All output is there.
    Done,
    /// The process died by a fault.
    Died,
    /// The job stopped.
    Stopped(Error),
}

impl Ledger {
    pub fn new(job: &str) -> Self {
        Ledger {
            job: job.to_owned(),
            delivery: Delivery::Transactional,
            repartition: false,
            start: StartPolicy::Earliest,
        }
    }

    pub fn name(&self) -> Name {
        Name::job(&self.job).unwrap()
    }

    pub fn input(&self) -> String {
        format!("{}-in", self.job)
    }

    pub fn output(&self) -> String {
        format!("{}-out", self.job)
    }

    pub fn journal(&self) -> String {
        onceflow::topics::journal(&self.name(), &Name::new(SOURCE).unwrap())
    }

    pub fn barrier(&self) -> String {
        onceflow::topics::barrier(&self.name())
    }

    /// The first task that reads the input.
    pub fn task(&self) -> TaskId {
        TaskId { subtopology: Name::new(SOURCE).unwrap(), broker: "local".into(), queue: 0 }
    }

    /// Entries of value 0 are left out.
    pub fn topology(&self) -> Topology {
        let builder = StreamBuilder::new(&self.job).unwrap();
        let source = builder.source(&self.input(), Json::<Entry>::new()).name(SOURCE).start(self.start);
        let keyed = source.filter(|entry| entry.value != 0).key_by(|entry| entry.key.clone());
        let together = match self.repartition {
            true => keyed.repartition("by-key").queues(1).map_values(|entry| entry),
            false => keyed.partitioned_by_key(),
        };
        let step = |sum: &mut (u64, u64, i64), entry: &Entry| {
            *sum = (entry.id, sum.1 + 1, sum.2 + entry.value);
        };
        together
            .aggregate("sums", || (0u64, 0u64, 0i64), step)
            .map(|key, (id, count, sum)| Sum { id, key, count, sum })
            .sink("sums-out", &self.output(), Json::<Sum>::new())
            .delivery(self.delivery);
        builder.build().unwrap()
    }

    pub async fn make_topics(&self, log: &dyn Log) {
        for topic in [self.input(), self.output()] {
            make_topic(log, &topic).await;
        }
    }

    /// Appends all entries to the input, in one batch.
    pub async fn produce(&self, log: &dyn Log, entries: &[Entry]) {
        append(log, &self.input(), entries).await;
    }

    pub async fn start(&self, log: &Arc<FaultyLog>, stores: &Arc<dyn StoreFactory>, config: Config) -> Runtime {
        let builder = Runtime::builder(self.topology(), log.clone(), stores.clone());
        builder.config(config).start().await.unwrap()
    }

    /// Waits until the reader view holds the output of `entries`.
    pub async fn settle(
        &self,
        runtime: &mut Runtime,
        faulty: &FaultyLog,
        plain: &Arc<dyn Log>,
        entries: &[Entry],
    ) -> Settled {
        let wanted = expected(entries).values().map(Vec::len).sum::<usize>();
        let looked = tokio::select! {
            stopped = runtime.wait() => return Settled::Stopped(stopped.err().unwrap_or_else(|| Error::bug("ended"))),
            looked = self.look(faulty, plain, wanted) => looked,
        };
        looked.unwrap_or_else(|seen| panic!("{}: seen={seen} wanted={wanted} {:#?}", self.job, runtime.status()))
    }

    async fn look(&self, faulty: &FaultyLog, plain: &Arc<dyn Log>, wanted: usize) -> Result<Settled, usize> {
        let mut seen = 0;
        for _ in 0..LOOKS_MAX {
            if faulty.is_dead() {
                return Ok(Settled::Died);
            }
            seen = self.view(plain).await.0.len();
            if seen >= wanted {
                return Ok(Settled::Done);
            }
            pause(LOOK_TIME).await;
        }
        Err(seen)
    }

    /// The reader view of the output, and how many messages are held back.
    pub async fn view(&self, plain: &Arc<dyn Log>) -> (Vec<Sum>, TopicCounts, usize) {
        let (records, counts, held) = read_view(plain, &self.output(), &self.job).await;
        (records.iter().map(|record| serde_json::from_slice(&record.body).unwrap()).collect(), counts, held)
    }

    /// Checks the reader view: for each key every entry once, in order.
    pub async fn check(&self, plain: &Arc<dyn Log>, entries: &[Entry]) -> Result<TopicCounts, String> {
        let (sums, counts, held) = self.view(plain).await;
        match exact(&sums, entries) {
            Ok(()) if held == 0 => Ok(counts),
            Ok(()) => Err(format!("{held} messages wait for one that never came")),
            Err(text) => Err(text),
        }
    }

    /// What a plain consumer sees, without the dedup rule.
    pub async fn raw(&self, plain: &Arc<dyn Log>) -> Vec<Sum> {
        read_raw(plain, &self.output()).await.iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    /// What the journal of the first task says.
    pub async fn fold(&self, plain: &Arc<dyn Log>) -> Fold {
        let mut fold = Fold::default();
        for body in read_raw(plain, &self.journal()).await {
            fold.apply(fold.next(), &decode(&body).unwrap(), checksum(&body)).unwrap();
        }
        fold
    }

    /// The next offset of the input, by the journal.
    pub async fn committed(&self, plain: &Arc<dyn Log>) -> Offset {
        let input = self.task().partition(self.input());
        self.fold(plain).await.point().and_then(|point| point.offsets.get(&input)).unwrap_or_default()
    }

    /// The next offset of the input that the state of the first task stands for; the task must not be open.
    pub fn committed_in_state(&self, stores: &dyn StoreFactory) -> Offset {
        let store = stores.open(&self.name(), &self.task()).unwrap();
        let input = self.task().partition(self.input());
        store.commit_point().unwrap().and_then(|point| point.offsets.get(&input)).unwrap_or_default()
    }
}

/// Whether `sums` are those of `entries`, per key each once and in order.
pub fn exact(sums: &[Sum], entries: &[Entry]) -> Result<(), String> {
    let mut seen: BTreeMap<&str, Vec<Sum>> = BTreeMap::new();
    sums.iter().for_each(|sum| seen.entry(&sum.key).or_default().push(sum.clone()));
    let wanted = expected(entries);
    if seen.iter().map(|(key, sums)| (*key, sums)).eq(wanted.iter().map(|(key, sums)| (&**key, sums))) {
        return Ok(());
    }
    Err(format!("wanted={wanted:?} seen={seen:?}"))
}

fn expected(entries: &[Entry]) -> BTreeMap<String, Vec<Sum>> {
    let mut sums: BTreeMap<String, Vec<Sum>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.value != 0) {
        let of_key = sums.entry(entry.key.clone()).or_default();
        let (count, sum) = of_key.last().map_or((0, 0), |last| (last.count, last.sum));
        of_key.push(Sum { id: entry.id, key: entry.key.clone(), count: count + 1, sum: sum + entry.value });
    }
    sums
}

pub async fn make_topic(log: &dyn Log, topic: &str) {
    log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await.unwrap();
}

/// Appends values as JSON to the first queue of a topic, in one batch.
pub async fn append<T: Serialize>(log: &dyn Log, topic: &str, values: &[T]) {
    let mut batch = MessageBatch::default();
    values.iter().for_each(|value| batch.push(&[], &serde_json::to_vec(value).unwrap()).unwrap());
    append_batch(log, topic, &batch).await;
}

pub async fn append_batch(log: &dyn Log, topic: &str, batch: &MessageBatch) {
    let queue = log.partitions(topic).await.unwrap().remove(0);
    log.append(&queue, batch).await.unwrap();
}

pub async fn read_view(plain: &Arc<dyn Log>, topic: &str, job: &str) -> (Vec<OutputRecord>, TopicCounts, usize) {
    let mut reader = TopicReader::open(plain.clone(), topic, Name::job(job).unwrap()).await.unwrap();
    let records = reader.read_to_end().await.unwrap();
    (records, reader.counts(), reader.held())
}

/// All bodies in the first queue of a topic.
pub async fn read_raw(plain: &Arc<dyn Log>, topic: &str) -> Vec<Vec<u8>> {
    let queue = plain.partitions(topic).await.unwrap().remove(0);
    let range = plain.offsets(&queue).await.unwrap();
    let (mut next, mut bodies) = (range.first, vec![]);
    let limit = onceflow::log::ReadLimit { records_max: 1_000, bytes_max: 64 << 20, wait_max: Duration::ZERO };
    while next < range.next {
        let batch = plain.read(&queue, next, limit).await.unwrap();
        bodies.extend(batch.iter().map(|record| record.body().unwrap().to_vec()));
        next = batch.next_offset().unwrap();
    }
    bodies
}

pub fn memory() -> Arc<dyn StoreFactory> {
    Arc::new(MemoryStores::default())
}

/// Two records an epoch, short waits.
pub fn quick() -> Config {
    Config {
        threads: 1,
        epoch_time: Duration::from_millis(20),
        epoch_records_max: 2,
        read_records_max: 2,
        publish_lease: Duration::from_millis(30),
        backoff_first: Duration::from_millis(1),
        backoff_max: Duration::from_millis(10),
        tries_max: 4,
        ..Config::default()
    }
}
