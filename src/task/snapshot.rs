//! Snapshots: a task's whole state outside its journal, so that a journal whose beginning was deleted still gives it back.
//!
//! A log deletes messages by age (RocketMQ: `fileReservedTime`, 72 h), also those of a task that has been idle or lives
//! long. So every task writes its state now and then ([`Config::snapshot_time`](crate::Config::snapshot_time)) to the
//! topic `<job>-snapshot`, one queue a broker: first the chunks, then, when all of them are acknowledged, a Snapshot
//! record in its journal that names them. A copy without its record is nothing: whatever cuts the writing leaves
//! chunks that nobody looks for.
//!
//! It is written between two epochs when everything is published and proven, so it has no handles and no outbox: its
//! [`CommitPoint`] has nothing unpublished, and the fold takes that from the record: a store that is kept need not find
//! the output of its last epoch in a journal that no longer holds it. The store is read in one go. **Pause:** the task processes nothing
//! meanwhile, for about as long as the log takes to store the state once.
//!
//! # Format
//! The point with its Claim, and the entries of the store, make a sequence of *units*; a unit is cut into *pieces* of at
//! most 1 MiB, each of which is the content of one chunk:
//!
//! ```text
//! unit 0      point   bytes   the encoded CommitPoint
//!             claim   bytes   the Claim record of the point's generation, as in the journal; empty: not known
//! unit 1...   the encoding of a Delta that only puts: entries of the store in order of their keys, about 1 MiB, or
//!             one entry when that is larger; no unit when the store is empty
//! ```
//!
//! A chunk is the body of one message:
//!
//! ```text
//! offset
//! 0           magic        4      "OFSN"
//! 4           version      u8     1
//! 5           subtopology  text   the task
//!             broker       text
//!             queue        count
//!             snapshot     u128   drawn at random for each snapshot
//!             number       count  0, 1, 2, ... within the snapshot
//!             more         u8     1: its unit goes on in the next chunk, 0: it ends here
//!             piece        bytes
//! last 4      checksum     u32    CRC32C of everything before it
//! ```
//!
//! Numbers as in [`onceflow_types::wire`]. The Snapshot record holds the offset of chunk 0, the number of chunks and the
//! CRC32C of all chunks joined, each without its own checksum. Tasks of one broker share a queue, so chunks of other snapshots lie between; and a
//! resent chunk may lie there twice. Both are passed over by snapshot id and number.
//!
//! # Use
//! An opening whose journal begins behind what the local store covers needs one ([`Restoring::restore`]). One whose store is
//! empty takes the newest even when the journal is whole, as then the epochs before it need not be read
//! ([`Restoring::shorten`]). A snapshot is usable iff
//!
//! - its `through` reaches the journal's first readable record, and lies before the Snapshot record itself;
//! - it is of the journal's life, see [`find`];
//! - no other record lies where it says its Commit was;
//! - all its chunks are there and whole. Where there is local state, they are read once to see that before it is touched.
//!
//! A local store at the same Commit is kept. Otherwise the old store is destroyed, the entries are loaded while more chunks
//! are read ahead, and the first commit makes them valid, point included. An opening that is cut before finds a store
//! without a point, which starts from nothing (store contract, rule 12).
//!
//! | module | holds |
//! | --- | --- |
//! | `chunk` | a chunk and the header, byte by byte |
//! | `write` | when and how a snapshot is written |
//! | `find` | which snapshots of a journal can be used |
//! | `read` | the units of a snapshot, checked |
//! | `restore` | a store from a snapshot |

mod chunk;
mod find;
mod read;
mod restore;
mod write;

#[cfg(feature = "fuzzing")]
pub use chunk::{chunk_again, header_again};
pub(super) use restore::{Restored, Restoring, is_needed};
pub(super) use write::first_due;

#[cfg(doc)]
use onceflow_types::CommitPoint;
