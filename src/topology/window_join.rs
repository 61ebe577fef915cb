//! The join of all records that fall into one window: `join`, `where_key`, `equal_to`, `window`, `apply`.

use super::keyed_stream::KeyedStream;
use super::placement::{Scattered, Together};
use super::sides::{Sides, set_policy};
use super::stream::Stream;
use super::windowed::WindowResults;
use crate::codec::{Data, Key, Wire};
use crate::processor::{ErrorPolicy, JoinKind, Sided, is_missing};
use crate::window::{Windowed, Windows};
use onceflow_types::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

impl<L: Wire> Stream<L> {
    /// Joins with all records of another stream that have an equal key and fall into the same window. What comes next says
    /// the keys, the windows, and what is made of each pair.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let tickets = builder.source("tickets", Json::<(String, i64)>::new());
    /// let tickets = tickets.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    /// let films = builder.source("films", Json::<(String, i64)>::new());
    /// let films = films.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    ///
    /// let sold = tickets
    ///     .join(&films)
    ///     .where_key(|(film, _)| film.clone())
    ///     .equal_to(|(film, _)| film.clone())
    ///     .window("sold", Windows::tumbling(Duration::from_secs(10)))
    ///     .apply(|ticket, film| (ticket.1, film.1));
    /// sold.map(|_, pair| pair.value).sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for ticket in [r#"["Ran",1000]"#, r#"["Ran",2000]"#, r#"["Ran",11000]"#] {
    ///     driver.send("tickets", ticket.as_bytes())?;
    /// }
    /// driver.send("films", br#"["Ran",3000]"#)?;
    /// driver.commit()?;
    /// assert!(driver.bodies("out").is_empty(), "the window is not complete");
    /// driver.advance_event_time(Timestamp::from_millis(10_000))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[1000,3000]", b"[2000,3000]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join<R: Wire>(&self, other: &Stream<R>) -> WindowJoin<L, R> {
        WindowJoin { left: self.clone(), right: other.clone() }
    }
}

/// Two streams that are to be joined, before it is said by which keys; see [`Stream::join`].
pub struct WindowJoin<L, R> {
    left: Stream<L>,
    right: Stream<R>,
}

impl<L: Wire, R: Wire> WindowJoin<L, R> {
    /// The key of the left stream.
    pub fn where_key<K: Key>(self, key: impl Fn(&L) -> K + Send + Sync + 'static) -> WindowJoinKeys<K, L, R> {
        WindowJoinKeys { left: self.left.key_by(key), right: self.right }
    }
}

/// Two streams that are to be joined, the left one keyed; see [`Stream::join`].
pub struct WindowJoinKeys<K, L, R> {
    left: KeyedStream<K, L, Scattered>,
    right: Stream<R>,
}

impl<K: Key, L: Wire, R: Wire> WindowJoinKeys<K, L, R> {
    /// The key of the right stream.
    pub fn equal_to(self, key: impl Fn(&R) -> K + Send + Sync + 'static) -> Windowing<K, L, R> {
        let right = self.right.key_by(key);
        Windowing {
            left: self.left,
            right,
            name: String::new(),
            windows: Windows::tumbling(Duration::ZERO),
            lateness: Duration::ZERO,
        }
    }
}

/// Two keyed streams that are to be joined by windows; see [`Stream::join`].
pub struct Windowing<K, L, R> {
    left: KeyedStream<K, L, Scattered>,
    right: KeyedStream<K, R, Scattered>,
    name: String,
    windows: Windows,
    lateness: Duration,
}

/// All records of a key in a window.
type Lists<L, R> = (Vec<L>, Vec<R>);

impl<K: Key, L: Wire, R: Wire> Windowing<K, L, R> {
    /// The windows: tumbling, hopping, daily ones or sessions. All records of a key in a window are one entry of the state.
    /// `name` is the name of the operator.
    #[must_use]
    pub fn window(self, name: &str, windows: Windows) -> Self {
        Windowing { name: name.to_owned(), windows, ..self }
    }

