//! Streams of values without a key.

use super::assembly::{Assembly, room};
use super::graph::{Kind, Make, Node, NodeId, SharedGraph};
use super::keyed_stream::KeyedStream;
use super::sink_builder::SinkBuilder;
use crate::codec::{Data, Encode, Key};
use crate::processor::{
    ErrorPolicy, Filter, FlatMap, Generator, Inspect, Map, ProcessingTime, Route, SelectTimestamp, TryMap,
};
use onceflow_types::{Error, Result, Timestamp};
use std::any::Any;
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// A stream of values: a handle into the topology. Use it twice, and both uses see every record. Each record goes through
/// all uses, in the order in which the program wrote them, before the next one does.
pub struct Stream<T> {
    graph: SharedGraph,
    node: NodeId,
    values: PhantomData<fn() -> T>,
}

impl<T: Data> Stream<T> {
    pub(super) fn new(graph: &SharedGraph, node: NodeId) -> Self {
        Stream { graph: graph.clone(), node, values: PhantomData }
    }

    pub(super) fn graph(&self) -> &SharedGraph {
        &self.graph
    }

    /// Adds a node that takes this stream.
    pub(super) fn add(
        &self,
        kind: Kind,
        policy: Option<ErrorPolicy>,
        make: impl Fn(&mut Assembly<'_>) -> Result<Box<dyn Any>> + Send + Sync + 'static,
    ) -> NodeId {
        let node = Node { kind, inputs: vec![self.node], policy, make: Make::Room(Arc::new(make)) };
        self.graph.borrow_mut().add(node)
    }

    fn operator<U: Data>(
        &self,
        word: &'static str,
        make: impl Fn(&mut Assembly<'_>) -> Result<Box<dyn Any>> + Send + Sync + 'static,
    ) -> Stream<U> {
        Stream::new(&self.graph, self.add(Kind::Operator { word, label: None }, None, make))
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.graph.borrow_mut().node_mut(self.node) {
            change(node);
        }
    }

    pub(super) fn set_policy(&self, policy: ErrorPolicy) {
        self.change(|node| node.policy = Some(policy));
    }

    /// The same also for the writing half of a repartition that the operator brought with it.
    pub(super) fn set_policy_with(&self, write: Option<NodeId>, policy: ErrorPolicy) {
        if let Some(write) = write
            && let Some(node) = self.graph().borrow_mut().node_mut(write)
        {
            node.policy = Some(policy.clone());
        }
        self.set_policy(policy);
    }

    pub(super) fn mapped<U: Data>(
        &self,
        word: &'static str,
        function: impl Fn(T) -> U + Send + Sync + 'static,
    ) -> Stream<U> {
        let function = Arc::new(function);
        self.operator(word, move |assembly| {
            Ok(room::<T>(Map { function: function.clone(), out: vec![], next: assembly.next::<U>()? }))
        })
    }

    /// One value for each.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).map(|line| line.to_uppercase()).sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"hello")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"HELLO"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn map<U: Data>(&self, function: impl Fn(T) -> U + Send + Sync + 'static) -> Stream<U> {
        self.mapped("map", function)
    }

    /// One value for each, by a function that may fail; see [`Fallible::on_error`].
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::{Json, Utf8}, testing::TestDriver, types::Error};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Utf8)
    ///     .try_map(|line| line.parse::<i64>().map_err(|e| Error::record("not a number").with_source(e)))
    ///     .on_error(ErrorPolicy::Skip)
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"7")?;
    /// driver.send("in", b"seven")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"7"]);
    /// assert_eq!(driver.counters().skipped, 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn try_map<U: Data>(&self, function: impl Fn(&T) -> Result<U> + Send + Sync + 'static) -> Fallible<U> {
        let function = Arc::new(function);
        let kind = Kind::Operator { word: "try-map", label: None };
        let node = self.add(kind, Some(ErrorPolicy::Fail), move |assembly| {
            let guard = assembly.guard()?;
            Ok(room::<T>(TryMap { function: function.clone(), guard, out: vec![], next: assembly.next::<U>()? }))
        });
        Fallible { stream: Stream::new(&self.graph, node) }
    }

    /// The values for which `predicate` holds.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).filter(|line| line.len() > 3).sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"no")?;
    /// driver.send("in", b"long")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"long"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn filter(&self, predicate: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        let predicate = Arc::new(predicate);
        self.operator("filter", move |assembly| {
            Ok(room::<T>(Filter { predicate: predicate.clone(), next: assembly.next::<T>()? }))
        })
    }

    /// Any number of values for each, in order.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Utf8)
    ///     .flat_map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    ///     .sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"one two")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"one", b"two"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn flat_map<U: Data, I>(&self, function: impl Fn(T) -> I + Send + Sync + 'static) -> Stream<U>
    where
        I: IntoIterator<Item = U> + 'static,
    {
        let function = Arc::new(function);
        self.operator("flat-map", move |assembly| {
            Ok(room::<T>(FlatMap { function: function.clone(), out: vec![], next: assembly.next::<U>()? }))
        })
    }

    /// Shows each value to `function`, and passes it on. What `function` does outside happens again when an epoch is
    /// tried again: it is for looking, not for effects.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// # use std::sync::{Arc, Mutex};
    /// let seen = Arc::new(Mutex::new(vec![]));
    /// let show = seen.clone();
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8).inspect(move |line| show.lock().expect("no panic").push(line.clone()));
    /// lines.sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(*seen.lock().expect("no panic"), ["a"]);
    /// assert_eq!(driver.bodies("out"), [b"a"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn inspect(&self, function: impl Fn(&T) + Send + Sync + 'static) -> Stream<T> {
        self.shown("inspect", function)
    }

    /// Shows each value to `function`, at the end of a stream. The same warning as for [`inspect`](Self::inspect).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// # use std::sync::{Arc, Mutex};
    /// let seen = Arc::new(Mutex::new(vec![]));
    /// let show = seen.clone();
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).for_each(move |line| show.lock().expect("no panic").push(line.clone()));
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(*seen.lock().expect("no panic"), ["a"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn for_each(&self, function: impl Fn(&T) + Send + Sync + 'static) {
        self.shown("for-each", function);
    }

    /// Prints each value to the standard output, with `label` before it, and passes it on. For a look while a program is
    /// written; the same warning as for [`inspect`](Self::inspect).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).print("line").sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?; // prints: line: "a"
    /// assert_eq!(driver.bodies("out"), [b"a"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn print(&self, label: &str) -> Stream<T>
    where
        T: fmt::Debug,
    {
        let label = label.to_owned();
        self.shown("print", move |value| {
            // A reader that went away is no reason to stop a job, and it is nobody's input.
            let _ = writeln!(std::io::stdout().lock(), "{label}: {value:?}");
        })
    }

    fn shown(&self, word: &'static str, function: impl Fn(&T) + Send + Sync + 'static) -> Stream<T> {
        let function = Arc::new(function);
        self.operator(word, move |assembly| {
            Ok(room::<T>(Inspect { function: function.clone(), next: assembly.next::<T>()? }))
        })
    }

    /// Takes the event time from the value; otherwise it is when the message was born. Behind a repartition, and behind an
    /// operator that works with time itself, only the times of the records change: how far event time has come was decided
    /// before. So take the time right behind the source.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("in", Json::<(String, i64)>::new()).out_of_orderness(Duration::ZERO);
    /// let payments = payments.select_timestamp(|(_, millis)| Timestamp::from_millis(*millis)).key_by(|(card, _)| card.clone());
    /// let last = payments.window("last", Windows::tumbling(Duration::from_secs(1))).max(|(_, millis)| *millis);
    /// last.values().map(|window| (window.window_start.as_millis(), window.value)).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for payment in [r#"["c7",1200]"#, r#"["c7",1100]"#, r#"["c7",2000]"#] {
    ///     driver.send("in", payment.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[1000,1200]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn select_timestamp(&self, function: impl Fn(&T) -> Timestamp + Send + Sync + 'static) -> Stream<T> {
        let function = Arc::new(function);
        let kind = Kind::EventTime { word: "select-timestamp" };
        let node = self.add(kind, None, move |assembly| {
            let generators = assembly.inputs()?.into_iter().filter_map(|(input, kind)| match kind {
                Kind::Source { time, .. } => Some((input, Generator::new(time.out_of_orderness))),
                _ => None,
            });
            let (function, generators) = (function.clone(), generators.collect());
            Ok(room::<T>(SelectTimestamp { function, generators, next: assembly.next::<T>()? }))
        });
        Stream::new(&self.graph, node)
    }

    /// Takes processing time for event time from here on: a record happens when it is worked on, and is never late. Not
    /// repeatable, as it depends on when records come.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::{Json, Utf8}, testing::TestDriver};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8).processing_time().key_by(|line| line.clone());
    /// let counts = lines.window("counts", Windows::tumbling(Duration::from_secs(1))).count();
    /// counts.values().map(|window| window.value).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// driver.advance_time(Duration::from_secs(1))?; // the clock closes the window, without a record
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"1"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn processing_time(&self) -> Stream<T> {
        let node = self.add(Kind::EventTime { word: "processing-time" }, None, |assembly| {
            Ok(room::<T>(ProcessingTime { now: Timestamp::MIN, next: assembly.next::<T>()? }))
        });
        Stream::new(&self.graph, node)
    }

    /// Both streams in one. Records of one source keep their order; merged sources belong to one subtopology, so their
    /// topics need the same queues.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let cards = builder.source("cards", Utf8);
    /// builder.source("transfers", Utf8).merge(&cards).sink("out", "payments", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("cards", b"c1")?;
    /// driver.send("transfers", b"t1")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("payments"), [b"c1", b"t1"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn merge(&self, other: &Stream<T>) -> Stream<T> {
        let node = self.add(Kind::Operator { word: "merge", label: None }, None, |assembly| {
            let next = assembly.next::<T>()?;
            Ok(Box::new(next))
        });
        other.flow_into(&self.graph, node);
        Stream::new(&self.graph, node)
    }

    /// Makes this stream one more input of a node.
    pub(super) fn flow_into(&self, graph: &SharedGraph, node: NodeId) {
        let mut graph_of_node = graph.borrow_mut();
        if !Rc::ptr_eq(&self.graph, graph) {
            graph_of_node.errors.push(Error::invalid("streams of two builders cannot be merged"));
        } else if let Some(node) = graph_of_node.node_mut(node) {
            node.inputs.push(self.node);
        }
    }

    /// Gives each value a key. Nothing moves yet: records are brought together by key only where an operator with state
    /// needs it.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.count("counts").sink("out", "out", Json::new());
    /// let topology = builder.build()?;
    /// assert_eq!(topology.subtopologies.len(), 2, "before and behind the repartition that the count needs");
    /// let mut driver = TestDriver::new(&topology)?;
    /// driver.send("in", b"once")?;
    /// driver.send("in", b"more")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[4,1]", b"[4,2]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn key_by<K: Key>(&self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> KeyedStream<K, T> {
        KeyedStream::new(self.mapped("key-by", move |value| (key(&value), value)))
    }

    /// Writes each value to a topic as one message. `name` is part of the messages' identity. Without a key or a queue
    /// (see [`SinkBuilder`]) each task writes to one queue, in order, on its own broker where the topic has
    /// one there; which one hangs on the task's place alone, so new queues of a source move no other task's output.
    ///
    /// ```
    /// # use onceflow::{Delivery, StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Utf8)
    ///     .sink("out", "out", Utf8)
    ///     .key(|line| line.clone())
    ///     .tag(|line| if line.len() > 3 { "long" } else { "short" })
    ///     .delivery(Delivery::Outbox { framed: false });
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"hello")?;
    /// driver.commit()?;
    /// assert_eq!(driver.read("out")[0].property("TAGS"), Some("long".into()));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn sink<C: Encode<T> + 'static>(&self, name: &str, topic: &str, codec: C) -> SinkBuilder<T, C> {
        SinkBuilder::new(self, name, topic, codec, Route::Task)
    }
}

