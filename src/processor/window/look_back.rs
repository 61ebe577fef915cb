//! A look back from each record.

use super::{Shape, WindowOptions, Work};
use crate::accumulator::Accumulator;
use crate::codec::{Data, Key, StateValue, decode_key, encode_key};
use crate::state::{Due, TaskState, Timers, ValueTable};
use crate::window::Span;
use onceflow_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};

/// What a key's records are, as long as a later one may look back at them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Seen<S> {
    /// When its timer is due: when the last record can no longer be seen, or before.
    armed: i64,
    /// Each record's time and what it comes to alone, in the order of the times.
    records: Vec<(i64, S)>,
}

/// Sliding windows. Each result is made anew of the records in sight, so it costs what they are many.
pub(crate) struct LookBack<K, S> {
    size: i64,
    table: ValueTable<K, Seen<S>>,
    what: Vec<u8>,
}

impl<K: Key, S: StateValue> LookBack<K, S> {
    pub(crate) fn new(size: i64, options: &WindowOptions) -> Self {
        let table = ValueTable::with_cache(options.table.clone(), options.cache_entries);
        LookBack { size, table, what: vec![] }
    }
}

/// The watermark at which nobody that is on time can see a record of `time` any more.
fn out_of_sight(time: i64, size: i64, lateness: i64) -> i64 {
    time.saturating_add(size).saturating_add(lateness)
}

impl<K: Key, T: Data, G: Accumulator<T>> Shape<K, T, G> for LookBack<K, G::State> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)
    }

    fn add(&mut self, key: K, value: &T, time: Timestamp, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let (at, now, lateness) = (time.as_millis(), work.now.as_millis(), work.rule.lateness);
        let span = Span { start: at - self.size + 1, end: at + 1 };
        if work.rule.close(span) <= now {
            work.late(key, span, value, time);
            return Ok(());
        }
        let one = work.accumulator.first(value)?;
        let gone_at = out_of_sight(at, self.size, lateness);
        let mut entry = self.table.entry(&key, work.state)?;
        if entry.get().is_none() {
            // Before anything comes out, as a key that is too long is the record's error.
            self.what.clear();
            encode_key(&key, &mut self.what)?;
            Timers::check(self.what.len())?;
        }
        let records = entry.get().map_or(&[][..], |seen| &seen.records);
        let place = records.partition_point(|(other, _)| *other <= at);
        let in_sight = records.get(..place).unwrap_or_default().iter().filter(|(other, _)| *other >= span.start);
        let mut result: Option<G::State> = None;
        for (_, state) in in_sight.map(|(time, state)| (time, state)).chain([(&at, &one)]) {
            match &mut result {
                Some(result) => work.accumulator.merge(result, state)?,
                None => result = Some(state.clone()),
            }
        }
        let seen = entry.get_or_insert_with(|| Seen { armed: i64::MAX, records: vec![] });
        seen.records.insert(place, (at, one));
        let gone = seen.records.partition_point(|(other, _)| out_of_sight(*other, self.size, lateness) <= now);
        seen.records.drain(..gone);
        let before = seen.armed;
        seen.armed = before.min(gone_at);
        let armed = seen.armed;
        if let Some(result) = &result {
            work.emit(key.clone(), span, result);
        }
        if armed < before {
            self.what.clear();
            encode_key(&key, &mut self.what)?;
            work.move_timer((before < i64::MAX).then_some(before), armed, &self.what)?;
        }
        Ok(())
    }

    fn fire(&mut self, due: &Due, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let key: K = decode_key(&due.what)?;
        let (now, lateness) = (due.time.as_millis(), work.rule.lateness);
        let mut entry = self.table.entry(&key, work.state)?;
        let Some(seen) = entry.get_mut().filter(|seen| seen.armed == now) else { return Err(super::gone()) };
        let gone = seen.records.partition_point(|(time, _)| out_of_sight(*time, self.size, lateness) <= now);
        seen.records.drain(..gone);
        // Not before the last one goes: records that are passed on the way go with the next record of the key.
        match seen.records.last().map(|(time, _)| out_of_sight(*time, self.size, lateness)) {
            Some(next) => {
                seen.armed = next;
                work.set_timer(next, &due.what)
            }
            None => {
                entry.remove();
                Ok(())
            }
        }
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.seal(state)
    }
}
