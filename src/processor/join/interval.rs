//! The interval join: all pairs that are near in time, and rows without a partner once, when they are closed.

mod closing;
mod header;
mod memory;
mod numbers;
mod open_rows;
mod segments;
mod sequence;
mod slab;
#[cfg(test)]
mod tests;
mod turns;

use self::open_rows::{Bounds, OpenRows, Visit};
use self::sequence::Sequence;
use super::rows::{Moment, Place, Range};
use super::{JoinKind, JoinOptions, JoinPlace, JoinWindow, Side, Sided, is_missing};
use crate::codec::{Data, Key, StateValue, encode_key};
use crate::processor::{BATCH_RECORDS_MAX, Push};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::{Progress, is_event_time};
use onceflow_types::{Result, Timestamp};
use std::sync::Arc;

/// An interval join. `F` makes a result of a pair, or of a row without a partner; `None` for none.
pub(crate) struct IntervalJoin<K, L, R, O, F> {
    window: JoinWindow,
    kind: JoinKind,
    function: Arc<F>,
    rows: OpenRows<L, R>,
    sequence: Sequence,
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
            rows: OpenRows::new(options.table.clone(), Bounds::of_entries(options.cache_entries)),
            sequence: Sequence::new(options.table.clone()),
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
        self.rows.encode(&self.key, &value)?;
        self.fire_closed(&key, cx)?;
        let found = self.rows.look_up(&self.key, side.other(), cx.state)?;
        let matched = self.match_rows(found, &value, &arrival, cx)?;
        let place = Place { time, sequence: self.sequence.draw()? };
        let moment = Moment { close: self.window.close(side, time), side, place };
        self.rows.put(found, &self.key, moment, matched, value, cx.state)
    }

    /// From where to where the open partners of a record lie.
    fn range(&self, arrival: &Arrival<'_, K>) -> Range {
        let other = arrival.side.other();
        let first = arrival.time.saturating_sub(self.window.reach(other));
        let first = first.max(self.window.oldest_open(other, self.now()));
        Range::new(first, arrival.time.saturating_add(self.window.reach(arrival.side)))
    }

    /// Makes a result of a record with each of its open partners; says whether it has one.
    fn match_rows(
        &mut self,
        found: Option<u32>,
        value: &Sided<L, R>,
        arrival: &Arrival<'_, K>,
        cx: &mut Context<'_>,
    ) -> Result<bool> {
        let (other, watermark) = (arrival.side.other(), self.output_time());
        let mut visit = Visit { side: other, range: self.range(arrival), marks: self.kind.keeps(other) };
        let mut matched = false;
        loop {
            let (function, out) = (&*self.function, &mut self.out);
            let see = |partner: &Sided<L, R>, time: i64| {
                matched = true;
                if let Some(result) = pair(function, value, partner) {
                    let timestamp = Timestamp::from_millis(arrival.time.max(time));
                    let value = (arrival.key.clone(), result);
                    out.push(Record { value, timestamp, watermark, origin: arrival.origin });
                }
            };
            if !self.rows.visit(found, &self.key, &mut visit, cx.state, see)? {
                return Ok(matched);
            }
            self.flush_full(cx)?;
        }
    }

    fn flush_full(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.out.len() >= BATCH_RECORDS_MAX { self.flush(cx) } else { Ok(()) }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.place.flush(&mut self.out, cx)
    }
}

/// The result of two values of different sides.
fn pair<L, R, O>(
    function: &impl Fn(Option<&L>, Option<&R>) -> Option<O>,
    one: &Sided<L, R>,
    other: &Sided<L, R>,
) -> Option<O> {
    let ((left, right), (other_left, other_right)) = (one.values(), other.values());
    function(left.or(other_left), right.or(other_right))
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
        let acted_on = self.rows.open(state)?;
        self.place.clock.restore(acted_on);
        // What is due already waited for an epoch with room.
        self.fired = acted_on.min(self.rows.next().saturating_add(-1));
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
        self.rows.seal(self.place.clock.time(), cx.state)?;
        self.place.seal(cx)
    }
}
