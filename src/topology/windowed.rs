//! Windows in a program.

use super::assembly::{Assembly, room};
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement, Together};
use super::sink_builder::SinkBuilder;
use super::stream::Stream;
use crate::accumulator::{Accumulator, Aggregate, Avg, By, Count, Max, Min, Reduce, Sum};
use crate::codec::{Data, Encode, Key, StateValue};
use crate::processor::{
    CountWindows, ErrorPolicy, LookBack, Number, Panes, Place, Push, Sessions, Shape, WindowOptions, WindowRoom,
};
use crate::state::CACHE_ENTRIES_DEFAULT;
use crate::time::millis;
use crate::window::{Rule, Trigger, Windowed, Windows, WindowsKind};
use onceflow_types::{Error, Result};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The port of a window operator for records that are late.
const LATE: u32 = 1;

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// Cuts the stream into windows, per key. What is made of the values of a window comes next; `name` is the name of the
    /// operator, under which its state is kept.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let uses = builder.source("in", Json::<(String, i64)>::new());
    /// let uses = uses.select_timestamp(|(_, millis)| Timestamp::from_millis(*millis));
    /// let counts = uses.key_by(|(card, _)| card.clone()).window("uses", Windows::tumbling(Duration::from_secs(10))).count();
    /// counts.sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for record in [r#"["c7",1000]"#, r#"["c7",9000]"#, r#"["c7",12000]"#] {
    ///     driver.send("in", record.as_bytes())?; // the last one moves the watermark to 10 s
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",{"window_start":0,"window_end":10000,"value":2}]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn window(&self, name: &str, windows: Windows) -> WindowedBy<K, T, P> {
        WindowedBy { stream: self.clone(), name: name.to_owned(), windows, rule: Rule::default() }
    }
}

/// A stream cut into windows, before it is said what is made of them.
pub struct WindowedBy<K, T, P> {
    stream: KeyedStream<K, T, P>,
    name: String,
    windows: Windows,
    rule: Rule,
}

