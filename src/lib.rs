//! onceflow

pub mod codec;
mod config;
mod edge;
mod job;
pub mod output;
mod processor;
pub mod record;
mod runtime;
pub mod stage;
pub mod state;
mod status;
mod task;
pub mod testing;
mod topic_reader;
pub mod topics;
pub mod topology;

pub use config::{Config, SourceLoss};
pub use edge::{Entropy, SystemEntropy};
pub use onceflow_log as log;
pub use onceflow_storage as storage;
pub use onceflow_txn as txn;
pub use onceflow_types as types;
pub use processor::{
    DEAD_LETTER_BROKER, DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, DEAD_LETTER_QUEUE, DEAD_LETTER_STAGE, DEAD_LETTER_TOPIC,
    DEAD_LETTER_TRUNCATED, DEAD_LETTER_UNIQUE_KEY, Emit, ErrorPolicy, Number,
};
pub use runtime::{Runtime, RuntimeBuilder};
pub use status::{ProtocolCounters, RestoreProgress, Standing, TaskStatus};
pub use topic_reader::{OutputRecord, TopicCounts, TopicReader};
pub use topology::{Delivery, KeyedStream, StartPolicy, Stream, StreamBuilder, Topology};
