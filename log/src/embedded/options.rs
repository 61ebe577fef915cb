//! Settings of the embedded log.

use onceflow_types::{Clock, Error, Result, SystemClock, check_topic};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a batch may be at most, encoded, in bytes: RocketMQ's `maxMessageSize`.
pub const BATCH_BYTES_MAX: usize = 4 << 20;
/// What is kept free below [`BATCH_BYTES_MAX`] for what the log itself adds to a message.
const RESERVE_BYTES: usize = 64 << 10;
/// fjall preallocates journals of this size and accepts no smaller bound.
const JOURNAL_BYTES_MIN: u64 = 64 << 20;
/// fjall accepts no smaller bound on all write buffers together.
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;

/// When an acknowledgement is given.
///
/// In both cases everything that was written before a durable write is durable with it: the log has one journal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Sync {
    /// After `fdatasync`: survives power loss. Appends that wait at the same time share one, and nothing can be read
    /// before it is durable.
    #[default]
    EachAppend,
    /// After the write to the operating system: survives the death of the process, not that of the machine. After
    /// power loss the log may also be found damaged, and then does not open.
    Never,
}

/// Settings of an [`EmbeddedLog`](super::EmbeddedLog). The defaults are those of a RocketMQ broker, where it has them.
///
/// ```
/// use onceflow_log::embedded::{EmbeddedOptions, Sync};
///
/// let options = EmbeddedOptions { sync: Sync::Never, retention_bytes: Some(1 << 30), ..EmbeddedOptions::default() };
/// assert_eq!(options.message_bytes_max, (4 << 20) - (64 << 10));
/// ```
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The producer group of the handle that `open` returns.
    pub group: Arc<str>,
    /// The broker's name in partitions. A log keeps the one it was made with.
    pub broker: Arc<str>,
    /// When an acknowledgement is given.
    pub sync: Sync,
    /// What one message may be at most, body and properties together, in bytes.
    pub message_bytes_max: usize,
    /// How many bytes of a partition are kept at least, where there are more; whole old batches are dropped above it.
    /// `None`: all.
    pub retention_bytes: Option<u64>,
    /// How long a half message can be ended after it was prepared, by the clock (RocketMQ: `fileReservedTime`, 72 h).
    pub half_retention: Duration,
    /// How long a half may stay unended before the first check-back (RocketMQ: `transactionTimeOut`, 6 s).
    pub check_after: Duration,
    /// From one check-back to the next (RocketMQ: `transactionCheckInterval`, 30 s).
    pub check_interval: Duration,
    /// How many check-backs there are before the half is given up (RocketMQ: `transactionCheckMax`, 15).
    pub checks_max: u32,
    /// Bytes gathered in memory before they are written to a table; up to three times as much is held while tables are
    /// written.
    pub write_buffer_bytes: u64,
    /// Bytes of the cache of blocks read.
    pub cache_bytes: u64,
    /// Bytes of journals on disk before tables must be written; at least 64 MiB. They are read at open.
    pub journal_bytes_max: u64,
    /// Where the times of records come from.
    pub clock: Arc<dyn Clock>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            group: "onceflow".into(),
            broker: "local".into(),
            sync: Sync::EachAppend,
            message_bytes_max: BATCH_BYTES_MAX - RESERVE_BYTES,
            retention_bytes: None,
            half_retention: Duration::from_hours(72),
            check_after: Duration::from_secs(6),
            check_interval: Duration::from_secs(30),
            checks_max: 15,
            write_buffer_bytes: 8 << 20,
            cache_bytes: 8 << 20,
            journal_bytes_max: 128 << 20,
            clock: Arc::new(SystemClock),
        }
    }
}

impl EmbeddedOptions {
    pub(super) fn check(&self) -> Result<()> {
        check_name("producer group", &self.group)?;
        check_name("broker", &self.broker)?;
        let bounds = [
            ("message_bytes_max is too large", self.message_bytes_max as u64, 0, BATCH_BYTES_MAX - RESERVE_BYTES),
            ("journal_bytes_max is too small", self.journal_bytes_max, JOURNAL_BYTES_MIN, usize::MAX),
            ("write_buffer_bytes is too small", self.write_buffer_bytes, WRITE_BUFFER_BYTES_MIN, usize::MAX),
        ];
        for (what, given, least, most) in bounds {
            if given < least || given > most as u64 {
                return Err(Error::invalid(format!("{what}: given={given} least={least} most={most}")));
            }
        }
        Ok(())
    }
}

/// Checks the name of a group or broker by RocketMQ's rule for names.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    check_topic(name).map_err(|error| error.context(what))
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("group", &self.group)
            .field("broker", &self.broker)
            .field("sync", &self.sync)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("retention_bytes", &self.retention_bytes)
            .finish_non_exhaustive()
    }
}
