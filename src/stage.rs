//! The seam between the language and the engine: what the task loop drives, and what a stage sees meanwhile.

use crate::output::{Output, SourcePosition};
use crate::record::Origin;
use crate::state::TaskState;
use crate::time::{Input, Watermark};
use onceflow_types::{Offset, Partition, Result, Timestamp};

/// One subtopology of one task: decode, operators, encode.
///
/// # Contract
/// 1. A topology's [`build`](crate::topology::Subtopology::build) makes a stage for each task. `open` is called once,
///    before anything else.
/// 2. `process` gets whole batches; the records of a partition come in order, each once. Its effects are in the state's
///    overlay, in the stage's caches and in the output only.
/// 3. `seal` is called once at the end of each epoch. After it the overlay holds every change of the epoch; the stage
///    goes on with the next epoch.
/// 4. `heard` and `tick` may be called at any time between two batches; their effects are as those of `process`. When the
///    state says after one of them, or after `process`, that the stage is behind, the epoch is full: it is sealed, and
///    `tick` called again.
/// 5. After an error from any of them, or when an epoch is aborted, stage, overlay and output are dropped whole: caches
///    may hold changes that were not committed.
pub trait Stage: Send {
    /// Binds the stage's tables to the task's state.
    ///
    /// # Errors
    /// `Corrupt` when the state cannot be read, `Invalid` when it has no room for another table.
    fn open(&mut self, state: &mut TaskState) -> Result<()>;

    /// Works on a batch of `source`, an index into the subtopology's sources.
    ///
    /// # Errors
    /// `Record` when a stage with policy `Fail` met a bad record (its place is in the message); `Corrupt` from the store;
    /// other kinds as a user's function returned them.
    fn process(&mut self, source: usize, batch: &SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()>;

    /// Takes what the upstream tasks say about how far `source` has come; only for a source that the job itself made, and
    /// behind all of its records so far. What is said first after an opening may have been said before.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    fn heard(&mut self, source: usize, watermark: Watermark, cx: &mut Context<'_>) -> Result<()>;

    /// Processing time has passed: sources may have become idle, timers may be due.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    fn tick(&mut self, cx: &mut Context<'_>) -> Result<()>;

    /// Emits what is emitted once per epoch, and writes cached changes into the overlay.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()>;
}

/// Records of one partition, in order of their offsets.
#[derive(Clone, Debug)]
pub struct SourceBatch<'b> {
    /// Where they were read.
    pub partition: &'b Partition,
    /// The records.
    pub records: Vec<SourceRecord<'b>>,
}

/// A record as read.
#[derive(Clone, Copy, Debug)]
pub struct SourceRecord<'b> {
    /// Its body, or why there is none.
    pub body: Result<&'b [u8], &'static str>,
    /// Its properties, encoded.
    pub properties: &'b [u8],
    /// Its event time so far: when it was born, or what a frame carried.
    pub timestamp: Timestamp,
    /// Its offset.
    pub offset: Offset,
}

/// What a stage works with, lent for one call.
#[derive(Debug)]
pub struct Context<'c> {
    /// The task's state.
    pub state: &'c mut TaskState,
    /// Where output goes.
    pub output: &'c mut Output,
    /// What happened so far.
    pub counters: &'c mut Counters,
    now: Timestamp,
    limits: Limits,
    input: Input,
    batch: Option<(u32, &'c SourceBatch<'c>)>,
}

/// When an epoch is full, as far as a stage has to know: it stops firing timers then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of output.
    pub output_bytes_max: usize,
    /// Output messages.
    pub output_records_max: usize,
    /// Bytes of changed state.
    pub state_bytes_max: usize,
}

impl Limits {
    /// No epoch is ever full.
    pub const NONE: Limits =
        Limits { output_bytes_max: usize::MAX, output_records_max: usize::MAX, state_bytes_max: usize::MAX };
}

/// What a task's stages did. Counts only grow, aborted epochs included.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Source records taken in.
    pub records_in: u64,
    /// Messages put out, without dead letters.
    pub records_out: u64,
    /// Records that an error policy left out.
    pub skipped: u64,
    /// Tries after the first.
    pub retried: u64,
    /// Records that went to a dead letter topic.
    pub dead_letters: u64,
    /// Records that stopped the task.
    pub failed: u64,
    /// Records that came too late for a window, once for each operator that they were late for.
    pub late: u64,
    /// Records that came to a join without a key, so that they have no partner.
    pub missing_keys: u64,
}

impl<'c> Context<'c> {
    /// A context without source records. `now` is the processing time of the epoch.
    pub fn new(state: &'c mut TaskState, output: &'c mut Output, counters: &'c mut Counters, now: Timestamp) -> Self {
        Context { state, output, counters, now, limits: Limits::NONE, input: Input::MAX, batch: None }
    }

    /// The same with bounds for the epoch.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same context for records of `input`, which an operator makes.
    pub(crate) fn of_input(&mut self, input: Input) -> Context<'_> {
        Context {
            state: self.state,
            output: self.output,
            counters: self.counters,
            now: self.now,
            limits: self.limits,
            input,
            batch: self.batch,
        }
    }

    /// Whose records are being pushed.
    #[inline]
    pub(crate) fn input(&self) -> Input {
        self.input
    }

    /// Whether the epoch has reached a bound, so that what can wait waits for the next one.
    pub(crate) fn is_full(&self) -> bool {
        self.output.bytes() >= self.limits.output_bytes_max
            || self.output.records() >= self.limits.output_records_max
            || self.state.overlay().delta().bytes() >= self.limits.state_bytes_max
    }

    /// The same for what is due: then it is behind, and goes on in the next one.
    pub(crate) fn leaves_what_is_due(&mut self) -> bool {
        let full = self.is_full();
        if full {
            self.state.times_mut().set_behind();
        }
        full
    }

    /// The same context, for the records of `batch`.
    pub(crate) fn with_batch<'a>(&'a mut self, source: usize, batch: &'a SourceBatch<'a>) -> Context<'a> {
        let source = u32::try_from(source).unwrap_or(u32::MAX);
        Context { batch: Some((source, batch)), ..self.of_input(source) }
    }

    /// The processing time of the epoch.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The source record at `origin`, with its partition.
    pub fn source_record(&self, origin: Origin) -> Option<(&'c Partition, SourceRecord<'c>)> {
        let (_, batch) = self.batch?;
        Some((batch.partition, *batch.records.get(origin.index()?)?))
    }

    /// The place of the source record at `origin`.
    pub fn source_position(&self, origin: Origin) -> Option<SourcePosition> {
        let (source, batch) = self.batch?;
        let record = batch.records.get(origin.index()?)?;
        Some(SourcePosition { source, offset: record.offset })
    }
}
