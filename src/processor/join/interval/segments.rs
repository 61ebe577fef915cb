//! How rows that are in memory lie in the state: many to an entry, in the order in which they came.
//!
//! | key, behind the number of the table `name#open` | value |
//! | --- | --- |
//! | `00` | the [header](super::header) |
//! | `01`; segment (`u64`, big-endian) | version `01`; then the rows: what has happened to it (`00` nothing, `01` it has had a partner, `02` it is gone), side (`00` left, `01` right), when it is closed and its time (`i64`), sequence (`u64`), key by Postcard and value as stored in a table (bytes with their count); numbers little-endian |
//! | `01`; segment; row (`u32`, big-endian), counted from 0 | what has happened to it since: `01`, `02` |
//!
//! A row leaves its segment without a trace when it is closed: the header says up to which one all are. A segment is deleted
//! with its last row. When the rows that are gone take more room than four times the others, those are written anew.

use super::super::Side;
use super::super::rows::{Moment, Place};

use crate::state::{TableId, TaskState};
use onceflow_storage::{KEY_BYTES_MAX, KeyRange, Order, ReadStore, VALUE_BYTES_MAX};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;

const VERSION: u8 = 1;
const SEGMENT: u8 = 1;
/// The segment that is being filled is written when it is as long, or when the epoch ends.
pub(super) const SEGMENT_BYTES: usize = 64 << 10;
/// How much room rows that are gone may take, beside four times that of the others.
const GONE_BYTES: usize = 1 << 20;

const ALONE: u8 = 0;
const MATCHED: u8 = 1;
const GONE: u8 = 2;

/// Where a row lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) segment: u64,
    pub(super) row: u32,
}

/// A row to write, or one that was read.
pub(super) struct Written<'b> {
    pub(super) moment: Moment,
    pub(super) matched: bool,
    pub(super) key: &'b [u8],
    /// As stored in a table.
    pub(super) value: &'b [u8],
}

/// A segment in the state.
#[derive(Default)]
struct Segment {
    rows: u32,
    /// Rows that are not gone.
    live: u32,
    bytes: usize,
    /// Rows that have an entry of their own.
    notes: Vec<u32>,
}

impl Segment {
    /// About how much room the rows take that are not gone.
    fn live_bytes(&self) -> usize {
        let share = self.bytes.saturating_mul(self.live as usize);
        share.checked_div(self.rows as usize).unwrap_or_default()
    }
}

/// The segments of a join.
pub(super) struct Segments {
    table: TableId,
    written: BTreeMap<u64, Segment>,
    /// The number of the segment that is being filled, its bytes, where the words of its rows lie, and how many live.
    number: u64,
    filling: Vec<u8>,
    words: Vec<usize>,
    live: u32,
    segment_bytes: usize,
}

