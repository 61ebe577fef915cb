//! How a stream is cut into windows, when they fire, and what comes out.
//!
//! A window is `[start, end)` in event time. It is *complete* when the watermark reaches its end, and *gone* when the watermark
//! reaches its end plus the allowed lateness; from then on records are late for it.

mod align;

use crate::time::{EVENT_TIME_MAX, millis};
use onceflow_types::{Error, Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

pub(crate) use align::{Align, Span, out_of_range};

/// Most windows that one record may be in.
pub const WINDOWS_OF_RECORD_MAX: i64 = 10_000;

/// A way to cut a stream into windows.
///
/// ```
/// use onceflow::Windows;
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// assert_eq!(Windows::tumbling(minute).to_string(), "tumbling(60000)");
/// assert_eq!(Windows::hopping(minute, minute / 6).offset(minute / 60).to_string(), "hopping(60000,10000)+1000");
/// assert_eq!(Windows::daily("Europe/Berlin").to_string(), "daily(Europe/Berlin)");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    pub(crate) kind: WindowsKind,
    offset: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WindowsKind {
    Hopping { size: i64, slide: i64 },
    Daily { zone: String },
    Session { gap: i64 },
    Sliding { size: i64 },
    Count { records: u64 },
}

impl Windows {
    fn new(kind: WindowsKind) -> Self {
        Windows { kind, offset: 0 }
    }

    /// Windows of a size, one after the other, from 1970-01-01 UTC in both directions. Whole milliseconds.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::tumbling(Duration::from_millis(10))).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [-1, 0, 9, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[-10,0,1]".as_slice(), b"[0,10,2]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn tumbling(size: Duration) -> Self {
        Windows::hopping(size, size)
    }

    /// Windows of a size, one beginning every `slide`; a record is in each that holds its time. `slide` is at most the size.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::hopping(Duration::from_millis(10), Duration::from_millis(5))).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [7, 15] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[0,10,1]".as_slice(), b"[5,15,1]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn hopping(size: Duration, slide: Duration) -> Self {
        Windows::new(WindowsKind::Hopping { size: millis(size), slide: millis(slide) })
    }

    /// Days in a time zone, by its IANA name: 23, 24 or 25 hours long. The zones are compiled in, so that all instances of a
    /// job agree.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::daily("Europe/Berlin")).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [1_711_839_600_000_i64, 1_711_922_400_000] {
    ///     driver.send("in", time.to_string().as_bytes())?; // clocks go forward on that day: it has 23 hours
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[1711839600000,1711922400000,1]".as_slice()]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn daily(zone: &str) -> Self {
        Windows::new(WindowsKind::Daily { zone: zone.to_owned() })
    }

    /// Per key, records that are at most `gap` apart. Sessions grow, and merge when a record lies between them. A session ends
    /// a millisecond after `gap` has passed since its last record.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::session(Duration::from_millis(10))).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [0, 10, 21, 32] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 21 is more than 10 apart
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[0,21,2]".as_slice(), b"[21,32,1]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn session(gap: Duration) -> Self {
        Windows::new(WindowsKind::Session { gap: millis(gap) })
    }

    /// Per record, a look back: the records of its key not older than `size`, itself included, and none that is newer. One
    /// result with each record.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::sliding(Duration::from_millis(10))).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [0, 9, 10] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[-9,1,1]".as_slice(), b"[0,10,2]", b"[1,11,2]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn sliding(size: Duration) -> Self {
        Windows::new(WindowsKind::Sliding { size: millis(size) })
    }

    /// Per key, so many records in the order in which they come. One result when they are complete; time plays no part.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let sums = times.window("sums", Windows::count(2)).sum(|time| *time);
    /// sums.values().map(|of| of.value).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in [5, 3, 9] {
    ///     driver.send("in", number.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"8"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn count(records: u64) -> Self {
        Windows::new(WindowsKind::Count { records })
    }

    /// Moves the beginnings of tumbling, hopping and daily windows: a day that begins at six is one with an offset of six
    /// hours.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// # let builder = StreamBuilder::new("job")?;
    /// # let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::ZERO);
    /// # let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::tumbling(Duration::from_millis(10)).offset(Duration::from_millis(3))).count();
    /// counts.values().map(|of| (of.window_start.as_millis(), of.window_end.as_millis(), of.value)).sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [2, 3, 13] {
    ///     driver.send("in", time.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[-7,3,1]".as_slice(), b"[3,13,1]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn offset(self, by: Duration) -> Self {
        Windows { offset: millis(by), ..self }
    }

    /// Whether one result comes with each record, or with the last one, whatever the trigger.
    pub(crate) fn fires_by_records(&self) -> bool {
        matches!(self.kind, WindowsKind::Sliding { .. } | WindowsKind::Count { .. })
    }

    /// The windows that are the same for all keys; `None` for others.
    pub(crate) fn align(&self) -> Result<Option<Align>> {
        match &self.kind {
            WindowsKind::Hopping { size, slide } => Ok(Some(Align::fixed(*size, *slide, self.offset))),
            WindowsKind::Daily { zone } => Align::daily(zone, self.offset).map(Some),
            _ => Ok(None),
        }
    }

    /// # Errors
    /// `Invalid` when there are no such windows.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::invalid(format!("{what}: windows={self}")));
        match &self.kind {
            WindowsKind::Hopping { size, slide } if *size < 1 || *slide < 1 => wrong("windows need at least 1 ms"),
            WindowsKind::Hopping { size, slide } if slide > size => wrong("windows leave gaps, slide is above size"),
            WindowsKind::Hopping { size, slide } if size / slide >= WINDOWS_OF_RECORD_MAX => {
                wrong("a record is in too many windows")
            }
            WindowsKind::Sliding { size } if *size < 1 => wrong("windows need at least 1 ms"),
            WindowsKind::Session { gap } if *gap < 1 => wrong("a session needs a gap of at least 1 ms"),
            WindowsKind::Count { records: 0 } => wrong("windows need at least one record"),
            _ => self.align().map(|_| ()),
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            WindowsKind::Hopping { size, slide } if size == slide => write!(f, "tumbling({size})")?,
            WindowsKind::Hopping { size, slide } => write!(f, "hopping({size},{slide})")?,
            WindowsKind::Daily { zone } => write!(f, "daily({zone})")?,
            WindowsKind::Session { gap } => write!(f, "session({gap})")?,
            WindowsKind::Sliding { size } => write!(f, "sliding({size})")?,
            WindowsKind::Count { records } => write!(f, "count({records})")?,
        }
        if self.offset == 0 { Ok(()) } else { write!(f, "+{}", self.offset) }
    }
}

