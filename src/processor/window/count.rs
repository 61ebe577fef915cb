//! So many records of a key, in the order in which they come.

use super::{Shape, WindowOptions, Work};
use crate::accumulator::Accumulator;
use crate::codec::{Data, Key, StateValue};
use crate::state::{Due, TaskState, ValueTable};
use crate::window::Span;
use onceflow_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};

/// The records of a key so far.
#[derive(Serialize, Deserialize)]
pub(crate) struct Filling<S> {
    state: S,
    records: u64,
    earliest: i64,
    latest: i64,
}

/// Count windows. They have no timers, and nothing is late.
pub(crate) struct CountWindows<K, S> {
    records_max: u64,
    table: ValueTable<K, Filling<S>>,
}

impl<K: Key, S: StateValue> CountWindows<K, S> {
    pub(crate) fn new(records_max: u64, options: &WindowOptions) -> Self {
        CountWindows { records_max, table: ValueTable::with_cache(options.table.clone(), options.cache_entries) }
    }
}

impl<K: Key, T: Data, G: Accumulator<T>> Shape<K, T, G> for CountWindows<K, G::State> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)
    }

    fn add(&mut self, key: K, value: &T, time: Timestamp, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let time = time.as_millis();
        let mut entry = self.table.entry(&key, work.state)?;
        if entry.get().is_none() {
            let state = work.accumulator.first(value)?;
            entry.set(Filling { state, records: 0, earliest: time, latest: time });
        } else if let Some(filling) = entry.get_mut() {
            work.accumulator.add(&mut filling.state, value)?;
        }
        let Some(filling) = entry.get_mut() else { return Err(super::gone()) };
        filling.records += 1;
        (filling.earliest, filling.latest) = (filling.earliest.min(time), filling.latest.max(time));
        if filling.records >= self.records_max {
            let span = Span { start: filling.earliest, end: filling.latest + 1 };
            work.emit(key, span, &filling.state);
            entry.remove();
        }
        Ok(())
    }

    fn fire(&mut self, _: &Due, _: &mut Work<'_, K, T, G>) -> Result<()> {
        Err(super::gone())
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.seal(state)
    }
}
