//! What a processor works with.

use super::living::{LivingTable, NAMED, Now, Part};
use super::tables::{ListEntry, ListTable, MapEntry, Sides, Tables};
use super::{ListState, MapState, SideOutput, ValueState};
use crate::codec::{Data, Key, StateValue};
use crate::record::{Origin, Record};
use crate::state::{Entry, TaskState, TimeToLive, TimerKind, Timers, ValueTable};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::fmt;
use std::marker::PhantomData;

/// Names the state of a processor. A name is at most 40 of letters, digits, `_` and `-`, and unique in its processor; what is
/// kept hangs on it and on the name of the operator.
pub struct Setup<'s, K> {
    name: &'s Name,
    tables: &'s mut Tables,
    state: &'s mut TaskState,
    cache_entries: usize,
    named: Vec<String>,
    keys: PhantomData<fn() -> K>,
}

impl<'s, K: Key> Setup<'s, K> {
    pub(crate) fn new(name: &'s Name, tables: &'s mut Tables, state: &'s mut TaskState, cache_entries: usize) -> Self {
        Setup { name, tables, state, cache_entries, named: vec![], keys: PhantomData }
    }

    /// The part of the operator's state under a name of the user's; [`NAMED`] keeps it apart from the engine's own parts.
    fn part(&mut self, name: &str) -> Result<String> {
        let name = Name::new(name)?;
        self.claim(format!("{NAMED}{name}"))
    }

    fn claim(&mut self, part: String) -> Result<String> {
        if self.named.contains(&part) {
            let name = part.strip_prefix(NAMED).unwrap_or(&part);
            return Err(Error::invalid(format!("state is named twice: operator={} name={name}", self.name)));
        }
        self.named.push(part.clone());
        Ok(part)
    }

