//! Every backend here keeps the contract: with its default memory, and with buffers so small that the rules see
//! flushed and merged tables.

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
use crate::MemoryBudget;
use crate::{Backend, StoreOptions};
use std::path::Path;

fn options(backend: Backend, root: &Path) -> Box<StoreOptions> {
    Box::new(StoreOptions::new(backend, root))
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
fn small(backend: Backend, root: &Path) -> Box<StoreOptions> {
    let mut options = options(backend, root);
    options.memory = MemoryBudget { write_buffer_bytes: MemoryBudget::BYTES_MIN, cache_bytes: MemoryBudget::BYTES_MIN };
    options
}

crate::contract_tests!(memory, |root| options(Backend::Memory, root));

#[cfg(feature = "fjall")]
crate::contract_tests!(fjall, |root| options(Backend::Fjall, root));
#[cfg(feature = "fjall")]
crate::contract_tests!(fjall_small, |root| small(Backend::Fjall, root));

#[cfg(feature = "rocksdb")]
crate::contract_tests!(rocksdb, |root| options(Backend::RocksDb, root));
#[cfg(feature = "rocksdb")]
crate::contract_tests!(rocksdb_small, |root| small(Backend::RocksDb, root));

#[cfg(feature = "sled")]
crate::contract_tests!(sled, |root| options(Backend::Sled, root));
#[cfg(feature = "sled")]
crate::contract_tests!(sled_small, |root| small(Backend::Sled, root));
