//! Logs that come back with less than they had acknowledged. Acceptable is one thing: the job stops, keeps its state, and
//! says what is missing. A start from zero would count everything again, or lose it, without a word.

use crate::common::{JOB, make_topics};
use crate::job::{Bench, WITHIN, committed, finish, long, settings, stopped_by, wait_committed};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::topology::Delivery;
use onceflow::types::{Error, ErrorKind, Name, Partition, TaskId};
use onceflow::{Config, Runtime, SourceLoss, topics};
use onceflow_containers::Setup;
use std::path::Path;

const PAYMENTS: u64 = 2_000;

/// A job that has processed all payments and was handed over cleanly, on a broker with these properties.
async fn settled(setup: Setup) -> Bench {
    let bench = Bench::new(setup, Delivery::Transactional).await;
    bench.produce(0, PAYMENTS).await;
    finish(bench.start().await).await;
    bench.audit("before the loss", PAYMENTS).await;
    bench
}

fn assert_data_loss(error: &Error, words: &[&str]) {
    eprintln!("stopped: kind={} {}", error.kind().as_str(), error.report());
    assert_eq!(error.kind(), ErrorKind::DataLoss, "{error:?}");
    let text = error.report().to_string();
    for word in words {
        assert!(text.contains(word), "the error does not name {word:?}: {text}");
    }
}

/// Aim: a job whose journal is gone never starts from zero, however often it is tried. Method: the volume is emptied, the
/// operator makes the topics again, the same payments and more are written, and the job starts with its old state.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_wiped_log_is_detected_at_every_start() {
    let bench = settled(Setup::version("5.5.0")).await;
    for round in 0..2 {
        bench.rocket.kill_broker().await.unwrap();
        bench.rocket.wipe().unwrap();
        bench.rocket.start_broker().await.unwrap();
        make_topics(&*bench.log().await).await;
        if round > 0 {
            bench.produce(0, PAYMENTS * round).await;
        }
        // Twice: what the first try has left in the new journal must not make the second one succeed.
        for _ in 0..2 {
            assert_data_loss(&stopped_by(bench.start().await).await, &["journal", "truncated or recreated"]);
        }
    }
}

/// Aim: the same while the job runs, with topics that make themselves and without. The job may be told that a topic is
/// not there before it learns that its journal is gone; with the topics back it learns it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_log_that_is_wiped_under_a_running_job_stops_it() {
    wiped_while_running("true").await;
    if long() {
        wiped_while_running("false").await;
    }
}

async fn wiped_while_running(topics_make_themselves: &str) {
    let setup = Setup::version("5.5.0").with("autoCreateTopicEnable", topics_make_themselves);
    let bench = settled(setup).await;
    let runtime = bench.start().await;
    bench.produce(PAYMENTS, PAYMENTS + 1_000).await;
    wait_committed(&runtime, PAYMENTS + 100).await;
    bench.rocket.kill_broker().await.unwrap();
    bench.rocket.wipe().unwrap();
    bench.rocket.start_broker().await.unwrap();
    let error = stopped_by(runtime).await;
    if error.kind() == ErrorKind::Invalid {
        let text = error.report().to_string();
        eprintln!("stopped: {text}");
        assert!(["no such topic", "no such queue", "not exist"].iter().any(|words| text.contains(words)), "{text}");
    } else {
        assert_data_loss(&error, &[]);
    }
    make_topics(&*bench.log().await).await;
    assert_data_loss(&stopped_by(bench.start().await).await, &["journal"]);
}

/// Aim: an old copy of the volume is no journal of this job. Method: the store is copied, the job goes on, the broker is
/// killed and gets the copy.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_log_without_its_newest_part_is_detected() {
    let bench = settled(Setup::version("5.5.0")).await;
    let copy = tempfile::tempdir().unwrap();
    bench.rocket.stop_broker().await.unwrap();
    copy_all(&bench.rocket.store(), copy.path());
    bench.rocket.start_broker().await.unwrap();
    bench.produce(PAYMENTS, 2 * PAYMENTS).await;
    finish(bench.start().await).await;
    bench.audit("before the loss", 2 * PAYMENTS).await;
    bench.rocket.kill_broker().await.unwrap();
    bench.rocket.wipe().unwrap();
    copy_all(copy.path(), &bench.rocket.store());
    bench.rocket.start_broker().await.unwrap();
    for _ in 0..2 {
        assert_data_loss(&stopped_by(bench.start().await).await, &["journal"]);
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Aim (case 11): a source that ends before the committed offset is lost data, never a start from its beginning. Method:
/// the input topic is deleted and made again, with fewer payments than were committed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_source_that_ends_before_the_committed_offset_is_lost_data() {
    let bench = settled(Setup::version("5.5.0")).await;
    delete_topic(&bench, "payments").await;
    make_topics(&*bench.log().await).await;
    bench.produce(0, 40).await;
    let (committed_each, end) = (format!("committed={}", PAYMENTS / 4), "end=10");
    assert_data_loss(&stopped_by(bench.start().await).await, &["payments@broker-a", &committed_each, end]);

    // The choice of the operator: go on at the end. What is written there is processed, what lies before it is not.
    let resume = Config { on_source_loss: SourceLoss::ResumeAtEnd, ..settings() };
    let runtime = bench.start_with(resume).await.unwrap();
    wait_committed_exactly(&runtime, 40).await;
    bench.produce(PAYMENTS, PAYMENTS + 400).await;
    finish(runtime).await;
    bench.audit("resumed at the end", PAYMENTS + 400).await;
}

