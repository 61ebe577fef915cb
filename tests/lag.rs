//! How far a job is behind its input, as its status tells it.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_tells_how_many_records_lie_behind_what_was_processed() {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path(), options).unwrap());
    for topic in ["in", "out"] {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await.unwrap();
    }
    let mut batch = MessageBatch::default();
    (0..RECORDS).for_each(|record| batch.push(b"", record.to_string().as_bytes()).unwrap());
    log.append(&log.partitions("in").await.unwrap()[0], &batch).await.unwrap();

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
