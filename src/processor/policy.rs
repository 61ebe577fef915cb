//! What happens to a record that a stage cannot work on.

use crate::topology::Delivery;
use std::fmt;
use std::sync::Arc;

/// What a stage does with a record that fails with a [`Record`](onceflow_types::ErrorKind::Record) error. Every case is
/// counted. Errors of other kinds always stop the task.
///
/// ```
/// use onceflow::{ErrorPolicy, StreamBuilder, codec::Utf8};
///
/// let builder = StreamBuilder::new("amounts")?;
/// builder
///     .source("lines", Utf8)
///     .try_map(|line| line.parse::<u64>().map_err(|e| onceflow::types::Error::record("not a number").with_source(e)))
///     .on_error(ErrorPolicy::dead_letter("lines-bad"))
///     .sink("amounts", "amounts", onceflow::codec::Json::new());
/// let topology = builder.build()?;
/// assert!(topology.describe().contains("on_error=dead-letter(lines-bad)"));
/// # Ok::<(), onceflow::types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ErrorPolicy {
    /// Stop the task with the error: nothing of the epoch happens.
    #[default]
    Fail,
    /// Leave the record out.
    Skip,
    /// Try again at once, also after errors of kind `Retry`; when all tries are used up, stop as under `Fail`. For
    /// functions that ask something outside; waiting longer is what the task does when it is opened again.
    Retry {
        /// Tries after the first.
        tries: u32,
    },
    /// Put the record's original bytes and properties into a topic, in the same epoch, with what went wrong and where
    /// (the properties `DEAD_LETTER_…`). Behind a repartition the original is the repartitioned record.
    DeadLetter {
        /// The topic.
        topic: Arc<str>,
        /// How it is delivered.
        delivery: Delivery,
    },
}

impl ErrorPolicy {
    /// Dead letters to `topic`, delivered as transactional messages.
    pub fn dead_letter(topic: impl Into<Arc<str>>) -> Self {
        ErrorPolicy::DeadLetter { topic: topic.into(), delivery: Delivery::Transactional }
    }
}

impl fmt::Display for ErrorPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorPolicy::Fail => f.write_str("fail"),
            ErrorPolicy::Skip => f.write_str("skip"),
            ErrorPolicy::Retry { tries } => write!(f, "retry({tries})"),
            ErrorPolicy::DeadLetter { topic, .. } => write!(f, "dead-letter({topic})"),
        }
    }
}
