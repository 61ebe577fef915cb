//! Several processes of the payment pipeline on a real RocketMQ broker, each with a directory of its own: from 1 to 4 and back under
//! load, paused and continued (SIGSTOP, SIGCONT), restarted one by one, killed, and with queues added to the input. Every total
//! right in the reader view, none lost, none doubled; raw duplicates counted.
//!
//! Needs a broker; `cargo xtask test` starts one.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::pedantic, reason = "helpers of tests")]

mod kill;

use kill::{Audit, Dice, Pipeline, Seen, pipeline_process, raw_bodies};
use onceflow::log::{Log, Queues, TopicSpec};
use onceflow::storage::Backend;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Four of the source's queues, four of the repartition topic's.
const TASKS: usize = 8;
const QUEUES: u32 = 4;
const QUEUES_GROWN: u32 = 6;
/// How long the others may take to own everything, or to share it: silence, looks, hand-over, and a busy machine.
const SETTLE_MAX: Duration = Duration::from_secs(90);
/// The bound for new queues (case 15), and two looks.
const FOUND_MAX: Duration = Duration::from_secs(34);
const PAYMENTS_PER_BATCH: u64 = 200;
const BATCH_PAUSE: Duration = Duration::from_millis(100);

#[test]
fn the_pipeline_process() {
    pipeline_process();
}

fn name_server() -> String {
    std::env::var("ONCEFLOW_NAME_SERVER")
        .unwrap_or_else(|_| panic!("ONCEFLOW_NAME_SERVER is not set: run `cargo xtask test`"))
}

struct Process {
    pipeline: Pipeline,
    child: Child,
}

impl Process {
    fn start(pipeline: &Pipeline, name: &str) -> Process {
        let pipeline = pipeline.in_directory(name);
        let _ = std::fs::remove_file(pipeline.directory.join("seen"));
        Process { child: pipeline.spawn(), pipeline }
    }

    fn again(&self) -> Process {
        let _ = std::fs::remove_file(self.pipeline.directory.join("seen"));
        Process { child: self.pipeline.spawn(), pipeline: self.pipeline.clone() }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill {signal}");
    }

    /// SIGTERM, and waits for the end of its drain.
    async fn stop(&mut self) {
        self.signal("-TERM");
        let asked = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{}", self.log());
                return;
            }
            assert!(asked.elapsed() < SETTLE_MAX, "drain does not end\n{}", self.log());
            pause(Duration::from_millis(50)).await;
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn seen(&self) -> Seen {
        self.pipeline.seen().unwrap_or_default()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.pipeline.directory.join("pipeline.log")).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits until these processes own all tasks, with loads that differ by one at most; returns how long that took.
async fn shared<'p>(processes: impl Iterator<Item = &'p Process> + Clone, tasks: usize) -> Duration {
    let began = Instant::now();
    loop {
        let running: Vec<usize> = processes.clone().map(|process| process.seen().running).collect();
        let even = running.iter().max().unwrap() - running.iter().min().unwrap() <= 1;
        if even && running.iter().sum::<usize>() == tasks {
            return began.elapsed();
        }
        if began.elapsed() > SETTLE_MAX {
            let seen: Vec<_> = processes.clone().map(Process::seen).collect();
            let logs: Vec<_> = processes.map(Process::log).collect();
            panic!("not shared: {seen:#?}\n{}", logs.join("\n---\n"));
        }
        pause(Duration::from_millis(100)).await;
    }
}

struct Producer {
    stop: Arc<AtomicBool>,
    work: tokio::task::JoinHandle<u64>,
}

impl Producer {
    fn start(pipeline: &Pipeline, log: &Arc<dyn Log>) -> Producer {
        let (stop, pipeline, log) = (Arc::<AtomicBool>::default(), pipeline.clone(), log.clone());
        let stopped = stop.clone();
        let work = tokio::spawn(async move {
            let mut next = 0;
            while !stopped.load(Ordering::SeqCst) {
                pipeline.produce(&*log, next..next + PAYMENTS_PER_BATCH).await;
                next += PAYMENTS_PER_BATCH;
                pause(BATCH_PAUSE).await;
            }
            next
        });
        Producer { stop, work }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.work.await.unwrap()
    }
}