/// When a window puts a result out. Only event time and records decide, so results can be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trigger {
    /// Once, when the window is gone: when nothing can change it any more. RocketMQ Streams' NORMAL.
    #[default]
    OnClose,
    /// With every record.
    OnUpdate,
    /// Early: whenever so much event time has passed since the window's start, and when it is complete; late: the same
    /// since its end, and when it is gone. Each time only if something has changed. With full results this is RocketMQ
    /// Streams' ACCUMULATED, with [deltas](crate::topology::WindowedBy::deltas) its PARTITIONED.
    Every(Duration),
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::OnClose => f.write_str("on-close"),
            Trigger::OnUpdate => f.write_str("on-update"),
            Trigger::Every(time) => write!(f, "every({})", time.as_millis()),
        }
    }
}

/// What a window operator does beside cutting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rule {
    /// In milliseconds.
    pub(crate) lateness: i64,
    pub(crate) trigger: Trigger,
    /// Whether a result holds only what came since the last one.
    pub(crate) deltas: bool,
}

impl Rule {
    /// # Errors
    /// `Invalid` when windows cannot fire like that.
    pub(crate) fn check(&self, windows: &Windows) -> Result<()> {
        if matches!(self.trigger, Trigger::Every(time) if time.as_millis() < 1) {
            return Err(Error::invalid("a trigger needs at least 1 ms"));
        }
        if windows.fires_by_records() && (self.trigger != Trigger::OnClose || self.deltas) {
            return Err(Error::invalid(format!(
                "these windows fire by records alone, take trigger and deltas off: {windows}"
            )));
        }
        if self.deltas && self.trigger == Trigger::OnClose {
            return Err(Error::invalid("deltas need a trigger that fires more than once"));
        }
        Ok(())
    }

