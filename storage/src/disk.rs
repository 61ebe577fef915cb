//! What the disk backends share: the contract's rules around a small [`Engine`].
//!
//! All of a task's state lies in one ordered space of an engine. One byte in front of each key keeps the point apart
//! from the entries, and makes an empty key a key like others:
//!
//! ```text
//! 00              the point: CRC32C (u32) of what follows, then the encoded CommitPoint
//! 01 + user key   an entry
//! ```
//!
//! # Crash story
//! The status of the [`Directory`] says before the engine is opened what to expect of it.
//!
//! | cut | the next opening finds |
//! | --- | --- |
//! | before the first commit returns, in a load for example | `Fresh`: the data is emptied, whatever it holds (rule 12) |
//! | between commits, or inside one | `Open` and the last commit, as the engine's batches are atomic |
//! | in `Drop`, before the status is written | `Open`, as above |
//! | after it | `Clean`, and the last commit must be the one it names, or files were damaged or exchanged |
//! | in the opening, before `Open` is written | `Clean`, nothing changed |

use crate::directory::Directory;
use crate::format::{Format, Status};
use crate::run::{RUN_BYTES_MAX, Run};
use crate::{Cursor, Delta, KeyRange, MemoryBudget, Order, ReadStore, StateStore, check_commit, check_load};
use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{CommitPoint, Error, Name, Result, TaskId};
use std::ops::Bound;
use std::path::Path;

/// The engine key of the point.
pub(crate) const POINT_KEY: &[u8] = &[0];
const ENTRY_TAG: u8 = 1;
/// The first engine key behind all entries.
const ENTRIES_END: &[u8] = &[ENTRY_TAG + 1];
/// Keys up to this length are looked up without an allocation.
const LOOKUP_BYTES_STACK: usize = 127;

/// A key-value engine with atomic batches. Keys and ranges are engine keys.
pub(crate) trait Engine: Send + Sized {
    const NAME: &'static str;
    /// See [`StateStore::crash_consistent`].
    const CRASH_CONSISTENT: bool;

    /// Opens the engine in a folder, which is empty when `new`.
    fn open(data: &Path, new: bool, memory: &MemoryBudget) -> Result<Self>;
    /// See [`ReadStore::get`].
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Entries between two engine keys, of which `range.0` is not above `range.1`.
    fn scan(&self, range: EngineRange, order: Order) -> Result<Box<dyn EngineCursor + '_>>;
    /// Writes the changes and the point in one atomic batch that survives the end of the process.
    fn write(&mut self, delta: &Delta, point: &[u8]) -> Result<()>;
    /// Adds a run of entries to a store that has no point yet, in whatever way is quickest. What a crash leaves of it does
    /// not matter, as the store is emptied then.
    fn load(&mut self, run: &Run) -> Result<()>;
    /// Puts everything written on disk.
    fn sync(&mut self) -> Result<()>;
}

/// A range of engine keys.
pub(crate) type EngineRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Like [`Cursor`], for engine keys, and without a promise after the first error.
pub(crate) trait EngineCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}

/// The engine key of a user's key.
pub(crate) fn engine_key(key: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.push(ENTRY_TAG);
    to.extend_from_slice(key);
}

/// A task's state in an engine.
pub(crate) struct DiskStore<E: Engine> {
    // Declared before the directory: the engine is closed while the lock is held.
    engine: E,
    directory: Directory,
    point: Option<CommitPoint>,
    /// Rule 4: the outcome of a commit is unknown.
    failed: bool,
    point_bytes: Vec<u8>,
    /// What is loaded and not yet with the engine.
    loading: Run,
}

impl<E: Engine> DiskStore<E> {
    pub(crate) fn open(root: &Path, job: &Name, task: &TaskId, memory: &MemoryBudget) -> Result<DiskStore<E>> {
        let directory = Directory::open(root, &Format::new(E::NAME, job, task))?;
        let status = directory.status();
        match status {
            Status::Fresh => directory.empty_data()?,
            Status::Open if !E::CRASH_CONSISTENT => {
                return Err(Error::corrupt(format!(
                    "{} store was not closed and may have lost changes, drop it and rebuild it from the journal: path={}",
                    E::NAME,
                    directory.path().display()
                )));
            }
            Status::Open | Status::Clean { .. } if !directory.has_data()? => {
                return Err(damaged(&directory, "data folder is missing"));
            }
            Status::Open | Status::Clean { .. } => {}
        }
        let place = directory.path().display().to_string();
        let engine = E::open(&directory.data(), status == Status::Fresh, memory).map_err(|e| e.context(&place))?;
        let mut store = DiskStore {
            engine,
            directory,
            point: None,
            failed: false,
            point_bytes: Vec::new(),
            loading: Run::default(),
        };
        if status != Status::Fresh {
            store.recover_point(status)?;
        }
        Ok(store)
    }

    fn recover_point(&mut self, status: Status) -> Result<()> {
        let mut bytes = Vec::new();
        if !self.engine.get(POINT_KEY, &mut bytes)? {
            return Err(damaged(&self.directory, "commit point is missing"));
        }
        let point = decode_point(&bytes).map_err(|e| e.context(self.directory.path().display()))?;
        if let Status::Clean { epoch, point: sum } = status {
            if epoch != point.epoch || sum != checksum(&bytes) {
                let what = format!("last commit is not the one at the close: stored={} closed={epoch}", point.epoch);
                return Err(damaged(&self.directory, &what));
            }
            self.directory.set_status(Status::Open)?;
        }
        self.point = Some(point);
        self.point_bytes = bytes;
        Ok(())
    }

