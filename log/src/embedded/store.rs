//! The database under the log, and how it is opened.
//!
//! | keyspace | key | value |
//! | --- | --- | --- |
//! | `chunks` | see [`chunk`](super::chunk) | a chunk |
//! | `halves` | place | see [`half`](super::half) |
//! | `checks` | first place | see [`half`](super::half) |
//! | `meta` | `b` | [sealed](super::sealed): the broker's name |
//! | `meta` | `o` | [sealed](super::sealed): `u64` how often the log was opened |
//! | `meta` | `q`, topic, 0, queue number (4 bytes big-endian) | [sealed](super::sealed): `u32` the queue's id |
//! | `meta` | `r`, group, 0, queue id (4 bytes big-endian) | [sealed](super::sealed): `u64` the next offset reported |

use super::chunk::{self, Chunk};
use super::fault::{self, damaged};
use super::journal::sync_directory;
use super::options::EmbeddedOptions;
use super::queues::Queue;
use super::sealed;
use super::version;
use fjall::config::CompressionPolicy;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch, PersistMode,
};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Offset, Partition, Result, Timestamp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Values from this size on are kept apart from the keys, so that compaction does not copy the log again and again.
const SEPARATE_BYTES_MIN: u32 = 1 << 10;

/// Threads that flush and merge.
const WORKER_THREADS: usize = 1;
/// Buffers are sealed by the writer, by its own count. fjall's own limit is so many times higher that it never acts: above
/// it each write queues a request, and its worker, which blocks on that queue when it is full, can then wait for itself.
const OWN_LIMIT_FACTOR: u64 = 16;
/// Full write buffers that wait for a flush; fjall itself allows four, and waits in steps of 100 ms.
const SEALED_MAX: usize = 2;
/// How long a write waits for a flush: steps of a millisecond, five minutes in all. Beyond that the worker is dead.
const FLUSH_WAIT: Duration = Duration::from_millis(1);
const FLUSH_WAITS_MAX: u32 = 300_000;

/// Where fjall keeps the folders of keyspaces.
const KEYSPACES_FOLDER: &str = "keyspaces";

const BROKER_KEY: &[u8] = b"b";
const OPENED_KEY: &[u8] = b"o";
const QUEUE_PREFIX: u8 = b'q';
const REPORT_PREFIX: u8 = b'r';

/// fjall's handles; cheap to clone.
#[derive(Clone)]
pub(super) struct Store {
    pub(super) database: Database,
    pub(super) chunks: Keyspace,
    pub(super) halves: Keyspace,
    pub(super) checks: Keyspace,
    pub(super) meta: Keyspace,
}

impl Store {
    /// fjall asserts what it reads from some files; where that fails, the files are damaged.
    pub(super) fn open(path: &Path, options: &EmbeddedOptions) -> Result<Store> {
        let damaged =
            version::damaged(&path.join(KEYSPACES_FOLDER)).map_err(|error| fault::opening(path, error.into()))?;
        if let Some(keyspace) = damaged {
            return Err(Error::data_loss(format!("log is damaged, bring it back from a backup: path={keyspace}")));
        }
        let opening = AssertUnwindSafe(|| Store::open_database(path, options));
        match catch_unwind(opening) {
            Ok(opened) => opened.map_err(|error| fault::opening(path, error)),
            Err(_) => Err(Error::data_loss(format!("log is damaged: path={}", path.display()))),
        }
    }

