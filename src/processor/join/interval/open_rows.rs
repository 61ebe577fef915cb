//! The open rows of both sides: in memory as long as there is room, else in the state by key.
//!
//! A row in memory is found without the state, lies in a [segment](super::segments) together with others that came with it, and
//! has no timer: memory has the order in which rows are closed. A row that has no room lies [by key](super::super::rows), and a
//! timer says when it is closed. How many of those are not in memory at most is counted, so that while there is none a key that is
//! not in memory has no rows.
//!
//! What has changed and is not in the overlay yet is less than one segment and a row, beside two numbers.

use super::super::rows::{Moment, Place, Range, Row as Read, Rows, check_key, decode_value, encode_value};
use super::super::{Side, Sided};
use super::header::Header;
use super::memory::{Home, Known, Memory, Row};
use super::segments::{At, SEGMENT_BYTES, Segments, Written};
use crate::codec::StateValue;
use crate::state::{TableId, TaskState, TimerKind, Timers};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a key and side that are kept in memory at most.
const ROWS_OF_KEY_MAX: usize = 1_024;
/// The part of the table `name#open` that says what the join knows of all rows.
const HEADER: u8 = 0;
/// Bytes of a timer before the key: side, time and sequence.
const TIMER_HEAD: usize = 17;
const SIDES: [Side; 2] = [Side::Left, Side::Right];

/// What bounds the memory of a join.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Rows of both sides; as many keys. Exceeded by the rows of one key.
    pub(super) rows_max: usize,
    pub(super) rows_of_key_max: usize,
    pub(super) segment_bytes: usize,
}

impl Bounds {
    /// Room for so many entries of each side.
    pub(super) fn of_entries(entries: usize) -> Bounds {
        let rows_max = entries.clamp(1, 1 << 30) * 2;
        Bounds { rows_max, rows_of_key_max: ROWS_OF_KEY_MAX.min(rows_max), segment_bytes: SEGMENT_BYTES }
    }
}

/// A way through the rows of a key.
pub(super) struct Visit {
    pub(super) side: Side,
    pub(super) range: Range,
    /// Whether it is noted that they have had a partner.
    pub(super) marks: bool,
}

/// A row that was closed.
pub(super) struct Closed<L, R> {
    pub(super) moment: Moment,
    /// Its value, if it has had no partner.
    pub(super) alone: Option<Sided<L, R>>,
}

/// The open rows of a join.
pub(super) struct OpenRows<L, R> {
    name: Name,
    bounds: Bounds,
    memory: Memory<L, R>,
    /// How many rows are in memory.
    rows: usize,
    /// The rows that lie in segments, each with its key's place in memory.
    order: BTreeMap<Moment, u32>,
    /// `None` before they are opened.
    segments: Option<Segments>,
    table: Option<TableId>,
    by_key: Rows<L, R>,
    timers: Timers,
    header: Header,
    written_header: Vec<u8>,
    /// How many of the rows by key are not in memory, at most.
    outside: [u64; 2],
    /// The value that was encoded last, or any other.
    value: Vec<u8>,
    what: Vec<u8>,
    read: Vec<Read<L, R>>,
}

impl<L: StateValue, R: StateValue> OpenRows<L, R> {
    pub(super) fn new(name: Name, bounds: Bounds) -> Self {
        OpenRows {
            bounds,
            memory: Memory::new(),
            rows: 0,
            order: BTreeMap::new(),
            segments: None,
            table: None,
            by_key: Rows::new(name.clone()),
            timers: Timers::new(name.clone()),
            header: Header::default(),
            written_header: vec![],
            outside: [0; 2],
            value: vec![],
            what: vec![],
            read: vec![],
            name,
        }
    }

    /// Binds them to a task's state; returns the time that was acted on last.
    pub(super) fn open(&mut self, state: &mut TaskState) -> Result<Timestamp> {
        self.by_key.open(state)?;
        let acted_on = self.timers.open(state)?;
        let table = state.part_of_table(&self.name, "open")?;
        self.table = Some(table);
        if state.get(&header_key(table), &mut self.written_header)? {
            self.header = Header::decode(&self.written_header).map_err(|e| e.context(&self.name))?;
        } else {
            // From before there were segments, or new.
            self.header.left = self.by_key.count(Side::Left, state)?;
            self.header.right = self.by_key.count(Side::Right, state)?;
        }
        self.outside = [self.header.left, self.header.right];
        let (through, bytes) = (self.header.through, self.bounds.segment_bytes);
        let (memory, order, rows) = (&mut self.memory, &mut self.order, &mut self.rows);
        let mut segments = Segments::open(table, bytes, through, state, |row, at| {
            let slot = match memory.find(row.key) {
                Some(slot) => slot,
                None => memory.insert(row.key)?,
            };
            let Moment { close, side, place } = row.moment;
            let value = decode_value(side, row.value)?;
            let half = memory.slot(slot)?.half(side);
            half.insert(Row { place, close, matched: row.matched, home: Home::Segment(at), value });
            order.insert(row.moment, slot);
            *rows += 1;
            Ok(())
        })?;
        segments.delete_empty(state);
        self.segments = Some(segments);
        self.complete(state)?;
        Ok(acted_on)
    }