/// Aim: no move of a task between processes loses or repeats anything. Method: see the file.
async fn moves(delivery: &str, store: &str, zombies: usize) -> Audit {
    assert!(store.parse::<Backend>().unwrap().is_available(), "built without {store}");
    let directory = tempfile::tempdir().unwrap();
    let name = format!("members-{delivery}-{store}");
    let mut dice = Dice::new(&name);
    let pipeline = Pipeline {
        // A source is named like its topic, and such names are short.
        run: format!("m-{}-{}", &delivery[..5], std::process::id()),
        delivery: delivery.into(),
        store: store.into(),
        directory: directory.path().to_path_buf(),
        name_server: Some(name_server()),
        epoch_ms: 100,
        lease_ms: 2_000,
    };
    let log = pipeline.open_log().await;
    let make = async |topic: String, queues| {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(queues) }).await.unwrap();
    };
    make(pipeline.payments(), QUEUES).await;
    make(pipeline.totals(), QUEUES).await;
    let producer = Producer::start(&pipeline, &log);

    let mut processes = vec![Process::start(&pipeline, "p0")];
    let alone = shared(processes.iter(), TASKS).await;
    for number in 1..4 {
        processes.push(Process::start(&pipeline, &format!("p{number}")));
    }
    let grown = shared(processes.iter(), TASKS).await;
    eprintln!("{name}: one process after {alone:?}, four share after {grown:?}");

    for _ in 0..zombies {
        let zombie = dice.below(4) as usize;
        let before = processes[zombie].seen();
        processes[zombie].signal("-STOP");
        let taken = shared(processes.iter().enumerate().filter(|(n, _)| *n != zombie).map(|(_, p)| p), TASKS).await;
        pause(Duration::from_millis(dice.below(5_000))).await;
        processes[zombie].signal("-CONT");
        let back = shared(processes.iter(), TASKS).await;
        // Others had its tasks: it is fenced, or its requests have run out of time, and it opens its share anew.
        let began = Instant::now();
        while processes[zombie].seen().openings <= before.openings {
            assert!(began.elapsed() < SETTLE_MAX, "the zombie goes on as before: {before:?}");
            pause(Duration::from_millis(100)).await;
        }
        shared(processes.iter(), TASKS).await;
        let fenced = processes[zombie].seen().fenced - before.fenced;
        eprintln!(
            "{name}: p{zombie} paused: its tasks elsewhere after {taken:?}; back after {back:?}, fenced={fenced}"
        );
    }

    make(pipeline.payments(), QUEUES_GROWN).await;
    let tasks = TASKS + (QUEUES_GROWN - QUEUES) as usize;
    let found = shared(processes.iter(), tasks).await;
    eprintln!("{name}: new queues worked on after {found:?}");
    assert!(found < FOUND_MAX, "{found:?}");

    for number in 0..4 {
        processes[number].stop().await;
        processes[number] = processes[number].again();
        shared(processes.iter(), tasks).await;
    }
    for number in [1, 3] {
        processes[number].kill();
        let taken = shared(processes.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, p)| p), tasks).await;
        processes[number] = processes[number].again();
        let back = shared(processes.iter(), tasks).await;
        eprintln!("{name}: p{number} killed: its tasks elsewhere after {taken:?}; back after {back:?}");
    }
    while processes.len() > 1 {
        let mut process = processes.remove(0);
        if processes.len() % 2 == 0 {
            process.kill()
        } else {
            process.stop().await
        }
        shared(processes.iter(), tasks).await;
    }
    let produced = producer.stop().await;
    let payments = raw_bodies(&*log, &pipeline.payments()).await.len() as u64;
    assert!(payments >= produced);
    let began = Instant::now();
    while pipeline.outputs(log.clone()).await < payments {
        assert!(began.elapsed() < Duration::from_secs(120), "not all output came\n{}", processes[0].log());
        pause(Duration::from_millis(500)).await;
    }
    processes[0].stop().await;
    let audit = pipeline.audit(log).await;
    assert_eq!(audit.outputs, audit.payments);
    // A raw duplicate is an END or a send of a paused or killed owner that was carried out after the next one had looked.
    assert_eq!(audit.raw_duplicates, audit.repeated, "a raw duplicate that is not a copy of one message");
    eprintln!("{name}: zombies={zombies} {audit:?}");
    audit
}

fn zombies() -> usize {
    if std::env::var("ONCEFLOW_LONG").is_ok() { 25 } else { 3 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker: cargo xtask test"]
async fn four_processes_share_transactional_output_exactly() {
    moves("transactional", "rocksdb", zombies()).await;
}
