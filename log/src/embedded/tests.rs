//! The log against its contract, a plain model, and damage.

mod damage;
mod halves;
mod model;

use super::{EmbeddedLog, EmbeddedOptions, Sync};
use crate::contract::{self, Notes, Subject};
use crate::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use async_trait::async_trait;
use futures_util::future::join_all;
use onceflow_types::{Clock, ErrorKind, ManualClock, Offset, Offsets, Partition, Timestamp};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const NO_WAIT: ReadLimit = ReadLimit { records_max: 10_000, bytes_max: 16 << 20, wait_max: Duration::ZERO };

/// Runs the contract suite; a crash closes the log and opens it again.
struct Crashing {
    directory: TempDir,
    options: EmbeddedOptions,
    log: Mutex<Option<EmbeddedLog>>,
}

#[async_trait]
impl Subject for Crashing {
    fn notes(&self) -> Notes {
        Notes {
            visible_within: Duration::from_secs(10),
            check_back_within: Some(self.options.check_interval * 5),
            checks_max: Some(self.options.checks_max),
            members_within: None,
        }
    }

    async fn log(&self, group: &str) -> Arc<dyn Log> {
        let mut log = self.log.lock().unwrap();
        let open = || EmbeddedLog::open(self.directory.path(), self.options.clone()).unwrap();
        Arc::new(log.get_or_insert_with(open).with_group(group).unwrap())
    }

    async fn crash(&self) {
        self.log.lock().unwrap().take();
    }
}

async fn run_contract(sync: Sync) {
    let options = EmbeddedOptions {
        sync,
        check_after: Duration::from_millis(20),
        check_interval: Duration::from_millis(30),
        checks_max: 3,
        ..EmbeddedOptions::default()
    };
    let directory = tempfile::tempdir().unwrap();
    contract::run_all(&Crashing { directory, options, log: Mutex::new(None) }).await;
}

#[tokio::test]
async fn the_contract_holds_with_a_sync_for_each_append() {
    run_contract(Sync::EachAppend).await;
}

#[tokio::test]
async fn the_contract_holds_without_syncs() {
    run_contract(Sync::Never).await;
}

fn quick() -> EmbeddedOptions {
    EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() }
}

fn batch_of(bodies: &[&str]) -> MessageBatch {
    let mut batch = MessageBatch::default();
    for body in bodies {
        batch.push(b"", body.as_bytes()).unwrap();
    }
    batch
}

async fn topic(log: &EmbeddedLog, queues: u32) -> Vec<Partition> {
    log.create_topic(&TopicSpec { topic: "t".into(), queues: Queues::PerBroker(queues) }).await.unwrap();
    log.partitions("t").await.unwrap()
}

async fn bodies(log: &EmbeddedLog, queue: &Partition, from: u64) -> Vec<String> {
    let records = log.read(queue, Offset::new(from), NO_WAIT).await.unwrap();
    records.iter().map(|record| String::from_utf8(record.body().unwrap().to_vec()).unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Aim: a killed process loses nothing acknowledged. Method: what a kill leaves is what the operating system was given,
/// so copy the files of the open log and open the copy.
#[tokio::test]
async fn a_killed_process_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path().join("live"), quick()).unwrap();
    let queues = topic(&log, 2).await;
    for round in 0..5 {
        log.append(&queues[0], &batch_of(&["a", "b"])).await.unwrap();
        let half = log.prepare(&queues[1], &batch_of(&["half"])).await.unwrap();
        let copied = directory.path().join(format!("copy-{round}"));
        copy(&directory.path().join("live"), &copied);
        let after_kill = EmbeddedLog::open(&copied, quick()).unwrap();
        assert_eq!(bodies(&after_kill, &queues[0], 0).await, ["a", "b"].repeat(round + 1));
        after_kill.end(&half.handle, crate::End::Commit).await.unwrap();
        assert_eq!(bodies(&after_kill, &queues[1], 0).await, ["half"]);
    }
}

#[tokio::test]
async fn appends_that_wait_together_are_all_kept_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), EmbeddedOptions::default()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let batches: Vec<_> = (0..200).map(|number| batch_of(&[&number.to_string()])).collect();
    let acked = join_all(batches.iter().map(|batch| log.append(&queue, batch))).await;
    for (number, acked) in acked.into_iter().enumerate() {
        assert_eq!(acked.unwrap().first, Offset::new(number as u64));
    }
    drop(log);
    let log = EmbeddedLog::open(directory.path(), EmbeddedOptions::default()).unwrap();
    let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(bodies(&log, &queue, 0).await, expected);
}

