//! The rooms of a stage: source, operators, sinks, and what connects them.
//!
//! Records move in batches. Each operator takes a whole batch in one dynamic call, works through it in a loop of static
//! calls, and hands on a batch from a buffer that it keeps. What comes out is what would come out if the records went
//! through the program one by one.

mod aged;
mod branch;
mod clock;
mod dead_letter;
mod event_time;
mod fan_out;
mod guard;
mod join;
mod keyed;
mod policy;
mod process;
mod route;
mod sink;
mod source;
mod stateless;
mod window;

use crate::record::Record;
use crate::stage::{Context, SourceBatch};
use crate::state::TaskState;
use crate::time::{Progress, Watermark};
use onceflow_types::Result;

pub(crate) use aged::{Aged, end_due};
pub(crate) use branch::Branch;
pub(crate) use clock::InputClock;
pub use dead_letter::{
    DEAD_LETTER_BROKER, DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, DEAD_LETTER_QUEUE, DEAD_LETTER_STAGE, DEAD_LETTER_TOPIC,
    DEAD_LETTER_TRUNCATED, DEAD_LETTER_UNIQUE_KEY,
};
pub(crate) use event_time::{Generator, ProcessingTime, SelectTimestamp};
pub(crate) use fan_out::{Branches, End, Merge};
pub(crate) use guard::Guard;
pub use join::JoinWindow;
pub(crate) use join::{
    DimensionJoin, IntervalJoin, JoinKind, JoinOptions, JoinPlace, JoinRule, LateRecords, LatestJoin, Side, SideRoom,
    Sided, TableJoin, is_missing,
};
pub use keyed::{Emit, Number};
pub(crate) use keyed::{PerKey, PerKeyOptions};
pub use policy::ErrorPolicy;
pub(crate) use process::{ProcessOptions, ProcessRoom};
pub(crate) use route::{queue_of_key, queue_of_task, stable_hash};
pub(crate) use sink::{Attributes, Repartition, Route, Sink};
pub(crate) use source::{Source, SourceTime};
pub(crate) use stateless::{Filter, FlatMap, Inspect, Map, TryMap};
pub(crate) use window::{CountWindows, LookBack, Panes, Place, Sessions, Shape, WindowOptions, WindowRoom};

/// How many records an operator that makes more of them gathers before it hands them on.
const BATCH_RECORDS_MAX: usize = 4_096;

/// A room that takes records in.
pub(crate) trait Push<T>: Send {
    /// Binds the tables of this room and those behind it.
    fn open(&mut self, state: &mut TaskState) -> Result<()>;

    /// Takes all of `records`, in order; after `Ok` the buffer is empty.
    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()>;

    /// An input has come further, after all of its records so far were pushed; or processing time has passed, and nothing
    /// else. The same may be said twice.
    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()>;

    /// Ends the epoch: hands on what is emitted once per epoch, writes caches back, then seals the rooms behind.
    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()>;
}

/// The room at the head of a stage.
pub(crate) trait Ingest: Send {
    /// As [`Push::open`].
    fn open(&mut self, state: &mut TaskState) -> Result<()>;

    /// Takes all records of the context's batch.
    fn process(&mut self, batch: &SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()>;

    /// What the upstream tasks say about a source that the job itself made.
    fn heard(&mut self, watermark: Watermark, cx: &mut Context<'_>) -> Result<()>;

    /// Processing time has passed.
    fn tick(&mut self, cx: &mut Context<'_>) -> Result<()>;

    /// As [`Push::seal`].
    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()>;
}

/// `open`, `advance` and `seal` of a room that only passes them on.
macro_rules! pass_on {
    () => {
        $crate::processor::pass_time!();
        $crate::processor::pass_epoch!();
    };
}
use pass_on;

/// `advance` of a room that only passes it on.
macro_rules! pass_time {
    () => {
        fn advance(
            &mut self,
            progress: $crate::time::Progress,
            cx: &mut $crate::stage::Context<'_>,
        ) -> onceflow_types::Result<()> {
            self.next.advance(progress, cx)
        }
    };
}
use pass_time;

/// `open` and `seal` of a room that only passes them on.
macro_rules! pass_epoch {
    () => {
        fn open(&mut self, state: &mut $crate::state::TaskState) -> onceflow_types::Result<()> {
            self.next.open(state)
        }

        fn seal(&mut self, cx: &mut $crate::stage::Context<'_>) -> onceflow_types::Result<()> {
            self.next.seal(cx)
        }
    };
}
use pass_epoch;
