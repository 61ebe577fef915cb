//! Every bound and time-out of the engine, with its unit and default.

use onceflow_types::{Error, Result};
use std::time::Duration;

/// What a task does when a source queue ends before the committed offset: the log lost messages that were processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum SourceLoss {
    /// Stop the job with an error of kind `DataLoss` that names both offsets.
    #[default]
    Stop,
    /// Go on at the queue's present end; the loss is logged and counted. What is written there later is processed.
    ResumeAtEnd,
}

/// Settings of a [`Runtime`](crate::Runtime). The defaults suit a payment pipeline on one machine; each field says what
/// it bounds.
///
/// ```
/// use onceflow::Config;
/// use std::time::Duration;
///
/// let config = Config { epoch_time: Duration::from_millis(50), ..Config::default() };
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Worker threads; 0: one for each core.
    pub threads: usize,
    /// How long a record may take through the job, from being read to its output being acknowledged, 99 times in 100
    /// \[none\]. With it an epoch lasts as long as the target leaves room for, and at most `epoch_time`: the measured times
    /// of sealing, committing and publishing are taken off, and so many tasks as a record passes one behind the other
    /// share the target. Epochs stay as long as they can, for throughput. What the target cannot do is make up for commits
    /// that take longer than it: then epochs last 5 ms. While a task would process what its sources have behind it for
    /// longer than its share of the target, the target is given up for throughput: epochs last `epoch_time`.
    pub latency_target: Option<Duration>,
    /// An epoch is sealed this long after its first record \[200 ms\]. Must be below half of the broker's
    /// `transactionTimeOut` (6 s), or halves are checked while they are still open.
    pub epoch_time: Duration,
    /// ... or after this many source records \[50,000\],
    pub epoch_records_max: usize,
    /// ... or this many output bytes \[4 MiB\], the identities of messages that do not go in frames included,
    pub epoch_output_bytes_max: usize,
    /// ... or this many changed state bytes \[8 MiB\],
    pub epoch_state_bytes_max: usize,
    /// ... or this many output messages of `Transactional` sinks \[4,000\], whichever comes first.
    pub epoch_halves_max: usize,
    /// Decided epochs of a task that are not yet published and proven; at the bound it waits \[4\].
    pub unpublished_epochs_max: usize,
    /// Bytes of such epochs' messages, of all tasks of the process together \[8 MiB\]; at the bound a task waits until
    /// nothing of its own is unpublished. So each task may exceed it by one epoch.
    pub unpublished_bytes_max: usize,
    /// How long an owner may publish after it last saw that it owns the task, and how long a new owner waits \[10 s\].
    pub publish_lease: Duration,
    /// Half messages, ENDs and sends of one task under way at once \[256\].
    pub requests_in_flight_max: usize,
    /// Tries of one journal append or half message before the task is dropped and opened again \[10\].
    pub tries_max: u32,
    /// The first wait between tries \[50 ms\]; doubled each time,
    pub backoff_first: Duration,
    /// ... up to this \[5 s\].
    pub backoff_max: Duration,
    /// How long a task may fail to make progress because the log is away or someone else owns it, before the job stops
    /// with an error \[10 min\].
    pub outage_max: Duration,
    /// How long the start may take to reach the log and find its topics \[15 s\].
    pub start_time_max: Duration,
    /// How long a drain may take before the job stops without a Release; how long the hand-over of one task to another
    /// member may take, and how long that one waits for it \[30 s\].
    pub drain_time_max: Duration,
    /// How often a process gives the other processes of the job a sign of life and looks who is there, and every fifth time
    /// at the queues of its sources \[2 s\]. Well below the log's bound for silent members (10 s on RocketMQ).
    pub members_look_time: Duration,
    /// Most records of one read \[4,096\].
    pub read_records_max: usize,
    /// Most bytes of one read \[1 MiB\].
    pub read_bytes_max: usize,
    /// Batches read ahead per source partition \[2\].
    pub read_ahead_batches_max: usize,
    /// Most bytes of a message that carries a frame of records \[256 KiB\].
    pub frame_bytes_max: usize,
    /// Whether frames are compressed with LZ4 \[yes\].
    pub frame_compression: bool,
    /// Most bytes that one frame may inflate to \[16 MiB\].
    pub frame_inflated_bytes_max: usize,
    /// Most bytes of one batch of plain messages \[1 MiB\].
    pub send_bytes_max: usize,
    /// Messages held back per upstream channel while one before them is missing \[10,000\].
    pub held_messages_max: usize,
    /// Dedup positions of channels unseen for longer are forgotten; must exceed the retention of the topics \[7 days\].
    pub channel_retention: Duration,
    /// How often a task tells queues of a repartition that get no records how far event time has come, if it has \[2 s\].
    pub watermark_time: Duration,
    /// How often committed offsets are told to the log, for lag tools \[5 s\].
    pub report_time: Duration,
    /// How often each task writes a snapshot of its state, also when it is idle \[24 h\]. At most a third of the log's
    /// retention (RocketMQ's `fileReservedTime`, 72 h), so that a journal whose beginning is gone can still be opened.
    pub snapshot_time: Duration,
    /// What to do when a source has lost processed messages.
    pub on_source_loss: SourceLoss,
    /// Whether a task that was last owned by another topology may be taken over.
    pub allow_upgrade: bool,
    /// Tables that the topology no longer names and whose state may be left behind.
    pub allow_dropped: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            threads: 0,
            epoch_time: Duration::from_millis(200),
            latency_target: None,
            epoch_records_max: 50_000,
            epoch_output_bytes_max: 4 << 20,
            epoch_state_bytes_max: 8 << 20,
            epoch_halves_max: 4_000,
            unpublished_epochs_max: 4,
            unpublished_bytes_max: 8 << 20,
            publish_lease: Duration::from_secs(10),
            requests_in_flight_max: 256,
            tries_max: 10,
            backoff_first: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            outage_max: Duration::from_mins(10),
            start_time_max: Duration::from_secs(15),
            drain_time_max: Duration::from_secs(30),
            members_look_time: Duration::from_secs(2),
            read_records_max: 4_096,
            read_bytes_max: 1 << 20,
            read_ahead_batches_max: 2,
            frame_bytes_max: 256 << 10,
            frame_compression: true,
            frame_inflated_bytes_max: 16 << 20,
            send_bytes_max: 1 << 20,
            held_messages_max: 10_000,
            channel_retention: Duration::from_hours(7 * 24),
            watermark_time: Duration::from_secs(2),
            report_time: Duration::from_secs(5),
            snapshot_time: Duration::from_hours(24),
            on_source_loss: SourceLoss::Stop,
            allow_upgrade: false,
            allow_dropped: vec![],
        }
    }
}

