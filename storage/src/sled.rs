//! The sled backend (stable line, 0.34). For those who know it; fjall and RocksDB are the better choice.
//!
//! # Crash consistency
//! None is claimed: sled keeps writes in buffers of its own, and its recovery has open reports of lost and damaged
//! data. A store that was not closed cleanly is `Corrupt` at the next opening and rebuilt from the journal (rule 11); so is one
//! that could not be closed because the disk was full. After a write that failed in the background sled may wait for it for
//! ever at the close, with a lock that all its stores share: if such a job does not stop, kill it.
//!
//! # Damage
//! sled checks pages, but can come back with an older page, without one, or by a panic. So we detect damage ourselves:
//!
//! ```text
//! entry   checksum u32   CRC32C of engine key and value
//!         value
//! point   checksum u32   CRC32C of what follows
//!         entries  u64   how many entries there are
//!         digest   u64   wrapping sum of the FNV-1a hashes of all entries
//!         point
//! ```
//!
//! Every read checks the entry, and every opening reads the whole store once and compares number and digest: a lost,
//! an old or a foreign entry is `Corrupt` before anything is read from the store. The price is an opening that takes
//! time in proportion to the state, and a look-up of the old value for each change of a commit. Panics are contained.
//!
//! # Memory
//! The page cache is bounded by `cache_bytes` plus `write_buffer_bytes` (sled has no write buffer to bound), but sled
//! counts only part of what it allocates: expect about three times as much.

use crate::contain::contain;
use crate::disk::{Engine, EngineCursor, EngineRange, POINT_KEY, engine_key};
use crate::files::engine_failure;
use crate::run::Run;
use crate::{Delta, MemoryBudget, Order};
use ::sled::{Batch, Config, Db, IVec, Iter};
use onceflow_types::wire::{Decoder, Encode, checksum, checksum_append};
use onceflow_types::{Error, Result};
use std::ops::Deref;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// FNV-1a, 64 bits: offset basis and prime (Fowler, Noll, Vo; draft-eastlake-fnv).
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// How sled says that its lock is held; it has no error of its own for that.
const LOCK_TEXT: &str = "could not acquire lock";
/// How long an opening waits for that lock: steps of a millisecond, half a minute in all.
const LOCK_WAIT: Duration = Duration::from_millis(1);
const LOCK_WAITS_MAX: u32 = 30_000;

pub(crate) struct Sled {
    database: Handle,
    total: Total,
}

/// An open database. sled panics when it cannot write at its own drop; nothing is lost by that here, as what was not
/// closed cleanly is not trusted.
struct Handle {
    database: Option<Db>,
    /// A write has failed, and sled may wait for it for ever at its drop. Then it is never dropped: the memory and the file
    /// stay with the process. The next opening refuses the store, and the one that is made in its place has other files.
    failed: bool,
}

/// How long a flush may take before another thread asks for one, too; twice as long each time.
const FLUSH_WAIT: Duration = Duration::from_secs(1);
const FLUSH_THREADS_MAX: u32 = 10;

impl Handle {
    /// Puts everything written on disk.
    ///
    /// After a failed write in the background sled keeps the error and may not wake a flush that already waits for that
    /// write (`exit_reservation` in its logger), which then waits for ever, on a full disk for example. A flush that begins
    /// afterwards returns with the error, and wakes the others. On a disk that is only slow they all wait for the same.
    /// It does not help while another sled store of the process commits: sled has one lock for all of them.
    fn flush(&self) -> Result<()> {
        let (done, outcome) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..FLUSH_THREADS_MAX {
                let done = done.clone();
                let flush =
                    move || done.send(contain(Sled::NAME, || self.deref().flush().map(drop).map_err(failure("sync"))));
                scope.spawn(flush);
                if let Ok(outcome) = outcome.recv_timeout(FLUSH_WAIT * (1 << number)) {
                    return outcome;
                }
            }
            outcome.recv().unwrap_or_else(|_| Err(Error::corrupt("sled flush ended without an outcome")))
        })
    }
}

impl Deref for Handle {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.database.as_ref().expect("it is taken out in the drop only")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let database = self.database.take();
        if self.failed {
            std::mem::forget(database);
            return;
        }
        let _ = contain(Sled::NAME, || {
            drop(database);
            Ok(())
        });
    }
}

/// What all entries together look like, kept up to date by each write.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Total {
    entries: u64,
    digest: u64,
}

impl Total {
    fn add(&mut self, key: &[u8], sealed: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        self.digest = self.digest.wrapping_add(hash(key, sealed));
    }

    fn remove(&mut self, key: &[u8], sealed: &[u8]) {
        self.entries = self.entries.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(hash(key, sealed));
    }
}

fn hash(key: &[u8], sealed: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    // The sealed value begins with a checksum over key and value, so the border between the two needs no mark.
    key.iter().chain(sealed).fold(FNV_BASIS, step)
}

/// The stored form of a value.
fn seal(key: &[u8], value: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.put_u32(checksum_append(checksum(key), value));
    to.extend_from_slice(value);
}

fn unseal<'v>(key: &[u8], sealed: &'v [u8]) -> Result<&'v [u8]> {
    let mut from = Decoder::new(sealed);
    if from.u32()? != checksum_append(checksum(key), from.rest()) {
        return Err(Error::corrupt("sled entry has a bad checksum"));
    }
    Ok(from.rest())
}

fn failure(what: &'static str) -> impl Fn(::sled::Error) -> Error {
    move |error| engine_failure(Sled::NAME, what, error)
}

