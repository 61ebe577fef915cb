//! Opening stores: the trait for backends of your own, and the choice among ours at run time.

use crate::directory::Directory;
use crate::format::Format;
use crate::{MemoryStores, StateStore};
use onceflow_types::{Error, Name, Result, TaskId};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Opens the stores of tasks. Implemented by [`StoreOptions`] for the backends here, and by backends of your own, which
/// pass the suite in `contract` (feature `contract`).
pub trait StoreFactory: Send + Sync {
    /// Opens the store of a task, or creates it. One handle at a time (rule 8).
    ///
    /// # Errors
    /// `Fenced` when it is open elsewhere; `Corrupt` when it is damaged, or was not closed cleanly and is not
    /// crash-consistent: [`destroy`](Self::destroy) it, open it again and rebuild it from the journal; `Invalid` when
    /// the place belongs to something else or cannot be used.
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>>;

    /// Removes the state of a task, damaged or not, so that the next opening starts empty. Nothing to do when there is
    /// none.
    ///
    /// # Errors
    /// `Fenced` when it is open; `Invalid`, and nothing changed, when the place belongs to something else.
    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()>;

    /// The backend's name, for messages and metrics.
    fn backend(&self) -> &'static str;

    /// The place on this machine that an open store holds a lock on, as text that names it for good; `None` when stores
    /// are not locked. A new owner with the same place knows that the old one is dead, as the lock is free.
    fn locked_place(&self) -> Option<String> {
        None
    }
}

/// The backends to choose from. All can always be named; opening one that was not compiled in is an `Invalid` error
/// that says which feature it needs.
///
/// ```
/// use onceflow_storage::Backend;
///
/// let backend: Backend = "rocksdb".parse()?;
/// assert_eq!(backend, Backend::RocksDb);
/// assert_eq!(backend.to_string(), "rocksdb");
/// assert!("postgres".parse::<Backend>().is_err());
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// A map in memory; rebuilt from the journal when the process starts.
    Memory,
    /// fjall: pure Rust, on disk. The default.
    Fjall,
    /// RocksDB: C++, on disk. For state much larger than memory.
    RocksDb,
    /// sled: pure Rust, on disk, rebuilt after an unclean stop.
    Sled,
}

impl Backend {
    /// All backends, compiled in or not.
    pub const ALL: [Backend; 4] = [Backend::Memory, Backend::Fjall, Backend::RocksDb, Backend::Sled];

    /// The backend's word in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Backend::Memory => "memory",
            Backend::Fjall => "fjall",
            Backend::RocksDb => "rocksdb",
            Backend::Sled => "sled",
        }
    }

    /// Whether this program was compiled with the backend.
    pub const fn is_available(self) -> bool {
        match self {
            Backend::Memory => true,
            Backend::Fjall => cfg!(feature = "fjall"),
            Backend::RocksDb => cfg!(feature = "rocksdb"),
            Backend::Sled => cfg!(feature = "sled"),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(word: &str) -> Result<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.as_str() == word).ok_or_else(|| {
            Error::invalid(format!("unknown state backend, use memory, fjall, rocksdb or sled: given={word:?}"))
        })
    }
}

/// How much memory the store of one task may use, in bytes. What else a backend needs is said in its module.
///
/// The defaults suit a worker with four tasks. A fjall store takes at most three write buffers and its cache, a RocksDB
/// store two: 4 x (3 x 4 MiB + 4 MiB) = 64 MiB when all of them write faster than the disk, and less otherwise. An epoch
/// that is larger than a write buffer takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryBudget {
    /// One write buffer (memtable): changes collect in it before they are written as a sorted table. A fjall store
    /// keeps the size that it was created with.
    pub write_buffer_bytes: usize,
    /// The cache of blocks read from disk.
    pub cache_bytes: usize,
}

impl MemoryBudget {
    /// The smallest write buffer (RocksDB's own limit), and the smallest cache.
    pub const BYTES_MIN: usize = 64 << 10;
    /// The largest of each.
    pub const BYTES_MAX: usize = 4 << 30;

    fn check(&self) -> Result<()> {
        for (what, bytes) in [("write buffer", self.write_buffer_bytes), ("block cache", self.cache_bytes)] {
            if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes) {
                return Err(Error::invalid(format!(
                    "{what} is out of range: bytes={bytes} min={} max={}",
                    Self::BYTES_MIN,
                    Self::BYTES_MAX
                )));
            }
        }
        Ok(())
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        MemoryBudget { write_buffer_bytes: 4 << 20, cache_bytes: 4 << 20 }
    }
}

