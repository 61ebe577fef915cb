//! What a user writes: streams from sources through operators to sinks, compiled into the parts that tasks work on.
//!
//! ```
//! use onceflow::codec::{Json, Utf8};
//! use onceflow::StreamBuilder;
//!
//! let builder = StreamBuilder::new("word-count")?;
//! builder
//!     .source("lines", Utf8)
//!     .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
//!     .key_by(|word| word.clone())
//!     .count("counts")
//!     .sink("totals", "word-totals", Json::new());
//! let topology = builder.build()?;
//! assert_eq!(topology.subtopologies.len(), 2, "a repartition by word lies between them");
//! # Ok::<(), onceflow::types::Error>(())
//! ```
//!
//! A [`Stream`] is a handle: use it twice, and both uses see every record. Errors of building (a bad name, a name used
//! twice) are kept and returned by [`StreamBuilder::build`].
//!
//! # Subtopologies
//! Streams are cut where records are repartitioned; what is still connected is one subtopology, with tasks, journal and
//! state of its own. Its name is the one given by [`Source::subtopology`], else the name of its first source (the first
//! in the program; a repartition's name counts as the name of the source behind it). Names of sources, tables, sinks and
//! repartitions are what committed state and messages in flight hang on: keep them, and operators can be added and
//! moved around them.

mod assembly;
mod builder;
mod compile;
mod copartition;
mod describe;
mod dimension_join;
mod distinct;
mod graph;
mod joined;
mod keyed_stream;
mod placement;
mod plan;
mod processed;
mod running;
mod running_aggregates;
mod sides;
mod sink_builder;
mod split;
mod stateful;
mod stream;
mod table;
mod top_n;
mod window_join;
mod windowed;

pub use builder::{Source, StreamBuilder};
pub use dimension_join::{JoiningDimension, JoiningKeyedDimension};
pub use joined::{JOIN_ROWS_DEFAULT, Joined, Joining, JoiningLatest};
pub use keyed_stream::KeyedStream;
pub use placement::{Placement, Scattered, Together};
pub use plan::{Delivery, SinkPlan, SourcePlan, StartPolicy, Subtopology, Topology};
pub use processed::Processed;
pub use running::{Repartitioned, Running};
pub use sink_builder::SinkBuilder;
pub use split::Split;
pub use stream::{Fallible, Stream};
pub use table::{JoiningTable, Table, TableJoined};
pub use top_n::{Change, TOP_N_MAX, TopN};
pub use window_join::{WindowJoin, WindowJoinKeys, WindowJoined, Windowing};
pub use windowed::{WindowResults, WindowedBy};

/// The number of queues of a repartition topic, unless it is told otherwise.
pub const REPARTITION_QUEUES_DEFAULT: u32 = 8;

#[cfg(test)]
mod tests;
