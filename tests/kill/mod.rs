//! A payment pipeline in a process of its own that can be killed, and the audit of what it left behind.
//!
//! The process is this test binary again, running the one test `the_pipeline_process`, which does nothing unless it is
//! told by the environment what to run.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "a test helper"
)]

#[path = "../common/mod.rs"]
mod common;

pub use common::Total;

use common::Payment;
use onceflow::log::{Log, MessageBatch, ReadLimit};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::topology::{Delivery, Topology};
use onceflow::types::Name;
use onceflow::{Config, Runtime, Standing, TopicReader};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ENV: &str = "ONCEFLOW_TEST_PIPELINE";

/// What the pipeline process runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pipeline {
    /// Tells the topics and the job of this run apart.
    pub run: String,
    /// `transactional`, `outbox` or `framed`.
    pub delivery: String,
    /// The state backend.
    pub store: String,
    /// Where log and state are.
    pub directory: PathBuf,
    /// A broker, else the embedded log.
    pub name_server: Option<String>,
    /// How long an epoch lasts, in ms.
    pub epoch_ms: u64,
    /// The publish lease, in ms.
    pub lease_ms: u64,
}

/// What the raw output topic held beside the reader view.
#[derive(Clone, Copy, Debug, Default)]
pub struct Audit {
    pub payments: u64,
    pub outputs: u64,
    pub messages: u64,
    pub raw_duplicates: u64,
    /// Of these, second copies of one half message or send: it was carried out again.
    pub repeated: u64,
}

impl Pipeline {
    pub fn payments(&self) -> String {
        format!("payments-{}", self.run)
    }

    pub fn totals(&self) -> String {
        format!("totals-{}", self.run)
    }

    pub fn job(&self) -> Name {
        Name::job(format!("job-{}", self.run)).unwrap()
    }

    fn topology(&self) -> Topology {
        let delivery = match self.delivery.as_str() {
            "transactional" => Delivery::Transactional,
            "outbox" => Delivery::Outbox { framed: false },
            _ => Delivery::Outbox { framed: true },
        };
        common::topology_of(self.job().as_str(), &self.payments(), &self.totals(), delivery)
    }

    pub async fn open_log(&self) -> Arc<dyn Log> {
        let group = onceflow::topics::producer_group(&self.job());
        match &self.name_server {
            Some(address) => open_rocketmq(address, &group).await,
            None => open_embedded(&self.directory, &group),
        }
    }

    fn config(&self) -> Config {
        Config {
            threads: 2,
            epoch_time: Duration::from_millis(self.epoch_ms),
            publish_lease: Duration::from_millis(self.lease_ms),
            ..Config::default()
        }
    }

    pub async fn start(&self, log: Arc<dyn Log>) -> Runtime {
        let backend: Backend = self.store.parse().unwrap();
        let stores: Arc<dyn StoreFactory> = Arc::new(StoreOptions::new(backend, self.directory.join("state")));
        Runtime::builder(self.topology(), log, stores).config(self.config()).start().await.unwrap()
    }

    /// Starts the pipeline in a process of its own.
    pub fn spawn(&self) -> Child {
        let errors = std::fs::File::options().create(true).append(true).open(self.directory.join("pipeline.log"));
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_pipeline_process", "--nocapture"])
            .env(ENV, serde_json::to_string(self).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.unwrap())
            .spawn()
            .unwrap()
    }

