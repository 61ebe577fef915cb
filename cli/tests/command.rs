//! The command on a job that has run on an embedded log, with a part of its output sent once more.
#![cfg(all(feature = "embedded", feature = "fjall"))]
#![expect(clippy::unwrap_used, reason = "a test and its helpers")]

use onceflow::codec::Utf8;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
use onceflow::log::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow::storage::{Backend, StoreOptions};
use onceflow::types::{Offset, Partition};
use onceflow::{Runtime, StartPolicy, StreamBuilder};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

const LINES: u64 = 30;

/// A directory with the log and the state of a job `shout` that has written [`LINES`] messages to `loud`.
fn job() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = open(directory.path());
        for topic in ["lines", "loud"] {
            log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(2) }).await.unwrap();
        }
        for queue in log.partitions("lines").await.unwrap() {
            let mut batch = MessageBatch::default();
            (0..LINES / 2).for_each(|line| batch.push(&[], format!("line {line}").as_bytes()).unwrap());
            log.append(&queue, &batch).await.unwrap();
        }
        let builder = StreamBuilder::new("shout").unwrap();
        let lines = builder.source("lines", Utf8).start(StartPolicy::Earliest);
        lines.map(|line| line.to_uppercase()).sink("loud", "loud", Utf8);
        let stores = Arc::new(StoreOptions::new(Backend::Fjall, directory.path().join("state")));
        let mut job = Runtime::builder(builder.build().unwrap(), log, stores).start().await.unwrap();
        assert!(job.wait_caught_up(Duration::from_mins(1)).await.unwrap());
        job.drain().await.unwrap();
    });
    directory
}

fn open(directory: &Path) -> Arc<dyn Log> {
    Arc::new(EmbeddedLog::open(directory.join("log"), EmbeddedOptions::default()).unwrap())
}

/// Copies message `from` of queue 0 of `loud` to the end of `to`, with all its properties.
fn copy(directory: &Path, from: u64, to: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let log = open(directory);
        let limit = ReadLimit { records_max: 1, bytes_max: 1 << 20, wait_max: Duration::ZERO };
        let read = log.read(&Partition::new("loud", "local", 0), Offset::new(from), limit).await.unwrap();
        let record = read.iter().next().unwrap();
        let mut batch = MessageBatch::default();
        batch.push(record.properties(), record.body().unwrap()).unwrap();
        log.create_topic(&TopicSpec { topic: to.into(), queues: Queues::PerBroker(2) }).await.unwrap();
        log.append(&Partition::new(to, "local", 0), &batch).await.unwrap();
    });
}

fn onceflow(directory: &Path, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceflow"));
    command.current_dir(directory).args(words.split(' ')).output().unwrap()
}

