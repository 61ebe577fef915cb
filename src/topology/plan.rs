//! A compiled topology: what the engine has to read, make and drive.

use super::describe::Description;
use crate::stage::Stage;
use onceflow_types::{Name, Timestamp};
use std::fmt;
use std::sync::Arc;

/// Where a source starts in queues that have no committed offset. A new queue of a topic that the task already reads
/// starts at its first message under every policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum StartPolicy {
    /// At the first message that is kept.
    Earliest,
    /// Behind the last message.
    #[default]
    Latest,
    /// At the first message stored at or after this time.
    Timestamp(Timestamp),
}

/// How a sink's messages reach consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Delivery {
    /// Each as a transactional message: a plain consumer sees all of a committed epoch and nothing of any other.
    #[default]
    Transactional,
    /// Each as a plain message, sent after the epoch is decided.
    Outbox {
        /// Many records in one stored message, for readers that are Onceflow jobs.
        framed: bool,
    },
}

/// A compiled job.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The job id.
    pub job: Name,
    /// Its parts, in order of their names.
    pub subtopologies: Vec<Subtopology>,
    /// A stable hash over what must agree between instances: names, topics, tables, deliveries and how they are
    /// connected. Functions and operators without state are not part of it.
    pub hash: u64,
    pub(super) description: Arc<Description>,
}

/// A part of a topology between repartition points.
#[derive(Clone)]
pub struct Subtopology {
    /// Its stable name.
    pub name: Name,
    /// What it reads; the index is the `source` of [`Stage::process`].
    pub sources: Vec<SourcePlan>,
    /// Sources that meet in a join, by their indexes: their topics need the same queues.
    pub copartitioned: Vec<Vec<usize>>,
    /// What it writes; the index is the `sink` of [`Output`](crate::output::Output).
    pub sinks: Vec<SinkPlan>,
    /// The tables that it names in the task's state.
    pub tables: Vec<Name>,
    /// Whether anything in it works with time, or has to pass it on.
    pub timed: bool,
    /// Makes the stage of one task.
    pub build: Arc<dyn Fn() -> Box<dyn Stage> + Send + Sync>,
}

/// A topic that a subtopology reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePlan {
    /// Its name in the topology.
    pub name: Name,
    /// The topic.
    pub topic: Arc<str>,
    /// Whether the job itself made the topic: framed, read from its first message.
    pub internal: bool,
    /// Where to start.
    pub start: StartPolicy,
    /// Whether something behind it works with time.
    pub timed: bool,
}

/// A topic that a subtopology writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SinkPlan {
    /// Its name; part of the identity of its messages. Name and topic together are unique in a subtopology: sinks for
    /// dead letters share a name.
    pub name: Name,
    /// The topic.
    pub topic: Arc<str>,
    /// Whether the job itself makes the topic.
    pub internal: bool,
    /// How messages are delivered.
    pub delivery: Delivery,
    /// For a topic that the job makes: the number of its queues.
    pub queues: Option<u32>,
    /// Whether its frames say how far event time has come, as something behind the topic works with time.
    pub timed: bool,
}

impl Topology {
    /// The topology as text, one line a node, subtopology by subtopology.
    ///
    /// ```
    /// use onceflow::{StreamBuilder, codec::Utf8};
    ///
    /// let builder = StreamBuilder::new("shout")?;
    /// builder.source("lines", Utf8).map(|line| line.to_uppercase()).sink("loud", "lines-loud", Utf8);
    /// let text = "job shout
    ///
    /// subtopology lines
    ///   1 source lines: topic=lines start=latest
    ///   2 map <- 1
    ///   3 sink loud: topic=lines-loud delivery=transactional <- 2
    /// ";
    /// assert_eq!(builder.build()?.describe(), text);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn describe(&self) -> String {
        self.description.text()
    }

    /// The topology as a [Mermaid](https://mermaid.js.org) flow chart.
    ///
    /// ```
    /// use onceflow::{StreamBuilder, codec::Utf8};
    ///
    /// let builder = StreamBuilder::new("shout")?;
    /// builder.source("lines", Utf8).map(|line| line.to_uppercase()).sink("loud", "lines-loud", Utf8);
    /// assert!(builder.build()?.mermaid().starts_with("flowchart LR"));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn mermaid(&self) -> String {
        self.description.mermaid()
    }
}

impl Subtopology {
    /// Whether one of its operators has this table, or the one that this is a part of.
    pub(crate) fn has_table(&self, table: &str) -> bool {
        let operator = crate::state::operator_of(table);
        self.tables.iter().any(|name| name.as_str() == operator)
    }
}

impl fmt::Debug for Subtopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subtopology")
            .field("name", &self.name)
            .field("sources", &self.sources)
            .field("copartitioned", &self.copartitioned)
            .field("sinks", &self.sinks)
            .field("tables", &self.tables)
            .field("timed", &self.timed)
            .finish_non_exhaustive()
    }
}
