//! Joins of two keyed streams in a program.

use super::assembly::{Assembly, room};
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Placement, Together};
use super::sides::{Sides, set_policy};
use super::sink_builder::SinkBuilder;
use super::stream::Stream;
use crate::codec::{Data, Encode, Key, StateValue};
use crate::processor::{
    ErrorPolicy, IntervalJoin, JoinKind, JoinOptions, JoinPlace, JoinRule, JoinWindow, LateRecords, LatestJoin, Sided,
};
use crate::state::CACHE_ENTRIES_DEFAULT;
use crate::time::millis;
use onceflow_types::{Error, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The ports of a join for records that are late.
const LATE_LEFT: u32 = 1;
const LATE_RIGHT: u32 = 2;

/// Joins: records of two streams with equal keys, brought together. Both sides are keyed by one type, and their topics must
/// have the same queues, which a repartition sees to; if they have not, the job does not start.
///
/// A key that is, or holds, `None` is missing: it equals no other. Such records are
/// [counted](crate::stage::Counters::missing_keys); they come out alone where records without a partner do.
impl<K: Key, L: Data + StateValue, P: Placement<K, L>> KeyedStream<K, L, P> {
    /// Joins with all records of another stream that are near in event time: each pair once, so n left and m right records
    /// give n times m results. What comes next says what happens to records without a partner. `name` is the name of the
    /// operator, under which its state is kept.
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let orders = builder.source("orders", Json::<(u32, i64)>::new()).out_of_orderness(Duration::ZERO);
    /// let orders = orders.select_timestamp(|(_, time)| Timestamp::from_millis(*time)).key_by(|(order, _)| *order);
    /// let payments = builder.source("payments", Json::<(u32, i64)>::new()).out_of_orderness(Duration::ZERO);
    /// let payments = payments.select_timestamp(|(_, time)| Timestamp::from_millis(*time)).key_by(|(order, _)| *order);
    ///
    /// let window = JoinWindow::before(Duration::ZERO).after(Duration::from_millis(900));
    /// let paid = orders.join("paid", &payments, window).left(|order, payment| (order.1, payment.map(|paid| paid.1)));
    /// paid.sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("orders", b"[7,1000]")?;
    /// driver.send("orders", b"[8,1000]")?;
    /// driver.send("payments", b"[7,1500]")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[7,[1000,1500]]"]);
    /// driver.advance_event_time(Timestamp::from_millis(1901))?; // nothing can come to the other order any more
    /// driver.commit()?;
    /// let mut bodies = driver.bodies("out");
    /// bodies.sort();
    /// assert_eq!(bodies, [b"[7,[1000,1500]]".as_slice(), b"[8,[1000,null]]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join<R: Data + StateValue, Q: Placement<K, R>>(
        &self,
        name: &str,
        other: &KeyedStream<K, R, Q>,
        window: JoinWindow,
    ) -> Joining<K, L, R> {
        Joining(Sides::new(name, self, other), window)
    }

    /// Joins with the latest record of another stream, by event time, as long as it is not older than `live` before the
    /// watermark: each record of either side gives one result at once. Without a bound the state would grow for ever, so it
    /// must be given. A record that is older itself is late.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let prices = builder.source("prices", Json::<(String, i64)>::new()).key_by(|(paper, _)| paper.clone());
    /// let trades = builder.source("trades", Json::<(String, i64)>::new()).key_by(|(paper, _)| paper.clone());
    /// let worth = trades.join_latest("worth", &prices, Duration::from_secs(3600)).inner(|trade, price| trade.1 * price.1);
    /// worth.sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("prices", br#"["ore",5]"#)?;
    /// driver.commit()?;
    /// driver.send("trades", br#"["ore",20]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["ore",100]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join_latest<R: Data + StateValue, Q: Placement<K, R>>(
        &self,
        name: &str,
        other: &KeyedStream<K, R, Q>,
        live: Duration,
    ) -> JoiningLatest<K, L, R> {
        JoiningLatest(Sides::new(name, self, other), live)
    }
}

/// A join by nearness in time, before it is said what is made of its pairs; see [`KeyedStream::join`].
pub struct Joining<K, L, R>(Sides<K, L, R>, JoinWindow);

/// A join of latest values, before it is said what is made of its pairs; see [`KeyedStream::join_latest`].
pub struct JoiningLatest<K, L, R>(Sides<K, L, R>, Duration);

