//! The interval join: all pairs that are near in time, and rows without a partner once, when they are closed.

mod closing;
mod sequence;

use self::closing::{TIMER_HEAD, timer};
use self::sequence::Sequence;
use super::rows::{Place, Range, Rows};
use super::{JoinKind, JoinOptions, JoinPlace, JoinWindow, Side, Sided, is_missing};
use crate::codec::{Data, Key, StateValue, encode_key};
use crate::processor::{BATCH_RECORDS_MAX, Push};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::{TaskState, TimerKind, Timers};
use crate::time::{Progress, is_event_time};
use onceflow_types::{Result, Timestamp};
use std::sync::Arc;

/// An interval join. `F` makes a result of a pair, or of a row without a partner; `None` for none.
pub(crate) struct IntervalJoin<K, L, R, O, F> {
    window: JoinWindow,
    kind: JoinKind,
    function: Arc<F>,
    left: Rows<L>,
    right: Rows<R>,
    sequence: Sequence,
    timers: Timers,
    /// How far the results have come: behind the clock when an epoch had no room for all that was due.
    fired: Timestamp,
    key: Vec<u8>,
    out: Vec<Record<(K, O)>>,
    place: JoinPlace<K, L, R, O>,
}

/// What the present record brings along.
struct Arrival<'k, K> {
    key: &'k K,
    side: Side,
    time: i64,
    origin: Origin,
}

