//! Cases from the issue trackers of others, by their number in our list, on every backend.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use common::{available, files, job, on_disk, point, scan, small, task, used, write_sparse};
use onceflow_storage::{Delta, KeyRange, Order, StateStore, StoreFactory, StoreOptions, task_directory};
use onceflow_types::{Epoch, ErrorKind, Result};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn keys(store: &dyn StateStore, range: KeyRange<'_>) -> Vec<Vec<u8>> {
    scan(store, range, Order::Ascending).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// Commits filler under other prefixes until the earlier entries lie in merged tables.
fn flush(store: &mut dyn StateStore, from: u64) {
    for epoch in from..from + 8 {
        let mut delta = Delta::default();
        for number in 0..1000u64 {
            delta.put(&[&[0x80][..], &number.to_be_bytes()].concat(), &[7; 100]);
        }
        store.commit(&delta, &point(epoch)).unwrap();
    }
}

#[test]
fn case_49_a_prefix_scan_returns_no_foreign_keys() {
    for backend in available() {
        let root = TempDir::new().unwrap();
        let options = small(backend, root.path());
        let mut store = options.open(&job(), &task()).unwrap();
        let mut delta = Delta::default();
        let numbers: [[u8; 4]; 6] =
            [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 1], [0, 1, 1, 1], [0, 1, 2, 1], [2, 0, 0, 0]];
        for key in &numbers {
            delta.put(key, b"v");
        }
        for key in [b"g-1", b"g-2", b"g-3", b"k-1", b"k-2", b"k-3"] {
            delta.put(key, b"v");
        }
        store.commit(&delta, &point(1)).unwrap();
        for flushed in [false, true] {
            if flushed {
                flush(&mut *store, 2);
            }
            assert_eq!(keys(&*store, KeyRange::prefix(&[0, 1, 0])), [[0, 1, 0, 1]], "{backend} {flushed}");
            assert_eq!(keys(&*store, KeyRange::prefix(b"g")), [b"g-1", b"g-2", b"g-3"], "{backend} {flushed}");
            let back = scan(&*store, KeyRange::prefix(b"g"), Order::Descending).unwrap();
            assert_eq!(back.len(), 3, "{backend} {flushed}");
        }
    }
}

/// Reads all 20,000 keys by a scan in either order and by look-ups.
fn read_all(options: &StoreOptions) -> Result<()> {
    let store = options.open(&job(), &task())?;
    for order in [Order::Ascending, Order::Descending] {
        let found = scan(&*store, KeyRange::all(), order)?;
        assert_eq!(found.len(), 20_000, "a scan that is Ok is complete");
        assert!(found.iter().all(|(key, value)| value == &key.repeat(8)), "a scan that is Ok is right");
    }
    let mut value = vec![];
    for number in 0..20_000u64 {
        let key = number.to_be_bytes();
        assert!(store.get(&key, &mut value)? && value == key.repeat(8), "a get that is Ok is right");
    }
    Ok(())
}

#[test]
fn case_51_a_damaged_table_is_an_error_and_never_the_end_of_a_scan() {
    for backend in on_disk() {
        let root = TempDir::new().unwrap();
        let options = small(backend, root.path());
        let mut store = options.open(&job(), &task()).unwrap();
        for epoch in 0..20u64 {
            let mut delta = Delta::default();
            for number in epoch * 1000..(epoch + 1) * 1000 {
                delta.put(&number.to_be_bytes(), &number.to_be_bytes().repeat(8));
            }
            store.commit(&delta, &point(epoch + 1)).unwrap();
        }
        drop(store);
        // Opened and closed once more, so that background work of the first life is over.
        read_all(&options).unwrap();
        let directory = task_directory(root.path(), &job(), &task());
        let mut refused = 0;
        for file in files(&directory.join("data")) {
            let whole = fs::read(&file).unwrap();
            let used = used(&whole);
            if used < 1024 {
                continue;
            }
            let mut damaged = whole.clone();
            damaged[used / 2 - 64..used / 2 + 64].iter_mut().for_each(|byte| *byte ^= 0xff);
            // Everything as it was, but for this one file: opening and closing writes, too.
            let copy = TempDir::new().unwrap();
            copy_with(root.path(), copy.path(), &file, &damaged);
            if let Err(error) = read_all(&small(backend, copy.path())) {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{backend} {}: {error:?}", file.display());
                refused += 1;
            }
        }
        assert!(refused > 0, "{backend}: no damage was met, so the test shows nothing");
    }
}

fn copy_with(from: &Path, to: &Path, changed: &Path, bytes: &[u8]) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        if file == changed {
            write_sparse(&target, bytes);
        } else {
            write_sparse(&target, &fs::read(&file).unwrap());
        }
    }
}

/// Epoch 20 with count[A] = 200, closed cleanly.
fn epoch_20(options: &StoreOptions) {
    let mut store = options.open(&job(), &task()).unwrap();
    for epoch in 1..=20u64 {
        let mut delta = Delta::default();
        delta.put(b"count[A]", &(epoch * 10).to_be_bytes());
        store.commit(&delta, &point(epoch)).unwrap();
    }
}

