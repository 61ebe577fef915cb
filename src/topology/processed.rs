//! A user's processor in a program.

use super::assembly::{Assembly, room};
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement, Together};
use super::stream::Stream;
use crate::codec::{Data, Key};
use crate::process::{Processor, SideBuffer, SideOutput};
use crate::processor::{ErrorPolicy, ProcessOptions, ProcessRoom};
use crate::state::CACHE_ENTRIES_DEFAULT;
use onceflow_types::{Error, Result};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// Runs a program of your own per key, with state, timers and several outputs; see [`process`](crate::process). `make` makes
    /// one processor for each task, and `name` is the name of the operator, under which its state is kept.
    pub fn process<R: Processor<K, T>>(
        &self,
        name: &str,
        make: impl Fn() -> R + Send + Sync + 'static,
    ) -> Processed<K, R::Output> {
        let Input { stream: input, write } = P::together(self, name);
        let table = input.graph().borrow_mut().name(name);
        let options = ProcessOptions { table, cache_entries: CACHE_ENTRIES_DEFAULT };
        let make = Arc::new(make);
        let node = input
            .add(Kind::Process { options }, Some(ErrorPolicy::Fail), move |assembly| made::<K, T, R>(make(), assembly));
        Processed { stream: KeyedStream::new(Stream::new(input.graph(), node)), node, write }
    }
}

fn made<K: Key, T: Data, R: Processor<K, T>>(processor: R, assembly: &mut Assembly<'_>) -> Result<Box<dyn Any>> {
    let Kind::Process { options } = assembly.kind()? else {
        return Err(Error::bug("node is not a processor"));
    };
    let (guard, time) = (assembly.guard()?, (assembly.clock()?, assembly.own_input()?));
    let (sides, next) = (assembly.sides()?, assembly.next::<(K, R::Output)>()?);
    Ok(room::<(K, T)>(ProcessRoom::new(processor, options, guard, time, sides, next)))
}

/// The stream behind a processor.
pub struct Processed<K, O> {
    stream: KeyedStream<K, O, Together>,
    node: NodeId,
    /// The writing half of the repartition that the operator brought with it.
    write: Option<NodeId>,
}

impl<K: Key, O: Data> Processed<K, O> {
    /// What the processor emits to another output.
    pub fn side<U: Data>(&self, output: &SideOutput<U>) -> KeyedStream<K, U, Together> {
        let graph = self.stream.stream.graph();
        let port = output.port;
        // One node takes an output, whoever uses it then.
        let taken = graph.borrow().nodes.iter().position(|node| {
            matches!(node.kind, Kind::Port { port: other, .. } if other == port) && node.inputs == [self.node]
        });
        let add = || {
            self.stream.stream.add(Kind::Port { word: "side", port }, None, |assembly| {
                let next = assembly.next::<(K, U)>()?;
                Ok(Box::new(SideBuffer::boxed(next)))
            })
        };
        let node = taken.map_or_else(add, NodeId);
        KeyedStream::new(Stream::new(graph, node))
    }

    /// What to do with records that the processor cannot work on, its own repartition included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.stream.set_policy_with(self.write, policy);
        self
    }

    /// How many entries of each state are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`](crate::state::CACHE_ENTRIES_DEFAULT)].
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::Process { options } = &mut node.kind {
                options.cache_entries = entries_max;
            }
        });
        self
    }
}

impl<K, O> Deref for Processed<K, O> {
    type Target = KeyedStream<K, O, Together>;

    fn deref(&self) -> &KeyedStream<K, O, Together> {
        &self.stream
    }
}

impl<K, O> fmt::Debug for Processed<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processed").field(&self.stream).finish()
    }
}