impl<K, L, R, O, F> IntervalJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    pub(crate) fn new(
        window: JoinWindow,
        options: &JoinOptions,
        function: Arc<F>,
        place: JoinPlace<K, L, R, O>,
    ) -> Self {
        IntervalJoin {
            window,
            kind: options.kind,
            function,
            left: Rows::new(options.table.clone(), "left"),
            right: Rows::new(options.table.clone(), "right"),
            sequence: Sequence::new(options.table.clone()),
            timers: Timers::new(options.table.clone()),
            fired: Timestamp::MIN,
            key: vec![],
            out: vec![],
            place,
        }
    }

    fn now(&self) -> i64 {
        self.place.clock.time().as_millis()
    }

    /// How far the results have come.
    fn output_time(&self) -> Timestamp {
        self.fired.saturating_add(-self.window.delay(self.kind))
    }

    fn emit(&mut self, key: &K, result: Option<O>, time: i64, origin: Origin) {
        if let Some(result) = result {
            let (timestamp, watermark) = (Timestamp::from_millis(time), self.output_time());
            self.out.push(Record { value: (key.clone(), result), timestamp, watermark, origin });
        }
    }

    fn add(&mut self, record: Record<(K, Sided<L, R>)>, cx: &mut Context<'_>) -> Result<()> {
        if !is_event_time(record.timestamp) {
            return Err(crate::window::out_of_range(record.timestamp));
        }
        let (side, time) = (record.value.1.side(), record.timestamp.as_millis());
        if self.window.close(side, time) <= self.now() {
            self.place.put_late(record);
            return Ok(());
        }
        let Record { value: (key, value), origin, .. } = record;
        if is_missing(&key) {
            // Nothing can come to it, so nobody has to wait.
            let (left, right) = value.values();
            self.emit(&key, (self.function)(left, right), time, origin);
            return Ok(());
        }
        let arrival = Arrival { key: &key, side, time, origin };
        self.key.clear();
        encode_key(&key, &mut self.key)?;
        // Before anything comes out, as a key that is too long is the record's error.
        Timers::check(TIMER_HEAD + self.key.len())?;
        match &value {
            Sided::Left(left) => self.left.encode(&self.key, left)?,
            Sided::Right(right) => self.right.encode(&self.key, right)?,
        }
        self.fire_closed(&key, cx)?;
        let matched = match &value {
            Sided::Left(left) => self.match_left(left, &arrival, cx)?,
            Sided::Right(right) => self.match_right(right, &arrival, cx)?,
        };
        self.keep(&arrival, matched, cx.state)
    }

    /// Keeps the row that was encoded before, until it is closed.
    fn keep(&mut self, arrival: &Arrival<'_, K>, matched: bool, state: &mut TaskState) -> Result<()> {
        let place = Place { time: arrival.time, sequence: self.sequence.draw()? };
        match arrival.side {
            Side::Left => self.left.put(&self.key, place, matched, state)?,
            Side::Right => self.right.put(&self.key, place, matched, state)?,
        }
        let close = Timestamp::from_millis(self.window.close(arrival.side, arrival.time));
        let what = timer(arrival.side, place, &self.key);
        self.timers.set(TimerKind::Event, close, &what, state)
    }

    /// From where to where the open partners of a record lie.
    fn range(&self, arrival: &Arrival<'_, K>) -> Range {
        let other = if arrival.side == Side::Left { Side::Right } else { Side::Left };
        let first = arrival.time.saturating_sub(self.window.reach(other));
        let first = first.max(self.window.oldest_open(other, self.now()));
        Range::new(first, arrival.time.saturating_add(self.window.reach(arrival.side)))
    }

    fn match_left(&mut self, left: &L, arrival: &Arrival<'_, K>, cx: &mut Context<'_>) -> Result<bool> {
        let mut range = self.range(arrival);
        let (mut rows, mut matched) = (vec![], false);
        while self.right.read(&self.key, &mut range, &mut rows, cx.state)? {
            for row in &rows {
                matched = true;
                self.pair(left, &row.value, row.place.time, arrival);
                if !row.matched && self.kind.keeps(Side::Right) {
                    self.right.mark(&self.key, row.place, cx.state)?;
                }
            }
            self.flush_full(cx)?;
        }
        Ok(matched)
    }

    fn match_right(&mut self, right: &R, arrival: &Arrival<'_, K>, cx: &mut Context<'_>) -> Result<bool> {
        let mut range = self.range(arrival);
        let (mut rows, mut matched) = (vec![], false);
        while self.left.read(&self.key, &mut range, &mut rows, cx.state)? {
            for row in &rows {
                matched = true;
                self.pair(&row.value, right, row.place.time, arrival);
                if !row.matched && self.kind.keeps(Side::Left) {
                    self.left.mark(&self.key, row.place, cx.state)?;
                }
            }
            self.flush_full(cx)?;
        }
        Ok(matched)
    }

    fn pair(&mut self, left: &L, right: &R, time: i64, arrival: &Arrival<'_, K>) {
        let result = (self.function)(Some(left), Some(right));
        self.emit(arrival.key, result, arrival.time.max(time), arrival.origin);
    }

    fn flush_full(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.out.len() >= BATCH_RECORDS_MAX { self.flush(cx) } else { Ok(()) }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.place.flush(&mut self.out, cx)
    }
}

impl<K, L, R, O, F> Push<(K, Sided<L, R>)> for IntervalJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.sequence.open(state)?;
        self.left.open(state)?;
        self.right.open(state)?;
        let acted_on = self.timers.open(state)?;
        self.place.clock.restore(acted_on);
        // What is due already waited for an epoch with room.
        self.fired = acted_on.min(self.timers.next(TimerKind::Event).saturating_add(-1));
        self.place.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, Sided<L, R>)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            if self.place.clock.hear_record(cx.input(), record.watermark) {
                self.catch_up(cx)?;
            }
            let (origin, timestamp) = (record.origin, record.timestamp);
            if let Err(error) = self.add(record, cx) {
                self.place.guard.reject(error, origin, timestamp, cx)?;
            }
            self.flush_full(cx)?;
        }
        self.flush(cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.place.clock.hear(progress);
        self.catch_up(cx)?;
        self.flush(cx)?;
        self.place.advance(self.output_time(), cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.sequence.seal(cx.state)?;
        self.timers.seal(self.place.clock.time(), cx.state)?;
        self.place.seal(cx)
    }
}
