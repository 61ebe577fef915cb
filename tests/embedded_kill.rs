//! The payment pipeline on the embedded log, killed with SIGKILL at random moments and started again: every total right,
//! none lost, none doubled. On every test run, with every store that is compiled in.
#![cfg(all(feature = "embedded", feature = "fjall"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::pedantic, reason = "helpers of tests")]

mod kill;

use kill::{Dice, Pipeline, pipeline_process};
use onceflow::log::{MessageBatch, Queues, TopicSpec};
use onceflow::storage::Backend;
use std::time::Duration;

const KILLS: u64 = 10;
const PAYMENTS: u64 = 20_000;
const QUEUES: u32 = 4;
const CARDS: u64 = 97;

#[test]
fn the_pipeline_process() {
    pipeline_process();
}

/// Between two lives of the pipeline the log is ours: writes another share of the payments.
async fn produce(pipeline: &Pipeline, from: u64, to: u64) {
    let log = pipeline.open_log().await;
    for topic in [pipeline.payments(), pipeline.totals()] {
        log.create_topic(&TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(QUEUES) }).await.unwrap();
    }
    let queues = log.partitions(&pipeline.payments()).await.unwrap();
    let mut batches = vec![MessageBatch::default(); queues.len()];
    for id in from..to {
        let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17;
        let body = format!(r#"{{"id":{id},"card":"card-{:04}","amount":{}}}"#, mixed % CARDS, mixed % 1_000 + 1);
        batches[id as usize % queues.len()].push(&[], body.as_bytes()).unwrap();
    }
    for (queue, batch) in queues.iter().zip(&batches).filter(|(_, batch)| !batch.is_empty()) {
        log.append(queue, batch).await.unwrap();
    }
}

async fn killed_again_and_again(delivery: &str, store: &str) {
    if !store.parse::<Backend>().unwrap().is_available() {
        eprintln!("NOT RUN: {delivery} output with {store}: built without it");
        return;
    }
    let name = format!("{delivery}-{store}");
    let directory = tempfile::tempdir().unwrap();
    let pipeline = Pipeline {
        run: name.clone(),
        delivery: delivery.into(),
        store: store.into(),
        directory: directory.path().to_path_buf(),
        name_server: None,
        epoch_ms: 15,
        lease_ms: 300,
    };
    let mut dice = Dice::new(&name);
    let share = PAYMENTS / (KILLS + 1);
    for kill in 0..KILLS {
        produce(&pipeline, kill * share, (kill + 1) * share).await;
        let child = pipeline.spawn();
        tokio::time::sleep(Duration::from_millis(50 + dice.below(400))).await;
        Pipeline::kill(child);
    }
    produce(&pipeline, KILLS * share, PAYMENTS).await;
    let log = pipeline.open_log().await;
    let mut runtime = pipeline.start(log.clone()).await;
    let caught_up = runtime.wait_caught_up(Duration::from_secs(120)).await.unwrap();
    assert!(caught_up, "{:#?}", runtime.status());
    let openings: u64 = runtime.status().values().map(|status| status.protocol.epochs_replayed).sum();
    runtime.drain().await.unwrap();
    let audit = pipeline.audit(log).await;
    assert_eq!(audit.payments, PAYMENTS);
    eprintln!("{name}: kills={KILLS} epochs replayed at the last start={openings} {audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactional_output_survives_sigkill_on_fjall() {
    killed_again_and_again("transactional", "fjall").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_output_survives_sigkill_on_rocksdb() {
    killed_again_and_again("outbox", "rocksdb").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactional_output_survives_sigkill_on_sled() {
    killed_again_and_again("transactional", "sled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn framed_output_survives_sigkill_with_state_in_memory() {
    killed_again_and_again("framed", "memory").await;
}
