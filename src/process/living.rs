//! A table of a processor whose values may have a time to live.

use super::tables::Table;
use crate::codec::{Key, StateValue};
use crate::processor::end_due;
use crate::stage::Context;
use crate::state::{Aging, Entry, TaskState, TimeToLive, TimerKind, ValueTable};
use onceflow_types::{Name, Result, Timestamp};
use std::any::Any;

/// What time it is for one call of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Event time: of a record its own time or the watermark, whichever is further; of a timer its time.
    pub(crate) event: Timestamp,
    pub(crate) processing: Timestamp,
}

/// One value for each key.
pub(crate) struct LivingTable<K, V> {
    pub(super) values: ValueTable<K, V>,
    life: Option<Life<K>>,
}

struct Life<K> {
    aging: Aging,
    /// Looked at in this call, and without a timer: those that have a value behind it get one.
    unarmed: Vec<K>,
}

/// Of which state a table is, and what its user chose.
#[derive(Clone, Copy)]
pub(crate) struct Part<'p> {
    pub(crate) operator: &'p Name,
    pub(crate) name: &'p str,
    pub(crate) cache_entries: usize,
    pub(crate) time_to_live: Option<TimeToLive>,
}

/// How the parts of a processor's state that its user names begin; others are its own.
pub(super) const NAMED: &str = "of-";

impl Part<'_> {
    /// The name that its user gave.
    pub(super) fn given_name(&self) -> &str {
        self.name.strip_prefix(NAMED).unwrap_or(self.name)
    }
}

impl<K: Key, V: StateValue> LivingTable<K, V> {
    pub(crate) fn opened(of: Part<'_>, state: &mut TaskState) -> Result<Self> {
        let mut values = ValueTable::with_cache(of.operator.clone(), of.cache_entries);
        values.open_part(of.name, state)?;
        let mut life = of.time_to_live.map(|time_to_live| {
            let aging = Aging::of_part(of.operator.clone(), of.name, time_to_live);
            Life { aging, unarmed: vec![] }
        });
        if let Some(life) = &mut life {
            life.aging.open(state)?;
        }
        Ok(LivingTable { values, life })
    }

    /// The place of a key, as it is now. What was too old is gone from it, and told to `ended`.
    pub(super) fn entry(
        &mut self,
        key: &K,
        now: Now,
        state: &mut TaskState,
        ended: impl FnOnce(V, &mut TaskState) -> Result<()>,
    ) -> Result<Entry<'_, K, V>> {
        let Some(life) = &mut self.life else { return self.values.entry(key, state) };
        if life.aging.kind() == TimerKind::Processing {
            life.aging.pass(now.processing);
        }
        let now = life.aging.time_of(now.event);
        let looked = life.aging.look(&mut self.values.entry(key, state)?, key, now)?;
        if looked.unarmed {
            life.unarmed.push(key.clone());
        }
        let mut looked = looked;
        if let Some((value, _)) = looked.gone.take() {
            ended(value, state)?;
        }
        let mut entry = self.values.entry(key, state)?;
        life.aging.note(&mut entry, &looked);
        Ok(entry)
    }

    /// Whether a value that was used last at `used` is too old.
    pub(super) fn is_over(&self, used: Option<Timestamp>, now: Now) -> bool {
        match (&self.life, used) {
            (Some(life), Some(used)) => life.aging.is_over(
                used,
                match life.aging.kind() {
                    TimerKind::Event => life.aging.time_of(now.event),
                    TimerKind::Processing => life.aging.time_of(now.event).max(now.processing),
                },
            ),
            _ => false,
        }
    }

    /// As [`Table::remove_due`], and tells `ended` what was removed.
    pub(super) fn remove_due_and(
        &mut self,
        fired: Timestamp,
        cx: &mut Context<'_>,
        ended: impl FnMut(&K, V, &mut TaskState) -> Result<()>,
    ) -> Result<()> {
        let Some(life) = &mut self.life else { return Ok(()) };
        let is_processing = life.aging.kind() == TimerKind::Processing;
        life.aging.pass(if is_processing { cx.now() } else { fired });
        end_due(&mut life.aging, &mut self.values, cx, ended)?;
        if is_processing && life.aging.next() < Timestamp::MAX {
            cx.state.times_mut().wake_at(life.aging.next());
        }
        Ok(())
    }
}

impl<K: Key, V: StateValue> Table for LivingTable<K, V> {
    fn settle(&mut self, state: &mut TaskState) -> Result<()> {
        let Some(life) = &mut self.life else { return Ok(()) };
        for key in life.unarmed.drain(..) {
            life.aging.arm(&self.values.entry(&key, state)?, &key, state)?;
        }
        Ok(())
    }

    fn lives_by(&self) -> Option<TimerKind> {
        self.life.as_ref().map(|life| life.aging.kind())
    }

    fn remove_due(&mut self, fired: Timestamp, cx: &mut Context<'_>) -> Result<()> {
        self.remove_due_and(fired, cx, |_, _, _| Ok(()))
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.values.seal(state)?;
        self.life.as_mut().map_or(Ok(()), |life| life.aging.seal(state))
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