    /// Brings the other rows into memory of those keys that have rows in segments, so that what is known of them is whole.
    fn complete(&mut self, state: &mut TaskState) -> Result<()> {
        let slots: BTreeSet<u32> = self.order.values().copied().collect();
        for at in slots {
            for side in SIDES {
                let slot = self.memory.slot(at)?;
                if !slot.half(side).rows.is_empty() {
                    let key = slot.key.clone();
                    self.load(at, &key, side, state)?;
                }
            }
        }
        Ok(())
    }

    fn opened(segments: &mut Option<Segments>) -> Result<&mut Segments> {
        segments.as_mut().ok_or_else(|| Error::bug("a join's rows are used before they are opened"))
    }

    fn outside(&mut self, side: Side) -> &mut u64 {
        let [left, right] = &mut self.outside;
        if side == Side::Left { left } else { right }
    }

    /// When the next row is closed; [`Timestamp::MAX`] when there is none.
    pub(super) fn next(&self) -> Timestamp {
        let first = self.order.first_key_value().map_or(Timestamp::MAX, |(first, _)| at(first.close));
        first.min(self.timers.next(TimerKind::Event))
    }

    /// Makes the bytes of a value whose row is to be [`put`](Self::put) next. What cannot be kept fails here, before anything
    /// changes.
    ///
    /// # Errors
    /// `Record` when key or value are too long.
    pub(super) fn encode(&mut self, key: &[u8], value: &Sided<L, R>) -> Result<()> {
        check_key(key.len())?;
        Timers::check(TIMER_HEAD + key.len())?;
        self.value.clear();
        encode_value(value, &mut self.value)
    }

    /// Finds what is known of a key, ready for its rows of one side to be [visited](Self::visit). `None` when it has no row of
    /// either side.
    pub(super) fn look_up(&mut self, key: &[u8], side: Side, state: &mut TaskState) -> Result<Option<u32>> {
        self.make_room(state)?;
        let found = match self.memory.find(key) {
            None if self.outside == [0; 2] => return Ok(None),
            None => self.memory.insert(key)?,
            Some(found) => found,
        };
        self.load(found, key, side, state)?;
        Ok(Some(found))
    }

    /// Leaves keys to the state that have not been used for long, when there are too many rows or keys in memory.
    fn make_room(&mut self, state: &mut TaskState) -> Result<()> {
        while (self.rows >= self.bounds.rows_max || self.memory.keys() >= self.bounds.rows_max)
            && let Some(at) = self.memory.choose()
        {
            let key = self.memory.slot(at)?.key.clone();
            for side in SIDES {
                self.leave(at, &key, side, Known::Unread, state)?;
            }
            self.memory.release(at)?;
        }
        Ok(())
    }

    /// Brings the rows of a key and side into memory, unless they are there or are too many.
    fn load(&mut self, at: u32, key: &[u8], side: Side, state: &mut TaskState) -> Result<()> {
        let outside = *self.outside(side);
        let half = self.memory.slot(at)?.half(side);
        // Those of a large one may all be closed by now.
        if half.known == Known::Whole || half.known == Known::Large && outside > 0 {
            return Ok(());
        }
        half.known = Known::Whole;
        let (mut range, mut count) = (Range::new(i64::MIN, i64::MAX), 0);
        while outside > 0 && self.by_key.read(key, side, &mut range, &mut self.read, state)? {
            let half = self.memory.slot(at)?.half(side);
            for Read { place, matched, value } in self.read.drain(..) {
                // By what the row is closed its timer knows.
                half.insert(Row { place, close: i64::MAX, matched, home: Home::ByKey, value });
                count += 1;
            }
            let too_many = half.rows.len() > self.bounds.rows_of_key_max;
            if too_many {
                self.count_in(side, &mut count)?;
                return self.leave(at, key, side, Known::Large, state);
            }
        }
        self.count_in(side, &mut count)
    }

    /// Rows by key have come into memory.
    fn count_in(&mut self, side: Side, count: &mut usize) -> Result<()> {
        self.rows += *count;
        let count = std::mem::take(count) as u64;
        let outside = self.outside(side);
        *outside = outside.checked_sub(count).ok_or_else(miscounted)?;
        Ok(())
    }

