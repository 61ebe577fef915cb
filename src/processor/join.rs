//! Joins: what all kinds of them share. Both sides flow into one room, each record marked with its side.

mod dimension;
mod interval;
mod latest;
mod lookup;
mod missing;
mod place;
mod rows;

use super::{Push, pass_on};
use crate::codec::{Data, Key};
use crate::record::Record;
use crate::stage::Context;
use crate::time::millis;
use onceflow_types::{Name, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use dimension::DimensionJoin;
pub(crate) use interval::IntervalJoin;
pub(crate) use latest::LatestJoin;
pub(crate) use lookup::TableJoin;
pub(crate) use missing::is_missing;
pub(crate) use place::{JoinPlace, LateRecords};

/// Which records of two keyed streams belong together by time: a right record from `before` before the left one to `after`
/// behind it, both included.
///
/// The row of a left record stays open until event time has passed its time + `after` + `grace`, the row of a right record
/// until it has passed its time + `before` + `grace`. Two records are a pair iff both rows are open when the second one
/// comes. A record whose row would be closed when it comes is late. So a record that is at most `grace` behind the watermark
/// misses nothing.
///
/// ```
/// use onceflow::JoinWindow;
/// use std::time::Duration;
///
/// // Payments up to a quarter of an hour behind their orders, and a minute late.
/// let window = JoinWindow::before(Duration::ZERO).after(Duration::from_secs(900)).grace(Duration::from_secs(60));
/// assert_eq!(window.to_string(), "before=0 after=900000 grace=60000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinWindow {
    /// In milliseconds.
    before: i64,
    after: i64,
    grace: i64,
}

impl JoinWindow {
    /// How far before the left record the right one may lie. None behind it, unless [`after`](Self::after) says so.
    pub fn before(span: Duration) -> Self {
        JoinWindow { before: millis(span), after: 0, grace: 0 }
    }

    /// At most so far from each other, in either direction.
    ///
    /// ```
    /// use onceflow::JoinWindow;
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// assert_eq!(JoinWindow::within(second), JoinWindow::before(second).after(second));
    /// ```
    pub fn within(span: Duration) -> Self {
        JoinWindow::before(span).after(span)
    }

    /// How far behind the left record the right one may lie.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        JoinWindow { after: millis(span), ..self }
    }

    /// How long rows stay open for records that are late \[0\].
    #[must_use]
    pub fn grace(self, span: Duration) -> Self {
        JoinWindow { grace: millis(span), ..self }
    }

    /// How far behind a record of this side its partners may lie.
    fn reach(&self, side: Side) -> i64 {
        match side {
            Side::Left => self.after,
            Side::Right => self.before,
        }
    }

    /// The watermark at which a row is closed.
    fn close(&self, side: Side, time: i64) -> i64 {
        time.saturating_add(self.reach(side)).saturating_add(self.grace).saturating_add(1)
    }

    /// The oldest record of this side whose row is open at a watermark.
    fn oldest_open(&self, side: Side, watermark: i64) -> i64 {
        watermark.saturating_sub(self.reach(side)).saturating_sub(self.grace)
    }

    /// How far results lie behind the watermark at most.
    fn delay(&self, kind: JoinKind) -> i64 {
        let reach = match kind {
            // A pair is as young as its younger record.
            JoinKind::Inner => self.before.min(self.after),
            JoinKind::Left => self.after,
            JoinKind::Outer => self.before.max(self.after),
        };
        reach.saturating_add(self.grace)
    }
}

impl fmt::Display for JoinWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "before={} after={} grace={}", self.before, self.after, self.grace)
    }
}

/// Whose rows come out without a partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Outer,
}

impl JoinKind {
    pub(crate) fn keeps(self, side: Side) -> bool {
        match side {
            Side::Left => self != JoinKind::Inner,
            Side::Right => self == JoinKind::Outer,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            JoinKind::Inner => "inner",
            JoinKind::Left => "left",
            JoinKind::Outer => "outer",
        }
    }
}

/// One of the two streams of a join.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// A value with the stream that it came by.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Sided<L, R> {
    Left(L),
    Right(R),
}

impl<L, R> Sided<L, R> {
    fn side(&self) -> Side {
        match self {
            Sided::Left(_) => Side::Left,
            Sided::Right(_) => Side::Right,
        }
    }

    /// The left value or the right one.
    fn values(&self) -> (Option<&L>, Option<&R>) {
        match self {
            Sided::Left(left) => (Some(left), None),
            Sided::Right(right) => (None, Some(right)),
        }
    }
}

/// Which partners a join looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinRule {
    /// All that are near in time.
    Interval(JoinWindow),
    /// The latest of the other side, for so many milliseconds.
    Latest { live: i64 },
    /// The latest of the right side, for ever.
    Table,
}

impl fmt::Display for JoinRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinRule::Interval(window) => write!(f, "{window}"),
            JoinRule::Latest { live } => write!(f, "latest live={live}"),
            JoinRule::Table => f.write_str("table"),
        }
    }
}

/// What the user chose for a join.
#[derive(Clone, Debug)]
pub(crate) struct JoinOptions {
    pub(crate) table: Name,
    pub(crate) kind: JoinKind,
    pub(crate) rule: JoinRule,
    pub(crate) cache_entries: usize,
}

/// Marks the records of one side; counts those whose key is missing, and leaves them out unless they come out alone.
pub(crate) struct SideRoom<S, W, N> {
    pub(crate) stage: Arc<str>,
    pub(crate) mark: Arc<W>,
    /// Whether records of this side come out without a partner.
    pub(crate) keeps: bool,
    pub(crate) out: Vec<Record<S>>,
    pub(crate) next: N,
}

impl<K: Key, V: Data, S: Data, W> Push<(K, V)> for SideRoom<(K, S), W, Box<dyn Push<(K, S)>>>
where
    W: Fn(V) -> S + Send + Sync,
{
    pass_on!();

    fn push(&mut self, records: &mut Vec<Record<(K, V)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            let missing = is_missing(&record.value.0);
            if missing {
                cx.counters.missing_keys += 1;
                metrics::counter!("onceflow_missing_keys_total", "stage" => self.stage.to_string()).increment(1);
            }
            if !missing || self.keeps {
                self.out.push(record.map(|(key, value)| (key, (self.mark)(value))));
            }
        }
        self.next.push(&mut self.out, cx)
    }
}
