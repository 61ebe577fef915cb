//! How rows of an interval join are closed: by timers, and before anything new of their key comes out.

use super::super::rows::{Place, Range, Rows};
use super::super::{JoinKind, Side};
use super::IntervalJoin;
use crate::codec::{Data, Key, StateValue, decode_key};
use crate::record::Origin;
use crate::stage::Context;
use crate::state::{Due, TaskState, TimerKind};
use onceflow_types::{Error, Result, Timestamp};

/// Bytes of a timer before the key: side, time and sequence.
pub(super) const TIMER_HEAD: usize = 17;

impl<K, L, R, O, F> IntervalJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    /// Closed rows of a key that an epoch had no room for come out before anything new of it, so that the order of a key's
    /// results does not depend on where epochs end. Pairs alone come in the order of their younger records anyway.
    pub(super) fn fire_closed(&mut self, key: &K, cx: &mut Context<'_>) -> Result<()> {
        if self.kind == JoinKind::Inner || !self.timers.is_due(TimerKind::Event, self.place.clock.time()) {
            return Ok(());
        }
        let now = self.now();
        let mut closed = vec![];
        for side in [Side::Left, Side::Right] {
            let through = self.window.oldest_open(side, now).saturating_sub(1);
            match side {
                Side::Left => places(&mut self.left, &self.key, through, side, &mut closed, cx.state)?,
                Side::Right => places(&mut self.right, &self.key, through, side, &mut closed, cx.state)?,
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
                Some((false, left)) => (self.function)(Some(&left), None),
                _ => return Ok(()),
            },
            Side::Right => match self.right.take(&self.key, place, state)? {
                Some((false, right)) => (self.function)(None, Some(&right)),
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
    pub(super) fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let now = self.place.clock.time();
        while self.timers.is_due(TimerKind::Event, now) {
            if cx.leaves_what_is_due() {
                return Ok(());
            }
            let due = self.timers.take_due(TimerKind::Event, now, cx.state)?;
            for (at, timer) in due.iter().enumerate() {
                if cx.is_full() {
                    // The others wait for the next epoch.
                    self.timers.put_back(TimerKind::Event, due.get(at..).unwrap_or_default(), cx.state)?;
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
}

/// Notes where the rows of a key lie whose time is at most `through`.
fn places<V: StateValue>(
    rows: &mut Rows<V>,
    key: &[u8],
    through: i64,
    side: Side,
    to: &mut Vec<(Side, Place)>,
    state: &TaskState,
) -> Result<()> {
    let (mut range, mut read) = (Range::new(i64::MIN, through), vec![]);
    while rows.read(key, &mut range, &mut read, state)? {
        to.extend(read.iter().map(|row| (side, row.place)));
    }
    Ok(())
}

/// What is due when a row is closed. Rows that close at one moment come in the order of these bytes.
pub(super) fn timer(side: Side, place: Place, key: &[u8]) -> Vec<u8> {
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
