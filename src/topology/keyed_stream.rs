//! Streams of values with a key.

use super::REPARTITION_QUEUES_DEFAULT;
use super::assembly::room;
use super::builder::make_source;
use super::graph::{Kind, Make, Node, NodeId};
use super::placement::{Input, Placement, Scattered, Together};
use super::sink_builder::SinkBuilder;
use super::stream::Stream;
use crate::codec::{Data, Decode, Encode, Key, Keyed, Postcard, StateValue, Wire, encode_key};
use crate::processor::{Emit, ErrorPolicy, Number, PerKey, PerKeyOptions, Repartition, Route};
use crate::state::{CACHE_ENTRIES_DEFAULT, Entry};
use onceflow_types::{Error, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// A stream of values with a key each: a handle into the topology, as [`Stream`] is.
///
/// Operators with state need all records of a key in one task. While they are [`Scattered`], such an operator inserts a
/// repartition topic `<job>-repartition-<name of the operator>` before itself: queue = stable hash of the key's bytes,
/// modulo the number of queues. Several operators by the same key share one through [`repartition`](Self::repartition).
/// Once they are [`Together`] they stay so, until another [`key_by`](Stream::key_by).
pub struct KeyedStream<K, T, P = Scattered> {
    stream: Stream<(K, T)>,
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
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}};
    /// let builder = StreamBuilder::new("job")?;
    /// let cards = builder.source("in", Utf8).key_by(|card| card.clone()).partitioned_by_key();
    /// cards.count("counts").sink("out", "out", Json::new());
    /// assert_eq!(builder.build()?.subtopologies.len(), 1);
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
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone()).repartition("by-word").queues(4);
    /// words.count("counts").sink("counts", "counts", Json::new());
    /// words.sum("letters", |word| word.len() as u64).sink("letters", "letters", Json::new());
    /// let topology = builder.build()?;
    /// assert_eq!(topology.subtopologies.len(), 2, "both behind one repartition");
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
            Ok(room::<(K, T)>(Repartition::new(written.clone(), assembly.sink()?, assembly.guard()?)))
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

