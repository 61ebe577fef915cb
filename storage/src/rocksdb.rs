//! The RocksDB backend (C++): the recommendation for state much larger than memory.
//!
//! # Crash consistency
//! One write batch is one record of the write-ahead log; it reaches the operating system before `commit` returns.
//! Recovery is point-in-time: it stops at the first record that is cut off or damaged, so loss of power leaves a prefix
//! of the commits. While a full write buffer is flushed two log files are needed, and loss of power may cut the older one
//! between two records, which by itself looks like its end: so each log names the length and the last record of the one
//! before it ([`LOG_CHAIN`]), and where that is not what is there recovery stops, too.
//!
//! # A full disk
//! RocksDB tries a flush that found no space again and again, and lets a write wait for it without an error when both
//! write buffers are full. So we do the waiting ourselves: a flush that fails meanwhile ends it with `Invalid` and what to
//! do, and [`STALL_WAITS_MAX`] with `Retry`. RocksDB's own `LOG` in the data folder says more.
//!
//! # Damage
//! Every block is read with its checksum. An iterator that becomes invalid has either reached the end or failed; the
//! two are told apart by its status at every step. A log that was cut after a clean close is found by the
//! commit that the status file names.
//!
//! # Loading
//! A run of entries becomes a table file at once, which the database takes over by its name, without log, memtable and
//! merging. A file that is synced and not taken over is left behind by a crash; the folder is emptied then.
//!
//! # Memory
//! Two write buffers of `write_buffer_bytes`; a block cache of `cache_bytes`, which also holds index and filter
//! blocks; a bounded table of open files. The background threads are those of the process's one environment, shared by
//! all stores. Indexes and filters are in pieces of some KiB: a whole filter of a table of 64 MiB has megabytes, so that
//! a small cache holds none, and each look-up would read one.

use crate::disk::{Engine, EngineCursor, EngineRange, POINT_KEY, engine_key};
use crate::files::engine_failure;
use crate::run::Run;
use crate::{Delta, MemoryBudget, Order};
use ::rocksdb::properties::{BACKGROUND_ERRORS, IS_WRITE_STOPPED, PropName};
use ::rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, DBRecoveryMode, ErrorKind,
    IngestExternalFileOptions, LogLevel, LruCacheOptions, Options, ReadOptions, SstFileWriter, WriteBatch,
    WriteOptions,
};
use onceflow_types::{Error, Result};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One that fills and one that is flushed.
const WRITE_BUFFERS: i32 = 2;
/// Flushes and compactions at once, of one store.
const BACKGROUND_JOBS: i32 = 2;
/// Open table files of one store.
const FILES_OPEN_MAX: i32 = 64;
/// Their table is one piece. RocksDB would make 64 of it, for one file each: two files of one piece would close each other,
/// and each look-up would open one and read all of its filter.
const FILES_OPEN_SHARD_BITS: i32 = 0;
/// The log is cut when a buffer is flushed; beyond this many buffers' worth a flush is forced.
const WAL_BUFFERS_MAX: u64 = 4;
const BLOCK_BYTES: usize = 8 << 10;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// An option that the crate has no function for.
const LOG_CHAIN: &str = "track_and_verify_wals=true";
/// How long a commit waits for flushes and compactions that do not keep up: steps of a millisecond, two minutes in all.
const STALL_WAIT: Duration = Duration::from_millis(1);
const STALL_WAITS_MAX: u32 = 120_000;
/// RocksDB's own text logs.
const LOG_FILES: usize = 2;
const LOG_FILE_BYTES_MAX: usize = 1 << 20;

/// A table on its way into the database; no name that RocksDB knows.
const LOADING_FILE: &str = "loading";

pub(crate) struct RocksDb {
    database: DB,
    writes: WriteOptions,
    data: PathBuf,
    memory: MemoryBudget,
}

/// A cache that is one piece. RocksDB would split it for many threads; a store has one that reads, and a part of half a
/// megabyte is too small for what is read together.
fn cache(memory: &MemoryBudget) -> Cache {
    let mut options = LruCacheOptions::default();
    options.set_capacity(memory.cache_bytes);
    options.set_num_shard_bits(0);
    Cache::new_lru_cache_opts(&options)
}

fn table_options(memory: &MemoryBudget) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache(memory));
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_block_size(BLOCK_BYTES);
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    blocks
}

fn options(new: bool, memory: &MemoryBudget) -> Result<Options> {
    let mut options = Options::default().get_options_from_string(LOG_CHAIN).map_err(failure("open"))?;
    options.set_block_based_table_factory(&table_options(memory));
    options.create_if_missing(new);
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_write_buffer_size(memory.write_buffer_bytes);
    options.set_max_write_buffer_number(WRITE_BUFFERS);
    options.set_max_total_wal_size(memory.write_buffer_bytes as u64 * WAL_BUFFERS_MAX);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_max_open_files(FILES_OPEN_MAX);
    options.set_table_cache_num_shard_bits(FILES_OPEN_SHARD_BITS);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_keep_log_file_num(LOG_FILES);
    options.set_max_log_file_size(LOG_FILE_BYTES_MAX);
    options.set_log_level(LogLevel::Warn);
    options.set_stats_dump_period_sec(0);
    Ok(options)
}