    fn open_database(path: &Path, options: &EmbeddedOptions) -> fjall::Result<Store> {
        let database = Database::builder(path)
            .worker_threads(WORKER_THREADS)
            .cache_size(options.cache_bytes)
            .max_journaling_size(options.journal_bytes_max)
            // What is large here, frames and epochs, is compressed already.
            .journal_compression(CompressionType::None)
            .open()?;
        let small = || {
            let keyspace = KeyspaceCreateOptions::default()
                .max_memtable_size(options.write_buffer_bytes.saturating_mul(OWN_LIMIT_FACTOR));
            keyspace.data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let large = || {
            let apart = KvSeparationOptions::default().compression(CompressionType::None);
            small().with_kv_separation(Some(apart.separation_threshold(SEPARATE_BYTES_MIN)))
        };
        let store = Store {
            chunks: database.keyspace("chunks", large)?,
            halves: database.keyspace("halves", large)?,
            checks: database.keyspace("checks", small)?,
            meta: database.keyspace("meta", small)?,
            database,
        };
        // fjall makes a folder for each and does not sync its name; without the folder it would skip all that its journals
        // hold for it.
        sync_directory(&path.join(KEYSPACES_FOLDER))?;
        Ok(store)
    }

    /// A batch of changes that are written as one.
    pub(super) fn batch(&self) -> OwnedWriteBatch {
        self.database.batch()
    }

    /// Waits until few enough full write buffers are left, so that memory stays bounded when the disk is slower than the
    /// writers.
    pub(super) fn wait_for_flush(&self) -> Result<()> {
        for _ in 0..FLUSH_WAITS_MAX {
            let sealed = [&self.chunks, &self.halves, &self.checks].map(Keyspace::sealed_memtable_count);
            let sealed = sealed.into_iter().max().unwrap_or(0);
            if sealed < SEALED_MAX {
                return Ok(());
            }
            // Writes nothing here, but fails when the worker has: then nothing would ever be flushed.
            self.database.persist(PersistMode::Buffer).map_err(fault::writing)?;
            // The writer is one thread and waits for the disk anyway; there is nothing else to wait on.
            std::thread::park_timeout(FLUSH_WAIT);
        }
        Err(Error::retry("fjall does not flush its write buffers"))
    }

    /// Keeps the broker's name at the first opening and compares it at the later ones; counts the opening.
    pub(super) fn begin(&self, options: &EmbeddedOptions) -> Result<u64> {
        let (stored, given) = (self.get_meta(BROKER_KEY)?, options.broker.as_bytes());
        if let Some(stored) = stored.filter(|stored| stored != given) {
            let (stored, given) = (String::from_utf8_lossy(&stored), &options.broker);
            return Err(Error::invalid(format!("log has another broker name: stored={stored} given={given}")));
        }
        let opened = self.get_meta_number(OPENED_KEY)?.unwrap_or(0) + 1;
        let mut batch = self.batch();
        self.put_meta(&mut batch, BROKER_KEY, options.broker.as_bytes());
        self.put_meta(&mut batch, OPENED_KEY, &opened.to_le_bytes());
        batch.commit().map_err(fault::writing)?;
        Ok(opened)
    }

    /// All queues with their readable parts.
    pub(super) fn queues(&self, broker: &Arc<str>) -> Result<Vec<Tail>> {
        let mut tails = vec![];
        for entry in self.meta.prefix([QUEUE_PREFIX]) {
            let (key, value) = entry.into_inner().map_err(fault::reading)?;
            let partition = damaged("queue", partition_of(&key, broker))?;
            let mut held = Decoder::new(damaged("queue", sealed::open(&key, &value))?);
            tails.push(self.tail(damaged("queue", held.u32())?, partition)?);
        }
        Ok(tails)
    }

    fn tail(&self, id: u32, partition: Partition) -> Result<Tail> {
        let range = chunk::key(id, Offset::ZERO)..=chunk::key(id, Offset::new(u64::MAX));
        let mut chunks = self.chunks.range(range);
        let Some(first) = chunks.next() else { return Ok(Tail::empty(id, partition)) };
        let (key, value) = first.into_inner().map_err(fault::reading)?;
        let first = chunk::base(&key)?;
        let (key, value) = match chunks.next_back() {
            Some(last) => last.into_inner().map_err(fault::reading)?,
            None => (key, value),
        };
        let last = Chunk::open(&key, &value)?;
        let queue = Queue::new(id, partition, first, last.next());
        let (next, stored) = (last.next(), last.stored);
        Ok(Tail { queue: Arc::new(queue), last: last.base, next, stored, bytes: 0 })
    }

    /// The next free place of a half.
    pub(super) fn place_next(&self) -> Result<u64> {
        let Some(last) = self.halves.iter().next_back() else { return Ok(0) };
        Ok(super::half::place(&last.key().map_err(fault::reading)?)? + 1)
    }

    /// Adds up the bytes of a queue's chunks.
    pub(super) fn chunk_bytes(&self, queue: &Queue) -> Result<u64> {
        let range = chunk::key(queue.id, queue.first())..chunk::key(queue.id, queue.next());
        let sizes = self.chunks.range(range).map(|entry| entry.size().map(u64::from).map_err(fault::reading));
        sizes.sum()
    }

    pub(super) fn put_queue(&self, batch: &mut OwnedWriteBatch, partition: &Partition, id: u32) {
        self.put_meta(batch, &queue_key(partition), &id.to_le_bytes());
    }

    pub(super) fn put_report(&self, batch: &mut OwnedWriteBatch, group: &str, queue: u32, next: Offset) {
        self.put_meta(batch, &report_key(group, queue), &next.get().to_le_bytes());
    }

    /// The next offset that a consumer group reported.
    pub(super) fn report(&self, group: &str, queue: u32) -> Result<Option<Offset>> {
        Ok(self.get_meta_number(&report_key(group, queue))?.map(Offset::new))
    }

    fn put_meta(&self, batch: &mut OwnedWriteBatch, key: &[u8], held: &[u8]) {
        let mut value = sealed::unsealed(held.len());
        value.extend_from_slice(held);
        sealed::seal(key, &mut value);
        batch.insert(&self.meta, key, value);
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(value) = self.meta.get(key).map_err(fault::reading)? else { return Ok(None) };
        Ok(Some(damaged("meta data", sealed::open(key, &value))?.to_vec()))
    }

    fn get_meta_number(&self, key: &[u8]) -> Result<Option<u64>> {
        let held = self.get_meta(key)?;
        held.map(|held| damaged("meta data", Decoder::new(&held).u64())).transpose()
    }
}

/// The end of a queue as the writer sees it; readers see it when it is published.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) queue: Arc<Queue>,
    /// Where the last chunk begins.
    pub(super) last: Offset,
    pub(super) next: Offset,
    /// When the last chunk was stored.
    pub(super) stored: Timestamp,
    /// Of all chunks; kept only where there is a retention.
    pub(super) bytes: u64,
}

