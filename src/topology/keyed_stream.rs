//! Streams of values with a key.

use super::REPARTITION_QUEUES_DEFAULT;
use super::assembly::room;
use super::builder::make_source;
use super::graph::{Kind, Make, Node};
use super::placement::{Scattered, Together};
use super::running::Repartitioned;
use super::sink_builder::SinkBuilder;
use super::stream::Stream;
use crate::codec::{Data, Decode, Encode, Key, Keyed, Postcard, Wire, encode_key};
use crate::processor::{ErrorPolicy, Repartition, Route};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A stream of values with a key each: a handle into the topology, as [`Stream`] is.
///
/// Operators with state need all records of a key in one task. While they are [`Scattered`], such an operator inserts a
/// repartition topic `<job>-repartition-<name of the operator>` before itself: queue = stable hash of the key's bytes,
/// modulo the number of queues. Several operators by the same key share one through [`repartition`](Self::repartition).
/// Once they are [`Together`] they stay so, until another [`key_by`](Stream::key_by).
pub struct KeyedStream<K, T, P = Scattered> {
    pub(super) stream: Stream<(K, T)>,
    placement: PhantomData<fn() -> P>,
}

impl<K: Key, T: Data, P> KeyedStream<K, T, P> {
    pub(super) fn new(stream: Stream<(K, T)>) -> Self {
        KeyedStream { stream, placement: PhantomData }
    }