fn check_epoch_20(options: &StoreOptions, what: &str) {
    match options.open(&job(), &task()) {
        Ok(store) => {
            let mut value = vec![];
            let found = store.commit_point().unwrap().map(|point| point.epoch);
            assert_eq!(found, Some(Epoch::new(20)), "{what}");
            assert!(store.get(b"count[A]", &mut value).unwrap(), "{what}");
            assert_eq!(value, 200u64.to_be_bytes(), "{what}");
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{what}: {error:?}");
            assert!(error.to_string().contains("path=") || error.to_string().contains(": "), "{what}: {error}");
        }
    }
}

#[test]
fn case_53_an_abrupt_stop_or_damage_never_panics_and_never_empties_a_store() {
    for backend in on_disk() {
        let root = TempDir::new().unwrap();
        epoch_20(&StoreOptions::new(backend, root.path()));
        for file in files(root.path()) {
            let whole = fs::read(&file).unwrap();
            let cut = &whole[..whole.len().saturating_sub(100)];
            for (what, bytes) in [("emptied", Some(&[][..])), ("cut", Some(cut)), ("removed", None)] {
                let copy = TempDir::new().unwrap();
                copy_with(root.path(), copy.path(), &file, bytes.unwrap_or_default());
                if bytes.is_none() {
                    fs::remove_file(copy.path().join(file.strip_prefix(root.path()).unwrap())).unwrap();
                }
                let options = StoreOptions::new(backend, copy.path());
                check_epoch_20(&options, &format!("{backend}, {what}: {}", file.display()));
            }
        }
        // Read-only: an error for a user, no obstacle for root. Either way no panic and no empty store.
        let mut permissions = fs::metadata(task_directory(root.path(), &job(), &task())).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(task_directory(root.path(), &job(), &task()), permissions).unwrap();
        check_epoch_20(&StoreOptions::new(backend, root.path()), &format!("{backend}, read-only"));
    }
}

/// The key of a row of a window store: length of the key, key, time with its sign flipped, so that bytes sort by time.
fn row(key: &[u8], time: i64) -> Vec<u8> {
    let mut row = u16::try_from(key.len()).unwrap().to_be_bytes().to_vec();
    row.extend_from_slice(key);
    row.extend_from_slice(&(time.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    row
}

fn fetch(store: &dyn StateStore, key: &[u8], from: i64, to: i64) -> usize {
    let start = row(key, from);
    let range = KeyRange { start: std::ops::Bound::Included(&start), end: std::ops::Bound::Included(row(key, to)) };
    scan(store, range, Order::Ascending).unwrap().len()
}

#[test]
fn case_55_a_window_fetch_finds_the_rows_that_memory_finds() {
    const TIME: i64 = 1_664_000_000_123;
    for backend in available() {
        let root = TempDir::new().unwrap();
        let mut store = small(backend, root.path()).open(&job(), &task()).unwrap();
        let mut delta = Delta::default();
        delta.put(&row(b"k", TIME), b"v");
        for neighbour in [&b"k\0"[..], b"kk", b""] {
            for time in [TIME, -1, 0, 1 << 32, i64::MAX] {
                delta.put(&row(neighbour, time), b"other");
            }
        }
        store.commit(&delta, &point(1)).unwrap();
        for (from, to, rows) in
            [(TIME - 5000, TIME + 5000, 1), (TIME, TIME, 1), (TIME + 1, TIME + 10, 0), (i64::MIN, i64::MAX, 1)]
        {
            assert_eq!(fetch(&*store, b"k", from, to), rows, "{backend} {from}..={to}");
        }
    }
}

#[test]
fn case_55_random_windows_equal_a_map_on_every_backend() {
    for backend in available() {
        let root = TempDir::new().unwrap();
        let options = small(backend, root.path());
        // One store for all lists: each works under its own prefix, and opening stores is the slow part.
        let store = RefCell::new((options.open(&job(), &task()).unwrap(), 0));
        let time = || prop_oneof![-3i64..4, Just(i64::MIN), Just(i64::MAX), Just(1i64 << 32)];
        let name = || proptest::sample::select(vec![&b""[..], b"k", b"k\0", b"kk", b"\xff"]);
        let list = proptest::collection::vec((name(), time(), any::<bool>()), 1..12);
        let cases = if cfg!(debug_assertions) { 500 } else { 10_000 };
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(rows in list, key in name(), a in time(), b in time())| {
            let (store, epoch) = &mut *store.borrow_mut();
            *epoch += 1;
            let mut map = BTreeSet::new();
            let mut delta = Delta::default();
            // The rows of the last list go first.
            for (key, _) in scan(&**store, KeyRange::all(), Order::Ascending).unwrap() {
                delta.delete(&key);
            }
            for (key, time, put) in rows {
                if put {
                    map.insert((key, time));
                    delta.put(&row(key, time), b"v");
                } else {
                    map.remove(&(key, time));
                    delta.delete(&row(key, time));
                }
            }
            store.commit(&delta, &point(*epoch)).unwrap();
            let want = map.iter().filter(|(own, time)| *own == key && (a..=b).contains(time)).count();
            prop_assert_eq!(fetch(&**store, key, a, b), want);
        });
    }
}