    /// How long windows wait for records that are late \[0\]; their results wait, too.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time))
    /// # };
    /// let pairs = times("left").join(&times("right")).where_key(|_| 0u8).equal_to(|_| 0u8);
    /// let pairs = pairs.window("pairs", Windows::tumbling(Duration::from_millis(10))).lateness(Duration::from_millis(5));
    /// pairs.apply(|left, right| (*left, *right)).map(|_, pair| pair.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("left", b"3")?;
    /// driver.advance_event_time(Timestamp::from_millis(14))?;
    /// driver.send("right", b"4")?; // its window is complete, but not gone
    /// driver.commit()?;
    /// driver.advance_event_time(Timestamp::from_millis(15))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[3,4]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn lateness(self, allowed: Duration) -> Self {
        Windowing { lateness: allowed, ..self }
    }

    /// A result for each pair in a window, when the window is gone.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time))
    /// # };
    /// let pairs = times("left").join(&times("right")).where_key(|_| 0u8).equal_to(|_| 0u8);
    /// let pairs = pairs.window("pairs", Windows::tumbling(Duration::from_millis(10)));
    /// pairs.apply(|left, right| (*left, *right)).map(|_, pair| pair.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", b"3"), ("left", b"4"), ("right", b"5")] {
    ///     driver.send(topic, time)?;
    /// }
    /// driver.commit()?;
    /// driver.advance_event_time(Timestamp::from_millis(10))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[3,5]", b"[4,5]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn apply<O: Data>(self, result: impl Fn(&L, &R) -> O + Send + Sync + 'static) -> WindowJoined<K, L, R, O> {
        self.by(JoinKind::Inner, move |left, right| Some(result(left?, right?)))
    }

    /// A result for each pair, and for each left record in whose window there is no right one.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let tickets = builder.source("tickets", Json::<Option<u8>>::new());
    /// # let films = builder.source("films", Json::<Option<u8>>::new());
    /// let pairs = tickets.join(&films).where_key(|film| *film).equal_to(|film| *film);
    /// let pairs = pairs.window("sold", Windows::tumbling(Duration::from_secs(10)));
    /// let sold = pairs.apply_left(|ticket, film| (*ticket, film.is_some()));
    /// sold.map(|_, pair| pair.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for topic in ["tickets", "films"] {
    ///     driver.send(topic, b"7")?;
    ///     driver.send(topic, b"null")?; // a missing key equals no other
    /// }
    /// driver.commit()?;
    /// driver.advance_event_time(Timestamp::from_millis(10_000))?;
    /// driver.commit()?;
    /// let mut bodies = driver.bodies("out");
    /// bodies.sort();
    /// assert_eq!(bodies, [b"[7,true]".as_slice(), b"[null,false]"]);
    /// assert_eq!(driver.counters().missing_keys, 2);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn apply_left<O: Data>(
        self,
        result: impl Fn(&L, Option<&R>) -> O + Send + Sync + 'static,
    ) -> WindowJoined<K, L, R, O> {
        self.by(JoinKind::Left, move |left, right| Some(result(left?, right)))
    }

    /// A result for each pair, and for each record of either side in whose window there is none of the other.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time))
    /// # };
    /// let pairs = times("left").join(&times("right")).where_key(|_| 0u8).equal_to(|_| 0u8);
    /// let pairs = pairs.window("pairs", Windows::tumbling(Duration::from_millis(10)));
    /// let joined = pairs.apply_outer(|left, right| (left.copied(), right.copied()));
    /// joined.map(|_, pair| pair.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (topic, time) in [("left", "3"), ("right", "15")] {
    ///     driver.send(topic, time.as_bytes())?; // in different windows
    /// }
    /// driver.commit()?;
    /// driver.advance_event_time(Timestamp::from_millis(20))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[3,null]".as_slice(), b"[null,15]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn apply_outer<O: Data>(
        self,
        result: impl Fn(Option<&L>, Option<&R>) -> O + Send + Sync + 'static,
    ) -> WindowJoined<K, L, R, O> {
        self.by(JoinKind::Outer, move |left, right| Some(result(left, right)))
    }

    fn by<O: Data, F>(self, kind: JoinKind, function: F) -> WindowJoined<K, L, R, O>
    where
        F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync + 'static,
    {
        let sides = Sides::new(&self.name, &self.left, &self.right);
        let (left, right) = sides.marked(kind, Sided::Left, Sided::Right);
        if self.windows.fires_by_records() {
            let error =
                format!("streams cannot be joined by these windows: join={} windows={}", self.name, self.windows);
            left.graph().borrow_mut().errors.push(Error::invalid(error));
        }
        let both: KeyedStream<K, Sided<L, R>, Together> = KeyedStream::new(left.merge(&right));
        let lists = both.window(&self.name, self.windows).lateness(self.lateness).aggregate(
            || (vec![], vec![]),
            |lists: &mut Lists<L, R>, record| match record.clone() {
                Sided::Left(left) => lists.0.push(left),
                Sided::Right(right) => lists.1.push(right),
            },
            |lists, other| {
                lists.0.extend(other.0.iter().cloned());
                lists.1.extend(other.1.iter().cloned());
            },
        );
        let function = Arc::new(function);
        let results = lists.pairs().flat_map(move |(key, lists)| pairs(key, lists, kind, function.clone()));
        WindowJoined { lists, stream: KeyedStream::new(results), writes: sides.writes }
    }
}