/// The answer of a command that succeeds.
fn json(directory: &Path, words: &str) -> serde_json::Value {
    let output = onceflow(directory, &format!("--json {words}"));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Exit code and message of a command that fails.
fn failure(directory: &Path, words: &str) -> (i32, String) {
    let output = onceflow(directory, words);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_job_that_has_drained_has_released_its_journals() {
    let directory = job();
    let words = "inspect journal --log log --job shout --subtopology lines";
    let answer = json(directory.path(), words);
    let journals = answer["journals"].as_array().unwrap();
    assert_eq!(journals.len(), 2);
    for journal in journals {
        assert_eq!(journal["released"], true, "{journal:#}");
        assert_eq!(journal["epoch"], journal["published_through"]);
        assert_eq!(journal["offsets"].as_object().unwrap().values().next().unwrap(), LINES / 2);
        assert_eq!(journal["records"][0]["kind"], "claim");
        assert_eq!(journal["records_by_kind"]["release"], 1);
    }
    let one = json(directory.path(), &format!("{words} --task local:1 --records 0"));
    assert_eq!(one["journals"].as_array().unwrap().len(), 1);
    assert_eq!(one["journals"][0]["records"].as_array().unwrap().len(), 0);
    let text = String::from_utf8(onceflow(directory.path(), words).stdout).unwrap();
    assert!(text.contains("journal shout-journal-lines@local:0"), "{text}");
    assert!(text.contains("replaces=nobody"), "{text}");
}

#[test]
fn state_directories_show_their_tasks_and_commit_points() {
    let directory = job();
    let store = json(directory.path(), "inspect store --dir state");
    assert_eq!(store["tasks"][0]["task"], "lines@local:0");
    assert_eq!(store["tasks"][0]["store"], "fjall");
    let point = json(directory.path(), "inspect point --dir state --job shout --task lines@local:1");
    assert_eq!(point["points"][0]["point"]["offsets"]["lines@local:1"], LINES / 2);
    let (code, message) = failure(directory.path(), "inspect point --dir state --job other");
    assert_eq!(code, 2);
    assert!(message.starts_with("error: invalid: ") && message.contains("found=shout"), "{message}");
    assert_eq!(failure(directory.path(), "inspect store --dir log").0, 2, "a log is no state directory");
    assert_eq!(failure(directory.path(), "inspect store --dir nowhere").0, 2);
}

#[test]
fn an_audit_counts_what_came_again_and_what_is_not_the_jobs() {
    let directory = job();
    copy(directory.path(), 3, "loud");
    let audit = json(directory.path(), "verify --log log --topic loud --job shout");
    assert_eq!((&audit["messages"], &audit["duplicates"]), (&(LINES + 1).into(), &1.into()));
    assert_eq!((&audit["missing"], &audit["pending"]), (&0.into(), &0.into()));
    assert_eq!(audit["channels"][0]["next"], LINES / 2);
    let audit = json(directory.path(), "verify --log log --topic loud --job somebody");
    assert_eq!(audit["foreign"], LINES + 1);
}

#[test]
fn an_audit_fails_when_a_message_is_missing() {
    let directory = job();
    // A topic that holds the messages 0 and 2 of the channel, and so not 1.
    copy(directory.path(), 0, "holes");
    copy(directory.path(), 2, "holes");
    let (code, message) = failure(directory.path(), "verify --log log --topic holes --job shout");
    assert_eq!((code, message.trim()), (1, "error: data-loss: messages are missing: topic=holes missing=1"));
}

#[test]
fn a_reset_needs_a_yes_and_drops_the_state_of_its_job() {
    let directory = job();
    let (code, message) = failure(directory.path(), "reset --job shout --dir state");
    assert_eq!(code, 2);
    assert!(message.contains("add --yes"), "{message}");
    assert_eq!(failure(directory.path(), "reset --job other --dir state --yes").0, 2);
    assert_eq!(json(directory.path(), "inspect store --dir state")["tasks"].as_array().unwrap().len(), 2);

    let dropped = json(directory.path(), "reset --job shout --dir state --yes");
    assert_eq!(dropped["dropped"], serde_json::json!(["lines@local:0", "lines@local:1"]));
    assert_eq!(failure(directory.path(), "inspect store --dir state").0, 2);
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("photos/shout/summer")).unwrap();
    std::fs::write(directory.path().join("photos/shout/summer/1.jpg"), "sun").unwrap();
    assert_eq!(failure(directory.path(), "reset --job shout --dir photos --yes").0, 2);
    assert!(directory.path().join("photos/shout/summer/1.jpg").exists());
    assert_eq!(failure(directory.path(), "verify --log photos --topic t --job shout").0, 2);
    assert_eq!(failure(directory.path(), "verify --log new --topic t --job shout").0, 2);
    assert!(!directory.path().join("new").exists(), "looking makes nothing");
}

#[test]
fn a_log_that_is_open_elsewhere_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let _log = open(directory.path());
    let (code, message) = failure(directory.path(), "verify --log log --topic t --job shout");
    assert_eq!(code, 1);
    assert!(message.starts_with("error: fenced: "), "{message}");
}
