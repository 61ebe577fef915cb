//! How rows of an interval join are closed: in their turn, and before anything new of their key comes out.

use super::super::rows::{Moment, Place};
use super::super::{JoinKind, Side};
use super::IntervalJoin;
use super::open_rows::Closed;
use crate::codec::{Data, Key, StateValue, decode_key};
use crate::record::Origin;
use crate::stage::Context;
use onceflow_types::{Result, Timestamp};

impl<K, L, R, O, F> IntervalJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    /// Whether there are rows to close.
    fn is_due(&self) -> bool {
        // What is to be closed at the end of time never is.
        self.rows.next() <= self.place.clock.time().min(Timestamp::from_millis(i64::MAX - 1))
    }

    /// Closed rows of a key that an epoch had no room for come out before anything new of it, so that the order of a key's
    /// results does not depend on where epochs end. Pairs alone come in the order of their younger records anyway.
    pub(super) fn fire_closed(&mut self, key: &K, cx: &mut Context<'_>) -> Result<()> {
        if self.kind == JoinKind::Inner || !self.is_due() {
            return Ok(());
        }
        let now = self.now();
        let mut closed = vec![];
        for side in [Side::Left, Side::Right] {
            let through = self.window.oldest_open(side, now).saturating_sub(1);
            self.rows.places(&self.key, side, through, &mut closed, cx.state)?;
        }
        // The order in which rows are closed.
        let moment = |(side, place): (Side, Place)| Moment { close: self.window.close(side, place.time), side, place };
        let mut closed: Vec<_> = closed.into_iter().map(moment).collect();
        closed.sort_unstable();
        for moment in closed {
            let alone = self.rows.close(&self.key, moment, self.kind.keeps(moment.side), cx.state)?;
            if let Some(value) = alone {
                let (left, right) = value.values();
                self.emit(key, (self.function)(left, right), moment.place.time, Origin::NONE);
            }
        }
        Ok(())
    }

    /// Closes all that is due, unless the epoch is full before.
    pub(super) fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let (now, kind) = (self.place.clock.time(), self.kind);
        while self.is_due() {
            if cx.leaves_what_is_due() {
                return Ok(());
            }
            let keeps = |side| kind.keeps(side);
            let Some(Closed { moment, alone }) = self.rows.close_next(now, keeps, &mut self.key, cx.state)? else {
                break;
            };
            // All that was due before it has come out.
            self.fired = self.fired.max(Timestamp::from_millis(moment.close.saturating_sub(1)));
            if let Some(value) = alone {
                let (left, right) = value.values();
                let key: K = decode_key(&self.key)?;
                self.emit(&key, (self.function)(left, right), moment.place.time, Origin::NONE);
                self.flush_full(cx)?;
            }
        }
        self.fired = self.fired.max(now);
        Ok(())
    }
}