/// Deletes the topic. The tool ends well in any case, also when a busy broker was too late for it; what it prints tells.
async fn delete_topic(bench: &Bench, topic: &str) {
    let success = format!("delete topic [{topic}] from cluster [DefaultCluster] success");
    let started = tokio::time::Instant::now();
    loop {
        let printed = bench.rocket.admin(&["deleteTopic", "-c", "DefaultCluster", "-t", topic]).await.unwrap();
        if printed.contains(&success) {
            return;
        }
        assert!(started.elapsed() < WITHIN, "{printed}");
    }
}

async fn wait_committed_exactly(runtime: &Runtime, count: u64) {
    let started = tokio::time::Instant::now();
    while committed(runtime) != count {
        assert!(started.elapsed() < WITHIN, "committed={} wanted={count}", committed(runtime));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Aim (case 33): a journal that retention has emptied, with a low mark above zero. With the local state the job goes on
/// at its epoch; without it, it says so and does not begin again. Method: small files, no retention time, and other
/// traffic until the broker has removed every file that holds a record of the job.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_journal_that_retention_has_emptied_is_no_new_journal() {
    if !long() {
        return;
    }
    // 8 MiB: the largest message of the job, and the broker's own, must fit into a file.
    let small = Setup::version("5.5.0").with("mappedFileSizeCommitLog", "8388608").with("fileReservedTime", "0");
    let mut bench = settled(small).await;
    let log = bench.log().await;
    let runtime = bench.start().await;
    let journal = journals(&runtime);
    finish(runtime).await;
    fill_until_empty(&bench, &*log, &journal).await;
    let epoch = |runtime: &Runtime| runtime.status().values().map(|task| task.epoch).max();
    let runtime = bench.start().await;
    bench.produce(PAYMENTS, PAYMENTS + 400).await;
    wait_committed(&runtime, PAYMENTS + 400).await;
    eprintln!("went on: epoch={:?}", epoch(&runtime));
    finish(runtime).await;

    fill_until_empty(&bench, &*log, &journal).await;
    bench.forget_state();
    assert_data_loss(&stopped_by(bench.start().await).await, &["journal"]);
}

fn journals(runtime: &Runtime) -> Vec<Partition> {
    let job = Name::job(JOB).unwrap();
    let journal = |task: &TaskId| task.partition(topics::journal(&job, &task.subtopology));
    runtime.status().keys().map(journal).collect()
}

/// Other traffic until no journal queue holds a record any more. The broker is told to remove old files; that their
/// records are gone from the queues, it sees by itself, every 10 s.
async fn fill_until_empty(bench: &Bench, log: &dyn Log, journal: &[Partition]) {
    log.create_topic(&TopicSpec { topic: "traffic".into(), queues: Queues::PerBroker(1) }).await.unwrap();
    let queue = log.partitions("traffic").await.unwrap().remove(0);
    let mut large = MessageBatch::default();
    large.push(&[], &vec![b'x'; 3 << 20]).unwrap();
    let started = tokio::time::Instant::now();
    loop {
        for _ in 0..6 {
            log.append(&queue, &large).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        bench.rocket.admin(&["deleteExpiredCommitLog", "-c", "DefaultCluster"]).await.unwrap();
        let mut ranges = vec![];
        for queue in journal {
            let range = log.offsets(queue).await.unwrap();
            ranges.push((range.first.get(), range.next.get()));
        }
        if ranges.iter().all(|(first, next)| first == next && *next > 0) {
            eprintln!("journal queues emptied: {ranges:?}");
            return;
        }
        assert!(started.elapsed() < WITHIN, "the broker does not remove old files: {ranges:?}");
    }
}
