//! The fjall backend: an LSM tree in pure Rust. The default.
//!
//! # Crash consistency, as read in the source of fjall 3.1
//! Every batch goes to the journal before the memtable, with a checksum over its items, and is handed to the operating
//! system before `commit` returns: the end of the process loses nothing. A memtable is written as a table only after
//! the journal was synced (`worker_pool`, the flush message), a journal is deleted only after the tables are synced,
//! and replay stops at the first entry that is cut off or not an entry, and skips what the tables already hold. So
//! loss of power leaves a prefix of the commits. A batch of which only some pages reached the disk can also fail its
//! checksum at replay; then `open` is `Corrupt`, and the store is rebuilt. Never a part of a commit: crash-consistent.
//!
//! # Damage
//! Each block carries an XXH3-128 of its content, checked at every read from disk; a scan that meets a bad block
//! returns its error. A damaged journal is cut at the first bad entry, silently: after a clean close the status file
//! names the last commit, so a shorter history is found at `open`. After a crash it is an earlier, whole commit, and
//! the journal of the task replays the rest. Damaged folder names or options make fjall panic; that is contained.
//!
//! # Memory
//! One worker thread, which flushes and merges. A full memtable is sealed by the commit that filled it, not by the
//! worker, which may be busy; a commit that finds two sealed ones waits until one is flushed. So there are at most three
//! memtables of `write_buffer_bytes` (or of one epoch, when that is more), and a block cache of `cache_bytes`. The
//! journal file is 64 MiB of address, sparse on disk, and not in memory.
//!
//! # Loading
//! A run of entries becomes tables at once, without journal and memtable. They are synced and then named in the list of
//! tables, all of them or none. What was loaded twice counts as loaded last: each run is newer than the one before.

mod version;

use crate::contain::contain;
use crate::disk::{Engine, EngineCursor, EngineRange, POINT_KEY, engine_key};
use crate::files::{engine_failure, sync_directory};
use crate::run::Run;
use crate::{Delta, MemoryBudget, Order};
use ::fjall::config::PartitioningPolicy;
use ::fjall::{CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, KvPair, OwnedWriteBatch, PersistMode};
use onceflow_types::{Error, Result};
use std::path::Path;
use std::time::Duration;

const KEYSPACE: &str = "state";
/// Where fjall keeps the folders of keyspaces.
const KEYSPACES_FOLDER: &str = "keyspaces";
/// Flushes and compactions of one task; more threads would only compete with the tasks.
const WORKER_THREADS: usize = 1;
/// The least that fjall allows. Journals are deleted when the memtables they cover are flushed.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// Open table files.
const FILES_CACHED_MAX: usize = 64;
/// Memtables are sealed here, by our own count. fjall's own limit is so many times higher that it never acts: above it
/// each commit queues a request, and the worker, which blocks on that queue when it is full, can then wait for itself.
const OWN_LIMIT_FACTOR: u64 = 16;
/// Full memtables that wait for the worker. fjall itself allows four, and waits in steps of 100 ms without an end.
const SEALED_MAX: usize = 2;
/// How long a commit waits for a flush: steps of a millisecond, five minutes in all. A merge of large tables may be in
/// front of it; beyond that the worker is dead.
const FLUSH_WAIT: Duration = Duration::from_millis(1);
const FLUSH_WAITS_MAX: u32 = 300_000;
/// What a memtable counts for an entry beside its bytes, about.
const ENTRY_BYTES: usize = 128;

pub(crate) struct Fjall {
    write_buffer_bytes: usize,
    /// Written since a memtable was last sealed.
    buffered_bytes: usize,
    // Declared before the database, which waits for its threads when it is dropped.
    state: Keyspace,
    database: Database,
}

/// Filters and indexes of the tables below level 0 in pieces of a block. A whole filter of a table of 64 MiB has more than a
/// megabyte: every look-up would read and check it again, as a small cache cannot hold some of them. Those of level 0 are
/// small and stay in memory.
fn below_level_0() -> PartitioningPolicy {
    PartitioningPolicy::new([false, true])
}

