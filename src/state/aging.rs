//! State whose time to live ends.

use super::{Due, Entry, TaskState, TimerKind, Timers};
use crate::codec::{Key, encode_key};
use crate::time::millis;
use onceflow_types::{Name, Result, Timestamp};
use std::fmt;
use std::time::Duration;

/// How long a value of state lives. It is gone exactly when its age reaches the time to live: a record that comes then finds
/// nothing. A timer removes it from the store.
///
/// By event time (unless told otherwise) the age is counted in the time of the operator when a record comes: the record's
/// own time, or the watermark if that is further. So what comes out does not depend on when timers run, and a late record
/// makes no value that is too old from the start.
///
/// ```
/// use onceflow::{StreamBuilder, codec::Json, state::TimeToLive, testing::TestDriver, types::Timestamp};
/// use std::time::Duration;
///
/// let builder = StreamBuilder::new("job")?;
/// let uses = builder.source("in", Json::<(String, i64)>::new());
/// let uses = uses.select_timestamp(|(_, millis)| Timestamp::from_millis(*millis)).key_by(|(card, _)| card.clone());
/// let hour = Duration::from_secs(3_600);
/// let counts = uses.count("uses").time_to_live(TimeToLive::after_write(hour));
/// counts.sink("out", "out", Json::new());
///
/// let mut driver = TestDriver::new(&builder.build()?)?;
/// for record in [r#"["c7",0]"#, r#"["c7",3599999]"#, r#"["c7",7199999]"#] {
///     driver.send("in", record.as_bytes())?;
/// }
/// driver.commit()?;
/// assert_eq!(driver.bodies("out"), [br#"["c7",1]"#, br#"["c7",2]"#, br#"["c7",1]"#]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeToLive {
    millis: i64,
    from_access: bool,
    kind: TimerKind,
}

impl TimeToLive {
    /// From the last change of the value.
    pub fn after_write(time: Duration) -> Self {
        TimeToLive { millis: millis(time), from_access: false, kind: TimerKind::Event }
    }

    /// From the last record that met the value, changed or not. For operators that change the value with every record it is
    /// the same as [`after_write`](Self::after_write).
    pub fn after_access(time: Duration) -> Self {
        TimeToLive { from_access: true, ..TimeToLive::after_write(time) }
    }

    /// By processing time: the clock of the machine, as the epochs have it.
    #[must_use]
    pub fn processing_time(self) -> Self {
        TimeToLive { kind: TimerKind::Processing, ..self }
    }

    pub(super) fn kind(self) -> TimerKind {
        self.kind
    }

    /// Whether a value that was used at `used` is gone at `now`.
    pub(super) fn is_over(self, used: Timestamp, now: Timestamp) -> bool {
        now >= used.saturating_add(self.millis)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.millis <= 0
    }
}

impl fmt::Display for TimeToLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.from_access { "access" } else { "write" };
        let time = if self.kind == TimerKind::Event { "" } else { ",processing-time" };
        write!(f, "{}ms-after-{from}{time}", self.millis)
    }
}

/// Ages the values of one operator's table, and removes them by timers.
///
/// A value has its time of last use beside it, and one timer that is due when it may be too old, or before: a timer that
/// finds a younger value is set again. So the uses of a key cost no change of timers, and firing touches only what may be due.
#[derive(Debug)]
pub(crate) struct Aging {
    time_to_live: TimeToLive,
    timers: Timers,
    /// How far time has come: what is older than this by the time to live is gone.
    now: Timestamp,
    what: Vec<u8>,
}

impl Aging {
    pub(crate) fn new(name: Name, time_to_live: TimeToLive) -> Self {
        Aging { time_to_live, timers: Timers::new(name), now: Timestamp::MIN, what: vec![] }
    }

    /// Of a part of the operator's state.
    pub(crate) fn of_part(name: Name, part: &str, time_to_live: TimeToLive) -> Self {
        let timers = Timers::of_part(name, format!("timers-{part}"));
        Aging { time_to_live, timers, now: Timestamp::MIN, what: vec![] }
    }

    /// Binds the timers to a task's state; returns the time that was acted on last.
    pub(crate) fn open(&mut self, state: &mut TaskState) -> Result<Timestamp> {
        self.now = self.timers.open(state)?;
        Ok(self.now)
    }

    pub(crate) fn time_to_live(&self) -> TimeToLive {
        self.time_to_live
    }

    pub(crate) fn kind(&self) -> TimerKind {
        self.time_to_live.kind
    }