    /// Leaves the rows of a key and side to the state.
    fn leave(&mut self, at: u32, key: &[u8], side: Side, known: Known, state: &mut TaskState) -> Result<()> {
        let half = self.memory.slot(at)?.half(side);
        half.known = known;
        let mut rows = std::mem::take(&mut half.rows);
        for row in rows.drain(..) {
            if let Home::Segment(home) = row.home {
                let moment = Moment { close: row.close, side, place: row.place };
                self.order.remove(&moment);
                Self::opened(&mut self.segments)?.remove(home, state)?;
                self.by_key.put(key, row.place, row.matched, &row.value, state)?;
                self.set_timer(moment, key, state)?;
                *self.header.by_key(side) += 1;
            }
            *self.outside(side) += 1;
            self.rows -= 1;
        }
        self.memory.slot(at)?.half(side).rows = rows;
        Ok(())
    }

    fn set_timer(&mut self, moment: Moment, key: &[u8], state: &mut TaskState) -> Result<()> {
        timer(moment.side, moment.place, key, &mut self.what);
        self.timers.set(TimerKind::Event, at(moment.close), &self.what, state)
    }

    /// Hands the next rows of a visit to `see`, in order. Says whether it was not yet at its end.
    pub(super) fn visit(
        &mut self,
        found: Option<u32>,
        key: &[u8],
        visit: &mut Visit,
        state: &mut TaskState,
        mut see: impl FnMut(&Sided<L, R>, i64),
    ) -> Result<bool> {
        let Visit { side, marks, ref mut range } = *visit;
        let (Some(found), Some(from)) = (found, range.from) else { return Ok(false) };
        let half = self.memory.slot(found)?.half(side);
        if half.known != Known::Whole {
            let more = self.by_key.read(key, side, range, &mut self.read, state)?;
            for row in &self.read {
                see(&row.value, row.place.time);
                if marks && !row.matched {
                    self.by_key.mark(key, side, row.place, state)?;
                }
            }
            return Ok(more);
        }
        range.from = None;
        let first = half.rows.partition_point(|row| row.place < from);
        for row in half.rows.range_mut(first..) {
            if row.place.time > range.through {
                break;
            }
            see(&row.value, row.place.time);
            if marks && !row.matched {
                row.matched = true;
                match row.home {
                    Home::Segment(home) => Self::opened(&mut self.segments)?.mark(home, state)?,
                    Home::ByKey => self.by_key.mark(key, side, row.place, state)?,
                }
            }
        }
        Ok(true)
    }

    /// Keeps the row whose value was encoded last, until it is closed.
    pub(super) fn put(
        &mut self,
        found: Option<u32>,
        key: &[u8],
        moment: Moment,
        matched: bool,
        value: Sided<L, R>,
        state: &mut TaskState,
    ) -> Result<()> {
        let Moment { close, side, place } = moment;
        let found = match found {
            Some(found) => found,
            None => self.memory.insert(key)?,
        };
        let is_outside = *self.outside(side) > 0;
        let half = self.memory.slot(found)?.half(side);
        if !is_outside {
            half.known = Known::Whole;
        }
        let is_whole = half.known == Known::Whole;
        let is_crowded = self.outside != [0; 2] && self.rows >= self.bounds.rows_max - self.bounds.rows_max / 4;
        // When some have no room, this one may soon have none, and need not be moved if it lies by key from the first.
        if is_whole && !is_crowded {
            let row = Written { moment, matched, key, value: &self.value };
            let home = Self::opened(&mut self.segments)?.add(&row, state)?;
            self.order.insert(moment, found);
            half.insert(Row { place, close, matched, home: Home::Segment(home), value });
        } else {
            self.by_key.put(key, place, matched, &value, state)?;
            self.set_timer(moment, key, state)?;
            *self.header.by_key(side) += 1;
            if !is_whole {
                *self.outside(side) += 1;
                return Ok(());
            }
            self.memory.slot(found)?.half(side).insert(Row { place, close, matched, home: Home::ByKey, value });
        }
        self.rows += 1;
        if self.memory.slot(found)?.half(side).rows.len() > self.bounds.rows_of_key_max {
            self.leave(found, key, side, Known::Large, state)?;
        }
        Ok(())
    }