    /// Declares that all records of a key are in one queue of the source already, because its producer chose the queue
    /// by the key. Then no repartition is needed. If it is not so, a key has several running values, one in each task.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let cards = builder.source("in", Utf8).key_by(|card| card.clone()).partitioned_by_key();
    /// cards.count("counts").sink("out", "out", Json::new());
    /// let topology = builder.build()?;
    /// assert_eq!(topology.subtopologies.len(), 1);
    /// let mut driver = TestDriver::with_queues(&topology, &[("in", 2)])?;
    /// for (queue, card) in [(0, b"c1"), (1, b"c2"), (0, b"c1")] {
    ///     driver.send_with("in", queue, b"", card)?;
    /// }
    /// driver.commit()?;
    /// let mut bodies = driver.bodies("out");
    /// bodies.sort();
    /// assert_eq!(bodies, [br#"["c1",1]"#, br#"["c1",2]"#, br#"["c2",1]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn partitioned_by_key(self) -> KeyedStream<K, T, Together> {
        KeyedStream::new(self.stream)
    }

    /// The pairs of key and value.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.pairs().map(|(len, word)| format!("{len} {word}")).sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"2 ab"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn pairs(&self) -> Stream<(K, T)> {
        self.stream.clone()
    }

    /// The values alone.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.values().sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"ab"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn values(&self) -> Stream<T> {
        self.stream.mapped("values", |(_, value)| value)
    }

    /// One value for each pair; the key is lost.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let counts = builder.source("in", Utf8).key_by(|word| word.clone()).count("counts");
    /// counts.map(|word, count| format!("{word}={count}")).sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"a=1", b"a=2"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn map<U: Data>(&self, function: impl Fn(K, T) -> U + Send + Sync + 'static) -> Stream<U> {
        self.stream.mapped("map", move |(key, value)| function(key, value))
    }

    /// One value for each under the same key.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.map_values(|word| word.to_uppercase()).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"[2,"AB"]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn map_values<U: Data>(&self, function: impl Fn(T) -> U + Send + Sync + 'static) -> KeyedStream<K, U, P> {
        let stream = self.stream.mapped("map-values", move |(key, value)| (key, function(value)));
        KeyedStream::new(stream)
    }

    /// The pairs for which `predicate` holds.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.filter(|len, word| *len > 1 && word.starts_with('a')).values().sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.send("in", b"ab")?;
    /// driver.send("in", b"b2")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"ab"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn filter(&self, predicate: impl Fn(&K, &T) -> bool + Send + Sync + 'static) -> Self {
        KeyedStream::new(self.stream.filter(move |(key, value)| predicate(key, value)))
    }

    /// Shows each pair to `function`, and passes it on; see [`Stream::inspect`].
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.inspect(|len, word| println!("{len} {word}")).values().sink("out", "out", Utf8);
    /// assert!(builder.build()?.describe().contains("inspect"));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn inspect(&self, function: impl Fn(&K, &T) + Send + Sync + 'static) -> Self {
        KeyedStream::new(self.stream.inspect(move |(key, value)| function(key, value)))
    }

    /// Both streams in one; see [`Stream::merge`].
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let cards = builder.source("cards", Utf8).key_by(|card| card.clone());
    /// let transfers = builder.source("transfers", Utf8).key_by(|card| card.clone());
    /// cards.merge(&transfers).count("uses").sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("cards", b"c7")?;
    /// driver.send("transfers", b"c7")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",1]"#, br#"["c7",2]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn merge(&self, other: &KeyedStream<K, T, P>) -> Self {
        KeyedStream::new(self.stream.merge(&other.stream))
    }

    /// Writes each pair to a topic as one message, to the queue of its key; see [`Stream::sink`].
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.sink("out", "out", Json::new());
    /// let mut driver = TestDriver::with_queues(&builder.build()?, &[("out", 4)])?;
    /// driver.send("in", b"ab")?;
    /// driver.send("in", b"cd")?;
    /// driver.commit()?;
    /// let messages = driver.read("out");
    /// assert_eq!(messages[0].body, br#"[2,"ab"]"#);
    /// assert_eq!(messages[0].queue, messages[1].queue);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn sink<C: Encode<(K, T)> + 'static>(&self, name: &str, topic: &str, codec: C) -> SinkBuilder<(K, T), C> {
        let route = Route::Key(Arc::new(|(key, _): &(K, T), to: &mut Vec<u8>| encode_key(key, to)));
        SinkBuilder::new(&self.stream, name, topic, codec, route)
    }

    /// Brings records together by key, through the topic `<job>-repartition-<name>`, whether they are already or not.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone()).repartition("by-word").queues(4);
    /// words.count("counts").sink("counts", "counts", Json::new());
    /// words.sum("letters", |word| word.len() as u64).sink("letters", "letters", Json::new());
    /// let topology = builder.build()?;
    /// assert_eq!(topology.subtopologies.len(), 2, "both behind one repartition");
    /// let mut driver = TestDriver::new(&topology)?;
    /// driver.send("in", b"once")?;
    /// driver.send("in", b"once")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("counts"), [br#"["once",1]"#, br#"["once",2]"#]);
    /// assert_eq!(driver.bodies("letters"), [br#"["once",4]"#, br#"["once",8]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn repartition(&self, name: &str) -> Repartitioned<K, T>
    where
        T: Wire,
    {
        self.repartition_with(name, Postcard::new())
    }

    /// As [`repartition`](Self::repartition), with a codec for the values.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len()).repartition_with("by-length", Utf8);
    /// words.values().sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"ab"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn repartition_with<C: Encode<T> + Decode<T> + 'static>(&self, name: &str, codec: C) -> Repartitioned<K, T> {
        let codec = Arc::new(Keyed::<K, C>::new(codec));
        let name = self.stream.graph().borrow_mut().name(name);
        let kind = Kind::RepartitionWrite { name: name.clone(), queues: REPARTITION_QUEUES_DEFAULT };
        let written = codec.clone();
        let write = self.stream.add(kind, Some(ErrorPolicy::Fail), move |assembly| {
            let clock = assembly.is_timed().then(|| assembly.clock()).transpose()?;
            Ok(room::<(K, T)>(Repartition::new(written.clone(), assembly.sink()?, assembly.guard()?, clock)))
        });
        let read = self.stream.graph().borrow_mut().add(Node {
            kind: Kind::RepartitionRead { name },
            inputs: vec![],
            // What the job itself wrote must be readable; anything else is damage.
            policy: Some(ErrorPolicy::Fail),
            make: Make::Head(Arc::new(move |assembly| make_source::<(K, T), _>(&codec, assembly))),
        });
        Repartitioned { stream: KeyedStream::new(Stream::new(self.stream.graph(), read)), write }
    }
}

impl<K, T, P> Clone for KeyedStream<K, T, P> {
    fn clone(&self) -> Self {
        KeyedStream { stream: self.stream.clone(), placement: PhantomData }
    }
}

impl<K, T, P> fmt::Debug for KeyedStream<K, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyedStream").field(&self.stream).finish()
    }
}