    fn of<'p>(&self, part: &'p str, time_to_live: Option<TimeToLive>) -> Result<Part<'p>>
    where
        's: 'p,
    {
        if time_to_live.is_some_and(TimeToLive::is_empty) {
            return Err(Error::invalid(format!("time to live must be at least 1 ms: operator={}", self.name)));
        }
        Ok(Part { operator: self.name, name: part, cache_entries: self.cache_entries, time_to_live })
    }

    /// One value for each key.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or one that is used twice.
    pub fn value<V: StateValue>(&mut self, name: &str) -> Result<ValueState<V>> {
        self.some_value(name, None)
    }

    /// One value for each key, which is gone when it is older than its time to live: from the last change of it, or for
    /// [`TimeToLive::after_access`] the last look at it. By event time its age is counted in that of the record, or the watermark if
    /// that is further; in a timer it is that of the timer. What comes out does not depend on when it is removed.
    ///
    /// A record whose time can be none is an error of kind `Record` then. A value that is written in a processing-time
    /// timer before there is any event time begins to age with its next use.
    ///
    /// ```
    /// # use onceflow::process::{Process, Processor, Setup, ValueState};
    /// # use onceflow::{StreamBuilder, codec::Json, state::TimeToLive, testing::TestDriver, types::{Result, Timestamp}};
    /// # use std::time::Duration;
    /// /// Lets a card's payment through when none came in the minute before it.
    /// #[derive(Default)]
    /// struct Calm {
    ///     last: ValueState<i64>,
    /// }
    ///
    /// impl Processor<String, i64> for Calm {
    ///     type Output = i64;
    ///     fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
    ///         self.last = setup.value_with("last", TimeToLive::after_write(Duration::from_secs(60)))?;
    ///         Ok(())
    ///     }
    ///     fn process(&mut self, millis: i64, cx: &mut Process<'_, String, i64>) -> Result<()> {
    ///         let mut last = cx.value(&self.last)?;
    ///         let is_calm = last.get().is_none();
    ///         last.set(millis);
    ///         if is_calm {
    ///             cx.emit(millis);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("in", Json::<(String, i64)>::new());
    /// let payments = payments.select_timestamp(|(_, millis)| Timestamp::from_millis(*millis));
    /// let cards = payments.key_by(|(card, _)| card.clone()).map_values(|(_, millis)| millis);
    /// cards.process("calm", Calm::default).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for payment in [r#"["c7",0]"#, r#"["c7",59999]"#, r#"["c7",119999]"#] {
    ///     driver.send("in", payment.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",0]"#.as_slice(), br#"["c7",119999]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`value`](Self::value), and `Invalid` for a time to live of less than 1 ms.
    pub fn value_with<V: StateValue>(&mut self, name: &str, time_to_live: TimeToLive) -> Result<ValueState<V>> {
        self.some_value(name, Some(time_to_live))
    }

    fn some_value<V: StateValue>(&mut self, name: &str, life: Option<TimeToLive>) -> Result<ValueState<V>> {
        let part = self.part(name)?;
        let of = self.of(&part, life)?;
        self.tables.value::<K, V>(of, self.state).map(ValueState::new)
    }

    /// A list for each key.
    ///
    /// ```
    /// # use onceflow::process::{ListState, Process, Processor, Setup};
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Result};
    /// /// The last two numbers before each one.
    /// #[derive(Default)]
    /// struct Before {
    ///     numbers: ListState<i64>,
    /// }
    ///
    /// impl Processor<u8, i64> for Before {
    ///     type Output = Vec<i64>;
    ///     fn open(&mut self, setup: &mut Setup<'_, u8>) -> Result<()> {
    ///         self.numbers = setup.list("numbers")?;
    ///         Ok(())
    ///     }
    ///     fn process(&mut self, number: i64, cx: &mut Process<'_, u8, Vec<i64>>) -> Result<()> {
    ///         let mut numbers = cx.list(&self.numbers)?;
    ///         let before = numbers.all()?;
    ///         numbers.push(number)?;
    ///         if numbers.len()? > 2 {
    ///             numbers.pop_first()?;
    ///         }
    ///         cx.emit(before);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// numbers.process("before", Before::default).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in ["5", "6", "7", "8"] {
    ///     driver.send("in", number.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[]".as_slice(), b"[5]", b"[5,6]", b"[6,7]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn list<V: StateValue>(&mut self, name: &str) -> Result<ListState<V>> {
        self.some_list(name, None)
    }

    /// A list for each key, which is gone as a whole, as a value is of [`value_with`](Self::value_with).
    ///
    /// # Errors
    /// As [`value_with`](Self::value_with).
    pub fn list_with<V: StateValue>(&mut self, name: &str, time_to_live: TimeToLive) -> Result<ListState<V>> {
        self.some_list(name, Some(time_to_live))
    }

    fn some_list<V: StateValue>(&mut self, name: &str, life: Option<TimeToLive>) -> Result<ListState<V>> {
        let part = self.part(name)?;
        let items = self.claim(format!("{part}-items"))?;
        let of = self.of(&part, life)?;
        self.tables.list::<K, V>(of, &items, self.state).map(ListState::new)
    }

    /// A map for each key.
    ///
    /// ```
    /// # use onceflow::process::{MapState, Process, Processor, Setup};
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver, types::Result};
    /// /// How often each card has been used in each country.
    /// #[derive(Default)]
    /// struct Countries {
    ///     uses: MapState<String, u64>,
    /// }
    ///
    /// impl Processor<u32, String> for Countries {
    ///     type Output = Vec<(String, u64)>;
    ///     fn open(&mut self, setup: &mut Setup<'_, u32>) -> Result<()> {
    ///         self.uses = setup.map("uses")?;
    ///         Ok(())
    ///     }
    ///     fn process(&mut self, country: String, cx: &mut Process<'_, u32, Self::Output>) -> Result<()> {
    ///         let mut uses = cx.map(&self.uses)?;
    ///         *uses.entry(&country)?.get_or_insert_with(|| 0) += 1;
    ///         let all = uses.all()?;
    ///         cx.emit(all);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # let builder = StreamBuilder::new("job")?;
    /// let uses = builder.source("in", Json::<(u32, String)>::new()).key_by(|(card, _)| *card);
    /// uses.map_values(|(_, country)| country).process("countries", Countries::default).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for payment in [r#"[7,"NL"]"#, r#"[7,"DE"]"#, r#"[7,"NL"]"#] {
    ///     driver.send("in", payment.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out").last().expect("three"), br#"[["DE",1],["NL",2]]"#);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn map<M: Key, V: StateValue>(&mut self, name: &str) -> Result<MapState<M, V>> {
        self.some_map(name, None)
    }

    /// A map for each key, of whose values each is gone for itself, as one of [`value_with`](Self::value_with).
    ///
    /// # Errors
    /// As [`value_with`](Self::value_with).
    pub fn map_with<M: Key, V: StateValue>(&mut self, name: &str, time_to_live: TimeToLive) -> Result<MapState<M, V>> {
        self.some_map(name, Some(time_to_live))
    }

    fn some_map<M: Key, V: StateValue>(&mut self, name: &str, life: Option<TimeToLive>) -> Result<MapState<M, V>> {
        let part = self.part(name)?;
        let of = self.of(&part, life)?;
        self.tables.value::<(K, M), V>(of, self.state).map(MapState::new)
    }
}