macro_rules! kinds {
    ($name:ident, $alone:literal, $(#[$inner:meta])*, $(#[$outer:meta])*) => {
        impl<K: Key, L: Data + StateValue, R: Data + StateValue> $name<K, L, R> {
            /// A result for each pair.
            $(#[$inner])*
            pub fn inner<O: Data>(self, result: impl Fn(&L, &R) -> O + Send + Sync + 'static) -> Joined<K, L, R, O> {
                self.by(JoinKind::Inner, move |left, right| Some(result(left?, right?)))
            }

            /// A result for each pair, and for each left record without a partner:
            #[doc = $alone]
            pub fn left<O: Data>(
                self,
                result: impl Fn(&L, Option<&R>) -> O + Send + Sync + 'static,
            ) -> Joined<K, L, R, O> {
                self.by(JoinKind::Left, move |left, right| Some(result(left?, right)))
            }

            /// A result for each pair, and for each record of either side without a partner:
            #[doc = $alone]
            $(#[$outer])*
            pub fn outer<O: Data>(
                self,
                result: impl Fn(Option<&L>, Option<&R>) -> O + Send + Sync + 'static,
            ) -> Joined<K, L, R, O> {
                self.by(JoinKind::Outer, move |left, right| Some(result(left, right)))
            }
        }

        impl<K, L, R> fmt::Debug for $name<K, L, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0.name).field(&self.1).finish()
            }
        }
    };
}
kinds! {
    Joining,
    "once, when its row is closed, with the time of the record.",
    /// Its time is that of the younger record.
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// joined.inner(|left, right| (*left, *right)).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", "100"), ("right", "105"), ("right", "120")] {
    ///     driver.send(topic, time.as_bytes())?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"[100,105]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ,
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// let joined = joined.outer(|left, right| (left.copied(), right.copied()));
    /// joined.values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", "100"), ("right", "105"), ("right", "120")] {
    ///     driver.send(topic, time.as_bytes())?;
    ///     driver.commit()?;
    /// }
    /// driver.advance_event_time(Timestamp::from_millis(131))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[100,105]".as_slice(), b"[null,120]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
}
kinds! {
    JoiningLatest,
    "at once.",
    /// Its time is that of the younger record.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join_latest("joined", &times("right"), Duration::from_secs(60));
    /// joined.inner(|left, right| (*left, *right)).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", "100"), ("right", "105"), ("right", "120")] {
    ///     driver.send(topic, time.as_bytes())?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"[100,105]", b"[100,120]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ,
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join_latest("joined", &times("right"), Duration::from_secs(60));
    /// let joined = joined.outer(|left, right| (left.copied(), right.copied()));
    /// joined.values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", "100"), ("right", "105"), ("right", "120")] {
    ///     driver.send(topic, time.as_bytes())?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"[100,null]".as_slice(), b"[100,105]", b"[100,120]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
}

impl<K: Key, L: Data + StateValue, R: Data + StateValue> Joining<K, L, R> {
    fn by<O: Data, F>(self, kind: JoinKind, function: F) -> Joined<K, L, R, O>
    where
        F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync + 'static,
    {
        let (function, window) = (Arc::new(function), self.1);
        add(self.0, kind, JoinRule::Interval(window), move |options, place| {
            let function = function.clone();
            room::<(K, Sided<L, R>)>(IntervalJoin::new(window, options, function, place))
        })
    }
}

impl<K: Key, L: Data + StateValue, R: Data + StateValue> JoiningLatest<K, L, R> {
    fn by<O: Data, F>(self, kind: JoinKind, function: F) -> Joined<K, L, R, O>
    where
        F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync + 'static,
    {
        let (function, live) = (Arc::new(function), millis(self.1));
        if live < 1 {
            let error = Error::invalid(format!("a join of latest values needs at least 1 ms: join={}", self.0.name));
            self.0.left.graph().borrow_mut().errors.push(error);
        }
        add(self.0, kind, JoinRule::Latest { live }, move |options, place| {
            let function = function.clone();
            room::<(K, Sided<L, R>)>(LatestJoin::new(live, options, function, place))
        })
    }
}

/// Adds a join node that takes both sides.
fn add<K: Key, L: Data, R: Data, O: Data>(
    sides: Sides<K, L, R>,
    kind: JoinKind,
    rule: JoinRule,
    make: impl Fn(&JoinOptions, JoinPlace<K, L, R, O>) -> Box<dyn std::any::Any> + Send + Sync + 'static,
) -> Joined<K, L, R, O> {
    let (left, right) = sides.marked(kind, Sided::Left, Sided::Right);
    let table = left.graph().borrow_mut().name(&sides.name);
    let cache_entries = if matches!(rule, JoinRule::Interval(_)) { JOIN_ROWS_DEFAULT } else { CACHE_ENTRIES_DEFAULT };
    let options = JoinOptions { table, kind, rule, cache_entries };
    let node = left.add(Kind::Join { options }, Some(ErrorPolicy::Fail), move |assembly| {
        let Kind::Join { options } = assembly.kind()? else { return Err(Error::bug("node is not a join")) };
        Ok(make(options, place(assembly)?))
    });
    right.flow_into(left.graph(), node);
    let stream = KeyedStream::new(Stream::new(left.graph(), node));
    Joined { stream, writes: sides.writes, sides: PhantomData }
}

