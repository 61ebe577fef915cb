//! A name server or a broker that is away, access control, and finished halves that a killed broker asks about again.

use crate::common::produce_to;
use crate::job::{Bench, WITHIN, committed, finish, long, wait_committed};
use onceflow::log::rocketmq::Credentials;
use onceflow::log::{Log, Verdict};
use onceflow::topology::Delivery;
use onceflow::types::ErrorKind;
use onceflow_containers::Setup;
use std::time::Duration;
use tokio::time::Instant;

const PAYMENTS: u64 = 4_000;

/// Aim: a running job does not need the name server; a job that starts waits for it. Method: 20 s without one, with
/// payments to work on all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_name_server_may_be_away_for_twenty_seconds() {
    const AWAY: Duration = Duration::from_secs(20);
    let bench = Bench::new(Setup::version("5.5.0"), Delivery::Transactional).await;
    let runtime = bench.start().await;
    let log = bench.log().await;
    let queues = log.partitions("payments").await.unwrap();
    bench.produce(0, 400).await;
    wait_committed(&runtime, 400).await;
    bench.rocket.kill_name_server().await.unwrap();
    let (gone, mut produced) = (Instant::now(), 400);
    while gone.elapsed() < AWAY {
        produce_to(&*log, &queues, produced, produced + 200).await;
        produced += 200;
        wait_committed(&runtime, produced).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    eprintln!("without a name server: {produced} payments committed");
    bench.rocket.start_name_server().await.unwrap();
    finish(runtime).await;
    bench.audit("name server away", produced).await;
}

/// How a broker is away, and comes back.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Frozen: what is sent to it is accepted, and answered when it goes on.
    Frozen,
    /// Off its network: connections end, new ones are refused.
    CutOff,
}

/// Aim: a network that fails costs time and nothing else. Method: in the middle of the work the broker is away for longer
/// than a request may take and the lease is long, each way twice.
async fn away(version: &str) {
    const AWAY: Duration = Duration::from_secs(8);
    const PAYMENTS: u64 = 12_000;
    let bench = Bench::new(Setup::version(version), Delivery::Transactional).await;
    bench.produce(0, PAYMENTS).await;
    let runtime = bench.start().await;
    for (turn, away) in (1..).zip([Away::Frozen, Away::CutOff, Away::Frozen, Away::CutOff]) {
        wait_committed(&runtime, PAYMENTS * turn / 5).await;
        match away {
            Away::Frozen => bench.rocket.freeze_broker().await.unwrap(),
            Away::CutOff => bench.rocket.cut_off_broker().await.unwrap(),
        }
        let at = committed(&runtime);
        tokio::time::sleep(AWAY).await;
        match away {
            Away::Frozen => bench.rocket.thaw_broker().await.unwrap(),
            Away::CutOff => bench.rocket.connect_broker().await.unwrap(),
        }
        let back = Instant::now();
        wait_committed(&runtime, PAYMENTS.min(at + 1)).await;
        eprintln!("{away:?} at {at} of {PAYMENTS}: progress {:?} after its end", back.elapsed());
    }
    finish(runtime).await;
    bench.audit(&format!("{version} frozen and cut off"), PAYMENTS).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_network_that_fails_loses_nothing() {
    away("5.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_network_that_fails_before_the_oldest_version_loses_nothing() {
    if long() {
        away("5.3.3").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn access_control_lets_the_right_key_in_and_nobody_else() {
    access_control("5.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn access_control_of_the_oldest_version_lets_the_right_key_in_and_nobody_else() {
    access_control("5.3.3").await;
}

/// Aim: wrong rights fail at the start, not after the first epoch.
async fn access_control(version: &str) {
    let setup = Setup { acl: Some(("onceflow".to_owned(), "onceflow-test".to_owned())), ..Setup::version(version) };
    let bench = Bench::new(setup, Delivery::Transactional).await;
    for wrong in [None, Some(Credentials::new("onceflow", "wrong")), Some(Credentials::new("nobody", "onceflow-test"))]
    {
        let error = bench.open(wrong).await.err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        eprintln!("refused: {}", error.report());
    }
    bench.produce(0, PAYMENTS).await;
    finish(bench.start().await).await;
    bench.audit(&format!("{version} access control"), PAYMENTS).await;
}

/// Aim (case 3): halves that are finished are asked about again after a kill of the broker, and nothing comes of it.
/// Method: the broker notes finished halves 3 s late and is killed at once after the last epoch was published; the job
/// is down for a while after that, then starts, is asked, and goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn finished_halves_that_are_asked_about_again_change_nothing() {
    const DOWN: Duration = Duration::from_secs(10);
    let late = Setup::version("5.5.0").with("transactionOpBatchInterval", "3000");
    let bench = Bench::new(late, Delivery::Transactional).await;
    bench.produce(0, PAYMENTS).await;
    let mut runtime = bench.start().await;
    assert!(runtime.wait_caught_up(WITHIN).await.unwrap());
    bench.rocket.kill_broker().await.unwrap();
    drop(runtime);
    bench.rocket.start_broker().await.unwrap();
    assert!(asked(&*bench.log().await, DOWN).await > 0, "the broker does not ask about finished halves: no test");
    let runtime = bench.start().await;
    wait_committed(&runtime, PAYMENTS).await;
    // Long enough for the broker's next rounds of questions.
    tokio::time::sleep(DOWN).await;
    assert_eq!(committed(&runtime), PAYMENTS, "a question moved an offset");
    bench.audit("asked again", PAYMENTS).await;
    bench.produce(PAYMENTS, PAYMENTS + 400).await;
    finish(runtime).await;
    bench.audit("asked again, and on", PAYMENTS + 400).await;
}

/// How often a member of the job's group is asked within `time`; it never knows.
async fn asked(log: &dyn Log, time: Duration) -> u32 {
    let mut asked = 0;
    let listening = async {
        loop {
            let check = log.next_check_back().await.unwrap();
            log.answer_check_back(&check, Verdict::Unknown).await.unwrap();
            asked += 1;
        }
    };
    let _ = tokio::time::timeout(time, listening).await;
    eprintln!("check-backs about finished halves: {asked}");
    asked
}
