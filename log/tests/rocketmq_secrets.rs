//! Credentials are in no line, error or `Debug` at any level (S4): a log works, is refused and fails with canaries in both
//! fields, while everything that this process says at TRACE is kept, the client library's lines included.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

#[path = "rocketmq/fake.rs"]
mod fake;

use fake::{Answer, Fake};
use onceflow_log::rocketmq::{Credentials, RocketLog, RocketOptions};
use onceflow_log::{Log, MessageBatch, ReadLimit};
use onceflow_types::{Offset, Partition};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

const ACCESS: &str = "canary-access-key";
const SECRET: &str = "canary-secret-key";
const PAYLOAD: &str = "canary-payload";
const HEARTBEAT: i64 = 34;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

fn options(fake: &Fake) -> RocketOptions {
    let mut options = RocketOptions::new(fake.address(), "group");
    options.credentials = Some(Credentials::new(ACCESS, SECRET));
    options.request_timeout = Duration::from_secs(2);
    options.dispatch_lag_max = Duration::from_millis(50);
    options
}

/// What a program would print of a log that is opened, used, refused, cut off and closed.
async fn life(fake: &Fake) -> String {
    let mut said = vec![format!("{:?}", options(fake))];
    fake.answer(HEARTBEAT, Answer { remark: "No accessKey is configured".to_owned(), ..Answer::fields(16, "{}") });
    let error = RocketLog::open(options(fake)).await.expect_err("refused");
    said.push(format!("{error:?} {error} {}", error.report()));
    fake.answer(HEARTBEAT, Answer::fields(0, "{}"));
    let log = RocketLog::open(options(fake)).await.unwrap();
    said.push(format!("{log:?} {:?}", log.counters()));
    let queue = Partition::new("topic", "fake", 0);
    let mut batch = MessageBatch::default();
    batch.push(b"KEYS\x01canary-payload\x02", PAYLOAD.as_bytes()).unwrap();
    let limit = ReadLimit { records_max: 1, bytes_max: 1 << 20, wait_max: Duration::ZERO };
    for answer in [Answer::fields(16, "{}"), Answer::fields(0, "{}"), Answer::silence(), Answer::hang_up()] {
        fake.answer(310, answer.clone());
        fake.answer(11, answer);
        for error in [log.append(&queue, &batch).await.err(), log.read(&queue, Offset::ZERO, limit).await.err()] {
            let error = error.expect("no good answer");
            said.push(format!("{error:?} {error} {}", error.report()));
        }
    }
    log.close().await;
    said.join("\n")
}

#[test]
fn credentials_are_in_no_line_and_in_no_error() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    tracing::subscriber::set_global_default(subscriber.with_writer(lines.clone()).finish()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tracing::trace!("the finest line");
    let said = runtime.block_on(async {
        let fake = Fake::start().await;
        life(&fake).await
    });
    let text = String::from_utf8_lossy(&lines.0.lock().unwrap()).into_owned();
    assert!(text.contains("TRACE") && text.contains("the finest line"), "lines of all levels were kept");
    assert!(text.contains("DEBUG onceflow_log"), "the log said something");
    for canary in [ACCESS, SECRET] {
        assert!(!said.contains(canary), "{said}");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(canary)).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }
    let loud = |line: &&str| !line.contains(" DEBUG ") && !line.contains(" TRACE ");
    let told: Vec<&str> = text.lines().filter(loud).filter(|line| line.contains(PAYLOAD)).collect();
    assert!(told.is_empty() && !said.contains(PAYLOAD), "{told:#?}");
}
