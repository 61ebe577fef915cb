//! Every backend here keeps the contract: with its default memory, and with buffers so small that the rules see
//! flushed and merged tables.

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
use crate::MemoryBudget;
use crate::{Backend, StoreOptions};
use std::path::Path;

fn options(backend: Backend, root: &Path) -> StoreOptions {
    StoreOptions::new(backend, root)
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn small(backend: Backend, root: &Path) -> StoreOptions {
    let mut options = options(backend, root);
    options.memory = MemoryBudget { write_buffer_bytes: MemoryBudget::BYTES_MIN, cache_bytes: MemoryBudget::BYTES_MIN };
    options
}

crate::contract_tests!(memory, |root| Box::new(options(Backend::Memory, root)));

#[cfg(feature = "fjall")]
crate::contract_tests!(fjall, |root| Box::new(options(Backend::Fjall, root)));
#[cfg(feature = "fjall")]
crate::contract_tests!(fjall_small, |root| Box::new(small(Backend::Fjall, root)));

#[cfg(feature = "rocksdb")]
crate::contract_tests!(rocksdb, |root| Box::new(options(Backend::RocksDb, root)));
#[cfg(feature = "rocksdb")]
crate::contract_tests!(rocksdb_small, |root| Box::new(small(Backend::RocksDb, root)));

#[cfg(feature = "sled")]
crate::contract_tests!(sled, |root| Box::new(options(Backend::Sled, root)));
#[cfg(feature = "sled")]
crate::contract_tests!(sled_small, |root| Box::new(small(Backend::Sled, root)));
