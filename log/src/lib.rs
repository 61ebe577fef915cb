//! Logs behind one trait.
mod batch;
mod log;
mod record;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
pub use batch::{
    MESSAGE_OVERHEAD_BYTES, Message, MessageBatch, MessageIter, PROPERTIES_BYTES_MAX, Properties, find_property,
};
pub use log::{Acked, CheckBack, End, Link, Log, OffsetRange, Prepared, Queues, ReadLimit, Ticket, TopicSpec, Verdict};
pub use record::{Body, Entry, RecordBatch, RecordRef};
#[cfg(any(test, feature = "contract"))]
pub mod contract;
#[cfg(feature = "embedded")]
pub mod embedded;