/// Operators with state. Each has a name, under which its state is kept; a name must not be used twice in a job.
impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// How many records each key has had.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).key_by(|word| word.clone()).count("counts").sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["a",1]"#, br#"["a",2]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn count(&self, name: &str) -> Running<K, u64> {
        self.per_key(name, "count", |entry: &mut Entry<'_, K, u64>, _: &T| {
            let count = entry
                .get()
                .copied()
                .unwrap_or(0)
                .checked_add(1)
                .ok_or_else(|| Error::record("count is out of range"))?;
            entry.set(count);
            Ok(count)
        })
    }

    /// The sum per key of what `number` takes from each value. A record whose sum is out of range goes to the error policy
    /// and changes nothing.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Json::<(String, i64)>::new())
    ///     .key_by(|(card, _)| card.clone())
    ///     .sum("spent", |(_, cents)| *cents)
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", br#"["c7",100]"#)?;
    /// driver.send("in", br#"["c7",-30]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",100]"#.as_slice(), br#"["c7",70]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn sum<N: Number>(&self, name: &str, number: impl Fn(&T) -> N + Send + Sync + 'static) -> Running<K, N> {
        self.per_key(name, "sum", move |entry: &mut Entry<'_, K, N>, value: &T| {
            let sum = entry.get().copied().unwrap_or(N::ZERO).add(number(value))?;
            entry.set(sum);
            Ok(sum)
        })
    }

    /// The values per key, combined two at a time: the one so far and the new one. The first stands for itself.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Json::<i64>::new())
    ///     .key_by(|number| number % 2 == 0)
    ///     .reduce("largest", |so_far, number| *so_far.max(number))
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in [3, 5, 1] {
    ///     driver.send("in", number.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[false,3]", b"[false,5]", b"[false,5]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn reduce(&self, name: &str, combine: impl Fn(&T, &T) -> T + Send + Sync + 'static) -> Running<K, T>
    where
        T: StateValue,
    {
        self.per_key(name, "reduce", move |entry: &mut Entry<'_, K, T>, value: &T| {
            let reduced = match entry.get() {
                Some(so_far) => combine(so_far, value),
                None => value.clone(),
            };
            entry.set(reduced.clone());
            Ok(reduced)
        })
    }

    /// A running value per key: begun by `init`, changed in place by `add`, put out as it is.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Utf8)
    ///     .key_by(|line| line.len())
    ///     .aggregate("joined", String::new, |all, line| all.push_str(line))
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.send("in", b"cd")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"[2,"ab"]"#.as_slice(), br#"[2,"abcd"]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn aggregate<A: StateValue + Data>(
        &self,
        name: &str,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&mut A, &T) + Send + Sync + 'static,
    ) -> Running<K, A> {
        self.per_key(name, "aggregate", move |entry: &mut Entry<'_, K, A>, value: &T| {
            let aggregate = entry.get_or_insert_with(&init);
            add(aggregate, value);
            Ok(aggregate.clone())
        })
    }

    /// As [`aggregate`](Self::aggregate), by an `add` that may fail. It works on a copy, so that a record that fails
    /// changes nothing.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Json, testing::TestDriver, types::Error};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Json::<i64>::new())
    ///     .key_by(|_| 0u8)
    ///     .try_aggregate("balance", || 100, |balance, change| {
    ///         *balance += change;
    ///         if *balance < 0 { Err(Error::record("overdrawn")) } else { Ok(()) }
    ///     })
    ///     .on_error(ErrorPolicy::Skip)
    ///     .values()
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"-30")?;
    /// driver.send("in", b"-90")?;
    /// driver.send("in", b"-10")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"70", b"60"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn try_aggregate<A: StateValue + Data>(
        &self,
        name: &str,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&mut A, &T) -> Result<()> + Send + Sync + 'static,
    ) -> Running<K, A> {
        self.per_key(name, "aggregate", move |entry: &mut Entry<'_, K, A>, value: &T| {
            let mut aggregate = entry.get().cloned().unwrap_or_else(&init);
            add(&mut aggregate, value)?;
            entry.set(aggregate.clone());
            Ok(aggregate)
        })
    }

    /// A running state per key, and what is put out is up to `step`: it sees the state, changes it in place, and returns
    /// the output for the record.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Json::<(String, i64)>::new())
    ///     .key_by(|(card, _)| card.clone())
    ///     .scan("last", || 0, |last, (_, cents)| {
    ///         let change = cents - *last;
    ///         *last = *cents;
    ///         change
    ///     })
    ///     .sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", br#"["c7",100]"#)?;
    /// driver.send("in", br#"["c7",130]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",100]"#.as_slice(), br#"["c7",30]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn scan<A: StateValue, O: Data>(
        &self,
        name: &str,
        init: impl Fn() -> A + Send + Sync + 'static,
        step: impl Fn(&mut A, &T) -> O + Send + Sync + 'static,
    ) -> Running<K, O> {
        self.per_key(name, "scan", move |entry: &mut Entry<'_, K, A>, value: &T| {
            Ok(step(entry.get_or_insert_with(&init), value))
        })
    }

    /// As [`scan`](Self::scan), by a `step` that may fail. It works on a copy, so that a record that fails changes
    /// nothing.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Json, testing::TestDriver, types::Error};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Json::<i64>::new())
    ///     .key_by(|_| 0u8)
    ///     .try_scan("balance", || 100, |balance, change| {
    ///         *balance += change;
    ///         if *balance < 0 { Err(Error::record("overdrawn")) } else { Ok(*balance < 50) }
    ///     })
    ///     .on_error(ErrorPolicy::Skip)
    ///     .values()
    ///     .sink("low", "low", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"-30")?;
    /// driver.send("in", b"-90")?;
    /// driver.send("in", b"-40")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("low"), [b"false".as_slice(), b"true"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn try_scan<A: StateValue + Data, O: Data>(
        &self,
        name: &str,
        init: impl Fn() -> A + Send + Sync + 'static,
        step: impl Fn(&mut A, &T) -> Result<O> + Send + Sync + 'static,
    ) -> Running<K, O> {
        self.per_key(name, "scan", move |entry: &mut Entry<'_, K, A>, value: &T| {
            let mut state = entry.get().cloned().unwrap_or_else(&init);
            let output = step(&mut state, value)?;
            entry.set(state);
            Ok(output)
        })
    }

    fn per_key<A, O, F>(&self, name: &str, word: &'static str, step: F) -> Running<K, O>
    where
        A: StateValue,
        O: Data,
        F: Fn(&mut Entry<'_, K, A>, &T) -> Result<O> + Send + Sync + 'static,
    {
        let Input { stream: input, write } = P::together(self, name);
        let table = input.graph().borrow_mut().name(name);
        let options = PerKeyOptions { table, emit: Emit::default(), cache_entries: CACHE_ENTRIES_DEFAULT };
        let step = Arc::new(step);
        let node = input.add(Kind::PerKey { word, options }, Some(ErrorPolicy::Fail), move |assembly| {
            let Kind::PerKey { options, .. } = assembly.kind()? else {
                return Err(Error::bug("node is not a keyed operator"));
            };
            let guard = assembly.guard()?;
            Ok(room::<(K, T)>(PerKey::<K, A, O, F>::new(options, step.clone(), guard, assembly.next()?)))
        });
        Running { stream: KeyedStream::new(Stream::new(input.graph(), node)), write }
    }
}

/// The stream behind an operator with state.
pub struct Running<K, O> {
    stream: KeyedStream<K, O, Together>,
    /// The writing half of the repartition that the operator brought with it.
    write: Option<NodeId>,
}

impl<K: Key, O: Data> Running<K, O> {
    /// When to put values out.
    ///
    /// ```
    /// # use onceflow::{Emit, StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone());
    /// words.count("counts").emit(Emit::PerEpoch).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["a",2]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn emit(self, emit: Emit) -> Self {
        self.change(|options| options.emit = emit)
    }

    /// How many entries of the state are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`]](crate::state::CACHE_ENTRIES_DEFAULT).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.count("counts").cache_entries(1_000).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[2,1]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.change(|options| options.cache_entries = entries_max)
    }

    /// What to do with records that the operator cannot work on, its own repartition included.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let sums = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8).sum("sums", |number| *number);
    /// sums.on_error(ErrorPolicy::dead_letter("out-of-range")).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in [i64::MAX, 1, -7] {
    ///     driver.send("in", number.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out").len(), 2);
    /// assert_eq!(driver.bodies("out-of-range").len(), 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        if let Some(write) = self.write
            && let Some(node) = self.stream.stream.graph().borrow_mut().node_mut(write)
        {
            node.policy = Some(policy.clone());
        }
        self.stream.stream.set_policy(policy);
        self
    }

    fn change(self, change: impl FnOnce(&mut PerKeyOptions)) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::PerKey { options, .. } = &mut node.kind {
                change(options);
            }
        });
        self
    }
}

