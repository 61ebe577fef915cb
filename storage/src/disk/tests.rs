//! The rules around an engine that can be made to fail.

use super::*;
use crate::contract::{Scratch, copy_directory, entries, point};
use onceflow_types::ErrorKind;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A map that is written to one file at each write. The folder decides whether it fails: `fail-write` before,
/// `fail-after-write` after the write, `fail-read` when a scan comes to its second entry.
struct Faulty {
    path: std::path::PathBuf,
    entries: Entries,
    failed_once: AtomicBool,
}

impl Faulty {
    fn fails(&self, how: &str) -> Result<()> {
        if self.path.with_file_name(how).exists() { Err(Error::corrupt(how)) } else { Ok(()) }
    }
}

impl Engine for Faulty {
    const NAME: &'static str = "faulty";
    const CRASH_CONSISTENT: bool = true;

    fn open(data: &Path, new: bool, _: &MemoryBudget) -> Result<Self> {
        let path = data.join("map");
        let mut entries = Entries::new();
        if !new {
            let bytes = fs::read(&path).map_err(|e| Error::corrupt("no map").with_source(e))?;
            let mut from = Decoder::new(&bytes);
            while !from.rest().is_empty() {
                entries.insert(from.bytes(1000)?.to_vec(), from.bytes(1000)?.to_vec());
            }
        }
        Ok(Faulty { path, entries, failed_once: AtomicBool::new(false) })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        value.extend(self.entries.get(key).into_iter().flatten());
        Ok(self.entries.contains_key(key))
    }

    fn scan(&self, range: EngineRange, _: Order) -> Result<Box<dyn EngineCursor + '_>> {
        struct Scan<'s>(&'s Faulty, Vec<(&'s Vec<u8>, &'s Vec<u8>)>, usize);
        impl EngineCursor for Scan<'_> {
            fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
                // Fails once and then says "end": what engines do after an error is not to be relied on.
                if self.2 == 1 && !self.0.failed_once.swap(true, Ordering::Relaxed) {
                    self.0.fails("fail-read")?;
                }
                self.2 += 1;
                Ok(self.1.get(self.2 - 1).map(|(key, value)| (key.as_slice(), value.as_slice())))
            }
        }
        Ok(Box::new(Scan(self, self.entries.range(range).collect(), 0)))
    }

    fn write(&mut self, delta: &Delta, point: &[u8]) -> Result<()> {
        self.fails("fail-write")?;
        for (key, change) in delta {
            let mut engine = vec![];
            engine_key(key, &mut engine);
            match change {
                Some(value) => self.entries.insert(engine, value.to_vec()),
                None => self.entries.remove(&engine),
            };
        }
        self.entries.insert(POINT_KEY.to_vec(), point.to_vec());
        self.save()
    }

    fn load(&mut self, run: &Run) -> Result<()> {
        self.fails("fail-load")?;
        for (key, change) in run.iter() {
            match change {
                Some(value) => self.entries.insert(key.to_vec(), value.to_vec()),
                None => self.entries.remove(key),
            };
        }
        self.save()
    }

    fn sync(&mut self) -> Result<()> {
        self.fails("fail-sync")
    }
}

impl Faulty {
    fn save(&self) -> Result<()> {
        let mut bytes = vec![];
        for (key, value) in &self.entries {
            bytes.put_bytes(key);
            bytes.put_bytes(value);
        }
        fs::write(&self.path, bytes).unwrap();
        self.fails("fail-after-write")
    }
}

fn job() -> Name {
    Name::job("j").unwrap()
}

fn task() -> TaskId {
    TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue: 0 }
}

fn open(root: &Path) -> Result<DiskStore<Faulty>> {
    DiskStore::open(root, &job(), &task(), &MemoryBudget::default())
}

fn one(key: &[u8], value: &[u8]) -> Delta {
    let mut delta = Delta::default();
    delta.put(key, value);
    delta
}

fn all(store: &DiskStore<Faulty>) -> Vec<(Vec<u8>, Vec<u8>)> {
    entries(store, KeyRange::all(), Order::Ascending).unwrap()
}

/// Makes the engine fail in a way, or no longer.
fn fail(root: &Path, how: &str, on: bool) {
    let file = crate::task_directory(root, &job(), &task()).join("data").join(how);
    if on { fs::write(file, b"").unwrap() } else { fs::remove_file(file).unwrap() }
}

#[test]
fn rule_04_a_failed_commit_ends_the_handle_and_reopening_settles_it() {
    for (how, epoch_after) in [("fail-write", 1), ("fail-after-write", 2)] {
        let root = Scratch::new();
        let mut store = open(root.path()).unwrap();
        store.commit(&one(b"k", b"1"), &point(1)).unwrap();
        fail(root.path(), how, true);
        assert_eq!(store.commit(&one(b"k", b"2"), &point(2)).unwrap_err().kind(), ErrorKind::Corrupt);
        fail(root.path(), how, false);
        let dead = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Corrupt);
        dead(store.commit(&one(b"k", b"2"), &point(2)));
        dead(store.load(&one(b"k", b"2")));
        dead(store.commit_point().map(drop));
        dead(store.get(b"k", &mut vec![]).map(drop));
        dead(store.scan(KeyRange::all(), Order::Ascending).map(drop));
        drop(store);
        let store = open(root.path()).unwrap();
        assert_eq!(store.commit_point().unwrap(), Some(&point(epoch_after)), "{how}");
    }
}

