//! A process that commits is killed at many moments; what the next one opens is a whole commit, and none that was
//! reported is lost.
//!
//! The test starts its own program again as the process to kill. It is killed after it has reported a number of
//! commits, while it goes on committing: the moment inside a commit is a different one each time.

#![cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use common::{epoch_of, job, point, small, task};
use onceflow_storage::{Backend, Delta, KeyRange, Order, StateStore, StoreFactory};
use onceflow_types::ErrorKind;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Set for the process to kill: backend and directory.
const CHILD: &str = "ONCEFLOW_STORAGE_KILL";
const REPORT: &str = "committed ";
const KEYS: u64 = 400;
/// An epoch changes every fourth key.
const STRIDE: u64 = 4;

fn value(epoch: u64) -> Vec<u8> {
    epoch.to_be_bytes().repeat(12)
}

/// The process that is killed: commits and reports without end. Does nothing in an ordinary test run.
#[test]
fn child_commits_until_it_is_killed() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (backend, root) = order.split_once(':').unwrap();
    let mut store = small(backend.parse().unwrap(), Path::new(root)).open(&job(), &task()).unwrap();
    let mut out = std::io::stdout();
    loop {
        let epoch = epoch_of(&*store) + 1;
        let mut delta = Delta::default();
        for key in (0..KEYS).filter(|key| key % STRIDE == epoch % STRIDE) {
            delta.put(&key.to_be_bytes(), &value(epoch));
        }
        store.commit(&delta, &point(epoch)).unwrap();
        writeln!(out, "\n{REPORT}{epoch}").and_then(|()| out.flush()).unwrap();
    }
}

/// Starts the process, kills it after some reports, and returns the last epoch that it reported.
fn kill_after(backend: Backend, root: &Path, reports: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_commits_until_it_is_killed", "--nocapture"])
        .env(CHILD, format!("{backend}:{}", root.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut epochs = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix(REPORT)?.parse().ok());
    let reported = epochs.by_ref().take(reports).last();
    child.kill().unwrap();
    // What it reported between our last look and its end counts, too.
    let last = epochs.last().or(reported);
    child.wait().unwrap();
    last.expect("the process reports commits")
}

fn check(store: &dyn StateStore) {
    let epoch = epoch_of(store);
    let mut cursor = store.scan(KeyRange::all(), Order::Ascending).unwrap();
    for key in 0..KEYS {
        let last = (1..=epoch).rev().find(|epoch| key % STRIDE == epoch % STRIDE);
        if let Some(last) = last {
            assert_eq!(cursor.next().unwrap(), Some((&key.to_be_bytes()[..], &value(last)[..])), "epoch {epoch}");
        }
    }
    assert_eq!(cursor.next().unwrap(), None);
}

fn run(backend: Backend) {
    let root = TempDir::new().unwrap();
    // The smallest buffers: flushes and merges run while the process is killed.
    let options = small(backend, root.path());
    for reports in [1, 2, 3, 5, 8, 13, 30, 60, 1, 100] {
        let reported = kill_after(backend, root.path(), reports);
        match options.open(&job(), &task()) {
            Ok(store) => {
                assert!(store.crash_consistent());
                // One more commit may have been made and not reported.
                assert!((reported..=reported + 1).contains(&epoch_of(&*store)), "reported {reported}");
                check(&*store);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                assert_eq!(backend, Backend::Sled, "{error:?}");
                options.destroy(&job(), &task()).unwrap();
                assert_eq!(epoch_of(&*options.open(&job(), &task()).unwrap()), 0);
            }
        }
    }
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_survives_kill_9() {
    run(Backend::Fjall);
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_survives_kill_9() {
    run(Backend::RocksDb);
}

#[cfg(feature = "sled")]
#[test]
fn sled_is_rebuilt_after_kill_9() {
    run(Backend::Sled);
}

#[test]
fn memory_is_empty_in_a_new_process() {
    let root = TempDir::new().unwrap();
    kill_after(Backend::Memory, root.path(), 3);
    assert_eq!(epoch_of(&*small(Backend::Memory, root.path()).open(&job(), &task()).unwrap()), 0);
}