    /// Hands to the engine what is loaded. The caller has marked the store as failed, until this succeeds.
    fn finish_load(&mut self) -> Result<()> {
        if self.loading.is_empty() {
            return Ok(());
        }
        let place = self.directory.path().display();
        self.engine.load(&self.loading).map_err(|e| e.context(place))?;
        self.loading.clear();
        Ok(())
    }

    fn usable(&self) -> Result<()> {
        if self.failed {
            return Err(damaged(&self.directory, "an earlier commit failed"));
        }
        Ok(())
    }

    /// Closes the store so that the next opening can trust it.
    fn close(&mut self) -> Result<()> {
        let Some(point) = self.point.as_ref().filter(|_| !self.failed) else { return Ok(()) };
        // The data first: a clean status on disk promises that the data is there, too.
        self.engine.sync()?;
        let point = Status::Clean { epoch: point.epoch, point: checksum(&self.point_bytes) };
        self.directory.set_status(point)
    }
}

fn encode_point(point: &CommitPoint, to: &mut Vec<u8>) {
    to.clear();
    to.put_u32(0);
    point.encode(to);
    let sum = to.get(4..).map(checksum).unwrap_or_default();
    if let Some(place) = to.first_chunk_mut() {
        *place = sum.to_le_bytes();
    }
}

fn decode_point(bytes: &[u8]) -> Result<CommitPoint> {
    let mut from = Decoder::new(bytes);
    if from.u32()? != checksum(from.rest()) {
        return Err(Error::corrupt("commit point has a bad checksum"));
    }
    CommitPoint::decode(from.rest())
}

fn damaged(directory: &Directory, what: &str) -> Error {
    Error::corrupt(format!(
        "{what}, drop the store and rebuild it from the journal: path={}",
        directory.path().display()
    ))
}

impl<E: Engine> ReadStore for DiskStore<E> {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.usable()?;
        let mut stack = [ENTRY_TAG; LOOKUP_BYTES_STACK + 1];
        if let Some(place) = stack.get_mut(1..=key.len()) {
            place.copy_from_slice(key);
            return self.engine.get(stack.get(..=key.len()).unwrap_or_default(), value);
        }
        let mut long = Vec::with_capacity(key.len() + 1);
        engine_key(key, &mut long);
        self.engine.get(&long, value)
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        self.usable()?;
        if range.is_empty() {
            return Ok(Box::new(NoEntries));
        }
        let key = |key: &[u8]| {
            let mut engine = Vec::new();
            engine_key(key, &mut engine);
            engine
        };
        let start = match range.start {
            Bound::Unbounded => Bound::Included(vec![ENTRY_TAG]),
            start => start.map(key),
        };
        let end = match range.end {
            Bound::Unbounded => Bound::Excluded(ENTRIES_END.to_vec()),
            end => end.map(|end| key(&end)),
        };
        let inner = self.engine.scan((start, end), order)?;
        Ok(Box::new(DiskCursor { inner, state: CursorState::Reading }))
    }
}

struct NoEntries;

impl Cursor for NoEntries {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(None)
    }
}

enum CursorState {
    Reading,
    End,
    Failed(String),
}

/// Strips the tag and keeps rule 7: an error stays an error, the end stays the end.
struct DiskCursor<'s> {
    inner: Box<dyn EngineCursor + 's>,
    state: CursorState,
}

impl Cursor for DiskCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &self.state {
            CursorState::Reading => {}
            CursorState::End => return Ok(None),
            CursorState::Failed(message) => return Err(Error::corrupt(message.clone())),
        }
        match self.inner.next() {
            Ok(Some((key, value))) => match key.split_first() {
                Some((&ENTRY_TAG, key)) => Ok(Some((key, value))),
                _ => Err(Error::corrupt("state store holds a foreign key")),
            },
            Ok(None) => {
                self.state = CursorState::End;
                Ok(None)
            }
            Err(error) => {
                self.state = CursorState::Failed(error.report());
                Err(error)
            }
        }
    }
}

impl<E: Engine> StateStore for DiskStore<E> {
    fn commit_point(&self) -> Result<Option<&CommitPoint>> {
        self.usable()?;
        Ok(self.point.as_ref())
    }

    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()> {
        self.usable()?;
        check_commit(self.point.as_ref(), delta, point)?;
        delta.check()?;
        let first = self.point.is_none();
        encode_point(point, &mut self.point_bytes);
        // Until everything has succeeded the outcome is unknown.
        self.failed = true;
        self.finish_load()?;
        let place = self.directory.path().display();
        self.engine.write(delta, &self.point_bytes).map_err(|e| e.context(place))?;
        if first {
            // From now on an empty store is damage and no longer the beginning.
            self.directory.set_status(Status::Open)?;
        }
        self.failed = false;
        match &mut self.point {
            Some(stored) => stored.clone_from(point),
            None => self.point = Some(point.clone()),
        }
        Ok(())
    }

    fn load(&mut self, delta: &Delta) -> Result<()> {
        self.usable()?;
        check_load(self.point.as_ref())?;
        delta.check()?;
        self.failed = true;
        if !self.loading.is_continued_by(delta) {
            self.finish_load()?;
        }
        self.loading.add(ENTRY_TAG, delta);
        if self.loading.bytes() >= RUN_BYTES_MAX {
            self.finish_load()?;
        }
        self.failed = false;
        Ok(())
    }

    fn crash_consistent(&self) -> bool {
        E::CRASH_CONSISTENT
    }

    fn backend(&self) -> &'static str {
        E::NAME
    }
}

impl<E: Engine> Drop for DiskStore<E> {
    fn drop(&mut self) {
        // An error leaves the status at `Open`, which the next opening judges.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests;
