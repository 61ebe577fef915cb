//! Facts on brokers of their own: one that cannot flush in time, one that is killed.

use super::{Bench, WITHIN, check_back_time, message, options, read, read_at};
use onceflow_log::rocketmq::RocketLog;
use onceflow_log::{End, Log, Queues, TopicSpec, Verdict};
use onceflow_types::{ErrorKind, HalfHandle, Offset, Partition};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, timeout};

const TOPIC: &str = "calibration";

/// Observes them all, or says that there is nothing to start brokers with.
pub(super) async fn facts(bench: &mut Bench) {
    let Some(program) = std::env::var_os("ONCEFLOW_XTASK") else {
        eprintln!("NOT RUN: weak status, killed broker: ONCEFLOW_XTASK must name the program that starts brokers");
        return bench.note("a broker that cannot flush in time; a killed broker", "not run");
    };
    an_end_hides_a_weak_status(bench, program.clone().into()).await;
    a_killed_broker_keeps_what_it_acknowledged_and_asks_again(bench, program.into()).await;
}

/// A broker in a folder of its own, which ends with this process.
struct Broker {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Broker {
    fn new(program: PathBuf) -> Self {
        Broker { program, folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, action: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["broker", action, "--dir"]).arg(self.folder.path()).args(words).stdin(Stdio::null());
        command
    }

    /// Runs one of the commands on this broker, and returns the last line that it prints.
    fn run(&self, action: &str, words: &[&str]) -> String {
        let output = self.command(action, words).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "broker {action} failed: {}", output.status);
        String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_owned()
    }

    /// Starts it, and opens a handle on it.
    async fn start(&self, properties: &[&str]) -> RocketLog {
        let pid = std::process::id().to_string();
        let mut words = vec!["--port-base", "0", "--bound-to", &pid];
        let version = std::env::var("ONCEFLOW_ROCKETMQ_VERSION").ok();
        words.extend(version.iter().flat_map(|version| ["--version", version]));
        words.extend(properties.iter().flat_map(|property| ["--prop", property]));
        let address = self.run("start", &words);
        RocketLog::open(options(&address, "calibration")).await.unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // A test that panics is shown by its own panic.
        let _ = self.command("kill", &[]).status();
    }
}

async fn queue(log: &RocketLog) -> Partition {
    log.create_topic(&TopicSpec { topic: TOPIC.into(), queues: Queues::PerBroker(1) }).await.unwrap();
    log.partitions(TOPIC).await.unwrap().remove(0)
}

/// Aim: what an END says where the broker cannot say that a message is on disk. Method: a broker that gives its disk one
/// millisecond. The message of such an END is there all the same, as long as the broker lives.
async fn an_end_hides_a_weak_status(bench: &mut Bench, program: PathBuf) {
    const TRIES: usize = 50;
    let broker = Broker::new(program);
    let log = broker.start(&["flushDiskType=SYNC_FLUSH", "syncFlushTimeout=1"]).await;
    let queue = queue(&log).await;
    let (mut weak, mut last, mut halves) = (0, String::new(), vec![]);
    for _ in 0..TRIES {
        if let Err(error) = log.append(&queue, &message("flush")).await {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error:?}");
            (weak, last) = (weak + 1, error.to_string());
        }
    }
    let asked = Instant::now();
    while halves.len() < 3 && asked.elapsed() < WITHIN {
        halves.extend(log.prepare(&queue, &message("half")).await.ok());
    }
    assert!(!halves.is_empty(), "no half message got SEND_OK: weak={weak} last={last}");
    for half in &halves {
        log.end(&half.handle, End::Commit).await.unwrap();
    }
    bench.note(
        "appends under SYNC_FLUSH with syncFlushTimeout=1",
        format!("{weak} of {TRIES} weak, kind Retry: {last}"),
    );
    bench.note("END there", format!("code 0 each time, {} times", halves.len()));
    log.close().await;
}

/// Aim: what a SIGKILL of the broker loses. Method: acknowledged appends and ENDs, the kill at once (the notes about
/// finished halves are written up to 3 s later), a start on the same folder; then everything is read, and check-backs
/// are listened to.
async fn a_killed_broker_keeps_what_it_acknowledged_and_asks_again(bench: &mut Bench, program: PathBuf) {
    const APPENDS: u64 = 500;
    const HALVES: usize = 10;
    let broker = Broker::new(program);
    let settings = ["transactionTimeOut=3000", "transactionCheckInterval=2000", "transactionOpBatchInterval=3000"];
    let log = broker.start(&settings).await;
    let queue = queue(&log).await;
    for number in 0..APPENDS {
        assert_eq!(log.append(&queue, &message("append")).await.unwrap().first, Offset::new(number));
    }
    let mut handles = vec![];
    for number in 0..HALVES {
        let handle = log.prepare(&queue, &message(&format!("half {number}"))).await.unwrap().handle;
        log.end(&handle, End::Commit).await.unwrap();
        handles.push(handle);
    }
    broker.run("kill", &["--only", "broker"]);
    log.close().await;
    let log = broker.start(&settings).await;
    let asked = asked_about(&log, &handles).await;
    let after = log.append(&queue, &message("after")).await.unwrap().first;
    read_at(&log, &queue, after).await;
    let bodies = read(&log, &queue, after).await;
    let expected = (0..APPENDS).map(|_| "append".to_owned()).chain((0..HALVES).map(|number| format!("half {number}")));
    assert_eq!(bodies, expected.collect::<Vec<_>>(), "acknowledged means kept, and nothing is there twice");
    bench.note(
        "SIGKILL of the broker right after acknowledged appends and ENDs (ASYNC_FLUSH)",
        format!("all {APPENDS} and {HALVES} are there, each once, in order"),
    );
    bench.note(
        "check-backs about finished halves after that SIGKILL",
        format!("{asked} of {HALVES} asked about again; answered Rollback, no message is there twice"),
    );
    log.close().await;
}

/// About how many of these halves the broker asks within two rounds; each question is answered Rollback.
async fn asked_about(log: &RocketLog, handles: &[HalfHandle]) -> usize {
    let within = check_back_time().unwrap_or(WITHIN);
    let mut asked = std::collections::BTreeSet::new();
    let listening = async {
        while asked.len() < handles.len() {
            let check = log.next_check_back().await.unwrap();
            log.answer_check_back(&check, Verdict::Rollback).await.unwrap();
            if handles.iter().any(|handle| handle.unique_key == check.unique_key) {
                asked.insert(check.unique_key);
            }
        }
    };
    // The broker asks when it wants to; not being asked is a finding, too.
    let _: Result<(), _> = timeout(within.max(Duration::from_secs(15)), listening).await;
    asked.len()
}