    /// Time has come to `now`; it never goes back.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// When a value is looked at that a record with this event time meets.
    pub(crate) fn time_of(&self, record: Timestamp) -> Timestamp {
        match self.kind() {
            TimerKind::Event => self.now.max(record),
            TimerKind::Processing => self.now,
        }
    }

    /// Whether a value that was used at `used` is gone at `now`.
    pub(crate) fn is_over(&self, used: Timestamp, now: Timestamp) -> bool {
        self.time_to_live.is_over(used, now)
    }

    /// Empties the place of a value that is too old, before it is looked at. A value from before there was a time to live begins to age.
    pub(crate) fn look<K: Key, V>(
        &mut self,
        entry: &mut Entry<'_, K, V>,
        key: &K,
        now: Timestamp,
    ) -> Result<Looked<V>> {
        let is_over = entry.time().is_some_and(|used| self.is_over(used, now));
        let unarmed = is_over || entry.time().is_none();
        if unarmed {
            self.what.clear();
            encode_key(key, &mut self.what)?;
            // Before anything is changed, as a key that is too long is the record's error.
            Timers::check(self.what.len())?;
        }
        let gone = if is_over { entry.expire() } else { None };
        Ok(Looked { now, unarmed, gone })
    }

    /// Notes what is known at the look, for a place whose changes nobody waits for: whoever changes the value stamps it. A new
    /// value is [`armed`](Self::arm) when the changes are done.
    pub(crate) fn note<V, K>(&self, entry: &mut Entry<'_, K, V>, looked: &Looked<V>) {
        entry.set_stamp(looked.now);
        if looked.unarmed || self.time_to_live.from_access {
            let used = entry.time().map_or(looked.now, |used| used.max(looked.now));
            entry.set_time(used);
        }
    }

    /// Sets the timer of a value that has none yet.
    pub(crate) fn arm<K: Key, V>(&mut self, entry: &Entry<'_, K, V>, key: &K, state: &mut TaskState) -> Result<()> {
        let Some(used) = entry.time() else { return Ok(()) };
        self.what.clear();
        encode_key(key, &mut self.what)?;
        let due = used.saturating_add(self.time_to_live.millis);
        self.timers.set(self.kind(), due, &self.what, state)
    }

    /// Notes that the value was used, after it was looked at and changed or not.
    pub(crate) fn used<K: Key, V>(
        &mut self,
        entry: &mut Entry<'_, K, V>,
        looked: &Looked<V>,
        state: &mut TaskState,
    ) -> Result<()> {
        if entry.get().is_none() {
            return Ok(());
        }
        let used = entry.time();
        if looked.unarmed || entry.wrote() || self.time_to_live.from_access {
            entry.set_time(used.map_or(looked.now, |used| used.max(looked.now)));
        }
        if looked.unarmed {
            let due = looked.now.saturating_add(self.time_to_live.millis);
            self.timers.set(self.kind(), due, &self.what, state)?;
        }
        Ok(())
    }

    /// Takes out timers that are due, the first few of them; each is then for [`end`](Self::end).
    pub(crate) fn take_due(&mut self, state: &mut TaskState) -> Result<Vec<Due>> {
        self.timers.take_due(self.kind(), self.now, state)
    }

    /// When the next value may be too old.
    pub(crate) fn next(&self) -> Timestamp {
        self.timers.next(self.kind())
    }

    /// Whether there are timers to take out.
    pub(crate) fn is_due(&self) -> bool {
        self.timers.is_due(self.kind(), self.now)
    }

    /// A timer was due for this place: the value is removed and returned, or the timer set again when the value was used
    /// meanwhile.
    pub(crate) fn end<K: Key, V>(
        &mut self,
        entry: &mut Entry<'_, K, V>,
        due: &Due,
        state: &mut TaskState,
    ) -> Result<Option<V>> {
        let Some(used) = entry.time() else { return Ok(None) };
        if self.is_over(used, self.now) {
            return Ok(entry.expire().map(|(value, _)| value));
        }
        self.timers.set(self.kind(), used.saturating_add(self.time_to_live.millis), &due.what, state)?;
        Ok(None)
    }

    pub(crate) fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.timers.seal(self.now, state)
    }
}

/// What was found at a look, for what is noted behind it.
#[derive(Debug)]
pub(crate) struct Looked<V> {
    now: Timestamp,
    /// Whether the place has no timer.
    pub(crate) unarmed: bool,
    /// What was too old, with its time of last use: it comes back when the record fails, as that changes nothing.
    pub(crate) gone: Option<(V, Timestamp)>,
}
