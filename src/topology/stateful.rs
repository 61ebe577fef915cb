//! Operators with state.

use super::assembly::{Assembly, room};
use super::graph::Kind;
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement};
use super::running::Running;
use super::stream::Stream;
use crate::codec::{Data, Key, StateValue};
use crate::processor::{Aged, ErrorPolicy, Number, PerKey, PerKeyOptions};
use crate::state::{Aging, Entry};
use onceflow_types::{Error, Result};
use std::sync::Arc;

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

    pub(super) fn per_key<A, O, F>(&self, name: &str, word: &'static str, step: F) -> Running<K, O>
    where
        A: StateValue,
        O: Data,
        F: Fn(&mut Entry<'_, K, A>, &T) -> Result<O> + Send + Sync + 'static,
    {
        self.per_key_some(name, word, move |entry: &mut Entry<'_, K, A>, value: &T| step(entry, value).map(Some))
    }

    /// As [`per_key`](Self::per_key), by a step that need not put anything out.
    pub(super) fn per_key_some<A, O, F>(&self, name: &str, word: &'static str, step: F) -> Running<K, O>
    where
        A: StateValue,
        O: Data,
        F: Fn(&mut Entry<'_, K, A>, &T) -> Result<Option<O>> + Send + Sync + 'static,
    {
        let Input { stream: input, write } = P::together(self, name);
        let table = input.graph().borrow_mut().name(name);
        let options = PerKeyOptions::new(table);
        let step = Arc::new(step);
        let node = input.add(Kind::PerKey { word, options }, Some(ErrorPolicy::Fail), move |assembly| {
            let Kind::PerKey { options, .. } = assembly.kind()? else {
                return Err(Error::bug("node is not a keyed operator"));
            };
            let (guard, aged) = (assembly.guard()?, aged(options, assembly)?);
            Ok(room::<(K, T)>(PerKey::<K, A, O, F>::new(options, step.clone(), aged, guard, assembly.next()?)?))
        });
        Running { stream: KeyedStream::new(Stream::new(input.graph(), node)), write }
    }
}

/// What ages the state of the present node, if it has a time to live.
fn aged(options: &PerKeyOptions, assembly: &Assembly<'_>) -> Result<Option<Aged>> {
    let Some(time_to_live) = options.time_to_live else { return Ok(None) };
    if time_to_live.is_empty() {
        return Err(Error::invalid(format!("time to live must be at least 1 ms: operator={}", options.table)));
    }
    Ok(Some(Aged::new(Aging::new(options.table.clone(), time_to_live), assembly.clock()?)))
}
