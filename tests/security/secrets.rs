//! Payloads and keys are in no line above `DEBUG`, in no error and in no status (S5). Credentials belong to the log:
//! `log/tests/rocketmq_secrets.rs`.

use crate::faulty::ledger::{append_batch, memory, quick};
use crate::{PATIENCE, log_with};
use onceflow::codec::Json;
use onceflow::log::{Log, MessageBatch};
use onceflow::topology::{StartPolicy, StreamBuilder, Topology};
use onceflow::types::Error;
use onceflow::{ErrorPolicy, Runtime};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

const CANARY: &str = "4111111111111111";

/// Where all lines of this program go.
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

#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    card: String,
    cents: i64,
}

fn topology(policy: ErrorPolicy) -> Topology {
    let builder = StreamBuilder::new("canary").unwrap();
    let payments = builder.source("in", Json::<Payment>::new()).start(StartPolicy::Earliest).on_error(policy);
    let sums = payments.key_by(|payment| payment.card.clone()).repartition("by-card").queues(1).count("counts");
    let sink = sums.map(|card, count| (card, count)).sink("out", "out", Json::<(String, u64)>::new());
    sink.message_keys(|(card, _)| card.clone());
    builder.build().unwrap()
}

async fn run(log: &Arc<dyn Log>, policy: ErrorPolicy) -> Result<String, Error> {
    let builder = Runtime::builder(topology(policy), log.clone(), memory()).config(quick());
    let mut runtime = builder.start().await?;
    let caught_up = runtime.wait_caught_up(PATIENCE).await;
    let status = format!("{:?} {runtime:?}", runtime.status());
    caught_up?;
    runtime.drain().await?;
    Ok(status)
}

#[tokio::test]
async fn payloads_and_keys_are_in_no_line_above_debug_and_in_no_error() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    tracing::subscriber::set_global_default(subscriber.with_writer(lines.clone()).finish()).unwrap();
    let policies = [ErrorPolicy::Skip, ErrorPolicy::dead_letter("bad"), ErrorPolicy::Fail];
    for (number, policy) in policies.into_iter().enumerate() {
        let (log, _directory) = log_with(&["in", "out", "bad"]).await;
        for body in [
            format!(r#"{{"card":"{CANARY}","cents":1}}"#),
            format!(r#"{{"card":{CANARY},"cents":1}}"#),
            format!(r#"{{"card":"c","cents":"{CANARY}"}}"#),
            format!(r#"{{"{CANARY}":1}}"#),
            CANARY.to_owned(),
        ] {
            let mut batch = MessageBatch::default();
            batch.push(format!("KEYS\u{1}{CANARY}\u{2}").as_bytes(), body.as_bytes()).unwrap();
            append_batch(&*log, "in", &batch).await;
        }
        match run(&log, policy).await {
            Ok(status) => assert!(number < 2 && !status.contains(CANARY), "{status}"),
            Err(error) => {
                assert_eq!(number, 2, "{}", error.report());
                assert!(!format!("{error:?} {error} {}", error.report()).contains(CANARY), "{}", error.report());
            }
        }
    }
    let text = String::from_utf8_lossy(&lines.0.lock().unwrap()).into_owned();
    let level = |line: &str| line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    assert!(text.lines().any(|line| level(line) == "ERROR"), "the job's end was logged");
    assert!(text.contains(CANARY), "at DEBUG it is there: this test would see it");
    let quiet = |line: &&str| !matches!(level(line).as_str(), "DEBUG" | "TRACE");
    let told: Vec<&str> = text.lines().filter(quiet).filter(|line| line.contains(CANARY)).collect();
    assert!(told.is_empty(), "{told:#?}");
}
