//! How rows are closed, in their turn and out of it.

use super::super::super::rows::{Moment, Place, Range};
use super::super::super::{Side, Sided};
use super::super::memory::{Known, Row};
use super::room::timer;
use super::{Closed, OpenRows, TIMER_HEAD, at, miscounted};
use crate::codec::StateValue;
use crate::state::{TaskState, TimerKind};
use onceflow_types::{Error, Result, Timestamp};

impl<L: StateValue, R: StateValue> OpenRows<L, R> {
    /// Closes the next row, if it is to be closed at `now`, and writes its key to `key`. `keeps` says of which sides rows come
    /// out alone.
    pub(in super::super) fn close_next(
        &mut self,
        now: Timestamp,
        keeps: impl Fn(Side) -> bool,
        key: &mut Vec<u8>,
        state: &mut TaskState,
    ) -> Result<Option<Closed<L, R>>> {
        let now = now.min(at(i64::MAX - 1));
        let rows = &self.memory.rows;
        let moment_of = |row| rows.get(row).map(Row::moment);
        let is_due = self.turns.next().is_some_and(|first| at(first) <= now);
        let first = if is_due { self.turns.first(moment_of) } else { None };
        let by_timer = self.timers.first(TimerKind::Event).map(|due| parse(due.time, &due.what)).transpose()?;
        let by_timer = by_timer.map(|(moment, _)| moment).filter(|moment| at(moment.close) <= now);
        key.clear();
        match (first, by_timer) {
            (Some((moment, number)), by_timer) if by_timer.is_none_or(|other| moment < other) => {
                self.turns.pop(moment_of);
                let row = self.memory.take(number)?;
                key.extend_from_slice(&self.memory.slot(row.slot)?.key);
                if let Some(home) = row.home.at() {
                    Self::opened(&mut self.segments)?.pass(home, state)?;
                }
                self.header.through = Some(moment);
                self.forget_empty(row.slot)?;
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
        let known = found.map(|found| self.memory.half(found, side).map(|half| half.known)).transpose()?;
        let taken = match found.filter(|_| known == Some(Known::Whole)) {
            Some(found) => {
                let Some(number) = self.memory.row(found, side, place)? else { return Ok(None) };
                let row = self.memory.take(number)?;
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
    pub(in super::super) fn places(
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
        let (half, rows) = self.memory.half_and_rows(found, side)?;
        if half.known == Known::Whole {
            let places = half.rows.as_slice().iter().filter_map(|number| Some((side, rows.get(*number)?.place)));
            to.extend(places.take_while(|(_, place)| place.time <= through));
            return Ok(());
        }
        while self.by_key.read(key, side, &mut range, &mut self.read, state)? {
            to.extend(self.read.iter().map(|row| (side, row.place)));
        }
        Ok(())
    }

    /// Closes a row out of its turn; returns its value if it comes out alone and has had no partner.
    pub(in super::super) fn close(
        &mut self,
        key: &[u8],
        moment: Moment,
        keeps: bool,
        state: &mut TaskState,
    ) -> Result<Option<Sided<L, R>>> {
        let Moment { side, place, .. } = moment;
        if let Some(found) = self.memory.find(key) {
            let number = self.memory.row(found, side, place)?;
            let home = number.and_then(|number| self.memory.rows.get(number)?.home.at());
            if let (Some(number), Some(home)) = (number, home) {
                let row = self.memory.take(number)?;
                self.leave_turn(number, row.close)?;
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
