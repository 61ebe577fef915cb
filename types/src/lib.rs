//! The vocabulary of Onceflow: epochs, generations, offsets, partitions, time, errors, and the commit point.
//!
//! This crate is the bottom of the workspace. It knows no store, no broker and no protocol; it has no I/O besides
//! [`SystemClock`]. What it is not: a place for helpers. A type belongs here when two sibling crates must agree on it.
//!
//! ```
//! use onceflow_types::{Epoch, Offset, Offsets, Partition};
//!
//! let queue = Partition::new("payments", "broker-a", 3);
//! let committed: Offsets = [(queue.clone(), Offset::new(60))].into_iter().collect();
//! assert!(committed.covers(&queue, Offset::new(59)));
//! assert_eq!(Epoch::ZERO.next(), Epoch::new(1));
//! assert_eq!(queue.to_string(), "payments@broker-a:3");
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `number` | [`Epoch`], [`Generation`], [`Offset`], [`Sequence`], [`Nonce`], [`Incarnation`] |
//! | `name` | [`Name`], topic rules |
//! | `partition` | [`Partition`], [`TaskId`], [`Channel`], [`Offsets`] |
//! | `time` | [`Timestamp`], [`Clock`], [`SystemClock`], [`ManualClock`] |
//! | `half` | [`HalfHandle`] |
//! | `commit_point` | [`CommitPoint`] and the encoding of its lists |
//! | [`wire`] | the alphabet of all formats |
//! | `error` | [`Error`], [`ErrorKind`] |

mod commit_point;
mod error;
mod half;
mod name;
mod number;
mod partition;
mod time;
pub mod wire;

pub use commit_point::{
    BROKER_BYTES_MAX, COMMIT_POINT_VERSION, CommitPoint, Unpublished, decode_channels, decode_offsets,
    decode_partition, decode_watermarks, encode_channels, encode_offsets, encode_partition, encode_watermarks,
};
pub use error::{Error, ErrorKind, Result};
pub use half::{HalfHandle, UNIQUE_KEY_BYTES_MAX};
pub use name::{JOB_ID_BYTES_MAX, NAME_BYTES_MAX, Name, TOPIC_BYTES_MAX, check_topic};
pub use number::{Epoch, Generation, Incarnation, Nonce, Offset, Sequence};
pub use partition::{Channel, Offsets, Partition, TaskId};
pub use time::{Clock, ManualClock, SystemClock, Timestamp};
