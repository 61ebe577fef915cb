//! The graph behind the handles.

use super::assembly::Assembly;
use super::plan::{Delivery, StartPolicy};
use crate::processor::{ErrorPolicy, Ingest, JoinOptions, JoinRule, PerKeyOptions, ProcessOptions, WindowOptions};
use crate::time::{IDLE_TIMEOUT_DEFAULT, OUT_OF_ORDERNESS_DEFAULT};
use onceflow_types::{Error, Name, Result};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A node's place in the graph, in the order of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NodeId(pub(super) usize);

/// What the program has said so far.
pub(super) struct Graph {
    pub(super) job: Name,
    pub(super) nodes: Vec<Node>,
    /// What was wrong with it, in order.
    pub(super) errors: Vec<Error>,
}

pub(super) type SharedGraph = Rc<RefCell<Graph>>;

#[derive(Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) inputs: Vec<NodeId>,
    /// `None` for a stage that cannot fail.
    pub(super) policy: Option<ErrorPolicy>,
    pub(super) make: Make,
}

#[derive(Clone)]
pub(super) enum Kind {
    Source {
        name: Name,
        /// Whether the name is one: the topic may be none, and then the program must give one.
        named: bool,
        topic: Arc<str>,
        start: StartPolicy,
        tags: Option<Arc<[String]>>,
        subtopology: Option<Name>,
        time: SourceClock,
    },
    /// The reading half of a repartition; it has no input.
    RepartitionRead {
        name: Name,
    },
    /// The writing half of a repartition; it is nobody's input.
    RepartitionWrite {
        name: Name,
        queues: u32,
    },
    Operator {
        word: &'static str,
        label: Option<Arc<str>>,
    },
    /// Takes event time from the values, or from the clock.
    EventTime {
        word: &'static str,
    },
    /// Another output of its input than the stream itself: `port` counts from 1.
    Port {
        word: &'static str,
        port: u32,
    },
    PerKey {
        word: &'static str,
        options: PerKeyOptions,
    },
    /// A user's processor; its other outputs have the ports that it says.
    Process {
        options: ProcessOptions,
    },
    /// Cuts into windows; its late records go to port 1.
    Window {
        word: &'static str,
        options: WindowOptions,
    },
    /// Marks the records of one side of what comes next: the sides must be partitioned alike.
    Side {
        word: &'static str,
    },
    /// Joins two sides; late records of the left one go to port 1, of the right one to port 2.
    Join {
        options: JoinOptions,
    },
    Sink {
        name: Name,
        topic: Arc<str>,
        delivery: Delivery,
    },
}

/// How a source makes its watermark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SourceClock {
    pub(super) out_of_orderness: Duration,
    pub(super) idle_timeout: Option<Duration>,
}

impl Default for SourceClock {
    fn default() -> Self {
        SourceClock { out_of_orderness: OUT_OF_ORDERNESS_DEFAULT, idle_timeout: Some(IDLE_TIMEOUT_DEFAULT) }
    }
}

/// Makes the room of a node for one task. Types are erased: a head is what it is, a room is a `Box<dyn Push<T>>` in a box.
#[derive(Clone)]
pub(super) enum Make {
    Head(Arc<Maker<Box<dyn Ingest>>>),
    Room(Arc<Maker<Box<dyn Any>>>),
}

type Maker<R> = dyn Fn(&mut Assembly<'_>) -> Result<R> + Send + Sync;

impl Kind {
    /// Whether it works with time: its output has a time of its own.
    pub(super) fn is_timed(&self) -> bool {
        match self {
            Kind::Window { .. } | Kind::Process { .. } => true,
            Kind::Join { options } => options.rule != JoinRule::Table,
            _ => false,
        }
    }

    /// Whether it goes by time, so that what lies before it must say how far time has come.
    pub(super) fn uses_time(&self) -> bool {
        self.is_timed() || matches!(self, Kind::PerKey { options, .. } if options.time_to_live.is_some())
    }

    /// The name under which it keeps state.
    pub(super) fn table(&self) -> Option<&Name> {
        match self {
            Kind::PerKey { options, .. } => Some(&options.table),
            Kind::Window { options, .. } => Some(&options.table),
            Kind::Process { options } => Some(&options.table),
            Kind::Join { options } => Some(&options.table),
            _ => None,
        }
    }
}

impl Node {
    /// The inputs whose event time it goes by. A table's is nobody's.
    pub(super) fn time_inputs(&self) -> &[NodeId] {
        match &self.kind {
            Kind::Join { options } if options.rule == JoinRule::Table => self.inputs.get(..1).unwrap_or_default(),
            _ => &self.inputs,
        }
    }
}

impl Graph {
    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0)
    }

    /// Keeps an error for the end of building, and goes on with `instead`.
    pub(super) fn kept<T>(&mut self, result: Result<T>, instead: impl FnOnce() -> T) -> T {
        result.unwrap_or_else(|error| {
            self.errors.push(error);
            instead()
        })
    }

    /// A checked name; after an error, a stand-in that no topology is built with.
    pub(super) fn name(&mut self, name: &str) -> Name {
        let job = self.job.clone();
        self.kept(Name::new(name), || job)
    }
}

/// The topic of a repartition: `<job>-repartition-<name>`.
pub(super) fn repartition_topic(job: &Name, name: &Name) -> Arc<str> {
    format!("{job}-repartition-{name}").into()
}
