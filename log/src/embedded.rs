//! The embedded log: a durable [`Log`](crate::Log) in one process, on fjall, without a broker.
//!
//! It behaves as RocketMQ does where that matters to exactly-once: offsets are dense, halves are ended by handle as
//! often as one likes, check-backs come and stop at a limit, a producer group owns its halves. It is the default for a
//! first run, for tests and for work on one machine. What it is not: replicated, or open to two processes at once.
//!
//! # Durability
//! With [`Sync::EachAppend`] an acknowledgement comes after `fdatasync`, and calls that wait at the same time share one.
//! With [`Sync::Never`] it comes after the write to the operating system: a killed process loses nothing, a machine
//! without power may. After a failed write or sync the log refuses to write (`Invalid`) until it is opened again; the
//! outcome of the call that failed is unknown (`Retry`).
//!
//! # Damage
//! Every stored value carries a CRC32C over itself and its key, checked when it is read: damage is `DataLoss`, never
//! a hole and never other data. After a clean close the log must end where it was closed, else it is `DataLoss`, too. After
//! a crash the newest writes may be torn; nobody had an acknowledgement for them when each append is synced, and they are
//! cut off, with a warning. Damage to exactly that part (the newest journal) after a crash cannot be told from a torn
//! write: the log is then shorter. An owner that has seen an acknowledgement notices, because the same offset is given again.
//!
//! ```
//! use onceflow_log::embedded::{EmbeddedLog, EmbeddedOptions};
//! use onceflow_log::{End, Log, MessageBatch, Queues, ReadLimit, TopicSpec};
//! use onceflow_types::Offset;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> onceflow_types::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let path = directory.path();
//! let log = EmbeddedLog::open(path, EmbeddedOptions::default())?;
//! log.create_topic(&TopicSpec { topic: "payments".into(), queues: Queues::PerBroker(4) }).await?;
//! let queues = log.partitions("payments").await?;
//!
//! let mut batch = MessageBatch::default();
//! batch.push(b"", b"visible at once")?;
//! log.append(&queues[0], &batch).await?;
//!
//! batch.clear();
//! batch.push(b"", b"visible when it is committed")?;
//! let half = log.prepare(&queues[0], &batch).await?;
//! log.end(&half.handle, End::Commit).await?;
//!
//! let limit = ReadLimit { records_max: 100, bytes_max: 1 << 20, wait_max: Duration::ZERO };
//! let records = log.read(&queues[0], Offset::ZERO, limit).await?;
//! assert_eq!(records.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | [`EmbeddedOptions`], [`Sync`] |
//! | `directory` | lock and format of the directory |
//! | `closing`, `journal` | what a clean close leaves, and what is mended after a stop that was none |
//! | `store` | the database: keyspaces, queues, reports |
//! | `version` | checks what fjall believes without looking |
//! | `sealed`, `chunk`, `half` | what is stored, byte by byte |
//! | `queues` | what readers see of a queue |
//! | `writer`, `writer::halves` | every change, in one order |
//! | `committer` | group commit |
//! | `read` | reading and searching by time |
//! | `checks` | whose half is asked about next |

mod checks;
mod chunk;
mod closing;
mod committer;
mod directory;
mod fault;
mod half;
mod journal;
mod log;
mod options;
mod queues;
mod read;
mod sealed;
mod store;
mod version;
mod writer;

#[cfg(test)]
mod tests;

pub use self::log::EmbeddedLog;
pub use options::{BATCH_BYTES_MAX, EmbeddedOptions, Sync};
