//! State stores behind one trait: what a task of Onceflow keeps between records.
//!
//! A store holds the **committed** state of one task: one ordered space of byte keys, and the
//! [`CommitPoint`](onceflow_types::CommitPoint) that says which prefix of the task's journal it stands for. It changes
//! by one call only, [`commit`](StateStore::commit), which writes the changes of an epoch and the point as one unit. An
//! [`Overlay`] holds what is not committed, so that an abort is forgetting it.
//!
//! What it is not: the truth. That is the journal; a store is a cache of it, which is rebuilt when it is lost, damaged
//! or not to be trusted. So a commit need not survive loss of power, and there are no transactions, no versions and no
//! rollback here. Nor does this crate know records, brokers or operators.
//!
//! ```
//! use onceflow_storage::{Backend, KeyRange, Order, Overlay, ReadStore, StoreFactory, StoreOptions};
//! # use onceflow_types::*;
//! # fn point_of_epoch(epoch: u64) -> CommitPoint {
//! #     CommitPoint {
//! #         incarnation: Incarnation::new(7), generation: Generation::new(0), nonce: Nonce::new(7),
//! #         epoch: Epoch::new(epoch), offsets: Offsets::default(), watermarks: Default::default(),
//! #         clock: Timestamp::from_millis(0), channels: Default::default(), tails: Offsets::default(),
//! #         published_through: Epoch::ZERO, commit_offset: Offset::new(1), commit_checksum: 0,
//! #         unpublished: vec![], journal_next: Offset::new(2),
//! #     }
//! # }
//! use onceflow_types::{Name, Result, TaskId};
//!
//! fn main() -> Result<()> {
//!     let options = StoreOptions::new(Backend::Memory, "/var/lib/onceflow");
//!     let task = TaskId { subtopology: Name::new("sums")?, broker: "broker-a".into(), queue: 0 };
//!     let mut state = Overlay::new(options.open(&Name::job("payments")?, &task)?);
//!
//!     // An epoch: read and write, then commit. The point comes from the journal's Commit record.
//!     state.put(b"card-7", b"100");
//!     state.put(b"card-8", b"30");
//!     state.commit(&point_of_epoch(1))?;
//!
//!     // Another one, which is aborted.
//!     state.delete(b"card-7");
//!     state.discard();
//!
//!     let mut cursor = state.scan(KeyRange::prefix(b"card-"), Order::Ascending)?;
//!     while let Some((key, value)) = cursor.next()? {
//!         println!("{} = {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Choosing a backend
//!
//! | backend | feature | choose it for | after kill -9 | after loss of power | detects damage by |
//! | --- | --- | --- | --- | --- | --- |
//! | `memory` | - | tests; state that the journal rebuilds quickly | rebuilt | rebuilt | - |
//! | `fjall` | `fjall` | the default: pure Rust, small memory, quick build | opens | opens at an earlier commit, or is rebuilt | block checksums, last commit of a clean close |
//! | `rocksdb` | `rocksdb` | state much larger than memory; C++, ten minutes to build | opens | opens at an earlier commit, or is rebuilt | block checksums, last commit of a clean close |
//! | `sled` | `sled` | those who run it already; slow to open | rebuilt | rebuilt | own checksum of each entry, digest of all at open |
//!
//! "Rebuilt" is an error of kind `Corrupt` at open; the caller answers it with [`StoreFactory::destroy`], opens again,
//! and replays the journal or its snapshot. A full disk costs a store on fjall or RocksDB nothing: it is `Invalid`.
//! One on sled is rebuilt, as it could not be closed. All backends keep the numbered contract at [`StateStore`]; the suite that
//! holds them to it is published as `contract` (feature `contract`) for backends of your own.
//!
//! # Modules
//!
//! | module | holds |
//! | --- | --- |
//! | `store` | [`StateStore`] and its contract, [`ReadStore`], [`Cursor`], [`Order`] |
//! | `range` | [`KeyRange`] |
//! | `delta` | [`Delta`], the changes of an epoch, and their encoding |
//! | `overlay` | [`Overlay`], uncommitted changes over a store |
//! | `factory` | [`StoreFactory`], [`StoreOptions`], [`Backend`], [`MemoryBudget`] |
//! | `memory` | [`MemoryStore`], the reference backend |
//! | `disk` | what the disk backends share: keys, point, poisoning, clean close |
//! | `fjall`, `rocksdb`, `sled` | the engines; each says how it treats crashes, damage and memory |
//! | `directory`, `format`, `files` | the directory of a task: [`task_directory`], [`held_tasks`]; lock, owner, status |
//! | `rules`, `contain` | checks that backends share; a barrier for engines that panic |
//! | `contract` | the contract suite |

#[cfg(any(feature = "fjall", feature = "sled", test))]
mod contain;
mod delta;
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "sled")),
    allow(dead_code, reason = "without a disk backend directories are listed and removed, but not opened")
)]
mod directory;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled", test))]
mod disk;
mod factory;
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "sled")),
    allow(dead_code, reason = "without a disk backend directories are listed and removed, but not opened")
)]
mod files;
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "sled")),
    allow(dead_code, reason = "without a disk backend directories are listed and removed, but not opened")
)]
mod format;
mod memory;
mod overlay;
mod range;
mod rules;
#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled", test))]
mod run;
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
pub use rules::{check_commit, check_load};
pub use store::{Cursor, Order, ReadStore, StateStore};
