//! The logs of Onceflow behind one trait: records come from a [`Log`], and output and decisions go to one.
//!
//! A log is partitioned and append-only; its offsets are dense, and it has RocketMQ's half messages, which stay
//! invisible until they are ended by handle. [`Log`] states the contract in numbered rules, `contract` (feature
//! `contract`) is the suite that holds any log to them. What this crate is not: a client library for RocketMQ (it speaks
//! just what the contract needs), or the place where exactly-once is decided; it moves messages and says honestly what
//! it does not know.
//!
#![cfg_attr(feature = "embedded", doc = "```")]
#![cfg_attr(not(feature = "embedded"), doc = "```ignore")]
//! use onceflow_log::embedded::{EmbeddedLog, EmbeddedOptions};
//! use onceflow_log::{Log, MessageBatch, Properties, Queues, ReadLimit, TopicSpec};
//! use onceflow_types::Offset;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> onceflow_types::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let path = directory.path();
//! let log = EmbeddedLog::open(path, EmbeddedOptions::default())?;
//! log.create_topic(&TopicSpec { topic: "payments".into(), queues: Queues::PerBroker(1) }).await?;
//! let queue = log.partitions("payments").await?.remove(0);
//!
//! let mut properties = Properties::default();
//! properties.push("KEYS", "card-7")?;
//! let mut batch = MessageBatch::default();
//! batch.push(properties.as_bytes(), b"12.50")?;
//! batch.push(properties.as_bytes(), b"99.00")?;
//! let acked = log.append(&queue, &batch).await?;
//!
//! let limit = ReadLimit { records_max: 1_000, bytes_max: 1 << 20, wait_max: Duration::from_secs(1) };
//! let records = log.read(&queue, acked.first, limit).await?;
//! let record = records.iter().last().expect("two were appended");
//! assert_eq!(record.body(), Ok(b"99.00".as_slice()));
//! assert_eq!(record.property("KEYS"), Some(b"card-7".as_slice()));
//! assert_eq!(records.next_offset(), Some(Offset::new(2)));
//! # Ok(())
//! # }
//! ```
//!
//! | module | feature | holds |
//! | --- | --- | --- |
//! | `log` | | the contract: [`Log`] and what its calls take and return |
//! | `member` | | who shares a job's work: [`MemberId`] |
//! | `batch` | | messages on their way in: [`MessageBatch`], [`Properties`] |
//! | `record` | | records on their way out: [`RecordBatch`], [`RecordRef`], [`Pieces`] |
//! | `contract` | `contract` | the suite that any log can run |
//! | `embedded` | `embedded` | the durable log of one process |
//! | `rocketmq` | `rocketmq` | Apache RocketMQ |
//! | `remoting` | `rocketmq` | what a broker sends, decoded; private |

mod batch;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod member;
mod record;
#[cfg(any(feature = "rocketmq", feature = "fuzzing"))]
mod remoting;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
#[cfg(any(feature = "embedded", feature = "rocketmq"))]
mod sync;

pub use batch::{
    MESSAGE_OVERHEAD_BYTES, Message, MessageBatch, MessageIter, PROPERTIES_BYTES_MAX, Properties, find_property,
};
pub use log::{Acked, CheckBack, End, Link, Log, OffsetRange, Prepared, Queues, ReadLimit, Ticket, TopicSpec, Verdict};
pub use member::{MEMBER_BYTES_MAX, MemberId};
pub use record::{Body, Entry, Pieces, RecordBatch, RecordRef};