    /// Closes the next row, if it is to be closed at `now`, and writes its key to `key`. `keeps` says of which sides rows come
    /// out alone.
    pub(super) fn close_next(
        &mut self,
        now: Timestamp,
        keeps: impl Fn(Side) -> bool,
        key: &mut Vec<u8>,
        state: &mut TaskState,
    ) -> Result<Option<Closed<L, R>>> {
        let now = now.min(at(i64::MAX - 1));
        let first = self.order.first_key_value().map(|(moment, found)| (*moment, *found));
        let by_timer = self.timers.first(TimerKind::Event).map(|due| parse(due.time, &due.what)).transpose()?;
        let by_timer = by_timer.map(|(moment, _)| moment).filter(|moment| at(moment.close) <= now);
        key.clear();
        match (first.filter(|(moment, _)| at(moment.close) <= now), by_timer) {
            (Some((moment, found)), by_timer) if by_timer.is_none_or(|other| moment < other) => {
                let slot = self.memory.slot(found)?;
                key.extend_from_slice(&slot.key);
                let row = slot.half(moment.side).remove(moment.place).ok_or_else(miscounted)?;
                self.order.pop_first();
                self.rows -= 1;
                if let Home::Segment(home) = row.home {
                    Self::opened(&mut self.segments)?.pass(home, state)?;
                }
                self.header.through = Some(moment);
                self.forget_empty(found)?;
                let alone = (keeps(moment.side) && !row.matched).then_some(row.value);
                Ok(Some(Closed { moment, alone }))
            }
            (_, Some(moment)) => {
                let due = self.timers.take_first(TimerKind::Event, now, state)?;
                let due = due.ok_or_else(miscounted)?;
                key.extend_from_slice(parse(due.time, &due.what)?.1);
                let alone = self.take_by_key(key, moment.side, moment.place, keeps(moment.side), state)?;
                self.recount();
                Ok(Some(Closed { moment, alone }))
            }
            (_, None) => Ok(None),
        }
    }

    /// Forgets a key without rows, while it is known of any key that is not in memory that it has none.
    fn forget_empty(&mut self, found: u32) -> Result<()> {
        if self.outside == [0; 2] { self.memory.release_empty(found) } else { Ok(()) }
    }

    /// Takes a row out that lies by key, and returns its value if that is asked for and it has had no partner. A window that
    /// was changed between two runs leaves timers whose rows are gone before.
    fn take_by_key(
        &mut self,
        key: &[u8],
        side: Side,
        place: Place,
        wanted: bool,
        state: &mut TaskState,
    ) -> Result<Option<Sided<L, R>>> {
        let found = self.memory.find(key);
        let half = found.map(|found| self.memory.slot(found).map(|slot| slot.half(side))).transpose()?;
        let taken = match half.filter(|half| half.known == Known::Whole) {
            Some(half) => {
                let Some(row) = half.remove(place) else { return Ok(None) };
                self.rows -= 1;
                self.by_key.remove(key, side, place, state)?;
                (row.matched, row.value)
            }
            // Whether it is there would cost a look-up, and the count may be too high.
            None if !wanted => {
                self.by_key.remove(key, side, place, state)?;
                return Ok(None);
            }
            None => {
                let Some(taken) = self.by_key.take(key, side, place, state)? else { return Ok(None) };
                let outside = self.outside(side);
                *outside = outside.checked_sub(1).ok_or_else(miscounted)?;
                taken
            }
        };
        let count = self.header.by_key(side);
        *count = count.checked_sub(1).ok_or_else(miscounted)?;
        if let Some(found) = found {
            self.forget_empty(found)?;
        }
        let (matched, value) = taken;
        Ok((wanted && !matched).then_some(value))
    }

    /// Notes the places of a key's rows of one side whose time is at most `through`.
    pub(super) fn places(
        &mut self,
        key: &[u8],
        side: Side,
        through: i64,
        to: &mut Vec<(Side, Place)>,
        state: &mut TaskState,
    ) -> Result<()> {
        let found = self.look_up(key, side, state)?;
        let mut range = Range::new(i64::MIN, through);
        let Some(found) = found else { return Ok(()) };
        let half = self.memory.slot(found)?.half(side);
        if half.known == Known::Whole {
            to.extend(half.rows.iter().map(|row| (side, row.place)).take_while(|(_, place)| place.time <= through));
            return Ok(());
        }
        while self.by_key.read(key, side, &mut range, &mut self.read, state)? {
            to.extend(self.read.iter().map(|row| (side, row.place)));
        }
        Ok(())
    }