/// The stream behind a stage whose function may fail.
pub struct Fallible<T> {
    stream: Stream<T>,
}

impl<T: Data> Fallible<T> {
    /// What to do with records for which the function fails.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::{Json, Utf8}, testing::TestDriver, types::Error};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Utf8).try_map(|line| line.parse::<i64>().map_err(|_| Error::record("no number")));
    /// numbers.on_error(ErrorPolicy::Skip).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"seven")?;
    /// driver.send("in", b"7")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"7"]);
    /// assert_eq!(driver.counters().skipped, 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.set_policy(policy);
        self
    }

    /// The name of the stage in errors, dead letters and metrics.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver, types::Error};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Utf8).try_map(|_| Err::<u8, _>(Error::record("never")));
    /// numbers.name("parse").for_each(|_| ());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"x")?;
    /// let error = driver.commit().expect_err("it never works");
    /// assert_eq!(error.to_string(), "stage parse at in@test:0 offset 0: never");
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn name(self, name: &str) -> Self {
        let name = self.stream.graph.borrow_mut().name(name);
        self.stream.change(|node| {
            if let Kind::Operator { label, .. } = &mut node.kind {
                *label = Some(name.as_str().into());
            }
        });
        self
    }
}

impl<T> Deref for Fallible<T> {
    type Target = Stream<T>;

    fn deref(&self) -> &Stream<T> {
        &self.stream
    }
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Stream { graph: self.graph.clone(), node: self.node, values: PhantomData }
    }
}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.node).finish()
    }
}

impl<T> fmt::Debug for Fallible<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fallible").field(&self.stream).finish()
    }
}