impl<K: Key, T: Data, P: Placement<K, T>> WindowedBy<K, T, P> {
    /// How long a window waits for records that are late after it is complete \[0\]. Under [`Trigger::OnClose`] its result
    /// waits, too.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("counts", Windows::tumbling(Duration::from_millis(10)));
    /// let counts = windows.lateness(Duration::from_millis(5)).count();
    /// counts.values().map(|count| count.value).sink("out", "out", Json::new());
    /// counts.late_to("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 14, 4, 15, 5] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 14: complete, 15: gone
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"2"]);
    /// assert_eq!(driver.bodies("late"), [br#"[0,{"window_start":0,"window_end":10,"value":5}]"#]);
    /// assert_eq!(driver.counters().late, 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn lateness(mut self, allowed: Duration) -> Self {
        self.rule.lateness = millis(allowed);
        self
    }

    /// When windows put results out \[once, when they are gone\].
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Trigger, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("counts", Windows::tumbling(Duration::from_millis(10)));
    /// let counts = windows.trigger(Trigger::OnUpdate).count();
    /// counts.values().map(|count| count.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 4, 25] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"1", b"2", b"1"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.rule.trigger = trigger;
        self
    }

    /// A result holds only what came since the window's last one, and whoever reads them adds them up. Otherwise each replaces
    /// the one before.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Trigger, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("counts", Windows::tumbling(Duration::from_millis(100)));
    /// let counts = windows.trigger(Trigger::Every(Duration::from_millis(10))).deltas().count();
    /// counts.values().map(|count| count.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 4, 12, 14, 100] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 12 takes time past 10, 100 past 20
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"3", b"1"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn deltas(mut self) -> Self {
        self.rule.deltas = true;
        self
    }

    /// How many records there are.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.count();
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 8, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"2"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn count(self) -> WindowResults<K, T, u64> {
        self.by("count", Count)
    }

    /// The sum of what `number` takes from each value. A record whose sum is out of range goes to the error policy and changes
    /// nothing.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.sum(|time| *time);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 8, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"11"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn sum<N: Number>(self, number: impl Fn(&T) -> N + Send + Sync + 'static) -> WindowResults<K, T, N> {
        self.by("sum", By::<_, N, Sum>::new(number))
    }

    /// The mean of what `number` takes from each value.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.avg(|time| *time);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 8, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"5.5"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn avg<N: Number>(self, number: impl Fn(&T) -> N + Send + Sync + 'static) -> WindowResults<K, T, f64> {
        self.by("avg", By::<_, N, Avg>::new(number))
    }

    /// The smallest of what `part` takes from each value.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.min(|time| *time);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [8, 3, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"3"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn min<V: StateValue + Data + Ord>(
        self,
        part: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> WindowResults<K, T, V> {
        self.by("min", By::<_, V, Min>::new(part))
    }

    /// The largest of what `part` takes from each value.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.max(|time| *time);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [8, 3, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"8"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn max<V: StateValue + Data + Ord>(
        self,
        part: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> WindowResults<K, T, V> {
        self.by("max", By::<_, V, Max>::new(part))
    }

    /// The values combined two at a time, by a function that does not mind how they are grouped.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.reduce(|one, other| one * 100 + other);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 8, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"308"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn reduce(self, combine: impl Fn(&T, &T) -> T + Send + Sync + 'static) -> WindowResults<K, T, T>
    where
        T: StateValue,
    {
        self.by("reduce", Reduce(combine))
    }

    /// A value begun by `init` and changed in place by `add`, for each value of the window; `merge` adds what came to another
    /// one, when sessions merge or a look back is taken.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new());
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let windows = times.window("lists", Windows::session(Duration::from_millis(10)));
    /// let lists = windows.aggregate(Vec::new, |list, time| list.push(*time), |list, other| list.extend(other));
    /// lists.values().map(|list| list.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 23, 13, 9_000] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 13 lies between two sessions
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[3,23,13]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn aggregate<A: StateValue + Data>(
        self,
        init: impl Fn() -> A + Send + Sync + 'static,
        add: impl Fn(&mut A, &T) + Send + Sync + 'static,
        merge: impl Fn(&mut A, &A) + Send + Sync + 'static,
    ) -> WindowResults<K, T, A> {
        self.by("aggregate", Aggregate { init, add, merge, state: PhantomData })
    }

    /// What an [`Accumulator`] makes of the values.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// # use onceflow::{Accumulator, types::Result};
    /// /// How far the values are apart.
    /// struct Spread;
    /// impl Accumulator<i64> for Spread {
    ///     type State = (i64, i64);
    ///     type Output = i64;
    ///     fn first(&self, value: &i64) -> Result<(i64, i64)> {
    ///         Ok((*value, *value))
    ///     }
    ///     fn add(&self, (min, max): &mut (i64, i64), value: &i64) -> Result<()> {
    ///         (*min, *max) = ((*min).min(*value), (*max).max(*value));
    ///         Ok(())
    ///     }
    ///     fn merge(&self, state: &mut (i64, i64), other: &(i64, i64)) -> Result<()> {
    ///         self.add(state, &other.0)?;
    ///         self.add(state, &other.1)
    ///     }
    ///     fn result(&self, (min, max): &(i64, i64)) -> i64 {
    ///         max - min
    ///     }
    /// }
    ///
    /// let windows = times.window("of", Windows::tumbling(Duration::from_millis(10)));
    /// let of = windows.aggregate_with(Spread);
    /// of.values().map(|window| window.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 8, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 10 is the next window
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"5"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn aggregate_with<G: Accumulator<T>>(self, accumulator: G) -> WindowResults<K, T, G::Output> {
        self.by("aggregate", accumulator)
    }

    fn by<G: Accumulator<T>>(self, word: &'static str, accumulator: G) -> WindowResults<K, T, G::Output> {
        let WindowedBy { stream, name, windows, rule } = self;
        let Input { stream: input, write } = P::together(&stream, &name);
        let table = {
            let mut graph = input.graph().borrow_mut();
            let checked = windows.check().and_then(|()| rule.check(&windows));
            graph.kept(checked.map_err(|e| e.context(format!("window {name}"))), || ());
            graph.name(&name)
        };
        let options = WindowOptions { table, windows, rule, cache_entries: CACHE_ENTRIES_DEFAULT };
        let accumulator = Arc::new(accumulator);
        let kind = Kind::Window { word, options };
        let node = input.add(kind, Some(ErrorPolicy::Fail), move |assembly| make::<K, T, G>(&accumulator, assembly));
        let stream = KeyedStream::new(Stream::new(input.graph(), node));
        WindowResults { stream, write, values: PhantomData }
    }
}