#[tokio::test]
async fn retention_drops_old_batches_and_says_so_to_readers() {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { retention_bytes: Some(10_000), ..quick() };
    let log = EmbeddedLog::open(directory.path(), options.clone()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let body = "x".repeat(1_000);
    for _ in 0..50 {
        log.append(&queue, &batch_of(&[&body])).await.unwrap();
    }
    let range = log.offsets(&queue).await.unwrap();
    assert_eq!(range.next, Offset::new(50));
    let kept = range.next.distance_from(range.first).unwrap();
    assert!((9..=12).contains(&kept), "{kept}");
    let error = log.read(&queue, Offset::ZERO, NO_WAIT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataLoss);
    assert!(error.to_string().contains(&format!("first={}", range.first)), "{error}");
    assert_eq!(bodies(&log, &queue, range.first.get()).await.len() as u64, kept);
    drop(log);
    let log = EmbeddedLog::open(directory.path(), options).unwrap();
    assert_eq!(log.offsets(&queue).await.unwrap(), range);
    // One batch larger than the retention leaves just itself.
    log.append(&queue, &batch_of(&["y".repeat(30_000).as_str()])).await.unwrap();
    let range = log.offsets(&queue).await.unwrap();
    assert_eq!((range.first, range.next), (Offset::new(50), Offset::new(51)));
}

#[tokio::test]
async fn an_offset_is_found_by_the_time_of_storing_even_when_the_clock_steps_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::default();
    let log =
        EmbeddedLog::open(directory.path(), EmbeddedOptions { clock: Arc::new(clock.clone()), ..quick() }).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    for millis in [10, 20, 15, 30] {
        clock.set(Timestamp::from_millis(millis));
        log.append(&queue, &batch_of(&["a", "b"])).await.unwrap();
    }
    for (millis, offset) in [(0, 0), (10, 0), (11, 2), (20, 2), (21, 6), (30, 6), (31, 8)] {
        let found = log.offset_at(&queue, Timestamp::from_millis(millis)).await.unwrap();
        assert_eq!(found, Offset::new(offset), "time={millis}");
    }
}

/// Aim: small writes that fill the buffers many times over neither stop the log nor pile up in memory. Once fjall's worker
/// waited for itself here. Method: small halves and ENDs with the smallest buffers, far more than they hold.
#[tokio::test]
async fn many_small_writes_beyond_the_buffers_do_not_stop_the_log() {
    const HALVES: u64 = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { sync: Sync::Never, write_buffer_bytes: 1 << 20, ..EmbeddedOptions::default() };
    let log = EmbeddedLog::open(directory.path(), options).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let mut half = MessageBatch::default();
    half.push(b"", b"half").unwrap();
    for _ in 0..HALVES {
        let prepared = log.prepare(&queue, &half).await.unwrap();
        log.end(&prepared.handle, crate::End::Commit).await.unwrap();
    }
    assert_eq!(log.offsets(&queue).await.unwrap().next, Offset::new(HALVES));
}

#[tokio::test]
async fn a_topic_grows_and_reports_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    assert_eq!(topic(&log, 1).await.len(), 1);
    let queues = topic(&log, 3).await;
    assert_eq!(queues.iter().map(|queue| queue.queue).collect::<Vec<_>>(), [0, 1, 2]);
    let report = |pairs: &[(usize, u64)]| -> Offsets {
        pairs.iter().map(|(queue, next)| (queues[*queue].clone(), Offset::new(*next))).collect()
    };
    log.report_offsets("tools", &report(&[(0, 5), (2, 7)])).await.unwrap();
    log.report_offsets("tools", &report(&[(0, 6)])).await.unwrap();
    drop(log);
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    assert_eq!(log.partitions("t").await.unwrap(), queues);
    assert_eq!(log.reported_offsets("tools", "t").unwrap(), report(&[(0, 6), (2, 7)]));
    assert_eq!(log.reported_offsets("others", "t").unwrap(), Offsets::default());
}

#[tokio::test]
async fn wrong_settings_and_second_openings_are_typed_errors() {
    let directory = tempfile::tempdir().unwrap();
    let open = |options| EmbeddedLog::open(directory.path(), options).map(drop).unwrap_err().kind();
    assert_eq!(open(EmbeddedOptions { group: "a b".into(), ..quick() }), ErrorKind::Invalid);
    assert_eq!(open(EmbeddedOptions { message_bytes_max: 8 << 20, ..quick() }), ErrorKind::Invalid);
    assert_eq!(open(EmbeddedOptions { journal_bytes_max: 1, ..quick() }), ErrorKind::Invalid);
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    assert_eq!(open(quick()), ErrorKind::Fenced);
    let other = log.with_group("other").unwrap();
    drop(log);
    assert_eq!(open(quick()), ErrorKind::Fenced, "another handle keeps it open");
    drop(other);
    assert_eq!(open(EmbeddedOptions { broker: "elsewhere".into(), ..quick() }), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_batch_beyond_the_limits_is_refused_with_size_and_limit() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let body = "x".repeat(1 << 20);
    let error = log.append(&queue, &batch_of(&[body.as_str(); 4])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "batch is too large: bytes=4194392 limit=4194304");
    assert_eq!(log.append(&queue, &batch_of(&[])).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(log.offsets(&queue).await.unwrap().next, Offset::ZERO);
}

#[tokio::test]
async fn times_come_from_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(Timestamp::from_millis(7));
    let log =
        EmbeddedLog::open(directory.path(), EmbeddedOptions { clock: Arc::new(clock.clone()), ..quick() }).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let half = log.prepare(&queue, &batch_of(&["half"])).await.unwrap();
    clock.advance(5);
    log.end(&half.handle, crate::End::Commit).await.unwrap();
    log.append(&queue, &batch_of(&["plain"])).await.unwrap();
    let records = log.read(&queue, Offset::ZERO, NO_WAIT).await.unwrap();
    let times: Vec<_> = records.iter().map(|r| (r.born().as_millis(), r.stored().as_millis())).collect();
    assert_eq!(times, [(7, 12), (12, 12)]);
    assert_eq!(clock.now().as_millis(), 12);
}