impl Fjall {
    fn open_unguarded(data: &Path, memory: &MemoryBudget) -> ::fjall::Result<Fjall> {
        let database = Database::builder(data)
            .worker_threads(WORKER_THREADS)
            .cache_size(memory.cache_bytes as u64)
            .max_cached_files(Some(FILES_CACHED_MAX))
            .max_journaling_size(JOURNAL_BYTES_MAX)
            // Journals are short-lived and local: not worth the time.
            .journal_compression(CompressionType::None)
            .open()?;
        let own_limit = (memory.write_buffer_bytes as u64).saturating_mul(OWN_LIMIT_FACTOR);
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(own_limit)
                .filter_block_partitioning_policy(below_level_0())
                .index_block_partitioning_policy(below_level_0())
        };
        let state = database.keyspace(KEYSPACE, options)?;
        // fjall makes a folder for it and does not sync its name; a lost one would take all that was synced with it.
        sync_directory(&data.join(KEYSPACES_FOLDER)).map_err(std::io::Error::other)?;
        Ok(Fjall { write_buffer_bytes: memory.write_buffer_bytes, buffered_bytes: 0, state, database })
    }

    fn wait_for_flush(&self) -> Result<()> {
        for _ in 0..FLUSH_WAITS_MAX {
            if self.state.sealed_memtable_count() < SEALED_MAX {
                return Ok(());
            }
            // Writes nothing here, but fails when the worker has: then nothing would ever be flushed.
            self.database.persist(PersistMode::Buffer).map_err(failure("flush"))?;
            // A store is synchronous and blocks on its disk; there is nothing else to wait on.
            std::thread::park_timeout(FLUSH_WAIT);
        }
        Err(Error::corrupt("fjall does not flush its memtables"))
    }

    /// Seals the memtable when it is full.
    fn seal_when_full(&mut self, written: usize) -> Result<()> {
        self.buffered_bytes += written;
        if self.buffered_bytes > self.write_buffer_bytes {
            self.state.rotate_memtable().map_err(failure("flush"))?;
            self.buffered_bytes = 0;
        }
        Ok(())
    }
}

fn failure(what: &'static str) -> impl Fn(::fjall::Error) -> Error {
    move |error| {
        let flush_failed = matches!(error, ::fjall::Error::Poisoned);
        let failed = engine_failure(Fjall::NAME, what, error);
        // fjall does not say why a flush in the background has failed.
        if flush_failed { failed.context("an earlier flush failed, free space if the disk is full") } else { failed }
    }
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";
    const CRASH_CONSISTENT: bool = true;

    fn open(data: &Path, new: bool, memory: &MemoryBudget) -> Result<Self> {
        // Without its version file fjall would take the folder for a new one.
        if !new && !data.join("version").exists() {
            return Err(Error::corrupt("fjall version file is missing"));
        }
        let damaged = version::damaged(&data.join(KEYSPACES_FOLDER)).map_err(|e| failure("open")(e.into()))?;
        if let Some(keyspace) = damaged {
            return Err(Error::corrupt(format!("fjall's list of tables is damaged: path={keyspace}")));
        }
        contain(Self::NAME, || Fjall::open_unguarded(data, memory).map_err(failure("open")))
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = contain(Self::NAME, || self.state.get(key).map_err(failure("get")))?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&self, range: EngineRange, order: Order) -> Result<Box<dyn EngineCursor + '_>> {
        let entries = contain(Self::NAME, || Ok(self.state.range::<Vec<u8>, _>(range)))?;
        Ok(Box::new(FjallCursor { entries, order, current: None }))
    }

    fn write(&mut self, delta: &Delta, point: &[u8]) -> Result<()> {
        contain(Self::NAME, || {
            self.wait_for_flush()?;
            let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), delta.len() + 1)
                .durability(Some(PersistMode::Buffer));
            let mut engine = Vec::new();
            let mut written = 0;
            for (key, change) in delta {
                engine_key(key, &mut engine);
                written += engine.len() + change.map_or(0, <[u8]>::len) + ENTRY_BYTES;
                match change {
                    Some(value) => batch.insert(&self.state, engine.as_slice(), value),
                    None => batch.remove(&self.state, engine.as_slice()),
                }
            }
            batch.insert(&self.state, POINT_KEY, point);
            batch.commit().map_err(failure("commit"))?;
            self.seal_when_full(written)
        })
    }

    fn load(&mut self, run: &Run) -> Result<()> {
        contain(Self::NAME, || {
            let mut ingestion = self.state.start_ingestion().map_err(failure("load"))?;
            for (key, change) in run.iter() {
                match change {
                    Some(value) => ingestion.write(key, value),
                    None => ingestion.write_tombstone(key),
                }
                .map_err(failure("load"))?;
            }
            ingestion.finish().map_err(failure("load"))
        })
    }

    fn sync(&mut self) -> Result<()> {
        contain(Self::NAME, || self.database.persist(PersistMode::SyncAll).map_err(failure("sync")))
    }
}

struct FjallCursor {
    entries: Iter,
    order: Order,
    current: Option<KvPair>,
}

impl EngineCursor for FjallCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.current = contain(Fjall::NAME, || {
            let entry = match self.order {
                Order::Ascending => self.entries.next(),
                Order::Descending => self.entries.next_back(),
            };
            entry.map(|entry| entry.into_inner().map_err(failure("scan"))).transpose()
        })?;
        Ok(self.current.as_ref().map(|(key, value)| (&**key, &**value)))
    }
}