/// The room of a window operator, by the kind of its windows.
fn make<K: Key, T: Data, G: Accumulator<T>>(accumulator: &Arc<G>, assembly: &mut Assembly<'_>) -> Result<Box<dyn Any>> {
    let Kind::Window { options, .. } = assembly.kind()? else {
        return Err(Error::bug("node is not a window operator"));
    };
    let place: Place<K, T, G::Output> = Place {
        guard: assembly.guard()?,
        clock: assembly.clock()?,
        input: assembly.own_input()?,
        next: assembly.next()?,
        next_late: assembly.port(LATE)?,
    };
    if let Some(align) = options.windows.align()? {
        return Ok(boxed(WindowRoom::new(Panes::new(align, options), options, accumulator.clone(), place)));
    }
    match options.windows.kind {
        WindowsKind::Session { gap } => {
            Ok(boxed(WindowRoom::new(Sessions::new(gap, options), options, accumulator.clone(), place)))
        }
        WindowsKind::Sliding { size } => {
            Ok(boxed(WindowRoom::new(LookBack::new(size, options), options, accumulator.clone(), place)))
        }
        WindowsKind::Count { records } => {
            Ok(boxed(WindowRoom::new(CountWindows::new(records, options), options, accumulator.clone(), place)))
        }
        WindowsKind::Hopping { .. } | WindowsKind::Daily { .. } => Err(Error::bug("windows without their beginnings")),
    }
}

fn boxed<K: Key, T: Data, G: Accumulator<T>, S: Shape<K, T, G> + 'static>(made: WindowRoom<K, T, G, S>) -> Box<dyn Any>
where
    WindowRoom<K, T, G, S>: Push<(K, T)>,
{
    room::<(K, T)>(made)
}

/// The results of windows: a [`KeyedStream`] of values with their windows.
pub struct WindowResults<K, T, O> {
    stream: KeyedStream<K, Windowed<O>, Together>,
    /// The writing half of the repartition that the operator brought with it.
    write: Option<NodeId>,
    values: PhantomData<fn() -> T>,
}

impl<K: Key, T: Data, O: Data> WindowResults<K, T, O> {
    /// The records that came too late: each with the window that it is late for, once for each such window. They are counted
    /// in any case.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::tumbling(Duration::from_millis(10))).count();
    /// counts.late().values().map(|missed| (missed.window_end.as_millis(), missed.value)).sink("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 10, 4] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("late"), [b"[10,4]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late(&self) -> KeyedStream<K, Windowed<T>, Together> {
        let kind = Kind::Port { word: "late", port: LATE };
        let node = self.stream.stream.add(kind, None, |assembly| {
            let next = assembly.next::<(K, Windowed<T>)>()?;
            Ok(Box::new(next))
        });
        KeyedStream::new(Stream::new(self.stream.stream.graph(), node))
    }

    /// Writes the records that came too late to a topic; see [`late`](Self::late) and [`KeyedStream::sink`].
    pub fn late_to<C: Encode<(K, Windowed<T>)> + 'static>(
        &self,
        name: &str,
        topic: &str,
        codec: C,
    ) -> SinkBuilder<(K, Windowed<T>), C> {
        self.late().sink(name, topic, codec)
    }

    /// What to do with records that the operator cannot work on, its own repartition included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.stream.set_policy_with(self.write, policy);
        self
    }

    /// How many entries of the state are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`](crate::state::CACHE_ENTRIES_DEFAULT)].
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::Window { options, .. } = &mut node.kind {
                options.cache_entries = entries_max;
            }
        });
        self
    }
}

impl<K, T, O> Deref for WindowResults<K, T, O> {
    type Target = KeyedStream<K, Windowed<O>, Together>;

    fn deref(&self) -> &KeyedStream<K, Windowed<O>, Together> {
        &self.stream
    }
}

impl<K, T, P> fmt::Debug for WindowedBy<K, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowedBy").field("name", &self.name).field("windows", &self.windows).finish_non_exhaustive()
    }
}

impl<K, T, O> fmt::Debug for WindowResults<K, T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WindowResults").field(&self.stream).finish()
    }
}
