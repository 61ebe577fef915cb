//! State stores behind one trait.
mod contain;
mod delta;
mod directory;
mod disk;
mod factory;
mod files;
mod format;
mod memory;
mod overlay;
mod range;
mod rules;
mod store;

#[cfg(any(test, feature = "contract"))]
pub mod contract;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;

pub use delta::{Changes, DELTA_VERSION, Delta, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use directory::{HeldTask, held_tasks, task_directory};
pub use factory::{Backend, MemoryBudget, StoreFactory, StoreOptions, open};
pub use memory::{MemoryStore, MemoryStores};
pub use overlay::Overlay;
pub use range::KeyRange;
pub use rules::{check_load, check_next_point};
pub use store::{Cursor, Order, ReadStore, StateStore};