impl Segments {
    /// Reads the segments; `take` gets all rows behind `through` that are not gone, with where they lie.
    pub(super) fn open(
        table: TableId,
        segment_bytes: usize,
        through: Option<Moment>,
        state: &TaskState,
        mut take: impl FnMut(&Written<'_>, At) -> Result<()>,
    ) -> Result<Segments> {
        let mut segments = Segments {
            table,
            written: BTreeMap::new(),
            number: 0,
            filling: vec![],
            words: vec![],
            live: 0,
            segment_bytes,
        };
        let mut cursor = state.overlay().scan(KeyRange::prefix(&segments.key(None, None)), Order::Ascending)?;
        let (mut bytes, mut notes) = (vec![], BTreeMap::new());
        while let Some((key, value)) = cursor.next()? {
            match key.get(3..).and_then(|key| key.split_first_chunk::<8>()) {
                Some((segment, [])) => {
                    segments.restore(&bytes, &notes, through, &mut take)?;
                    segments.number = u64::from_be_bytes(*segment);
                    notes.clear();
                    bytes.clear();
                    bytes.extend_from_slice(value);
                }
                Some((segment, row)) if u64::from_be_bytes(*segment) == segments.number => {
                    let row = row.try_into().map(u32::from_be_bytes).map_err(|_| damaged())?;
                    notes.insert(row, *value.first().ok_or_else(damaged)?);
                }
                _ => return Err(damaged()),
            }
        }
        segments.restore(&bytes, &notes, through, &mut take)?;
        Ok(segments)
    }

    /// Reads one segment, and what has happened to its rows since.
    fn restore(
        &mut self,
        bytes: &[u8],
        notes: &BTreeMap<u32, u8>,
        through: Option<Moment>,
        take: &mut impl FnMut(&Written<'_>, At) -> Result<()>,
    ) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut decoder = Decoder::new(bytes);
        match decoder.u8()? {
            VERSION => {}
            version => {
                return Err(Error::invalid(format!("join of a newer format, upgrade onceflow: version={version}")));
            }
        }
        let mut segment = Segment { bytes: bytes.len(), notes: notes.keys().copied().collect(), ..Segment::default() };
        while !decoder.rest().is_empty() {
            let at = At { segment: self.number, row: segment.rows };
            let (word, mut row) = decode(&mut decoder)?;
            let word = notes.get(&at.row).copied().unwrap_or(word);
            row.matched = word == MATCHED;
            segment.rows += 1;
            if word != GONE && through.is_none_or(|through| row.moment > through) {
                segment.live += 1;
                take(&row, at)?;
            }
        }
        self.written.insert(self.number, segment);
        self.number = self.number.checked_add(1).ok_or_else(damaged)?;
        Ok(())
    }

    fn key(&self, segment: Option<u64>, row: Option<u32>) -> Vec<u8> {
        let mut key = Vec::with_capacity(15);
        key.extend_from_slice(&self.table.prefix());
        key.push(SEGMENT);
        key.extend(segment.iter().flat_map(|segment| segment.to_be_bytes()));
        key.extend(row.iter().flat_map(|row| row.to_be_bytes()));
        key
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &Written<'_>, state: &mut TaskState) -> Result<At> {
        if self.filling.len() >= self.segment_bytes {
            self.write(state);
        }
        if self.filling.is_empty() {
            self.filling.push(VERSION);
        }
        let at = At { segment: self.number, row: u32::try_from(self.words.len()).map_err(|_| damaged())? };
        self.words.push(self.filling.len());
        self.live += 1;
        encode(row, &mut self.filling);
        Ok(at)
    }

    /// Writes the segment that is being filled into the state.
    pub(super) fn write(&mut self, state: &mut TaskState) {
        if self.live > 0 {
            let rows = u32::try_from(self.words.len()).unwrap_or(u32::MAX);
            let segment = Segment { rows, live: self.live, bytes: self.filling.len(), notes: vec![] };
            state.put(&self.key(Some(self.number), None), &self.filling);
            self.written.insert(self.number, segment);
            self.number += 1;
        }
        self.empty();
    }

    fn empty(&mut self) {
        self.filling.clear();
        self.words.clear();
        self.live = 0;
    }

    /// A row has had its first partner.
    pub(super) fn mark(&mut self, at: At, state: &mut TaskState) -> Result<()> {
        self.note(at, MATCHED, state)
    }

    fn note(&mut self, at: At, word: u8, state: &mut TaskState) -> Result<()> {
        if at.segment == self.number {
            let place = self.words.get(at.row as usize).and_then(|place| self.filling.get_mut(*place));
            *place.ok_or_else(lost)? = word;
            return Ok(());
        }
        state.put(&self.key(Some(at.segment), Some(at.row)), &[word]);
        self.written.get_mut(&at.segment).ok_or_else(lost)?.notes.push(at.row);
        Ok(())
    }

    /// A row is gone before those that are closed before it.
    pub(super) fn remove(&mut self, at: At, state: &mut TaskState) -> Result<()> {
        self.note(at, GONE, state)?;
        self.pass(at, state)
    }

    /// A row is gone, and so are all that are closed before it.
    pub(super) fn pass(&mut self, at: At, state: &mut TaskState) -> Result<()> {
        if at.segment == self.number {
            self.live = self.live.checked_sub(1).ok_or_else(lost)?;
            if self.live == 0 {
                self.empty();
            }
            return Ok(());
        }
        let segment = self.written.get_mut(&at.segment).ok_or_else(lost)?;
        segment.live = segment.live.checked_sub(1).ok_or_else(lost)?;
        if segment.live > 0 {
            return Ok(());
        }
        if let Some(segment) = self.written.remove(&at.segment) {
            state.delete(&self.key(Some(at.segment), None));
            for row in segment.notes {
                state.delete(&self.key(Some(at.segment), Some(row)));
            }
        }
        Ok(())
    }

    /// Forgets segments without rows, which an opening has found.
    pub(super) fn delete_empty(&mut self, state: &mut TaskState) {
        let empty: Vec<u64> =
            self.written.iter().filter(|(_, segment)| segment.live == 0).map(|(number, _)| *number).collect();
        for number in empty {
            let notes = self.written.remove(&number).map(|segment| segment.notes).unwrap_or_default();
            state.delete(&self.key(Some(number), None));
            for row in notes {
                state.delete(&self.key(Some(number), Some(row)));
            }
        }
    }

    /// Whether rows that are gone take too much room.
    pub(super) fn is_sparse(&self) -> bool {
        let (bytes, live) = self.written.values().fold((0usize, 0usize), |(bytes, live), segment| {
            (bytes.saturating_add(segment.bytes), live.saturating_add(segment.live_bytes()))
        });
        bytes > live.saturating_mul(5).saturating_add(GONE_BYTES.min(self.segment_bytes.saturating_mul(16)))
    }

    /// Whether the row at this place is one of those to be written anew then.
    pub(super) fn is_among_the_gone(&self, at: At) -> bool {
        self.written.get(&at.segment).is_some_and(|segment| u64::from(segment.live) * 2 < u64::from(segment.rows))
    }

    #[cfg(test)]
    pub(super) fn live(&self) -> usize {
        self.live as usize + self.written.values().map(|segment| segment.live as usize).sum::<usize>()
    }
}

fn encode(row: &Written<'_>, to: &mut Vec<u8>) {
    let Moment { close, side, place } = row.moment;
    to.put_u8(if row.matched { MATCHED } else { ALONE });
    to.put_u8(u8::from(side == Side::Right));
    to.put_i64(close);
    to.put_i64(place.time);
    to.put_u64(place.sequence);
    to.put_bytes(row.key);
    to.put_bytes(row.value);
}

fn decode<'b>(decoder: &mut Decoder<'b>) -> Result<(u8, Written<'b>)> {
    let word = decoder.u8()?;
    let side = match decoder.u8()? {
        0 => Side::Left,
        1 => Side::Right,
        _ => return Err(damaged()),
    };
    let (close, time, sequence) = (decoder.i64()?, decoder.i64()?, decoder.u64()?);
    let moment = Moment { close, side, place: Place { time, sequence } };
    let (key, value) = (decoder.bytes(KEY_BYTES_MAX)?, decoder.bytes(VALUE_BYTES_MAX)?);
    if word > GONE {
        return Err(damaged());
    }
    Ok((word, Written { moment, matched: word == MATCHED, key, value }))
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("segment of a join is damaged")
}

#[cold]
fn lost() -> Error {
    Error::bug("a row of a join is in no segment")
}
