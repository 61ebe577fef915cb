//! Nothing is left of a closed or dropped handle. A test binary of its own: it counts the threads of this process.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;

use fake::{Answer, Fake};
use onceflow_log::Log;
use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_types::{ErrorKind, Partition};
use std::time::Duration;

/// How the log names its threads.
const THREADS: &str = "onceflow-rmq";

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim().starts_with(THREADS)).count()
}

async fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_or_dropped_handle_leaves_no_thread_and_no_socket() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let fake = Fake::start().await;
        fake.answer(30, Answer::fields(0, r#"{"offset":"9"}"#));
        let queue = Partition::new("topic", "fake", 0);
        for closes in [true, false] {
            let log = RocketLog::open(RocketOptions::new(fake.address(), "group")).await.unwrap();
            log.offsets(&queue).await.unwrap();
            assert!(threads() > 0 && fake.connections() > 0, "this test looks for the wrong things");
            if closes {
                log.close().await;
                assert_eq!(log.offsets(&queue).await.unwrap_err().kind(), ErrorKind::Retry);
                log.close().await;
            }
            drop(log);
            wait_for("a thread is left", || threads() == 0).await;
            wait_for("a socket is left", || fake.connections() == 0).await;
        }
    });
}
