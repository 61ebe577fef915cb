//! An exactly-once stream processor for Apache RocketMQ.
//!
//! A program describes a [topology](topology): sources, operators, sinks. The [`Runtime`] cuts the work of each task into
//! epochs and commits, for each epoch, the source offsets, the state changes and the output as one unit. A crash, a pause,
//! a move to another machine or a repeated message never makes an effect appear twice or get lost.
//!
//! A guide in `docs/guide` goes through each part, with code that runs.
//!
//! What it is not: a cluster manager, a database, or a way to make effects outside the log exact.
//!
//! ```
//! # #[cfg(all(feature = "embedded", feature = "fjall"))]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use onceflow::codec::Utf8;
//! use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
//! use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
//! use onceflow::storage::{Backend, StoreOptions};
//! use onceflow::{Runtime, StartPolicy, StreamBuilder, TopicReader, types::Name};
//! use std::{sync::Arc, time::Duration};
//!
//! let builder = StreamBuilder::new("shout")?;
//! builder.source("words", Utf8).start(StartPolicy::Earliest).map(|word| word.to_uppercase()).sink("out", "shouts", Utf8);
//! let topology = builder.build()?;
//!
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.join("log"), EmbeddedOptions::default())?);
//! for topic in ["words", "shouts"] {
//!     log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await?;
//! }
//! let mut words = MessageBatch::default();
//! words.push(&[], b"hello")?;
//! log.append(&log.partitions("words").await?[0], &words).await?;
//!
//! let stores = Arc::new(StoreOptions::new(Backend::Fjall, directory.join("state")));
//! let mut job = Runtime::builder(topology, log.clone(), stores).start().await?;
//! assert!(job.wait_caught_up(Duration::from_secs(30)).await?);
//! job.drain().await?;
//!
//! let output = TopicReader::open(log, "shouts", Name::job("shout")?).await?.read_to_end().await?;
//! assert_eq!(output[0].body, "HELLO");
//! # Ok::<(), onceflow::types::Error>(())
//! # })?;
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "embedded", feature = "fjall")))]
//! # fn main() {}
//! ```
//!
//! Data moves one way; each module is a room in that corridor (`docs/architecture.md` walks through it):
//!
//! | module | holds |
//! | --- | --- |
//! | [`topology`] | the language: [`StreamBuilder`], [`Stream`], [`KeyedStream`], and the compiled [`Topology`] |
//! | [`codec`] | bytes to values and back |
//! | [`stage`], [`record`] | what the task loop drives, and what flows through it |
//! | [`time`], [`window`] | how far event time has come; how it is cut, and when windows fire |
//! | [`process`] | programs of your own per key, with state and timers |
//! | [`state`] | named tables with a typed cache over a store |
//! | [`output`] | the messages of an open epoch |
//! | `task`, `runtime` | the epoch loop, opening and publishing; worker threads: [`Runtime`], [`Config`], [`TaskStatus`] |
//! | [`testing`] | runs a topology without log or threads |
//! | [`topics`] | the names of the topics and groups that a job makes |
//! | [`log`], [`storage`], [`txn`], [`types`] | the crates below: logs, stores, the protocol, the vocabulary |

#[cfg(all(doctest, feature = "embedded", feature = "fjall"))]
#[doc = include_str!("../README.md")]
struct ReadmeProgram;

mod accumulator;
mod backlog;
pub mod codec;
mod config;
mod dimension;
mod edge;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(doctest, feature = "embedded", feature = "fjall"))]
mod guide;
mod job;
mod membership;
pub mod output;
#[cfg(not(feature = "planted"))]
#[expect(unreachable_pub, reason = "public where it can be used: with the feature")]
mod planted;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod planted;
pub mod process;
mod processor;
mod query;
pub mod record;
mod runtime;
mod signal;
pub mod stage;
pub mod state;
mod status;
mod sync;
mod task;
pub mod testing;
pub mod time;
mod topic_reader;
pub mod topics;
pub mod topology;
pub mod window;

pub use accumulator::Accumulator;
pub use config::{Config, SourceLoss};
pub use dimension::{Dimension, DimensionStatus};
pub use edge::{Entropy, SystemEntropy};
pub use onceflow_log as log;
pub use onceflow_storage as storage;
pub use onceflow_txn as txn;
pub use onceflow_types as types;
pub use processor::{
    DEAD_LETTER_BROKER, DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, DEAD_LETTER_QUEUE, DEAD_LETTER_STAGE, DEAD_LETTER_TOPIC,
    DEAD_LETTER_TRUNCATED, DEAD_LETTER_UNIQUE_KEY, Emit, ErrorPolicy, JoinWindow, Number,
};
pub use query::Query;
pub use runtime::{Runtime, RuntimeBuilder};
pub use status::{MembershipStatus, ProtocolCounters, RestoreProgress, SnapshotProgress, Standing, TaskStatus};
pub use topic_reader::{OutputRecord, TopicCounts, TopicReader, identity_of};
pub use topology::{Delivery, KeyedStream, StartPolicy, Stream, StreamBuilder, Topology};
pub use window::{Trigger, Windowed, Windows};
