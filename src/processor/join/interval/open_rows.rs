//! The open rows of both sides: in memory as long as there is room, else in the state by key.
//!
//! A row in memory is found without the state, lies in a [segment](super::segments) together with others that came with it, and
//! has no timer: memory has the order in which rows are closed. A row that has no room lies [by key](super::super::rows), and a
//! timer says when it is closed. How many of those are not in memory at most is counted, so that while there is none a key that is
//! not in memory has no rows.
//!
//! What has changed and is not in the overlay yet is less than one segment and a row, beside two numbers.

mod close;
mod room;

use super::super::rows::{Moment, Range, Row as Read, Rows, check_key, decode_value, encode_value};
use super::super::{Side, Sided};
use super::header::Header;
use super::memory::{Home, Known, Memory, Row};
use super::segments::{SEGMENT_BYTES, Segments, Written};
use super::turns::Turns;
use crate::codec::StateValue;
use crate::state::{TableId, TaskState, TimerKind, Timers};
use onceflow_types::{Error, Name, Result, Timestamp};

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
    /// The numbers of the rows that lie in segments, in the order in which they are closed.
    turns: Turns,
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
            turns: Turns::new(),
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
        let (memory, turns) = (&mut self.memory, &mut self.turns);
        let mut segments = Segments::open(table, bytes, through, state, |row, at| {
            let slot = match memory.find(row.key) {
                Some(slot) => slot,
                None => memory.insert(row.key)?,
            };
            let Moment { close, side, place } = row.moment;
            let value = decode_value(side, row.value)?;
            let row = memory.add(Row { place, close, home: Home::segment(at), slot, matched: row.matched, value })?;
            turns.insert(close, row);
            Ok(())
        })?;
        segments.delete_empty(state);
        self.segments = Some(segments);
        self.complete(state)?;
        Ok(acted_on)
    }

    /// Brings the other rows into memory of those keys that have rows in segments, so that what is known of them is whole.
    fn complete(&mut self, state: &mut TaskState) -> Result<()> {
        for at in self.memory.taken() {
            for side in SIDES {
                let slot = self.memory.slot(at)?;
                if slot.half(side).rows.len() > 0 {
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
        let first = self.turns.next().map_or(Timestamp::MAX, at);
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
        let (half, rows) = self.memory.half_and_rows(found, side)?;
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
        let numbers = half.rows.as_slice();
        let first = numbers.partition_point(|number| rows.get(*number).is_some_and(|row| row.place < from));
        for number in numbers.iter().skip(first) {
            let row = rows.get_mut(*number).ok_or_else(miscounted)?;
            if row.place.time > range.through {
                break;
            }
            see(&row.value, row.place.time);
            if marks && !row.matched {
                row.matched = true;
                match row.home.at() {
                    Some(home) => Self::opened(&mut self.segments)?.mark(home, state)?,
                    None => self.by_key.mark(key, side, row.place, state)?,
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
        let in_memory = self.memory.rows.len();
        let half = self.memory.half(found, side)?;
        if !is_outside {
            half.known = Known::Whole;
        }
        let is_whole = half.known == Known::Whole;
        let is_crowded = self.outside != [0; 2] && in_memory >= self.bounds.rows_max - self.bounds.rows_max / 4;
        // When some have no room, this one may soon have none, and need not be moved if it lies by key from the first.
        if is_whole && !is_crowded {
            let row = Written { moment, matched, key, value: &self.value };
            let home = Self::opened(&mut self.segments)?.add(&row, state)?;
            let row = Row { place, close, home: Home::segment(home), slot: found, matched, value };
            self.turns.insert(close, self.memory.add(row)?);
        } else {
            self.by_key.put(key, place, matched, &value, state)?;
            self.set_timer(moment, key, state)?;
            *self.header.by_key(side) += 1;
            if !is_whole {
                *self.outside(side) += 1;
                return Ok(());
            }
            self.memory.add(Row { place, close, home: Home::ByKey, slot: found, matched, value })?;
        }
        if self.memory.half(found, side)?.rows.len() > self.bounds.rows_of_key_max {
            self.leave(found, key, side, Known::Large, state)?;
        }
        Ok(())
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
        let (slots, rows) = self.memory.all();
        for slot in slots {
            let key = slot.key.clone();
            for side in SIDES {
                for number in slot.half(side).rows.as_slice() {
                    let row = rows.get_mut(*number).ok_or_else(miscounted)?;
                    let home = row.home.at().filter(|home| segments.is_among_the_gone(*home));
                    let Some(home) = home else { continue };
                    self.value.clear();
                    encode_value(&row.value, &mut self.value)?;
                    let written = Written { moment: row.moment(), matched: row.matched, key: &key, value: &self.value };
                    row.home = Home::segment(segments.add(&written, state)?);
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
        assert_eq!(live, self.turns.len());
        (live, usize::try_from(by_key.iter().sum::<u64>()).unwrap())
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn header_key(table: TableId) -> [u8; 3] {
    let [high, low] = table.prefix();
    [high, low, HEADER]
}

#[cold]
fn miscounted() -> Error {
    Error::bug("rows of a join are miscounted")
}
