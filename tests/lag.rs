//! How far a job is behind its input, as its status tells it, and what it makes of a latency target.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

use onceflow::codec::Utf8;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::storage::MemoryStores;
use onceflow::topology::{StartPolicy, StreamBuilder, Topology};
use onceflow::{Config, Runtime};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RECORDS: u64 = 100;
const HELD: u64 = 50;
const PATIENCE: Duration = Duration::from_mins(1);

/// A copy that waits at one record until it is let go on.
fn held(arrived: SyncSender<()>, go_on: Receiver<()>) -> Topology {
    let builder = StreamBuilder::new("lag").unwrap();
    let go_on = Arc::new(Mutex::new(go_on));
    let copied = builder.source("in", Utf8).start(StartPolicy::Earliest).map(move |line: String| {
        if line == HELD.to_string() {
            arrived.send(()).unwrap();
            go_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        line
    });
    copied.sink("out", "out", Utf8);
    builder.build().unwrap()
}

/// A log whose input holds so many records.
async fn full_log(directory: &std::path::Path, records: u64) -> Arc<dyn Log> {
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory, options).unwrap());
    for topic in ["in", "out"] {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await.unwrap();
    }
    let mut batch = MessageBatch::default();
    (0..records).for_each(|record| batch.push(b"", record.to_string().as_bytes()).unwrap());
    log.append(&log.partitions("in").await.unwrap()[0], &batch).await.unwrap();
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_tells_how_many_records_lie_behind_what_was_processed() {
    let directory = tempfile::tempdir().unwrap();
    let log = full_log(directory.path(), RECORDS).await;
    let ((arrived, arrival), (go, go_on)) = (sync_channel(1), sync_channel(1));
    let config = Config { read_records_max: 10, ..Config::default() };
    let runtime = Runtime::builder(held(arrived, go_on), log, Arc::new(MemoryStores::default())).config(config);
    let mut runtime = runtime.start().await.unwrap();
    tokio::task::spawn_blocking(move || arrival.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    // The record is the first of its read: the one before it was the last that was processed.
    let lag = |runtime: &Runtime| runtime.status().values().map(|status| status.lag).sum::<u64>();
    assert_eq!(lag(&runtime), RECORDS - HELD, "{:#?}", runtime.status());
    go.send(()).unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
    assert_eq!(lag(&runtime), 0);
    runtime.drain().await.unwrap();
}

/// A record takes a millisecond or more, so 400 of them are 20 targets and more: in epochs that keep the target there would
/// be at least as many. The last 20 records or so are within the target, and may be as many epochs of 5 ms as they take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_worked_off_in_long_epochs_whatever_the_latency_target() {
    let directory = tempfile::tempdir().unwrap();
    let log = full_log(directory.path(), 400).await;
    let builder = StreamBuilder::new("lag").unwrap();
    #[allow(clippy::disallowed_methods, reason = "the time of a record is what this is about")]
    let slow = builder.source("in", Utf8).start(StartPolicy::Earliest).map(|line: String| {
        std::thread::sleep(Duration::from_millis(1));
        line
    });
    slow.sink("out", "out", Utf8);
    let config = Config {
        latency_target: Some(Duration::from_millis(20)),
        epoch_time: Duration::from_secs(2),
        // An epoch ends between two reads.
        read_records_max: 4,
        ..Config::default()
    };
    let runtime = Runtime::builder(builder.build().unwrap(), log, Arc::new(MemoryStores::default())).config(config);
    let mut runtime = runtime.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
    let epochs: u64 = runtime.status().values().map(|status| status.protocol.epochs).sum();
    assert!(epochs <= 12, "epochs={epochs}");
    runtime.drain().await.unwrap();
}