impl Tail {
    pub(super) fn empty(id: u32, partition: Partition) -> Tail {
        let queue = Arc::new(Queue::new(id, partition, Offset::ZERO, Offset::ZERO));
        Tail { queue, last: Offset::ZERO, next: Offset::ZERO, stored: Timestamp::MIN, bytes: 0 }
    }
}

fn queue_key(partition: &Partition) -> Vec<u8> {
    let mut key = vec![QUEUE_PREFIX];
    key.extend_from_slice(partition.topic.as_bytes());
    key.push(0);
    key.extend_from_slice(&partition.queue.to_be_bytes());
    key
}

fn partition_of(key: &[u8], broker: &Arc<str>) -> Result<Partition> {
    let parts = key.split_first().and_then(|(_, rest)| rest.split_last_chunk::<4>());
    let topic = parts.and_then(|(topic, queue)| Some((topic.strip_suffix(&[0])?, queue)));
    let Some((topic, queue)) = topic else { return Err(Error::corrupt("key of a queue is too short")) };
    let topic = std::str::from_utf8(topic).map_err(|e| Error::corrupt("topic is not utf-8").with_source(e))?;
    Ok(Partition::new(topic, broker.clone(), u32::from_be_bytes(*queue)))
}

fn report_key(group: &str, queue: u32) -> Vec<u8> {
    let mut key = vec![REPORT_PREFIX];
    key.extend_from_slice(group.as_bytes());
    key.put_u8(0);
    key.extend_from_slice(&queue.to_be_bytes());
    key
}