    fn tell(&self, seen: &Seen) {
        let (file, new) = (self.directory.join("seen"), self.directory.join("seen.new"));
        std::fs::write(&new, serde_json::to_string(seen).unwrap()).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    /// What the process in this directory said last.
    pub fn seen(&self) -> Option<Seen> {
        serde_json::from_str(&std::fs::read_to_string(self.directory.join("seen")).ok()?).ok()
    }

    /// The same pipeline in a process with a directory of its own.
    pub fn in_directory(&self, name: &str) -> Pipeline {
        let directory = self.directory.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Pipeline { directory, ..self.clone() }
    }

    /// Appends these payments, spread over the queues.
    pub async fn produce(&self, log: &dyn Log, ids: std::ops::Range<u64>) {
        let queues = log.partitions(&self.payments()).await.unwrap();
        let mut batches: BTreeMap<usize, MessageBatch> = BTreeMap::new();
        for payment in ids.map(common::payment) {
            let body = serde_json::to_vec(&payment).unwrap();
            batches.entry(payment.id as usize % queues.len()).or_default().push(&[], &body).unwrap();
        }
        for (queue, batch) in batches {
            // A try without an answer may be in the log: the audit goes by what is there.
            while log.append(&queues[queue], &batch).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Kills the pipeline process as `kill -9` does.
    pub fn kill(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// How many outputs the reader view holds.
    pub async fn outputs(&self, log: Arc<dyn Log>) -> u64 {
        let mut reader = TopicReader::open(log, &self.totals(), self.job()).await.unwrap();
        reader.read_to_end().await.unwrap().len() as u64
    }

    /// Recomputes from the raw input what the reader view of the output must be, and compares. Panics when it is not.
    pub async fn audit(&self, log: Arc<dyn Log>) -> Audit {
        let mut amounts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut payments = 0;
        for body in raw_bodies(&*log, &self.payments()).await {
            let payment: Payment = serde_json::from_slice(&body).unwrap();
            amounts.entry(payment.card).or_default().push(payment.amount);
            payments += 1;
        }
        let mut seen: BTreeMap<String, Vec<Total>> = BTreeMap::new();
        let audited = log.clone();
        let mut reader = TopicReader::open(log, &self.totals(), self.job()).await.unwrap();
        for record in reader.read_to_end().await.unwrap() {
            let total: Total = serde_json::from_slice(&record.body).unwrap();
            seen.entry(total.card.clone()).or_default().push(total);
        }
        assert_eq!(reader.held(), 0, "messages wait for one that never came");
        assert_eq!(seen.keys().collect::<Vec<_>>(), amounts.keys().collect::<Vec<_>>(), "cards");
        for (card, amounts) in &amounts {
            let totals = &seen[card];
            let counts: Vec<u64> = totals.iter().map(|total| total.count).collect();
            assert_eq!(counts, (1..=amounts.len() as u64).collect::<Vec<_>>(), "{card}: once each, in order");
            // Every step of the running sum is one payment of the card, each used once.
            let mut steps: Vec<i64> = totals.windows(2).map(|pair| pair[1].sum - pair[0].sum).collect();
            steps.push(totals[0].sum);
            steps.sort_unstable();
            let mut expected = amounts.clone();
            expected.sort_unstable();
            assert_eq!(steps, expected, "{card}: amounts");
        }
        let counts = reader.counts();
        assert_eq!(counts.foreign, 0);
        let repeated = repeated(&*audited, &self.totals()).await;
        Audit {
            repeated,
            payments,
            outputs: seen.values().map(|totals| totals.len() as u64).sum(),
            messages: counts.messages,
            raw_duplicates: counts.dedup.duplicates,
        }
    }
}

/// How many messages are byte for byte copies of an earlier one in their queue, identity included.
async fn repeated(log: &dyn Log, topic: &str) -> u64 {
    let mut copies = 0;
    let mut seen = std::collections::BTreeSet::new();
    for_each_raw(log, topic, |record| {
        let identity = record.property(onceflow::txn::IDENTITY_PROPERTY).unwrap_or_default().to_vec();
        copies += u64::from(!seen.insert((identity, record.body().unwrap().to_vec())));
    })
    .await;
    copies
}

/// Every message body of a topic, as it lies there.
pub async fn raw_bodies(log: &dyn Log, topic: &str) -> Vec<Vec<u8>> {
    let mut bodies = vec![];
    for_each_raw(log, topic, |record| bodies.push(record.body().unwrap().to_vec())).await;
    bodies
}

async fn for_each_raw(log: &dyn Log, topic: &str, mut take: impl FnMut(onceflow::log::RecordRef<'_>)) {
    for partition in log.partitions(topic).await.unwrap() {
        let range = log.offsets(&partition).await.unwrap();
        let mut next = range.first;
        while next < range.next {
            let limit = ReadLimit { records_max: 4_096, bytes_max: 4 << 20, wait_max: Duration::from_millis(100) };
            let batch = log.read(&partition, next, limit).await.unwrap();
            batch.iter().for_each(&mut take);
            next = batch.next_offset().unwrap_or(next);
        }
    }
}

/// The body of the test `the_pipeline_process`: runs until it is killed, when it was started for that.
pub fn pipeline_process() {
    let Ok(text) = std::env::var(ENV) else { return };
    let pipeline: Pipeline = serde_json::from_str(&text).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = pipeline.open_log().await;
        let mut runtime = pipeline.start(log).await;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        loop {
            tokio::select! {
                stopped = runtime.wait() => return stopped.unwrap(),
                _ = terminate.recv() => return runtime.drain().await.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(100)) => pipeline.tell(&Seen::of(&runtime)),
            }
        }
    });
}

/// What a pipeline process says of itself, several times a second.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub running: usize,
    pub standby: usize,
    pub members: usize,
    pub fenced: u64,
    pub openings: u64,
    pub given: u64,
    pub taken: u64,
    pub found: u64,
    pub looks_failed: u64,
}

impl Seen {
    fn of(runtime: &Runtime) -> Seen {
        let (status, membership) = (runtime.status(), runtime.membership());
        let count = |state| status.values().filter(|status| status.state == state).count();
        Seen {
            running: count(Standing::Running),
            standby: count(Standing::Standby),
            members: membership.members.len(),
            fenced: status.values().map(|status| status.protocol.fenced).sum(),
            openings: status.values().map(|status| status.protocol.openings).sum(),
            given: membership.tasks_given,
            taken: membership.tasks_taken,
            found: membership.tasks_found,
            looks_failed: membership.looks_failed,
        }
    }
}

/// Random numbers for places to kill at, from a printed seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(name: &str) -> Self {
        let fixed = std::env::var("ONCEFLOW_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = fixed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(name.len() as u32));
        eprintln!("{name}: ONCEFLOW_TEST_SEED={seed}");
        Dice(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

#[cfg(feature = "embedded")]
fn open_embedded(directory: &Path, group: &str) -> Arc<dyn Log> {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
    // A killed process loses nothing that the operating system has.
    let options = EmbeddedOptions { group: group.into(), sync: Sync::Never, ..EmbeddedOptions::default() };
    Arc::new(EmbeddedLog::open(directory.join("log"), options).unwrap())
}

#[cfg(not(feature = "embedded"))]
fn open_embedded(_: &Path, _: &str) -> Arc<dyn Log> {
    panic!("built without the embedded log")
}

#[cfg(feature = "rocketmq")]
async fn open_rocketmq(address: &str, group: &str) -> Arc<dyn Log> {
    use onceflow::log::rocketmq::{RocketLog, RocketOptions};
    Arc::new(RocketLog::open(RocketOptions::new(address, group)).await.unwrap())
}

#[cfg(not(feature = "rocketmq"))]
async fn open_rocketmq(_: &str, _: &str) -> Arc<dyn Log> {
    panic!("built without the RocketMQ client")
}
