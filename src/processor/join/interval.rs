//! The interval join: all pairs that are near in time, and rows without a partner once, when they are closed.

use super::rows::{Place, Row, Rows};
use super::{JoinKind, JoinOptions, JoinWindow, Side, Sided, is_missing};
use crate::codec::{Data, Key, StateValue, decode_key, encode_key};
use crate::processor::{BATCH_RECORDS_MAX, Guard, InputClock, Push};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::{Due, TableId, TaskState, TimerKind, Timers};
use crate::time::{Input, Progress, Watermark, is_event_time};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::sync::Arc;

/// The first byte of the sequence's entry.
const VERSION: u8 = 1;
/// Bytes of a timer before the key: side, time and sequence.
const TIMER_HEAD: usize = 17;

/// Where a join stands in its stage.
pub(crate) struct JoinPlace<K, L, R, O> {
    pub(crate) guard: Guard,
    pub(crate) clock: InputClock,
    pub(crate) input: Input,
    pub(crate) next: Box<dyn Push<(K, O)>>,
    pub(crate) next_left: Box<dyn Push<(K, L)>>,
    pub(crate) next_right: Box<dyn Push<(K, R)>>,
}

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
    late_left: Vec<Record<(K, L)>>,
    late_right: Vec<Record<(K, R)>>,
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
            late_left: vec![],
            late_right: vec![],
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

    fn alone(&self, left: Option<&L>, right: Option<&R>) -> Option<O> {
        (self.function)(left, right)
    }

    fn add(&mut self, record: Record<(K, Sided<L, R>)>, cx: &mut Context<'_>) -> Result<()> {
        let Record { value: (key, value), timestamp, origin, .. } = record;
        if !is_event_time(timestamp) {
            return Err(crate::window::out_of_range(timestamp));
        }
        let side = match &value {
            Sided::Left(_) => Side::Left,
            Sided::Right(_) => Side::Right,
        };
        let time = timestamp.as_millis();
        if self.window.close(side, time) <= self.now() {
            let watermark = Timestamp::MIN;
            match value {
                Sided::Left(value) => self.late_left.push(Record { value: (key, value), timestamp, watermark, origin }),
                Sided::Right(value) => {
                    self.late_right.push(Record { value: (key, value), timestamp, watermark, origin });
                }
            }
            return Ok(());
        }
        let arrival = Arrival { key: &key, side, time, origin };
        if is_missing(&key) {
            // Nothing can come to it, so nobody has to wait.
            let result = match &value {
                Sided::Left(left) => self.alone(Some(left), None),
                Sided::Right(right) => self.alone(None, Some(right)),
            };
            self.emit(&key, result, time, origin);
            return Ok(());
        }
        self.key.clear();
        encode_key(&key, &mut self.key)?;
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
    fn range(&self, arrival: &Arrival<'_, K>) -> (Place, i64) {
        let other = if arrival.side == Side::Left { Side::Right } else { Side::Left };
        let first = arrival.time.saturating_sub(self.window.reach(other));
        let first = first.max(self.window.oldest_open(other, self.now()));
        (Place { time: first, sequence: 0 }, arrival.time.saturating_add(self.window.reach(arrival.side)))
    }

    fn match_left(&mut self, left: &L, arrival: &Arrival<'_, K>, cx: &mut Context<'_>) -> Result<bool> {
        let (mut from, through) = self.range(arrival);
        let (mut rows, mut matched) = (vec![], false);
        loop {
            let more = self.right.read(&self.key, from, through, &mut rows, cx.state)?;
            for row in &rows {
                matched = true;
                self.pair(left, &row.value, row.place.time, arrival);
                if !row.matched && self.kind.keeps(Side::Right) {
                    self.right.mark(&self.key, row.place, cx.state)?;
                }
            }
            self.flush_full(cx)?;
            match behind(&rows).filter(|_| more) {
                Some(next) => from = next,
                None => return Ok(matched),
            }
        }
    }

    fn match_right(&mut self, right: &R, arrival: &Arrival<'_, K>, cx: &mut Context<'_>) -> Result<bool> {
        let (mut from, through) = self.range(arrival);
        let (mut rows, mut matched) = (vec![], false);
        loop {
            let more = self.left.read(&self.key, from, through, &mut rows, cx.state)?;
            for row in &rows {
                matched = true;
                self.pair(&row.value, right, row.place.time, arrival);
                if !row.matched && self.kind.keeps(Side::Left) {
                    self.left.mark(&self.key, row.place, cx.state)?;
                }
            }
            self.flush_full(cx)?;
            match behind(&rows).filter(|_| more) {
                Some(next) => from = next,
                None => return Ok(matched),
            }
        }
    }

    fn pair(&mut self, left: &L, right: &R, time: i64, arrival: &Arrival<'_, K>) {
        let result = (self.function)(Some(left), Some(right));
        self.emit(arrival.key, result, arrival.time.max(time), arrival.origin);
    }

    /// Closed rows of a key that an epoch had no room for come out before anything new of it, so that the order of a key's
    /// results does not depend on where epochs end. Pairs alone come in the order of their younger records anyway.
    fn fire_closed(&mut self, key: &K, cx: &mut Context<'_>) -> Result<()> {
        if self.kind == JoinKind::Inner || self.timers.next(TimerKind::Event) > self.place.clock.time() {
            return Ok(());
        }
        let now = self.now();
        let mut closed = vec![];
        let oldest = Place { time: i64::MIN, sequence: 0 };
        for side in [Side::Left, Side::Right] {
            let (mut from, through) = (oldest, self.window.oldest_open(side, now).saturating_sub(1));
            loop {
                let (more, next) = match side {
                    Side::Left => places(&mut self.left, &self.key, from, through, side, &mut closed, cx.state)?,
                    Side::Right => places(&mut self.right, &self.key, from, through, side, &mut closed, cx.state)?,
                };
                match next.filter(|_| more) {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        // The order in which timers fire.
        closed.sort_unstable_by_key(|(side, place)| (self.window.close(*side, place.time), *side, *place));
        for (side, place) in closed {
            let close = Timestamp::from_millis(self.window.close(side, place.time));
            self.timers.remove(TimerKind::Event, close, &timer(side, place, &self.key), cx.state)?;
            self.close(key, side, place, cx.state)?;
        }
        Ok(())
    }

    /// Takes a row out, whose key's bytes are `self.key`; it comes out alone if it has had no partner.
    fn close(&mut self, key: &K, side: Side, place: Place, state: &mut TaskState) -> Result<()> {
        // A window that was changed between two runs leaves timers whose rows are gone before.
        let result = match side {
            Side::Left if !self.kind.keeps(side) => return self.left.remove(&self.key, place, state),
            Side::Right if !self.kind.keeps(side) => return self.right.remove(&self.key, place, state),
            Side::Left => match self.left.take(&self.key, place, state)? {
                Some((false, left)) => self.alone(Some(&left), None),
                _ => return Ok(()),
            },
            Side::Right => match self.right.take(&self.key, place, state)? {
                Some((false, right)) => self.alone(None, Some(&right)),
                _ => return Ok(()),
            },
        };
        self.emit(key, result, place.time, Origin::NONE);
        Ok(())
    }

    fn fire(&mut self, due: &Due, state: &mut TaskState) -> Result<()> {
        let (head, key) = due.what.split_at_checked(TIMER_HEAD).ok_or_else(damaged)?;
        let (side, place) = match head.split_first() {
            Some((0, place)) => (Side::Left, place),
            Some((1, place)) => (Side::Right, place),
            _ => return Err(damaged()),
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.close(&decode_key(key)?, side, Place::from_bytes(place)?, state)
    }

    /// Closes all that is due, unless the epoch is full before.
    fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let now = self.place.clock.time();
        while self.timers.next(TimerKind::Event) <= now {
            if cx.is_full() {
                cx.state.times_mut().set_behind();
                return Ok(());
            }
            let due = self.timers.take_due(TimerKind::Event, now, cx.state)?;
            for (at, timer) in due.iter().enumerate() {
                if cx.is_full() {
                    // The others wait for the next epoch.
                    for timer in due.iter().skip(at) {
                        self.timers.set(TimerKind::Event, timer.time, &timer.what, cx.state)?;
                    }
                    break;
                }
                // All that was due before it has come out.
                self.fired = self.fired.max(timer.time.saturating_add(-1));
                self.fire(timer, cx.state)?;
                self.flush_full(cx)?;
            }
        }
        self.fired = self.fired.max(now);
        Ok(())
    }

    fn flush_full(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.out.len() >= BATCH_RECORDS_MAX { self.flush(cx) } else { Ok(()) }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let mut cx = cx.of_input(self.place.input);
        let late = self.late_left.len() + self.late_right.len();
        if late > 0 {
            cx.counters.late += late as u64;
            self.place.guard.count_late(late);
            self.place.next_left.push(&mut self.late_left, &mut cx)?;
            self.place.next_right.push(&mut self.late_right, &mut cx)?;
        }
        self.place.next.push(&mut self.out, &mut cx)
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
        self.place.next.open(state)?;
        self.place.next_left.open(state)?;
        self.place.next_right.open(state)
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
        let watermark = Watermark { time: self.output_time(), idle: self.place.clock.watermark().idle };
        let progress = Progress { input: self.place.input, watermark };
        let mut cx = cx.of_input(self.place.input);
        self.place.next_left.advance(progress, &mut cx)?;
        self.place.next_right.advance(progress, &mut cx)?;
        self.place.next.advance(progress, &mut cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.sequence.seal(cx.state)?;
        self.timers.seal(self.place.clock.time(), cx.state)?;
        self.place.next_left.seal(cx)?;
        self.place.next_right.seal(cx)?;
        self.place.next.seal(cx)
    }
}

/// Notes where the rows of a key lie; returns whether there may be more, and from where on.
fn places<V: StateValue>(
    rows: &mut Rows<V>,
    key: &[u8],
    from: Place,
    through: i64,
    side: Side,
    to: &mut Vec<(Side, Place)>,
    state: &TaskState,
) -> Result<(bool, Option<Place>)> {
    let mut read = vec![];
    let more = rows.read(key, from, through, &mut read, state)?;
    to.extend(read.iter().map(|row| (side, row.place)));
    Ok((more, behind(&read)))
}

/// The place behind the last of these rows.
fn behind<V>(rows: &[Row<V>]) -> Option<Place> {
    let last = rows.last()?.place;
    Some(Place { sequence: last.sequence.saturating_add(1), ..last })
}

/// What is due when a row is closed. Rows that close at one moment come in the order of these bytes.
fn timer(side: Side, place: Place, key: &[u8]) -> Vec<u8> {
    let mut what = Vec::with_capacity(TIMER_HEAD + key.len());
    what.push(u8::from(side == Side::Right));
    what.extend_from_slice(&place.to_bytes());
    what.extend_from_slice(key);
    what
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("timer of a join is damaged")
}

/// Numbers the rows of a join, so that two of one key and time stay two. Kept in the table `name`, whose only entry has an
/// empty key: version `01`, the next number (`u64`, big-endian).
struct Sequence {
    name: Name,
    table: Option<TableId>,
    next: u64,
    saved: u64,
}

impl Sequence {
    fn new(name: Name) -> Self {
        Sequence { name, table: None, next: 0, saved: 0 }
    }

    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        let table = state.table(&self.name)?;
        self.table = Some(table);
        let mut value = vec![];
        if state.get(&table.prefix(), &mut value)? {
            self.next = match value.split_first() {
                Some((&VERSION, number)) => number.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?,
                Some((&version, _)) if version > VERSION => {
                    return Err(Error::invalid(format!("join of a newer format, upgrade onceflow: version={version}")));
                }
                _ => return Err(damaged()),
            };
        }
        self.saved = self.next;
        Ok(())
    }

    fn draw(&mut self) -> Result<u64> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| Error::bug("a join has no numbers left"))?;
        Ok(number)
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        if self.next > self.saved {
            let table = self.table.ok_or_else(damaged)?;
            let mut value = vec![VERSION];
            value.extend_from_slice(&self.next.to_be_bytes());
            state.put(&table.prefix(), &value);
            self.saved = self.next;
        }
        Ok(())
    }
}