#[test]
fn rule_12_a_load_that_was_cut_leaves_nothing() {
    for how in ["fail-load", "fail-after-write", "fail-write"] {
        let root = Scratch::new();
        let mut store = open(root.path()).unwrap();
        store.load(&one(b"k", b"1")).unwrap();
        fail(root.path(), how, true);
        // What is gathered goes to the engine with the first commit.
        assert_eq!(store.commit(&one(b"l", b"2"), &point(7)).unwrap_err().kind(), ErrorKind::Corrupt, "{how}");
        assert_eq!(store.load(&one(b"m", b"3")).unwrap_err().kind(), ErrorKind::Corrupt, "{how}");
        drop(store);
        // The folder is emptied, and with it what made the engine fail.
        let mut store = open(root.path()).unwrap();
        assert_eq!((store.commit_point().unwrap(), all(&store)), (None, vec![]), "{how}");
        store.load(&one(b"k", b"4")).unwrap();
        store.commit(&one(b"l", b"5"), &point(7)).unwrap();
        assert_eq!(all(&store), [(b"k".to_vec(), b"4".to_vec()), (b"l".to_vec(), b"5".to_vec())]);
    }
}

#[test]
fn a_run_that_is_large_goes_to_the_engine_at_once() {
    let root = Scratch::new();
    let mut store = open(root.path()).unwrap();
    let value = vec![7; RUN_BYTES_MAX / 4];
    for key in 0..5u8 {
        store.load(&one(&[key], &value)).unwrap();
    }
    assert_eq!(store.engine.entries.len(), 4);
    // One that does not go on from the last one, too.
    store.load(&one(&[0], b"")).unwrap();
    assert_eq!(store.engine.entries.len(), 5);
}

#[test]
fn a_misuse_does_not_end_the_handle() {
    let root = Scratch::new();
    let mut store = open(root.path()).unwrap();
    store.commit(&one(b"k", b"1"), &point(1)).unwrap();
    assert_eq!(store.commit(&one(b"k", b"2"), &point(5)).unwrap_err().kind(), ErrorKind::Bug);
    let long = vec![0; crate::KEY_BYTES_MAX + 1];
    assert_eq!(store.commit(&one(&long, b"2"), &point(2)).unwrap_err().kind(), ErrorKind::Invalid);
    store.commit(&one(b"k", b"2"), &point(2)).unwrap();
}

#[test]
fn rule_07_a_scan_that_failed_once_never_ends() {
    let root = Scratch::new();
    let mut store = open(root.path()).unwrap();
    let mut delta = one(b"a", b"1");
    delta.put(b"b", b"2");
    store.commit(&delta, &point(1)).unwrap();
    fail(root.path(), "fail-read", true);
    let mut cursor = store.scan(KeyRange::all(), Order::Ascending).unwrap();
    assert!(cursor.next().unwrap().is_some());
    for _ in 0..3 {
        assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_close_that_cannot_sync_is_not_clean() {
    let root = Scratch::new();
    let mut store = open(root.path()).unwrap();
    store.commit(&one(b"k", b"1"), &point(1)).unwrap();
    assert_eq!(store.directory.status(), Status::Open);
    fail(root.path(), "fail-sync", true);
    drop(store);
    let directory = Directory::open(root.path(), &Format::new("faulty", &job(), &task())).unwrap();
    assert_eq!(directory.status(), Status::Open);
}

#[test]
fn an_older_copy_of_the_data_after_a_clean_close_is_damage() {
    let root = Scratch::new();
    let older = Scratch::new();
    let mut store = open(root.path()).unwrap();
    store.commit(&one(b"k", b"1"), &point(1)).unwrap();
    let data = store.directory.data();
    copy_directory(&data, older.path()).unwrap();
    store.commit(&one(b"k", b"2"), &point(2)).unwrap();
    drop(store);
    copy_directory(older.path(), &data).unwrap();
    let error = open(root.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("stored=1 closed=2"), "{error}");
}

#[test]
fn a_crash_before_the_first_commit_returns_leaves_an_empty_store() {
    // The engine has the commit, the status file does not know of it yet: the state before the commit (rule 1).
    let root = Scratch::new();
    let mut store = open(root.path()).unwrap();
    fail(root.path(), "fail-after-write", true);
    assert!(store.commit(&one(b"k", b"1"), &point(1)).is_err());
    drop(store);
    let store = open(root.path()).unwrap();
    assert_eq!(store.commit_point().unwrap(), None);
    assert_eq!(entries(&store, KeyRange::all(), Order::Ascending).unwrap(), []);
}
