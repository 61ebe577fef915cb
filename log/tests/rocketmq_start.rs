//! A start waits for a cluster that is away, within its bound, and does not wait for one that refuses. No real broker is
//! needed.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;

use fake::{Answer, Fake};
use onceflow_log::Log;
use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_types::{ErrorKind, Offset, Partition, Result};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const MAX_OFFSET: i64 = 30;
const HEARTBEAT: i64 = 34;
const CLUSTER: i64 = 106;
/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(10);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn options(address: &str, start_time_max: Duration) -> RocketOptions {
    let request_timeout = Duration::from_secs(2);
    RocketOptions { start_time_max, request_timeout, ..RocketOptions::new(address, "group") }
}

fn opening(address: &str) -> JoinHandle<Result<RocketLog>> {
    tokio::spawn(RocketLog::open(options(address, LONG)))
}

async fn works(opening: JoinHandle<Result<RocketLog>>, fake: &Fake) {
    let log = opening.await.unwrap().expect("the cluster is there now");
    fake.answer(MAX_OFFSET, Answer::fields(0, r#"{"offset":"9"}"#));
    let range = log.offsets(&Partition::new("topic", "fake", 0)).await.unwrap();
    assert_eq!(range.next, Offset::new(9));
    log.close().await;
}

#[test]
fn a_start_waits_for_a_broker_that_does_not_answer_yet() {
    run(async {
        let fake = Fake::start().await;
        fake.answer(HEARTBEAT, Answer::hang_up());
        let opening = opening(fake.address());
        fake.asked_times(HEARTBEAT, 3).await;
        assert!(!opening.is_finished());
        fake.answer(HEARTBEAT, Answer::fields(0, "{}"));
        works(opening, &fake).await;
    });
}

#[test]
fn a_start_waits_for_a_broker_that_the_name_server_does_not_know_yet() {
    run(async {
        let fake = Fake::start().await;
        let known = fake.said(CLUSTER);
        let nobody = br#"{"brokerAddrTable":{},"clusterAddrTable":{}}"#.to_vec();
        fake.answer(CLUSTER, Answer { body: nobody, ..Answer::fields(0, "{}") });
        let opening = opening(fake.address());
        fake.asked_times(CLUSTER, 3).await;
        assert!(!opening.is_finished());
        fake.answer(CLUSTER, known);
        works(opening, &fake).await;
    });
}

#[test]
fn a_start_waits_for_a_name_server_that_is_not_there_yet() {
    run(async {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = nobody.local_addr().unwrap().to_string();
        let opening = opening(&address);
        for _ in 0..2 {
            drop(nobody.accept().await.unwrap());
        }
        assert!(!opening.is_finished());
        drop(nobody);
        works(opening, &Fake::start_at(&address).await).await;
    });
}

#[test]
fn a_start_gives_up_at_its_bound_and_says_what_was_away() {
    run(async {
        let fake = Fake::start().await;
        fake.answer(HEARTBEAT, Answer::hang_up());
        let error = RocketLog::open(options(fake.address(), Duration::ZERO)).await.expect_err("nobody answers");
        assert_eq!((error.kind(), fake.asked(HEARTBEAT)), (ErrorKind::Retry, 1), "{}", error.report());
        let error = RocketLog::open(options(fake.address(), Duration::from_secs(3))).await.expect_err("nobody");
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(fake.asked(HEARTBEAT) > 2, "it tried more than once");
        for part in ["waited_ms=3000", "no broker can be reached", fake.address()] {
            assert!(error.report().contains(part), "{part}: {}", error.report());
        }
    });
}

#[test]
fn a_refusal_is_not_waited_for() {
    run(async {
        let fake = Fake::start().await;
        fake.answer(HEARTBEAT, Answer { remark: "who are you".to_owned(), ..Answer::fields(16, "{}") });
        let error = RocketLog::open(options(fake.address(), LONG)).await.expect_err("refused");
        assert_eq!((error.kind(), fake.asked(HEARTBEAT)), (ErrorKind::Invalid, 1), "{}", error.report());
    });
}