fn failure(what: &'static str) -> impl Fn(::rocksdb::Error) -> Error {
    move |error| engine_failure(RocksDb::NAME, what, error)
}

impl Engine for RocksDb {
    const NAME: &'static str = "rocksdb";
    const CRASH_CONSISTENT: bool = true;

    fn open(data: &Path, new: bool, memory: &MemoryBudget) -> Result<Self> {
        let database = DB::open(&options(new, memory)?, data).map_err(failure("open"))?;
        let mut writes = WriteOptions::default();
        // Rule 11: the journal is the truth, so a commit need not wait for the disk.
        writes.set_sync(false);
        // A write that would have to wait is refused before it has changed anything.
        writes.set_no_slowdown(true);
        Ok(RocksDb { database, writes, data: data.to_path_buf(), memory: *memory })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.database.get_pinned(key).map_err(failure("get"))?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&self, range: EngineRange, order: Order) -> Result<Box<dyn EngineCursor + '_>> {
        let mut options = ReadOptions::default();
        // The bounds are inclusive below and exclusive above; the key directly behind another is it and a zero byte.
        let after = |mut key: Vec<u8>| {
            key.push(0);
            key
        };
        match range.0 {
            Bound::Included(key) => options.set_iterate_lower_bound(key),
            Bound::Excluded(key) => options.set_iterate_lower_bound(after(key)),
            Bound::Unbounded => {}
        }
        match range.1 {
            Bound::Included(key) => options.set_iterate_upper_bound(after(key)),
            Bound::Excluded(key) => options.set_iterate_upper_bound(key),
            Bound::Unbounded => {}
        }
        options.set_verify_checksums(true);
        Ok(Box::new(RocksCursor { entries: self.database.raw_iterator_opt(options), order, started: false }))
    }

    fn write(&mut self, delta: &Delta, point: &[u8]) -> Result<()> {
        let mut failed_before = None;
        for _ in 0..STALL_WAITS_MAX {
            if failed_before.is_none() || self.count(IS_WRITE_STOPPED) == 0 {
                match self.database.write_opt(batch_of(delta, point), &self.writes) {
                    Err(error) if error.kind() == ErrorKind::Incomplete => {}
                    written => return written.map_err(failure("commit")),
                }
            }
            let failed = self.failed_in_background();
            if failed > *failed_before.get_or_insert(failed) {
                return Err(Error::invalid("rocksdb cannot flush, free space and start again; its file LOG says why"));
            }
            // A store is synchronous and blocks on its disk; there is nothing else to wait on.
            std::thread::park_timeout(STALL_WAIT);
        }
        Err(Error::retry("rocksdb is slower than what it is to write"))
    }

    fn load(&mut self, run: &Run) -> Result<()> {
        let (options, file) = (options(false, &self.memory)?, self.data.join(LOADING_FILE));
        let mut table = SstFileWriter::create(&options);
        table.open(&file).map_err(failure("load"))?;
        for (key, change) in run.iter() {
            match change {
                Some(value) => table.put(key, value),
                None => table.delete(key),
            }
            .map_err(failure("load"))?;
        }
        table.finish().map_err(failure("load"))?;
        let mut taking = IngestExternalFileOptions::default();
        taking.set_move_files(true);
        self.database.ingest_external_file_opts(&taking, vec![&file]).map_err(failure("load"))
    }

    fn sync(&mut self) -> Result<()> {
        self.database.flush_wal(true).map_err(failure("sync"))
    }
}

fn batch_of(delta: &Delta, point: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::with_capacity_bytes(delta.bytes());
    let mut engine = Vec::new();
    for (key, change) in delta {
        engine_key(key, &mut engine);
        match change {
            Some(value) => batch.put(&engine, value),
            None => batch.delete(&engine),
        }
    }
    batch.put(POINT_KEY, point);
    batch
}

impl RocksDb {
    /// Flushes and compactions that failed since the store was opened. What cannot be tried again is the next write's own error.
    fn failed_in_background(&self) -> u64 {
        self.count(BACKGROUND_ERRORS)
    }

    fn count(&self, property: &PropName) -> u64 {
        self.database.property_int_value(property).ok().flatten().unwrap_or_default()
    }
}

struct RocksCursor<'s> {
    entries: DBRawIterator<'s>,
    order: Order,
    started: bool,
}