fn place<K: Key, L: Data, R: Data, O: Data>(assembly: &mut Assembly<'_>) -> Result<JoinPlace<K, L, R, O>> {
    Ok(JoinPlace {
        guard: assembly.guard()?,
        clock: assembly.clock()?,
        input: assembly.own_input()?,
        next: assembly.next()?,
        late: LateRecords::new(assembly.port(LATE_LEFT)?, assembly.port(LATE_RIGHT)?),
    })
}

/// How many open rows of each side an interval join keeps in memory in each task, unless it is told otherwise.
pub const JOIN_ROWS_DEFAULT: usize = 32_768;

/// The results of a join: a [`KeyedStream`].
pub struct Joined<K, L, R, O> {
    stream: KeyedStream<K, O, Together>,
    writes: Vec<NodeId>,
    sides: PhantomData<fn() -> (L, R)>,
}

impl<K: Key, L: Data, R: Data, O: Data> Joined<K, L, R, O> {
    /// How many entries of each side, rows of an interval join or keys of a join of latest values, are kept decoded in memory,
    /// at least one [[`JOIN_ROWS_DEFAULT`], and [`CACHE_ENTRIES_DEFAULT`] keys]. An interval join whose open rows fit into memory never reads its store.
    #[must_use]
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::Join { options } = &mut node.kind {
                options.cache_entries = entries_max;
            }
        });
        self
    }

    /// The left records that came too late. They are counted in any case.
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// let joined = joined.inner(|left, right| (*left, *right));
    /// joined.late_left().sink("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("left", b"100")?;
    /// driver.send("right", b"100")?;
    /// driver.commit()?; // event time is 100 now
    /// driver.send("left", b"90")?;
    /// driver.send("left", b"89")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"[0,89]"]);
    /// assert_eq!(driver.counters().late, 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_left(&self) -> KeyedStream<K, L, Together> {
        self.port("late left", LATE_LEFT)
    }

    /// The right records that came too late, as [`late_left`](Self::late_left).
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// let joined = joined.inner(|left, right| (*left, *right));
    /// joined.late_right().sink("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("left", b"100")?;
    /// driver.send("right", b"100")?;
    /// driver.commit()?; // event time is 100 now
    /// driver.send("right", b"89")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"[0,89]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_right(&self) -> KeyedStream<K, R, Together> {
        self.port("late right", LATE_RIGHT)
    }

    /// Writes the left records that came too late to a topic; see [`KeyedStream::sink`].
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// let joined = joined.inner(|left, right| (*left, *right));
    /// joined.late_left_to("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("left", b"100")?;
    /// driver.send("right", b"100")?;
    /// driver.commit()?; // event time is 100 now
    /// driver.send("left", b"89")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"[0,89]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_left_to<C: Encode<(K, L)> + 'static>(
        &self,
        name: &str,
        topic: &str,
        codec: C,
    ) -> SinkBuilder<(K, L), C> {
        self.late_left().sink(name, topic, codec)
    }

    /// Writes the right records that came too late to a topic; see [`KeyedStream::sink`].
    ///
    /// ```
    /// # use onceflow::{JoinWindow, StreamBuilder, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time)).key_by(|_| 0u8)
    /// # };
    /// let joined = times("left").join("joined", &times("right"), JoinWindow::within(Duration::from_millis(10)));
    /// let joined = joined.inner(|left, right| (*left, *right));
    /// joined.late_right_to("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("left", b"100")?;
    /// driver.send("right", b"100")?;
    /// driver.commit()?; // event time is 100 now
    /// driver.send("right", b"89")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"[0,89]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_right_to<C: Encode<(K, R)> + 'static>(
        &self,
        name: &str,
        topic: &str,
        codec: C,
    ) -> SinkBuilder<(K, R), C> {
        self.late_right().sink(name, topic, codec)
    }

    fn port<V: Data>(&self, word: &'static str, port: u32) -> KeyedStream<K, V, Together> {
        let node = self.stream.stream.add(Kind::Port { word, port }, None, |assembly| {
            let next = assembly.next::<(K, V)>()?;
            Ok(Box::new(next))
        });
        KeyedStream::new(Stream::new(self.stream.stream.graph(), node))
    }

    /// What to do with records that the join cannot work on, its own repartitions included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        set_policy(&self.stream, &self.writes, policy);
        self
    }
}

impl<K, L, R, O> Deref for Joined<K, L, R, O> {
    type Target = KeyedStream<K, O, Together>;

    fn deref(&self) -> &KeyedStream<K, O, Together> {
        &self.stream
    }
}

impl<K, L, R, O> fmt::Debug for Joined<K, L, R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Joined").field(&self.stream).finish()
    }
}
