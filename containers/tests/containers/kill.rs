//! Brokers that are killed or restarted in the middle of the work, and come back with their volume.

use crate::job::{Bench, committed, finish, long, wait_committed};
use onceflow::topology::Delivery;
use onceflow_containers::Setup;
use tokio::time::Instant;

/// So many that two kills fall into the middle of the work.
const PAYMENTS: u64 = 12_000;

async fn killed_twice(version: &str, delivery: Delivery) {
    let bench = Bench::new(Setup::version(version), delivery).await;
    bench.produce(0, PAYMENTS).await;
    let runtime = bench.start().await;
    for share in [1, 2] {
        wait_committed(&runtime, PAYMENTS * share / 5).await;
        bench.rocket.kill_broker().await.unwrap();
        let at = committed(&runtime);
        let down = Instant::now();
        bench.rocket.start_broker().await.unwrap();
        let serving = down.elapsed();
        wait_committed(&runtime, PAYMENTS.min(at + 1)).await;
        eprintln!("killed at {at} of {PAYMENTS}: serving after {serving:?}, progress after {:?}", down.elapsed());
    }
    finish(runtime).await;
    bench.audit_after_kills(&format!("{version} {delivery:?} killed twice"), PAYMENTS, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn transactional_output_survives_a_killed_broker() {
    killed_twice("5.5.0", Delivery::Transactional).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn outbox_output_survives_a_killed_broker() {
    killed_twice("5.5.0", Delivery::Outbox { framed: false }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn transactional_output_survives_a_kill_of_the_oldest_version() {
    killed_twice("5.3.3", Delivery::Transactional).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn outbox_output_survives_a_kill_of_the_oldest_version() {
    if long() {
        killed_twice("5.3.3", Delivery::Outbox { framed: false }).await;
    }
}

/// A clean stop in the middle of the work, with the job running.
async fn restarted(version: &str) {
    let bench = Bench::new(Setup::version(version), Delivery::Transactional).await;
    bench.produce(0, PAYMENTS).await;
    let runtime = bench.start().await;
    wait_committed(&runtime, PAYMENTS / 3).await;
    bench.rocket.stop_broker().await.unwrap();
    let at = committed(&runtime);
    bench.rocket.start_broker().await.unwrap();
    finish(runtime).await;
    bench.audit(&format!("{version} restarted at {at}"), PAYMENTS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_clean_restart_loses_nothing() {
    restarted("5.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_clean_restart_of_the_oldest_version_loses_nothing() {
    if long() {
        restarted("5.3.3").await;
    }
}
