//! Time to live in a keyed operator: when time has come, and what is removed then.

use super::InputClock;
use crate::codec::{Key, StateValue, decode_key};
use crate::record::Record;
use crate::stage::Context;
use crate::state::{Aging, Entry, TaskState, TimeToLive, TimerKind, ValueTable};
use crate::time::{Progress, is_event_time};
use onceflow_types::{Result, Timestamp};

/// Removes what is too old, unless the epoch is full before, and tells `ended` what it was.
pub(crate) fn end_due<K: Key, V: StateValue>(
    aging: &mut Aging,
    table: &mut ValueTable<K, V>,
    cx: &mut Context<'_>,
    mut ended: impl FnMut(&K, V, &mut TaskState) -> Result<()>,
) -> Result<()> {
    while aging.is_due() {
        if cx.leaves_what_is_due() {
            return Ok(());
        }
        for due in aging.take_due(cx.state)? {
            let key: K = decode_key(&due.what)?;
            let value = aging.end(&mut table.entry(&key, cx.state)?, &due, cx.state)?;
            value.map_or(Ok(()), |value| ended(&key, value, cx.state))?;
        }
    }
    Ok(())
}

/// The aging of an operator's table, and the clock that it goes by.
pub(crate) struct Aged {
    aging: Aging,
    clock: InputClock,
}

impl Aged {
    pub(crate) fn new(aging: Aging, clock: InputClock) -> Self {
        Aged { aging, clock }
    }

    pub(crate) fn time_to_live(&self) -> TimeToLive {
        self.aging.time_to_live()
    }

    pub(crate) fn open(&mut self, state: &mut TaskState) -> Result<()> {
        let acted_on = self.aging.open(state)?;
        if self.aging.kind() == TimerKind::Event {
            self.clock.restore(acted_on);
        }
        Ok(())
    }

    /// A record comes: time may have moved.
    pub(crate) fn hear_record<T, K: Key, V: StateValue>(
        &mut self,
        record: &Record<T>,
        table: &mut ValueTable<K, V>,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        self.clock.hear_record(cx.input(), record.watermark);
        self.catch_up(table, cx)
    }

    /// An input has come further, or processing time has passed.
    pub(crate) fn advance<K: Key, V: StateValue>(
        &mut self,
        progress: Progress,
        table: &mut ValueTable<K, V>,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        self.clock.hear(progress);
        self.catch_up(table, cx)?;
        if self.aging.kind() == TimerKind::Processing && self.aging.next() < Timestamp::MAX {
            cx.state.times_mut().wake_at(self.aging.next());
        }
        Ok(())
    }

    /// Removes what is too old, unless the epoch is full before. What is left is not seen by records either.
    fn catch_up<K: Key, V: StateValue>(&mut self, table: &mut ValueTable<K, V>, cx: &mut Context<'_>) -> Result<()> {
        self.aging.pass(match self.aging.kind() {
            TimerKind::Event => self.clock.time(),
            TimerKind::Processing => cx.now(),
        });
        end_due(&mut self.aging, table, cx, |_, _, _| Ok(()))
    }

    /// Runs `step` on the place of `key`, as it is for a record of this time. After an error nothing has changed.
    pub(crate) fn step<K: Key, V: StateValue, O>(
        &mut self,
        key: &K,
        time: Timestamp,
        table: &mut ValueTable<K, V>,
        state: &mut TaskState,
        step: impl FnOnce(&mut Entry<'_, K, V>) -> Result<O>,
    ) -> Result<O> {
        if self.aging.kind() == TimerKind::Event && !is_event_time(time) {
            return Err(crate::window::out_of_range(time));
        }
        let now = self.aging.time_of(time);
        let mut entry = table.entry(key, state)?;
        let looked = self.aging.look(&mut entry, key, now)?;
        match step(&mut entry) {
            Ok(output) => self.aging.used(&mut entry, &looked, state).map(|()| output),
            Err(error) => {
                entry.put_back(looked.gone);
                Err(error)
            }
        }
    }

    pub(crate) fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.aging.seal(state)
    }
}
