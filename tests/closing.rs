//! Many windows that close at once, over many epochs: who waits for the job waits for them, and a drain does not.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::pedantic, reason = "helpers of tests")]

use onceflow::codec::Json;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::process::{Process, Processor, Timer};
use onceflow::storage::{MemoryStores, StoreFactory};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::{Name, Result, Timestamp};
use onceflow::{Config, Runtime, TopicReader, Windowed, Windows};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const KEYS: u64 = 10_000;
/// So that closing takes thousands of epochs.
const RESULTS_PER_EPOCH: usize = 2;
const PATIENCE: Duration = Duration::from_secs(60);

fn topology() -> Topology {
    let builder = StreamBuilder::new("closing").unwrap();
    let events = builder.source("in", Json::<(u64, i64)>::new()).start(StartPolicy::Earliest);
    let events = events.out_of_orderness(Duration::ZERO).idle_timeout(None);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let keyed = events.key_by(|(key, _)| *key).partitioned_by_key();
    let counts = keyed.window("minutes", Windows::tumbling(Duration::from_secs(60))).count();
    counts
        .map(|key, count: Windowed<u64>| (key, count.value))
        .sink("out", "out", Json::new())
        .delivery(Delivery::Outbox { framed: false });
    builder.build().unwrap()
}

/// A log in which every window is open and the record that closes them all has come.
async fn full_log(directory: &std::path::Path) -> Arc<dyn Log> {
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory, options).unwrap());
    for topic in ["in", "out"] {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await.unwrap();
    }
    let mut batch = MessageBatch::default();
    for key in 0..KEYS {
        batch.push(b"", &serde_json::to_vec(&(key, 1)).unwrap()).unwrap();
    }
    batch.push(b"", &serde_json::to_vec(&(KEYS, 3_600_000)).unwrap()).unwrap();
    log.append(&log.partitions("in").await.unwrap()[0], &batch).await.unwrap();
    log
}

async fn start(log: &Arc<dyn Log>, stores: &Arc<dyn StoreFactory>, config: Config) -> Runtime {
    Runtime::builder(topology(), log.clone(), stores.clone()).config(config).start().await.unwrap()
}

fn small_epochs() -> Config {
    Config { epoch_halves_max: RESULTS_PER_EPOCH, publish_lease: Duration::from_millis(500), ..Config::default() }
}

/// The keys whose window has come out, each once.
async fn closed(log: &Arc<dyn Log>) -> BTreeSet<u64> {
    let mut reader = TopicReader::open(log.clone(), "out", Name::job("closing").unwrap()).await.unwrap();
    let records = reader.read_to_end().await.unwrap();
    let keys: BTreeSet<u64> = records
        .iter()
        .map(|record| serde_json::from_slice::<(u64, u64)>(&record.body).unwrap())
        .inspect(|(_, count)| assert_eq!(*count, 1))
        .map(|(key, _)| key)
        .collect();
    assert_eq!(keys.len(), records.len(), "a window came out twice");
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_has_caught_up_when_all_that_was_due_has_come_out() {
    let directory = tempfile::tempdir().unwrap();
    let (log, stores) = (full_log(directory.path()).await, Arc::new(MemoryStores::default()) as Arc<dyn StoreFactory>);
    let mut runtime = start(&log, &stores, small_epochs()).await;
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
    assert_eq!(closed(&log).await.len() as u64, KEYS);
    runtime.drain().await.unwrap();
}

/// The drain ends after the epoch that it met, and the next start goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_while_windows_close_leaves_the_rest_to_the_next_owner() {
    let directory = tempfile::tempdir().unwrap();
    let (log, stores) = (full_log(directory.path()).await, Arc::new(MemoryStores::default()) as Arc<dyn StoreFactory>);
    let runtime = start(&log, &stores, small_epochs()).await;
    let until = tokio::time::Instant::now() + PATIENCE;
    while !runtime.status().values().any(|status| status.time_behind && status.stages.records_out > 0) {
        assert!(tokio::time::Instant::now() < until, "{:#?}", runtime.status());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    runtime.drain().await.unwrap();
    let first = closed(&log).await;
    assert!(first.len() < KEYS as usize, "nothing was left, so the test shows nothing");
    let mut runtime = start(&log, &stores, Config::default()).await;
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
    runtime.drain().await.unwrap();
    assert_eq!(closed(&log).await.len() as u64, KEYS);
}

/// Two timers that set each other, which is never at an end.
struct Endless(Arc<AtomicU64>);

impl Processor<u64, (u64, i64)> for Endless {
    type Output = u64;

    fn process(&mut self, _: (u64, i64), cx: &mut Process<'_, u64, u64>) -> Result<()> {
        if *cx.key() == 0 { cx.set_event_timer(Timestamp::from_millis(10)) } else { Ok(()) }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, u64, u64>) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let Timer::Event(time) = timer else { return Ok(()) };
        cx.set_event_timer(Timestamp::from_millis(if time.as_millis() == 10 { 9 } else { 10 }))
    }
}

fn endless(fired: &Arc<AtomicU64>) -> Topology {
    let builder = StreamBuilder::new("closing").unwrap();
    let events = builder.source("in", Json::<(u64, i64)>::new()).start(StartPolicy::Earliest);
    let events = events.out_of_orderness(Duration::ZERO).idle_timeout(None);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let (keyed, fired) = (events.key_by(|(key, _)| *key).partitioned_by_key(), fired.clone());
    keyed.process("endless", move || Endless(fired.clone())).sink("out", "out", Json::new());
    builder.build().unwrap()
}

/// Aim: a program whose timers never come to an end fills no epoch, and keeps its job from neither committing nor ending.
/// Method: wait for more firings than one epoch has, drain, and do the same with what was committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_without_end_do_not_keep_a_job_from_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (log, stores): (_, Arc<dyn StoreFactory>) =
        (full_log(directory.path()).await, Arc::new(MemoryStores::default()));
    for _ in 0..2 {
        let fired = Arc::new(AtomicU64::new(0));
        let builder = Runtime::builder(endless(&fired), log.clone(), stores.clone());
        let config = Config { publish_lease: Duration::from_millis(500), ..Config::default() };
        let mut runtime = builder.config(config).start().await.unwrap();
        let mut looks = 0;
        while fired.load(Ordering::Relaxed) < 150_000 {
            looks += 1;
            assert!(looks < 600, "fired={}", fired.load(Ordering::Relaxed));
            assert!(!runtime.wait_caught_up(Duration::from_millis(100)).await.unwrap());
        }
        runtime.drain().await.unwrap();
    }
}