impl Sled {
    /// Opens the database. The directory is locked, so its own lock can only be held by threads of a handle in this process
    /// that was dropped: sled does not wait for them, and refuses where the store is only not closed yet.
    fn open_database(data: &Path, memory: &MemoryBudget) -> Result<Db> {
        let bytes = memory.cache_bytes.saturating_add(memory.write_buffer_bytes) as u64;
        // No thread that flushes every half second: what is not closed cleanly is not trusted anyway.
        let config = Config::new().path(data).cache_capacity(bytes).flush_every_ms(None);
        for _ in 0..LOCK_WAITS_MAX {
            match config.open() {
                Err(::sled::Error::Io(error)) if error.to_string().starts_with(LOCK_TEXT) => {
                    std::thread::park_timeout(LOCK_WAIT);
                }
                opened => return opened.map_err(failure("open")),
            }
        }
        Err(Error::fenced(format!("sled database is still open: path={}", data.display())))
    }

    /// Reads the whole store and compares it with what the last commit left.
    fn verify(database: &Db) -> Result<Total> {
        let mut seen = Total::default();
        for entry in database.range([POINT_KEY, &[0]].concat()..) {
            let (key, sealed) = entry.map_err(failure("open"))?;
            unseal(&key, &sealed)?;
            seen.add(&key, &sealed);
        }
        let stored = database.get(POINT_KEY).map_err(failure("open"))?;
        let stored = stored.ok_or_else(|| Error::corrupt("sled store lost its commit point"))?;
        let mut from = Decoder::new(unseal(POINT_KEY, &stored)?);
        let total = Total { entries: from.u64()?, digest: from.u64()? };
        if seen != total {
            return Err(Error::corrupt(format!(
                "sled store lost or changed entries: found={} committed={}",
                seen.entries, total.entries
            )));
        }
        Ok(total)
    }

    fn read(&self, key: &[u8]) -> Result<Option<IVec>> {
        contain(Self::NAME, || self.database.get(key).map_err(failure("get")))
    }
}

impl Engine for Sled {
    const NAME: &'static str = "sled";
    const CRASH_CONSISTENT: bool = false;

    fn open(data: &Path, new: bool, memory: &MemoryBudget) -> Result<Self> {
        contain(Self::NAME, || {
            let database = Handle { database: Some(Sled::open_database(data, memory)?), failed: false };
            let total = if new { Total::default() } else { Sled::verify(&database)? };
            Ok(Sled { database, total })
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let Some(sealed) = self.read(key)? else { return Ok(false) };
        let mut plain = unseal(key, &sealed)?;
        if key == POINT_KEY {
            plain = plain.get(size_of::<Total>()..).unwrap_or_default();
        }
        value.extend_from_slice(plain);
        Ok(true)
    }

    fn scan(&self, range: EngineRange, order: Order) -> Result<Box<dyn EngineCursor + '_>> {
        let entries = contain(Self::NAME, || Ok(self.database.range::<Vec<u8>, _>(range)))?;
        Ok(Box::new(SledCursor { entries, order, current: None }))
    }

    fn write(&mut self, delta: &Delta, point: &[u8]) -> Result<()> {
        let mut batch = Batch::default();
        let mut total = self.total;
        let (mut engine, mut sealed) = (Vec::new(), Vec::new());
        for (key, change) in delta {
            engine_key(key, &mut engine);
            if let Some(old) = self.read(&engine)? {
                total.remove(&engine, &old);
            }
            match change {
                Some(value) => {
                    seal(&engine, value, &mut sealed);
                    total.add(&engine, &sealed);
                    batch.insert(engine.as_slice(), sealed.as_slice());
                }
                None => batch.remove(engine.as_slice()),
            }
        }
        let mut plain = Vec::with_capacity(size_of::<Total>() + point.len());
        plain.put_u64(total.entries);
        plain.put_u64(total.digest);
        plain.extend_from_slice(point);
        seal(POINT_KEY, &plain, &mut sealed);
        batch.insert(POINT_KEY, sealed.as_slice());
        let written = contain(Self::NAME, || self.database.apply_batch(batch).map_err(failure("commit")));
        self.database.failed |= written.is_err();
        written?;
        self.total = total;
        Ok(())
    }

    fn load(&mut self, run: &Run) -> Result<()> {
        let (database, mut total, mut sealed) = (&self.database, self.total, Vec::new());
        let loaded = contain(Self::NAME, || {
            for (key, change) in run.iter() {
                let old = match change {
                    Some(value) => {
                        seal(key, value, &mut sealed);
                        total.add(key, &sealed);
                        database.insert(key, sealed.as_slice())
                    }
                    None => database.remove(key),
                };
                if let Some(old) = old.map_err(failure("load"))? {
                    total.remove(key, &old);
                }
            }
            Ok(total)
        });
        self.database.failed |= loaded.is_err();
        self.total = loaded?;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let flushed = self.database.flush();
        self.database.failed |= flushed.is_err();
        flushed
    }
}

struct SledCursor {
    entries: Iter,
    order: Order,
    current: Option<(IVec, IVec)>,
}

impl EngineCursor for SledCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.current = contain(Sled::NAME, || {
            let entry = match self.order {
                Order::Ascending => self.entries.next(),
                Order::Descending => self.entries.next_back(),
            };
            entry.transpose().map_err(failure("scan"))
        })?;
        match &self.current {
            Some((key, sealed)) => Ok(Some((key, unseal(key, sealed)?))),
            None => Ok(None),
        }
    }
}