/// Half of RocketMQ's default `transactionTimeOut` of 6 s: an epoch must be sealed before its halves are checked.
const EPOCH_TIME_MAX: Duration = Duration::from_secs(3);

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// `Invalid` naming the first setting that is out of range.
    pub fn check(&self) -> Result<()> {
        let positive = [
            ("epoch_records_max", self.epoch_records_max),
            ("epoch_output_bytes_max", self.epoch_output_bytes_max),
            ("epoch_state_bytes_max", self.epoch_state_bytes_max),
            ("epoch_halves_max", self.epoch_halves_max),
            ("unpublished_epochs_max", self.unpublished_epochs_max),
            ("unpublished_bytes_max", self.unpublished_bytes_max),
            ("requests_in_flight_max", self.requests_in_flight_max),
            ("tries_max", self.tries_max as usize),
            ("read_records_max", self.read_records_max),
            ("read_bytes_max", self.read_bytes_max),
            ("read_ahead_batches_max", self.read_ahead_batches_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("send_bytes_max", self.send_bytes_max),
            ("held_messages_max", self.held_messages_max),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid(format!("setting must be at least 1: name={name}")));
        }
        let times = [
            ("epoch_time", self.epoch_time),
            ("publish_lease", self.publish_lease),
            ("backoff_first", self.backoff_first),
            ("members_look_time", self.members_look_time),
            ("report_time", self.report_time),
            ("snapshot_time", self.snapshot_time),
        ];
        if let Some((name, _)) = times.iter().find(|(_, time)| time.is_zero()) {
            return Err(Error::invalid(format!("setting must be above zero: name={name}")));
        }
        if self.latency_target.is_some_and(|target| target.is_zero()) {
            return Err(Error::invalid("setting must be above zero: name=latency_target"));
        }
        if self.epoch_time > EPOCH_TIME_MAX {
            return Err(Error::invalid(format!(
                "epoch_time must be at most half of the broker's transactionTimeOut: given_ms={} max_ms={}",
                self.epoch_time.as_millis(),
                EPOCH_TIME_MAX.as_millis()
            )));
        }
        Ok(())
    }

    /// The number of worker threads.
    pub(crate) fn worker_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let error = Config { tries_max: 0, ..Config::default() }.check().unwrap_err();
        assert!(error.to_string().contains("tries_max"));
        let error = Config { epoch_time: Duration::from_secs(4), ..Config::default() }.check().unwrap_err();
        assert!(error.to_string().contains("transactionTimeOut"));
        let error = Config { latency_target: Some(Duration::ZERO), ..Config::default() }.check().unwrap_err();
        assert!(error.to_string().contains("latency_target"));
    }
}