impl EngineCursor for RocksCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match (self.started, self.order) {
            (false, Order::Ascending) => self.entries.seek_to_first(),
            (false, Order::Descending) => self.entries.seek_to_last(),
            (true, Order::Ascending) => self.entries.next(),
            (true, Order::Descending) => self.entries.prev(),
        }
        self.started = true;
        // An iterator is invalid behind the last entry and after an error: only the status tells which.
        if !self.entries.valid() {
            self.entries.status().map_err(failure("scan"))?;
        }
        Ok(self.entries.item())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
    use std::fs;
    use std::path::PathBuf;

    const WRITES: u32 = 400;
    const BUDGET: MemoryBudget =
        MemoryBudget { write_buffer_bytes: MemoryBudget::BYTES_MIN, cache_bytes: MemoryBudget::BYTES_MIN };

    fn write(engine: &mut RocksDb, number: u32) {
        let mut delta = Delta::default();
        delta.put(&number.to_be_bytes(), &[1; 2_000]);
        engine.write(&delta, &number.to_be_bytes()).unwrap();
    }

    /// Log files with something in them, oldest first, and their lengths.
    fn logs(data: &Path) -> Vec<(PathBuf, u64)> {
        let mut logs: Vec<_> = fs::read_dir(data)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .filter_map(|path| fs::metadata(&path).ok().map(|found| (path, found.len())))
            .filter(|(_, length)| *length > 0)
            .collect();
        logs.sort();
        logs
    }

    /// A copy in which the oldest log has another length; `None` when the engine removed a file meanwhile.
    fn copy_with_cut_log(data: &Path, cut: &Path, length: u64) -> Option<tempfile::TempDir> {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(data).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, copy.path().join(path.file_name()?)).ok()?;
        }
        let log = fs::OpenOptions::new().write(true).open(copy.path().join(cut.file_name()?)).ok()?;
        log.set_len(length).unwrap();
        Some(copy)
    }

    // Loss of power while a buffer is flushed: of two logs that were not synced, the newer is there and the older is cut
    // between two records. What is found must be all writes up to one of them.
    #[test]
    fn a_log_that_was_cut_between_records_ends_the_recovery() {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = RocksDb::open(folder.path(), true, &BUDGET).unwrap();
        let (mut ends, mut found_earlier) = (vec![], 0);
        for number in 0..WRITES {
            write(&mut engine, number);
            let logs = logs(folder.path());
            let Some((newest, length)) = logs.last() else { continue };
            ends.push((newest.clone(), *length));
            let [(older, whole), _] = &logs[..] else { continue };
            let end = ends.iter().rfind(|(log, length)| log == older && length < whole);
            let Some(copy) = end.and_then(|(_, end)| copy_with_cut_log(folder.path(), older, *end)) else { continue };
            let Ok(copy) = RocksDb::open(copy.path(), false, &BUDGET) else { continue };
            let mut value = vec![];
            assert!(copy.get(POINT_KEY, &mut value).unwrap());
            let point = u32::from_be_bytes(value.clone().try_into().unwrap());
            for earlier in 0..=point {
                let mut key = vec![];
                engine_key(&earlier.to_be_bytes(), &mut key);
                assert!(copy.get(&key, &mut value).unwrap(), "write {earlier} of {point} is missing");
            }
            found_earlier += u32::from(point < number);
        }
        assert!(found_earlier > 0, "no log was cut, so the test shows nothing");
    }

    // Aim: what a look-up reads does not grow with the tables. Method: one table whose whole filter is many times larger than
    // the cache, and look-ups far from each other. The order of the keys is mixed, as tables that do not overlap would be kept.
    #[test]
    fn a_look_up_in_a_large_table_reads_little() {
        const ENTRIES: u32 = 1_000_000;
        const LOOK_UPS: u32 = 100;
        const BYTES_READ_MAX: u64 = 200 << 10;
        let mixed = |number: u32| number.wrapping_mul(0x9E37_79B1).to_be_bytes();
        let folder = tempfile::tempdir().unwrap();
        let mut engine = RocksDb::open(folder.path(), true, &BUDGET).unwrap();
        for first in (0..ENTRIES).step_by(10_000) {
            let mut delta = Delta::default();
            (first..first + 10_000).for_each(|number| delta.put(&mixed(number), &[1]));
            engine.write(&delta, &first.to_be_bytes()).unwrap();
        }
        engine.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        let (mut key, mut value) = (vec![], vec![]);
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut counted = PerfContext::default();
        counted.reset();
        for number in 0..LOOK_UPS {
            engine_key(&mixed(number * (ENTRIES / LOOK_UPS)), &mut key);
            assert!(engine.get(&key, &mut value).unwrap());
        }
        let bytes = counted.metric(PerfMetric::BlockReadByte) / u64::from(LOOK_UPS);
        set_perf_stats(PerfStatsLevel::Disable);
        assert!((1..BYTES_READ_MAX).contains(&bytes), "bytes read per look-up: {bytes}");
    }

    #[test]
    fn a_write_that_must_wait_for_a_flush_is_done_once_there_is_room() {
        // Each alone fills a buffer.
        const PIECE: &[u8] = &[7; MemoryBudget::BYTES_MIN];
        let folder = tempfile::tempdir().unwrap();
        let mut engine = RocksDb::open(folder.path(), true, &BUDGET).unwrap();
        for number in 0..WRITES * 10 {
            let (mut delta, key) = (Delta::default(), number.to_be_bytes());
            delta.put(&key, PIECE);
            let refused = engine.database.write_opt(batch_of(&delta, &key), &engine.writes).is_err();
            let mut value = vec![];
            if refused {
                engine.write(&delta, &key).unwrap();
                assert!(engine.get(POINT_KEY, &mut value).unwrap() && value == key);
                return;
            }
        }
        panic!("nothing had to wait, so the test shows nothing");
    }
}