/// Which backend, where, and with how much memory.
///
/// ```
/// use onceflow_storage::{Backend, StoreFactory, StoreOptions};
/// use onceflow_types::{Name, TaskId};
///
/// let options = StoreOptions::new(Backend::Memory, "state");
/// let task = TaskId { subtopology: Name::new("sums")?, broker: "broker-a".into(), queue: 0 };
/// let store = options.open(&Name::job("payments")?, &task)?;
/// assert_eq!(store.backend(), "memory");
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The backend.
    pub backend: Backend,
    /// The root of the state directories; created when it is missing. Unused by [`Backend::Memory`].
    pub directory: PathBuf,
    /// The memory of each store.
    pub memory: MemoryBudget,
    /// The stores of [`Backend::Memory`]; shared by clones.
    stores: MemoryStores,
}

impl StoreOptions {
    /// Options with the default memory.
    pub fn new(backend: Backend, directory: impl Into<PathBuf>) -> Self {
        StoreOptions {
            backend,
            directory: directory.into(),
            memory: MemoryBudget::default(),
            stores: MemoryStores::default(),
        }
    }
}

/// Opens the store of a task; the same as [`StoreFactory::open`] on the options.
///
/// # Errors
/// Those of [`StoreFactory::open`].
pub fn open(options: &StoreOptions, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
    options.open(job, task)
}

impl StoreFactory for StoreOptions {
    fn open(&self, job: &Name, task: &TaskId) -> Result<Box<dyn StateStore>> {
        self.memory.check()?;
        match self.backend {
            Backend::Memory => self.stores.open(job, task),
            Backend::Fjall => open_fjall(&self.directory, job, task, &self.memory),
            Backend::RocksDb => open_rocksdb(&self.directory, job, task, &self.memory),
            Backend::Sled => open_sled(&self.directory, job, task, &self.memory),
        }
    }

    fn destroy(&self, job: &Name, task: &TaskId) -> Result<()> {
        match self.backend {
            Backend::Memory => self.stores.destroy(job, task),
            disk => Directory::destroy(&self.directory, &Format::new(disk.as_str(), job, task)),
        }
    }

    fn backend(&self) -> &'static str {
        self.backend.as_str()
    }

    fn locked_place(&self) -> Option<String> {
        // Before the first store is open there may be no directory yet; then there was no earlier owner either.
        let on_disk = self.backend != Backend::Memory;
        let place = self.directory.canonicalize().or_else(|_| std::path::absolute(&self.directory));
        on_disk.then_some(place.ok()?.to_string_lossy().into_owned())
    }
}

/// One function for each disk backend, whether it is compiled in or not.
macro_rules! disk_backend {
    ($function:ident, $feature:literal, $engine:path) => {
        #[cfg(feature = $feature)]
        fn $function(root: &Path, job: &Name, task: &TaskId, memory: &MemoryBudget) -> Result<Box<dyn StateStore>> {
            Ok(Box::new(crate::disk::DiskStore::<$engine>::open(root, job, task, memory)?))
        }

        #[cfg(not(feature = $feature))]
        fn $function(_: &Path, _: &Name, _: &TaskId, _: &MemoryBudget) -> Result<Box<dyn StateStore>> {
            Err(Error::invalid(concat!(
                "state backend is not compiled in, enable the cargo feature: feature=",
                $feature
            )))
        }
    };
}

disk_backend!(open_fjall, "fjall", crate::fjall::Fjall);
disk_backend!(open_rocksdb, "rocksdb", crate::rocksdb::RocksDb);
disk_backend!(open_sled, "sled", crate::sled::Sled);

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    #[test]
    fn words_and_backends_correspond() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse::<Backend>().unwrap(), backend);
        }
        assert_eq!("Fjall".parse::<Backend>().unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_backend_that_is_not_compiled_in_names_its_feature() {
        let job = Name::job("j").unwrap();
        let task = TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue: 0 };
        for backend in Backend::ALL.into_iter().filter(|backend| !backend.is_available()) {
            let error = StoreOptions::new(backend, "nowhere").open(&job, &task).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().ends_with(&format!("feature={backend}")), "{error}");
            assert!(!Path::new("nowhere").exists());
        }
    }

    #[test]
    fn a_budget_out_of_range_is_refused() {
        let mut options = StoreOptions::new(Backend::Memory, "nowhere");
        options.memory.cache_bytes = 0;
        let job = Name::job("j").unwrap();
        let task = TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue: 0 };
        assert_eq!(options.open(&job, &task).err().unwrap().kind(), ErrorKind::Invalid);
    }
}
