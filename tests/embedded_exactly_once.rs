//! The payment job on the embedded log: stopped at random places, started again, every total right.
#![cfg(all(feature = "embedded", feature = "fjall"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::pedantic, reason = "helpers of tests")]

mod common;

use common::{JOB, config, make_topics, produce, topology, verify};
use onceflow::Runtime;
use onceflow::log::Log;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::topology::Delivery;
use std::sync::Arc;
use std::time::Duration;

const PAYMENTS: u64 = 4_000;

async fn run(delivery: Delivery, backend: Backend, stops: u32) -> onceflow::TopicCounts {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options).unwrap());
    make_topics(&*log).await;
    let stores: Arc<dyn StoreFactory> = Arc::new(StoreOptions::new(backend, directory.path().join("state")));
    let share = PAYMENTS / u64::from(stops + 1);
    for stop in 0..stops {
        produce(&*log, u64::from(stop) * share, u64::from(stop + 1) * share).await;
        let builder = Runtime::builder(topology(delivery), log.clone(), stores.clone());
        let mut runtime = builder.config(config()).start().await.unwrap();
        // A different place each time: before, within and after the work of this share.
        let patience = Duration::from_millis(u64::from(stop) * 37 % 240);
        runtime.wait_caught_up(patience).await.unwrap();
        drop(runtime);
    }
    produce(&*log, u64::from(stops) * share, PAYMENTS).await;
    let builder = Runtime::builder(topology(delivery), log.clone(), stores);
    let mut runtime = builder.config(config()).start().await.unwrap();
    assert!(runtime.wait_caught_up(Duration::from_secs(60)).await.unwrap(), "{:#?}", runtime.status());
    runtime.drain().await.unwrap();
    let _ = JOB;
    verify(log, PAYMENTS).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactional_output_is_exact_over_ten_stops() {
    run(Delivery::Transactional, Backend::Fjall, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_output_is_exact_over_ten_stops() {
    run(Delivery::Outbox { framed: false }, Backend::Fjall, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn framed_output_is_exact_with_state_in_memory() {
    run(Delivery::Outbox { framed: true }, Backend::Memory, 10).await;
}
