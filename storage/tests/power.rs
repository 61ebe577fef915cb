//! Loss of power: pages of the write-ahead log that were never written back.
//!
//! Commits do not wait for the disk, so after loss of power any set of the log's last pages may be missing. A
//! crash-consistent store then opens at an earlier, whole commit, or says that it must be rebuilt. This imitates the
//! log only; tables are synced by both engines before the log that they replace is removed.

#![cfg(any(feature = "fjall", feature = "rocksdb"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use common::{copy_directory, epoch_of, files, job, point, scan, task, used, write_sparse};
use onceflow_storage::{Backend, Delta, KeyRange, Order, StoreFactory, StoreOptions};
use onceflow_types::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

const PAGE: usize = 4096;
const EPOCHS: u64 = 60;
const KEYS: u64 = 30;

/// A value of a length that moves the batches across the pages.
fn value(epoch: u64, key: u64) -> Vec<u8> {
    let len = usize::try_from((epoch * 37 + key * 11) % 90).unwrap();
    [&epoch.to_be_bytes()[..], &vec![0xa5; len]].concat()
}

fn run(backend: Backend, log_suffix: &str, cases: u32) {
    let root = TempDir::new().unwrap();
    let mut store = StoreOptions::new(backend, root.path()).open(&job(), &task()).unwrap();
    for epoch in 1..=EPOCHS {
        let mut delta = Delta::default();
        (0..KEYS).for_each(|key| delta.put(&key.to_be_bytes(), &value(epoch, key)));
        store.commit(&delta, &point(epoch)).unwrap();
    }
    let crashed = TempDir::new().unwrap();
    copy_directory(root.path(), crashed.path());
    drop(store);
    let log = files(crashed.path()).into_iter().rfind(|file| file.to_str().unwrap().ends_with(log_suffix)).unwrap();
    let whole = fs::read(&log).unwrap();
    let end = used(&whole);
    let pages = end.div_ceil(PAGE);
    assert!(pages > 20, "the log holds all commits: {} has {end} bytes", log.display());

    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let cut = proptest::option::of(0..end);
    proptest!(config, |(lost in vec(0..pages, 0..6), cut in cut)| {
        let mut bytes = whole.clone();
        for page in lost {
            let stop = bytes.len().min((page + 1) * PAGE);
            bytes[page * PAGE..stop].fill(0);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        let copy = TempDir::new().unwrap();
        copy_directory(crashed.path(), copy.path());
        write_sparse(&copy.path().join(log.strip_prefix(crashed.path()).unwrap()), &bytes);
        match StoreOptions::new(backend, copy.path()).open(&job(), &task()) {
            Ok(store) => {
                let epoch = epoch_of(&*store);
                prop_assert!((1..=EPOCHS).contains(&epoch));
                let want: Vec<_> = (0..KEYS).map(|key| (key.to_be_bytes().to_vec(), value(epoch, key))).collect();
                prop_assert_eq!(scan(&*store, KeyRange::all(), Order::Ascending).unwrap(), want);
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt, "{:?}", error),
        }
    });
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_is_at_a_whole_commit_after_loss_of_log_pages() {
    run(Backend::Fjall, ".jnl", if cfg!(debug_assertions) { 8 } else { 60 });
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_is_at_a_whole_commit_after_loss_of_log_pages() {
    run(Backend::RocksDb, ".log", 60);
}