/// The timers of each key: for the event-time ones of a key that are due, and to know which are set.
pub(crate) type KeyTimers<K> = ValueTable<K, Vec<(u8, i64)>>;

/// What is lent to a processor, but for the key.
pub(crate) struct Lent<'p, K, O> {
    pub(crate) state: &'p mut TaskState,
    pub(crate) tables: &'p mut Tables,
    pub(crate) timers: &'p mut Timers,
    pub(crate) key_timers: &'p mut KeyTimers<K>,
    pub(crate) out: &'p mut Vec<Record<(K, O)>>,
    pub(crate) sides: &'p mut Sides,
    /// How far the output has come.
    pub(crate) fired: Timestamp,
    pub(crate) watermark: Timestamp,
    pub(crate) now: Now,
    pub(crate) origin: Origin,
}

/// What a [`Processor`](super::Processor) works with, for one record or timer of one key.
pub struct Process<'p, K, O> {
    pub(crate) lent: Lent<'p, K, O>,
    pub(crate) key: &'p K,
    pub(crate) key_bytes: &'p [u8],
    pub(crate) time: Timestamp,
    /// The timer that has come due, if it is one.
    pub(crate) firing: Option<(TimerKind, Timestamp)>,
}

impl<K: Key, O: Data> Process<'_, K, O> {
    /// The key.
    pub fn key(&self) -> &K {
        self.key
    }

    /// The event time of the record, or the time for which the timer was set. Output has it, too.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// How far event time has come: a record that is older is late.
    pub fn watermark(&self) -> Timestamp {
        self.lent.watermark
    }

    /// Processing time.
    pub fn now(&self) -> Timestamp {
        self.lent.now.processing
    }

    /// The value of the key, to read and change.
    ///
    /// # Errors
    /// `Record` when the key cannot be a key, `Corrupt` from the store, `Bug` for state that is not named.
    pub fn value<V: StateValue>(&mut self, state: &ValueState<V>) -> Result<Entry<'_, K, V>> {
        let table = self.lent.tables.get::<LivingTable<K, V>>(state.at)?;
        table.entry(self.key, self.lent.now, self.lent.state, |_, _| Ok(()))
    }

    /// The list of the key.
    ///
    /// # Errors
    /// `Bug` for state that is not named.
    pub fn list<V: StateValue>(&mut self, state: &ListState<V>) -> Result<ListEntry<'_, K, V>> {
        let table = self.lent.tables.get::<ListTable<K, V>>(state.at)?;
        Ok(ListEntry { table, now: self.lent.now, state: self.lent.state, key: self.key })
    }

    /// The map of the key.
    ///
    /// # Errors
    /// `Bug` for state that is not named.
    pub fn map<M: Key, V: StateValue>(&mut self, state: &MapState<M, V>) -> Result<MapEntry<'_, K, M, V>> {
        let table = self.lent.tables.get::<LivingTable<(K, M), V>>(state.at)?;
        Ok(MapEntry { table, now: self.lent.now, state: self.lent.state, key: self.key })
    }

    /// Puts a value out, under the key.
    pub fn emit(&mut self, value: O) {
        let record = self.record(value);
        self.lent.out.push(record);
    }

    /// Puts a value out to another output, under the key. Where nobody takes that output, it is dropped.
    ///
    /// # Errors
    /// `Bug` when the output has another type elsewhere.
    pub fn emit_to<U: Data>(&mut self, output: &SideOutput<U>, value: U) -> Result<()> {
        let record = self.record(value);
        self.lent.sides.push(output.port, record)
    }

    fn record<U>(&self, value: U) -> Record<(K, U)> {
        let value = (self.key.clone(), value);
        Record { value, timestamp: self.time, watermark: self.lent.fired, origin: self.lent.origin }
    }

    /// Sets a timer for the key by event time; due when the watermark reaches it, which may be at once. Setting it twice is
    /// setting it once. One for [`Timestamp::MAX`] is never due.
    ///
    /// # Errors
    /// `Record` when the key cannot be a key, or when a timer that has come due sets itself again for the same time, which would
    /// never end; `Corrupt` from the store.
    pub fn set_event_timer(&mut self, time: Timestamp) -> Result<()> {
        self.set(TimerKind::Event, time)
    }

    /// Sets a timer for the key by processing time.
    ///
    /// ```
    /// # use onceflow::process::{Process, Processor, Timer};
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver, types::Result};
    /// # use std::time::Duration;
    /// /// Says each line again, five seconds later by the clock.
    /// struct Echo;
    ///
    /// impl Processor<String, String> for Echo {
    ///     type Output = String;
    ///     fn process(&mut self, _: String, cx: &mut Process<'_, String, String>) -> Result<()> {
    ///         cx.set_processing_timer(cx.now().saturating_add(5_000))
    ///     }
    ///     fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, String, String>) -> Result<()> {
    ///         assert!(matches!(timer, Timer::Processing(_)));
    ///         let line = cx.key().clone();
    ///         cx.emit(line);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8).key_by(|line| line.clone());
    /// lines.process("echo", || Echo).values().sink("out", "out", Utf8);
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"hello")?;
    /// driver.commit()?;
    /// driver.advance_time(Duration::from_millis(4_999))?;
    /// assert!(driver.bodies("out").is_empty());
    /// driver.advance_time(Duration::from_millis(1))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"hello"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`set_event_timer`](Self::set_event_timer).
    pub fn set_processing_timer(&mut self, time: Timestamp) -> Result<()> {
        self.set(TimerKind::Processing, time)
    }

    /// Takes a timer of the key back; no effect when it is not set.
    ///
    /// # Errors
    /// As [`set_event_timer`](Self::set_event_timer).
    pub fn cancel_event_timer(&mut self, time: Timestamp) -> Result<()> {
        self.cancel(TimerKind::Event, time)
    }

    /// Takes a timer of the key back; no effect when it is not set.
    ///
    /// # Errors
    /// As [`set_event_timer`](Self::set_event_timer).
    pub fn cancel_processing_timer(&mut self, time: Timestamp) -> Result<()> {
        self.cancel(TimerKind::Processing, time)
    }

    fn set(&mut self, kind: TimerKind, time: Timestamp) -> Result<()> {
        if self.firing == Some((kind, time)) {
            return Err(Error::record(format!("a timer sets itself again, it would never end: time={time}")));
        }
        // Before anything is changed, as a key that is too long is the record's error.
        Timers::check(self.key_bytes.len())?;
        let timer = (kind as u8, time.as_millis());
        let mut entry = self.lent.key_timers.entry(self.key, self.lent.state)?;
        let set = entry.get_or_insert_with(Vec::new);
        if let Err(place) = set.binary_search(&timer) {
            set.insert(place, timer);
            self.lent.timers.set(kind, time, self.key_bytes, self.lent.state)?;
        }
        Ok(())
    }

    fn cancel(&mut self, kind: TimerKind, time: Timestamp) -> Result<()> {
        if forget(self.lent.key_timers, self.key, kind, time, self.lent.state)? {
            self.lent.timers.remove(kind, time, self.key_bytes, self.lent.state)?;
        }
        Ok(())
    }
}

/// Takes a timer from its key's list; whether it was there.
pub(crate) fn forget<K: Key>(
    key_timers: &mut KeyTimers<K>,
    key: &K,
    kind: TimerKind,
    time: Timestamp,
    state: &mut TaskState,
) -> Result<bool> {
    let mut entry = key_timers.entry(key, state)?;
    let timer = (kind as u8, time.as_millis());
    let Some(Ok(place)) = entry.get().map(|set| set.binary_search(&timer)) else { return Ok(false) };
    match entry.get_mut() {
        Some(set) if set.len() > 1 => {
            set.remove(place);
        }
        _ => entry.remove(),
    }
    Ok(true)
}

impl<K> fmt::Debug for Setup<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("name", &self.name).field("named", &self.named).finish_non_exhaustive()
    }
}

impl<K, O> fmt::Debug for Process<'_, K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("time", &self.time).finish_non_exhaustive()
    }
}
