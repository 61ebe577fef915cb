//! The join without windows: the latest value of each side, for a time.

use super::{JoinKind, JoinOptions, JoinPlace, Side, Sided, is_missing};
use crate::codec::{Data, Key, StateValue, decode_key, encode_key};
use crate::processor::{BATCH_RECORDS_MAX, Push};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::{Due, TaskState, TimerKind, Timers, ValueTable};
use crate::time::{Progress, is_event_time};
use onceflow_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The latest values of a key, with their times.
#[derive(Serialize, Deserialize)]
struct Latest<L, R> {
    left: Option<(i64, L)>,
    right: Option<(i64, R)>,
    /// When the key's timer is due.
    armed: Option<i64>,
}

impl<L, R> Latest<L, R> {
    const NONE: Latest<L, R> = Latest { left: None, right: None, armed: None };

    /// Forgets what was too old at a watermark.
    fn expire(&mut self, live: i64, now: i64) {
        self.left.take_if(|(time, _)| time.saturating_add(live) <= now);
        self.right.take_if(|(time, _)| time.saturating_add(live) <= now);
    }

    /// When the next of them expires.
    fn next(&self, live: i64) -> Option<i64> {
        let times = [self.left.as_ref().map(|(time, _)| *time), self.right.as_ref().map(|(time, _)| *time)];
        times.into_iter().flatten().min().map(|time| time.saturating_add(live))
    }
}

/// Puts a value in its place, unless a younger one is there.
fn replace<V>(slot: &mut Option<(i64, V)>, time: i64, value: V) {
    if slot.as_ref().is_none_or(|(before, _)| *before <= time) {
        *slot = Some((time, value));
    }
}

/// A join of latest values. `F` makes a result of a pair, or of a value without a partner; `None` for none.
pub(crate) struct LatestJoin<K, L, R, O, F> {
    /// How long a value counts, in milliseconds of event time.
    live: i64,
    kind: JoinKind,
    function: Arc<F>,
    table: ValueTable<K, Latest<L, R>>,
    timers: Timers,
    key: Vec<u8>,
    out: Vec<Record<(K, O)>>,
    place: JoinPlace<K, L, R, O>,
}

impl<K, L, R, O, F> LatestJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    pub(crate) fn new(live: i64, options: &JoinOptions, function: Arc<F>, place: JoinPlace<K, L, R, O>) -> Self {
        LatestJoin {
            live,
            kind: options.kind,
            function,
            table: ValueTable::with_cache(options.table.clone(), options.cache_entries),
            timers: Timers::new(options.table.clone()),
            key: vec![],
            out: vec![],
            place,
        }
    }

    /// No result is older than what is still alive.
    fn output_time(&self) -> Timestamp {
        self.place.clock.time().saturating_add(-self.live)
    }

    fn add(&mut self, record: Record<(K, Sided<L, R>)>, cx: &mut Context<'_>) -> Result<()> {
        if !is_event_time(record.timestamp) {
            return Err(crate::window::out_of_range(record.timestamp));
        }
        let time = record.timestamp.as_millis();
        if time.saturating_add(self.live) <= self.place.clock.time().as_millis() {
            self.place.put_late(record);
            return Ok(());
        }
        let Record { value: (key, value), origin, .. } = record;
        let (result, time) = if is_missing(&key) {
            let (left, right) = value.values();
            ((self.function)(left, right), time)
        } else {
            self.meet(&key, value, time, cx.state)?
        };
        if let Some(result) = result {
            let (timestamp, watermark) = (Timestamp::from_millis(time), self.output_time());
            self.out.push(Record { value: (key, result), timestamp, watermark, origin });
        }
        Ok(())
    }

    /// Brings a value together with the latest of the other side, then keeps it; returns the result and its time.
    fn meet(&mut self, key: &K, value: Sided<L, R>, time: i64, state: &mut TaskState) -> Result<(Option<O>, i64)> {
        let (function, kind) = (&*self.function, self.kind);
        let mut entry = self.table.entry(key, state)?;
        if entry.get().is_none() {
            // Before anything is changed, as a key that is too long is the record's error.
            self.key.clear();
            encode_key(key, &mut self.key)?;
            Timers::check(self.key.len())?;
        }
        let latest = entry.get_or_insert_with(|| Latest::NONE);
        latest.expire(self.live, self.place.clock.time().as_millis());
        let met = match value {
            Sided::Left(left) => {
                let met =
                    pair(latest.right.as_ref(), kind.keeps(Side::Left), time, |right| function(Some(&left), right));
                replace(&mut latest.left, time, left);
                met
            }
            Sided::Right(right) => {
                let met =
                    pair(latest.left.as_ref(), kind.keeps(Side::Right), time, |left| function(left, Some(&right)));
                replace(&mut latest.right, time, right);
                met
            }
        };
        if let (None, Some(next)) = (latest.armed, latest.next(self.live)) {
            latest.armed = Some(next);
            self.key.clear();
            encode_key(key, &mut self.key)?;
            self.timers.set(TimerKind::Event, Timestamp::from_millis(next), &self.key, state)?;
        }
        Ok(met)
    }

    /// A key's timer is due: what has expired goes, and a later one is waited for.
    fn fire(&mut self, due: &Due, state: &mut TaskState) -> Result<()> {
        let key: K = decode_key(&due.what)?;
        let mut entry = self.table.entry(&key, state)?;
        let Some(latest) = entry.get_mut() else { return Ok(()) };
        latest.expire(self.live, due.time.as_millis());
        latest.armed = latest.next(self.live);
        match latest.armed {
            Some(next) => self.timers.set(TimerKind::Event, Timestamp::from_millis(next), &due.what, state),
            None => {
                entry.remove();
                Ok(())
            }
        }
    }

    /// Forgets what has expired, unless the epoch is full before. Nobody sees what is left over for the next one.
    fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let now = self.place.clock.time();
        while self.timers.is_due(TimerKind::Event, now) {
            if cx.leaves_what_is_due() {
                return Ok(());
            }
            for due in self.timers.take_due(TimerKind::Event, now, cx.state)? {
                self.fire(&due, cx.state)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.place.flush(&mut self.out, cx)
    }
}

/// The result of a value with the latest of the other side, or of it alone if such come out; and the result's time.
fn pair<V, O>(
    other: Option<&(i64, V)>,
    keeps: bool,
    time: i64,
    result: impl Fn(Option<&V>) -> Option<O>,
) -> (Option<O>, i64) {
    match other {
        Some((other_time, other)) => (result(Some(other)), time.max(*other_time)),
        None if keeps => (result(None), time),
        None => (None, time),
    }
}

impl<K, L, R, O, F> Push<(K, Sided<L, R>)> for LatestJoin<K, L, R, O, F>
where
    K: Key,
    L: Data + StateValue,
    R: Data + StateValue,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)?;
        let acted_on = self.timers.open(state)?;
        self.place.clock.restore(acted_on);
        self.place.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, Sided<L, R>)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            if self.place.clock.hear_record(cx.input(), record.watermark) {
                self.catch_up(cx)?;
            }
            let (origin, timestamp): (Origin, _) = (record.origin, record.timestamp);
            if let Err(error) = self.add(record, cx) {
                self.place.guard.reject(error, origin, timestamp, cx)?;
            }
            if self.out.len() >= BATCH_RECORDS_MAX {
                self.flush(cx)?;
            }
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
        self.table.seal(cx.state)?;
        self.timers.seal(self.place.clock.time(), cx.state)?;
        self.place.seal(cx)
    }
}
