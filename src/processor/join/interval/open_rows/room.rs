//! How rows come into memory, and how they are left to the state when there is no room for them.

use super::super::super::Side;
use super::super::super::rows::{Moment, Place, Range, Row as Read};
use super::super::memory::{Home, Known, Row};
use super::super::numbers::Numbers;
use super::{OpenRows, SIDES, at as time_of, miscounted};
use crate::codec::StateValue;
use crate::state::{TaskState, TimerKind};
use onceflow_types::Result;

impl<L: StateValue, R: StateValue> OpenRows<L, R> {
    /// Leaves keys to the state that have not been used for long, when there are too many rows or keys in memory.
    pub(super) fn make_room(&mut self, state: &mut TaskState) -> Result<()> {
        while (self.memory.rows.len() >= self.bounds.rows_max || self.memory.keys() >= self.bounds.rows_max)
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
    pub(super) fn load(&mut self, at: u32, key: &[u8], side: Side, state: &mut TaskState) -> Result<()> {
        let outside = *self.outside(side);
        let half = self.memory.half(at, side)?;
        // Those of a large one may all be closed by now.
        if half.known == Known::Whole || half.known == Known::Large && outside > 0 {
            return Ok(());
        }
        half.known = Known::Whole;
        let (mut range, mut count) = (Range::new(i64::MIN, i64::MAX), 0);
        while outside > 0 && self.by_key.read(key, side, &mut range, &mut self.read, state)? {
            for Read { place, matched, value } in self.read.drain(..) {
                // When the row is closed its timer knows.
                self.memory.add(Row { place, close: i64::MAX, home: Home::ByKey, slot: at, matched, value })?;
                count += 1;
            }
            let too_many = self.memory.half(at, side)?.rows.len() > self.bounds.rows_of_key_max;
            if too_many {
                self.count_in(side, &mut count)?;
                return self.leave(at, key, side, Known::Large, state);
            }
        }
        self.count_in(side, &mut count)
    }

    /// Rows by key have come into memory.
    fn count_in(&mut self, side: Side, count: &mut usize) -> Result<()> {
        let count = std::mem::take(count) as u64;
        let outside = self.outside(side);
        *outside = outside.checked_sub(count).ok_or_else(miscounted)?;
        Ok(())
    }

    /// Leaves the rows of a key and side to the state.
    pub(super) fn leave(&mut self, at: u32, key: &[u8], side: Side, known: Known, state: &mut TaskState) -> Result<()> {
        let half = self.memory.half(at, side)?;
        half.known = known;
        let rows = std::mem::replace(&mut half.rows, Numbers::EMPTY);
        for number in rows.as_slice() {
            let row = self.memory.rows.take(*number).ok_or_else(miscounted)?;
            if let Some(home) = row.home.at() {
                let moment = row.moment();
                self.leave_turn(*number, row.close)?;
                Self::opened(&mut self.segments)?.remove(home, state)?;
                self.by_key.put(key, row.place, row.matched, &row.value, state)?;
                self.set_timer(moment, key, state)?;
                *self.header.by_key(side) += 1;
            }
            *self.outside(side) += 1;
        }
        Ok(())
    }

    /// A row is not closed in its turn.
    pub(super) fn leave_turn(&mut self, row: u32, close: i64) -> Result<()> {
        let rows = &self.memory.rows;
        let is_known = self.turns.remove(close, row, |row| rows.get(row).map(Row::moment));
        if is_known { Ok(()) } else { Err(miscounted()) }
    }

    pub(super) fn set_timer(&mut self, moment: Moment, key: &[u8], state: &mut TaskState) -> Result<()> {
        timer(moment.side, moment.place, key, &mut self.what);
        self.timers.set(TimerKind::Event, time_of(moment.close), &self.what, state)
    }
}

/// What is due when a row by key is closed. Rows that close at one moment come in the order of these bytes.
pub(super) fn timer(side: Side, place: Place, key: &[u8], what: &mut Vec<u8>) {
    what.clear();
    what.push(u8::from(side == Side::Right));
    what.extend_from_slice(&place.to_bytes());
    what.extend_from_slice(key);
}