/// The stream behind a repartition topic.
pub struct Repartitioned<K, T> {
    stream: KeyedStream<K, T, Together>,
    write: NodeId,
}

impl<K: Key, T: Data> Repartitioned<K, T> {
    pub(super) fn into_input(self) -> Input<K, T> {
        Input { stream: self.stream.stream, write: Some(self.write) }
    }

    /// The number of queues of the topic [8]: how many tasks share the work behind it. Fixed once the job has run.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::{Json, Utf8}};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone());
    /// words.repartition("by-word").queues(32).on_error(ErrorPolicy::Skip).count("counts");
    /// let topology = builder.build()?;
    /// let repartition = topology.subtopologies.iter().flat_map(|part| &part.sinks).next();
    /// assert_eq!(repartition.and_then(|sink| sink.queues), Some(32));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn queues(self, number: u32) -> Self {
        self.change(|node| {
            if let Kind::RepartitionWrite { queues, .. } = &mut node.kind {
                *queues = number;
            }
        })
    }

    /// What to do with records that cannot be written to the topic.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.change(|node| node.policy = Some(policy))
    }

    fn change(self, change: impl FnOnce(&mut Node)) -> Self {
        if let Some(node) = self.stream.stream.graph().borrow_mut().node_mut(self.write) {
            change(node);
        }
        self
    }
}

macro_rules! handle {
    ($name:ident) => {
        impl<K, T> Deref for $name<K, T> {
            type Target = KeyedStream<K, T, Together>;

            fn deref(&self) -> &KeyedStream<K, T, Together> {
                &self.stream
            }
        }

        impl<K, T> fmt::Debug for $name<K, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.stream).finish()
            }
        }
    };
}
handle!(Running);
handle!(Repartitioned);

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