/// The results of one window of one key, one after the other.
fn pairs<K: Key, L: Data, R: Data, O: Data, F>(
    key: K,
    lists: Windowed<Lists<L, R>>,
    kind: JoinKind,
    function: Arc<F>,
) -> impl Iterator<Item = (K, Windowed<O>)>
where
    F: Fn(Option<&L>, Option<&R>) -> Option<O>,
{
    let is_alone = is_missing(&key);
    let (window, (left, right)) = (lists.clone().map(|_| ()), lists.value);
    let lefts_alone = kind != JoinKind::Inner && (is_alone || right.is_empty());
    let rights_alone = kind == JoinKind::Outer && (is_alone || left.is_empty());
    let paired = if is_alone { 0 } else { left.len() * right.len() };
    let alone = if lefts_alone { left.len() } else { 0 } + if rights_alone { right.len() } else { 0 };
    (0..paired + alone).filter_map(move |at| {
        let result = match at.checked_sub(paired) {
            None => function(left.get(at / right.len()), right.get(at % right.len())),
            Some(at) if lefts_alone && at < left.len() => function(left.get(at), None),
            Some(at) => function(None, right.get(if lefts_alone { at - left.len() } else { at })),
        };
        Some((key.clone(), window.map(|()| result).transpose()?))
    })
}

/// The results of a join by windows: a [`KeyedStream`] of values with their windows.
pub struct WindowJoined<K, L, R, O> {
    lists: WindowResults<K, Sided<L, R>, Lists<L, R>>,
    stream: KeyedStream<K, Windowed<O>, Together>,
    writes: Vec<super::graph::NodeId>,
}

impl<K: Key, L: Wire, R: Wire, O: Data> WindowJoined<K, L, R, O> {
    /// The left records that came too late, each with the window that it is late for. They are counted in any case.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time))
    /// # };
    /// let pairs = times("left").join(&times("right")).where_key(|_| 0u8).equal_to(|_| 0u8);
    /// let pairs = pairs.window("pairs", Windows::tumbling(Duration::from_millis(10)));
    /// let joined = pairs.apply(|left, right| (*left, *right));
    /// joined.late_left().values().map(|late| late.value).sink("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.advance_event_time(Timestamp::from_millis(10))?;
    /// driver.commit()?;
    /// driver.send("left", b"3")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"3"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_left(&self) -> KeyedStream<K, Windowed<L>, Together> {
        self.late(|late| match late {
            Sided::Left(left) => Some(left),
            Sided::Right(_) => None,
        })
    }

    /// The right records that came too late, as [`late_left`](Self::late_left).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = |topic: &str| {
    /// #     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// #     source.select_timestamp(|time| Timestamp::from_millis(*time))
    /// # };
    /// let pairs = times("left").join(&times("right")).where_key(|_| 0u8).equal_to(|_| 0u8);
    /// let pairs = pairs.window("pairs", Windows::tumbling(Duration::from_millis(10)));
    /// let joined = pairs.apply(|left, right| (*left, *right));
    /// joined.late_right().values().map(|late| late.value).sink("late", "late", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.advance_event_time(Timestamp::from_millis(10))?;
    /// driver.commit()?;
    /// driver.send("right", b"3")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("late"), [b"3"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn late_right(&self) -> KeyedStream<K, Windowed<R>, Together> {
        self.late(|late| match late {
            Sided::Left(_) => None,
            Sided::Right(right) => Some(right),
        })
    }

    fn late<V: Data>(&self, of: fn(Sided<L, R>) -> Option<V>) -> KeyedStream<K, Windowed<V>, Together> {
        let late = self.lists.late().pairs();
        KeyedStream::new(late.flat_map(move |(key, late)| late.map(of).transpose().map(|late| (key, late))))
    }

    /// What to do with records that the join cannot work on, its repartitions included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        set_policy(&self.lists, &self.writes, policy);
        self
    }
}

impl<K, L, R, O> Deref for WindowJoined<K, L, R, O> {
    type Target = KeyedStream<K, Windowed<O>, Together>;

    fn deref(&self) -> &KeyedStream<K, Windowed<O>, Together> {
        &self.stream
    }
}

macro_rules! named {
    ($($name:ident<$($parameter:ident),*> by $field:ident,)*) => {$(
        impl<$($parameter),*> fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field(stringify!($field), &self.$field).finish_non_exhaustive()
            }
        }
    )*};
}
named! {
    WindowJoin<L, R> by left,
    WindowJoinKeys<K, L, R> by left,
    Windowing<K, L, R> by name,
    WindowJoined<K, L, R, O> by stream,
}