    /// When a window is gone.
    pub(crate) fn close(&self, span: Span) -> i64 {
        span.end.saturating_add(self.lateness)
    }

    /// When a window that was changed at watermark `now` fires next by time.
    pub(crate) fn next_fire(&self, span: Span, now: Timestamp) -> i64 {
        let close = self.close(span);
        let Trigger::Every(every) = self.trigger else { return close };
        let (every, now) = (millis(every), now.as_millis().max(-EVENT_TIME_MAX.as_millis() * 2));
        let behind = |from: i64| {
            from.saturating_add((now - from).div_euclid(every).max(0).saturating_add(1).saturating_mul(every))
        };
        if now < span.end { behind(span.start).min(span.end) } else { behind(span.end).min(close) }
    }
}

/// A value with the window that it belongs to: the window's result, or a record that came too late for it. As JSON:
/// `{"window_start":…,"window_end":…,"value":…}`, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Windowed<T> {
    /// Where the window begins.
    #[serde(with = "as_millis")]
    pub window_start: Timestamp,
    /// The first time behind it.
    #[serde(with = "as_millis")]
    pub window_end: Timestamp,
    /// What it comes to.
    pub value: T,
}

impl<T> Windowed<T> {
    pub(crate) fn of(span: Span, value: T) -> Self {
        let (window_start, window_end) = (Timestamp::from_millis(span.start), Timestamp::from_millis(span.end));
        Windowed { window_start, window_end, value }
    }

    /// The same window with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Windowed<U> {
        let Windowed { window_start, window_end, value } = self;
        Windowed { window_start, window_end, value: change(value) }
    }
}

impl<T> Windowed<Option<T>> {
    /// The same window with the value, if there is one.
    pub(crate) fn transpose(self) -> Option<Windowed<T>> {
        let Windowed { window_start, window_end, value } = self;
        Some(Windowed { window_start, window_end, value: value? })
    }
}

mod as_millis {
    use onceflow_types::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(time.as_millis())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(millis: u64, lateness: i64) -> Rule {
        Rule { lateness, trigger: Trigger::Every(Duration::from_millis(millis)), deltas: false }
    }

    #[test]
    fn a_trigger_fires_at_fixed_distances_at_the_end_and_when_the_window_goes() {
        let span = Span { start: -20, end: 15 };
        let next = |now| every(10, 12).next_fire(span, Timestamp::from_millis(now));
        let at: Vec<i64> = [i64::MIN, -100, -20, -11, -10, 9, 10, 14, 15, 24, 25, 26].map(next).to_vec();
        assert_eq!(at, [-10, -10, -10, -10, 0, 10, 15, 15, 25, 25, 27, 27]);
        assert_eq!(Rule::default().next_fire(span, Timestamp::MIN), 15);
    }

    #[test]
    fn windows_that_cannot_be_are_refused() {
        let ms = Duration::from_millis;
        for windows in [
            Windows::tumbling(ms(0)),
            Windows::hopping(ms(10), ms(11)),
            Windows::hopping(ms(100_000), ms(1)),
            Windows::session(ms(0)),
            Windows::sliding(ms(0)),
            Windows::count(0),
            Windows::daily("Europe/Atlantis"),
        ] {
            assert_eq!(windows.check().unwrap_err().kind(), onceflow_types::ErrorKind::Invalid, "{windows}");
        }
        assert!(every(0, 0).check(&Windows::tumbling(ms(5))).is_err());
        assert!(every(1, 0).check(&Windows::count(5)).is_err());
        assert!(Rule { deltas: true, ..Rule::default() }.check(&Windows::tumbling(ms(5))).is_err());
    }
}