    /// Closes a row out of its turn; returns its value if it comes out alone and has had no partner.
    pub(super) fn close(
        &mut self,
        key: &[u8],
        moment: Moment,
        keeps: bool,
        state: &mut TaskState,
    ) -> Result<Option<Sided<L, R>>> {
        let Moment { side, place, .. } = moment;
        if let Some(found) = self.memory.find(key) {
            let half = self.memory.slot(found)?.half(side);
            let row = half.rows.binary_search_by_key(&place, |row| row.place).ok();
            let row = row.and_then(|row| half.rows.get(row)).map(|row| (row.home, row.close));
            if let Some((Home::Segment(home), close)) = row {
                let row = half.remove(place).ok_or_else(miscounted)?;
                self.order.remove(&Moment { close, ..moment });
                self.rows -= 1;
                Self::opened(&mut self.segments)?.remove(home, state)?;
                self.forget_empty(found)?;
                return Ok((keeps && !row.matched).then_some(row.value));
            }
        }
        timer(side, place, key, &mut self.what);
        self.timers.remove(TimerKind::Event, at(moment.close), &self.what, state)?;
        let alone = self.take_by_key(key, side, place, keeps, state)?;
        self.recount();
        Ok(alone)
    }

    /// Each row by key has a timer, so where there is none of these there is none of those.
    fn recount(&mut self) {
        if self.timers.next(TimerKind::Event) == Timestamp::MAX {
            (self.header.left, self.header.right, self.outside) = (0, 0, [0; 2]);
        }
    }

    /// Writes what has changed into the state; and the time acted on, if it has moved.
    pub(super) fn seal(&mut self, acted_on: Timestamp, state: &mut TaskState) -> Result<()> {
        let segments = Self::opened(&mut self.segments)?;
        if segments.is_sparse() {
            self.write_anew(state)?;
        }
        Self::opened(&mut self.segments)?.write(state);
        let header = self.header.encode();
        if header != self.written_header {
            let table = self.table.ok_or_else(|| Error::bug("a join's rows are used before they are opened"))?;
            state.put(&header_key(table), &header);
            self.written_header = header;
        }
        self.timers.seal(acted_on, state)
    }

    /// Moves the rows of segments that are mostly gone to new ones.
    fn write_anew(&mut self, state: &mut TaskState) -> Result<()> {
        let segments = Self::opened(&mut self.segments)?;
        for slot in self.memory.slots() {
            let key = slot.key.clone();
            for side in SIDES {
                for row in &mut slot.half(side).rows {
                    let Some(home) = row.home.among_the_gone(segments) else { continue };
                    self.value.clear();
                    encode_value(&row.value, &mut self.value)?;
                    let moment = Moment { close: row.close, side, place: row.place };
                    let written = Written { moment, matched: row.matched, key: &key, value: &self.value };
                    row.home = Home::Segment(segments.add(&written, state)?);
                    segments.pass(home, state)?;
                }
            }
        }
        Ok(())
    }

    /// How many rows lie in segments, and by key, as is known and as is found.
    #[cfg(test)]
    pub(super) fn counts(&self, state: &TaskState) -> (usize, usize) {
        let by_key = [Side::Left, Side::Right].map(|side| self.by_key.count(side, state).unwrap());
        assert!(by_key[0] <= self.header.left && by_key[1] <= self.header.right, "never too few are counted");
        assert!(by_key != [0, 0] || self.outside == [0, 0], "that there is none is known");
        let live = self.segments.as_ref().unwrap().live();
        assert_eq!(live, self.order.len());
        (live, usize::try_from(by_key.iter().sum::<u64>()).unwrap())
    }
}

impl Home {
    fn among_the_gone(self, segments: &Segments) -> Option<At> {
        match self {
            Home::Segment(at) if segments.is_among_the_gone(at) => Some(at),
            _ => None,
        }
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn header_key(table: TableId) -> [u8; 3] {
    let [high, low] = table.prefix();
    [high, low, HEADER]
}

/// What is due when a row by key is closed. Rows that close at one moment come in the order of these bytes.
fn timer(side: Side, place: Place, key: &[u8], what: &mut Vec<u8>) {
    what.clear();
    what.push(u8::from(side == Side::Right));
    what.extend_from_slice(&place.to_bytes());
    what.extend_from_slice(key);
}

/// The row of a timer, and its key.
fn parse(time: Timestamp, what: &[u8]) -> Result<(Moment, &[u8])> {
    let (head, key) = what.split_at_checked(TIMER_HEAD).ok_or_else(damaged)?;
    let (side, place) = match head.split_first() {
        Some((0, place)) => (Side::Left, place),
        Some((1, place)) => (Side::Right, place),
        _ => return Err(damaged()),
    };
    Ok((Moment { close: time.as_millis(), side, place: Place::from_bytes(place)? }, key))
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("timer of a join is damaged")
}

#[cold]
fn miscounted() -> Error {
    Error::bug("rows of a join are miscounted")
}
