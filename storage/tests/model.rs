//! Every backend equals a map under random puts, deletes, commits, scans, reopenings and crashes.
//!
//! A crash is a copy of the directory while the store is open, opened instead of the original: what the end of the
//! process would leave. A store that is not crash-consistent must refuse the copy, and starts over.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use common::{copy_directory, job, point, small, task};
use onceflow_storage::{Backend, Cursor, KeyRange, Order, Overlay, ReadStore, StoreFactory, StoreOptions};
use onceflow_types::ErrorKind;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Many puts at once, so that small write buffers are flushed.
    Fill(u8),
    Commit,
    Discard,
    Get(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, bool),
    Prefix(Vec<u8>, bool),
    Reopen,
    Crash,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few bytes, the extremes among them, so that keys meet, nest and border on each other.
    vec(prop_oneof![Just(0u8), Just(1), Just(b'g'), Just(0xff)], 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (key(), vec(any::<u8>(), 0..40)).prop_map(|(key, value)| Step::Put(key, value)),
        4 => key().prop_map(Step::Delete),
        1 => any::<u8>().prop_map(Step::Fill),
        4 => Just(Step::Commit),
        1 => Just(Step::Discard),
        2 => key().prop_map(Step::Get),
        3 => (key(), key(), any::<bool>()).prop_map(|(start, end, up)| Step::Scan(start, end, up)),
        3 => (key(), any::<bool>()).prop_map(|(prefix, up)| Step::Prefix(prefix, up)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
    ]
}

/// A store beside what it should hold.
struct Subject {
    options: StoreOptions,
    root: TempDir,
    crashes: usize,
    overlay: Option<Overlay>,
    committed: Map,
    current: Map,
    epoch: u64,
}

impl Subject {
    fn new(backend: Backend, small_buffers: bool) -> Subject {
        let root = TempDir::new().unwrap();
        let place = root.path().join("0");
        let options = if small_buffers { small(backend, &place) } else { StoreOptions::new(backend, place) };
        let mut subject =
            Subject { options, root, crashes: 0, overlay: None, committed: Map::new(), current: Map::new(), epoch: 0 };
        subject.open();
        subject
    }

    fn open(&mut self) {
        let store = self.options.open(&job(), &task()).unwrap();
        let epoch = store.commit_point().unwrap().map_or(0, |point| point.epoch.get());
        assert_eq!(epoch, self.epoch);
        self.overlay = Some(Overlay::new(store));
        self.current = self.committed.clone();
    }

    fn overlay(&mut self) -> &mut Overlay {
        self.overlay.as_mut().unwrap()
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Put(key, value) => {
                self.overlay().put(&key, &value);
                self.current.insert(key, value);
            }
            Step::Delete(key) => {
                self.overlay().delete(&key);
                self.current.remove(&key);
            }
            Step::Fill(seed) => {
                for number in 0..300u16 {
                    let key = [b'f', seed & 3, number.to_be_bytes()[0], number.to_be_bytes()[1]].to_vec();
                    let value = vec![seed ^ number.to_le_bytes()[0]; 100];
                    self.overlay().put(&key, &value);
                    self.current.insert(key, value);
                }
            }
            Step::Commit => {
                self.epoch += 1;
                let point = point(self.epoch);
                self.overlay().commit(&point).unwrap();
                self.committed = self.current.clone();
            }
            Step::Discard => {
                self.overlay().discard();
                self.current = self.committed.clone();
            }
            Step::Get(key) => self.check_get(&key),
            Step::Scan(start, end, up) => self.check_scan(&KeyRange::new(&start, &end), up),
            Step::Prefix(prefix, up) => self.check_scan(&KeyRange::prefix(&prefix), up),
            Step::Reopen => {
                self.overlay = None;
                self.open();
                self.check_all();
            }
            Step::Crash => self.crash(),
        }
    }

    fn crash(&mut self) {
        if self.options.backend == Backend::Memory {
            return self.run(Step::Reopen);
        }
        self.crashes += 1;
        let copy = self.root.path().join(self.crashes.to_string());
        copy_directory(&self.options.directory, &copy);
        let consistent = self.overlay().base().crash_consistent();
        self.overlay = None;
        fs::remove_dir_all(&self.options.directory).unwrap();
        self.options.directory = copy;
        if !consistent && self.epoch > 0 {
            let error = self.options.open(&job(), &task()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            self.options.destroy(&job(), &task()).unwrap();
            self.epoch = 0;
            self.committed.clear();
        }
        self.open();
        self.check_all();
    }

    fn check_all(&mut self) {
        for up in [true, false] {
            self.check_scan(&KeyRange::all(), up);
        }
        for key in self.current.clone().keys() {
            self.check_get(key);
        }
    }

    fn check_get(&mut self, key: &[u8]) {
        let mut value = b"left over".to_vec();
        let found = self.overlay().get(key, &mut value).unwrap();
        assert_eq!(found.then_some(&value), self.current.get(key), "get {key:?}");
        assert!(found || value.is_empty());
    }

    fn check_scan(&mut self, range: &KeyRange<'_>, up: bool) {
        let order = if up { Order::Ascending } else { Order::Descending };
        let overlay = self.overlay.as_ref().unwrap();
        let mut cursor: Box<dyn Cursor + '_> = overlay.scan(range.clone(), order).unwrap();
        let mut want: Vec<_> = self.current.iter().filter(|(key, _)| range.contains(key)).collect();
        if !up {
            want.reverse();
        }
        for (key, value) in want {
            assert_eq!(cursor.next().unwrap(), Some((&key[..], &value[..])), "{range:?} {order:?}");
        }
        assert_eq!(cursor.next().unwrap(), None, "{range:?} {order:?}");
    }
}

fn run(backend: Backend, cases: u32) {
    let config =
        ProptestConfig { cases, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in vec(step(), 1..80), small_buffers: bool)| {
        let mut subject = Subject::new(backend, small_buffers);
        for step in steps {
            subject.run(step);
        }
        subject.run(Step::Commit);
        subject.run(Step::Reopen);
    });
}

#[test]
fn memory_equals_the_model() {
    run(Backend::Memory, 400);
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_equals_the_model() {
    run(Backend::Fjall, if cfg!(debug_assertions) { 12 } else { 60 });
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_equals_the_model() {
    run(Backend::RocksDb, 60);
}

#[cfg(feature = "sled")]
#[test]
fn sled_equals_the_model() {
    run(Backend::Sled, 60);
}
