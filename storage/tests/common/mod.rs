//! What the tests of the backends share.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

mod point;

pub use point::point;

use onceflow_storage::{Backend, KeyRange, MemoryBudget, Order, StateStore, StoreOptions};
use onceflow_types::{Name, Result, TaskId};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub fn job() -> Name {
    Name::job("tests").unwrap()
}

pub fn task() -> TaskId {
    TaskId { subtopology: Name::new("subject").unwrap(), broker: "broker-a".into(), queue: 0 }
}

/// Options with the smallest buffers, so that tables are written and merged early.
pub fn small(backend: Backend, root: &Path) -> StoreOptions {
    let mut options = StoreOptions::new(backend, root);
    options.memory = MemoryBudget { write_buffer_bytes: MemoryBudget::BYTES_MIN, cache_bytes: MemoryBudget::BYTES_MIN };
    options
}

pub fn available() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available())
}

pub fn on_disk() -> impl Iterator<Item = Backend> {
    available().filter(|backend| *backend != Backend::Memory)
}

pub fn epoch_of(store: &dyn StateStore) -> u64 {
    store.commit_point().unwrap().map_or(0, |point| point.epoch.get())
}

pub fn scan(store: &dyn StateStore, range: KeyRange<'_>, order: Order) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut cursor = store.scan(range, order)?;
    let mut found = vec![];
    while let Some((key, value)) = cursor.next()? {
        found.push((key.to_vec(), value.to_vec()));
    }
    Ok(found)
}

/// All files below a path, in order.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// How many bytes there are before the zeros at the end.
pub fn used(bytes: &[u8]) -> usize {
    const BLOCK: usize = 4096;
    // Whole blocks first: comparing slices is quick also without optimisation.
    let last = bytes.chunks(BLOCK).rposition(|block| Some(block) != [0; BLOCK].get(..block.len())).unwrap_or(0);
    let part = &bytes[last * BLOCK..bytes.len().min((last + 1) * BLOCK)];
    part.iter().rposition(|byte| *byte != 0).map_or(0, |byte| last * BLOCK + byte + 1)
}

/// Copies a directory as it is: what the end of the process would leave. Files keep the zeros at their end as a hole.
///
/// An engine may merge tables while we copy, and files of two moments are no crash: then it is copied again.
pub fn copy_directory(from: &Path, to: &Path) {
    for _ in 0..COPIES_MAX {
        let before = picture(from);
        let _ = fs::remove_dir_all(to);
        for file in files(from) {
            let Ok(bytes) = fs::read(&file) else { continue };
            write_sparse(&to.join(file.strip_prefix(from).unwrap()), &bytes);
        }
        if picture(from) == before {
            return;
        }
    }
    panic!("{} does not come to rest", from.display());
}

const COPIES_MAX: usize = 100;

/// Names, lengths and times of all files.
fn picture(path: &Path) -> Vec<(PathBuf, Option<(u64, SystemTime)>)> {
    let seen = |file: &PathBuf| fs::metadata(file).and_then(|found| Ok((found.len(), found.modified()?))).ok();
    files(path).into_iter().map(|file| (file.clone(), seen(&file))).collect()
}

pub fn write_sparse(target: &Path, bytes: &[u8]) {
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::write(target, &bytes[..used(bytes)]).unwrap();
    fs::OpenOptions::new().write(true).open(target).unwrap().set_len(bytes.len() as u64).unwrap();
}
