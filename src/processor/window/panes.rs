//! Windows that are the same for all keys: one entry for each key and window.

use super::{Shape, WindowOptions, Work};
use crate::accumulator::Accumulator;
use crate::codec::{Data, Key, decode_key, encode_key};
use crate::state::{Due, TaskState, Timers, ValueTable, decode_time, encode_time};
use crate::window::{Align, Rule, Span, Trigger};
use onceflow_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};

/// One window of one key.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Pane<S> {
    /// Nothing has come since the last delta.
    state: Option<S>,
    end: i64,
    /// When its timer is due.
    armed: i64,
    /// Whether something has come since the last result.
    changed: bool,
}

/// What a timer says: the start first, so that of windows that are due at one moment the earlier ones come first.
fn write_place<K: Key>(place: &(K, i64), to: &mut Vec<u8>) -> Result<()> {
    to.clear();
    to.extend_from_slice(&encode_time(Timestamp::from_millis(place.1)));
    encode_key(&place.0, to)
}

fn read_place<K: Key>(what: &[u8]) -> Result<(K, i64)> {
    let (start, key) = what.split_first_chunk::<8>().ok_or_else(super::gone)?;
    Ok((decode_key(key)?, decode_time(*start).as_millis()))
}

/// Tumbling, hopping and daily windows.
pub(crate) struct Panes<K, S> {
    align: Align,
    table: ValueTable<(K, i64), Pane<S>>,
    spans: Vec<Span>,
    what: Vec<u8>,
    undo: Vec<(i64, Option<Pane<S>>)>,
}

impl<K: Key, S: crate::codec::StateValue> Panes<K, S> {
    pub(crate) fn new(align: Align, options: &WindowOptions) -> Self {
        let table = ValueTable::with_cache(options.table.clone(), options.cache_entries);
        Panes { align, table, spans: vec![], what: vec![], undo: vec![] }
    }
}

impl<K: Key, T: Data, G: Accumulator<T>> Shape<K, T, G> for Panes<K, G::State> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)
    }

    fn add(&mut self, key: K, value: &T, time: Timestamp, work: &mut Work<'_, K, T, G>) -> Result<()> {
        self.spans.clear();
        self.align.spans(time, &mut self.spans)?;
        self.undo.clear();
        let spans = std::mem::take(&mut self.spans);
        let mut place = (key, 0);
        let (mut result, late_before) = (Ok(()), work.late.len());
        for span in &spans {
            if work.rule.close(*span) <= work.now.as_millis() {
                work.late(place.0.clone(), *span, value, time);
                continue;
            }
            place.1 = span.start;
            result = self.add_to(&place, *span, value, spans.len() > 1, work);
            if result.is_err() {
                self.take_back(&mut place, work)?;
                work.late.truncate(late_before);
                break;
            }
        }
        self.spans = spans;
        if result.is_ok() && work.rule.trigger == Trigger::OnUpdate {
            self.emit_updates(&mut place, work)?;
        }
        result
    }

    fn fire(&mut self, due: &Due, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let place: (K, i64) = read_place(&due.what)?;
        self.fire_at(&place, due.time.as_millis(), work)
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.seal(state)
    }
}

impl<K: Key, S: crate::codec::StateValue + Data> Panes<K, S> {
    /// Adds a value to one window, and sets its timer.
    fn add_to<T: Data, G: Accumulator<T, State = S>>(
        &mut self,
        place: &(K, i64),
        span: Span,
        value: &T,
        undoable: bool,
        work: &mut Work<'_, K, T, G>,
    ) -> Result<()> {
        let mut entry = self.table.entry(place, work.state)?;
        let due = entry.get().map(|pane| pane.armed);
        if let Some(armed) = due.filter(|armed| *armed <= work.now.as_millis()) {
            // The epoch had no room for it. What comes now is not part of it.
            write_place(place, &mut self.what)?;
            work.remove_timer(armed, &self.what)?;
            self.fire_at(place, armed, work)?;
            entry = self.table.entry(place, work.state)?;
        }
        let before = entry.get().map(|pane| pane.armed);
        if undoable {
            self.undo.push((place.1, entry.get().cloned()));
        }
        let next = work.rule.next_fire(span, work.now);
        match entry.get() {
            None => {
                // Before anything is changed, as a key that is too long is the record's error.
                write_place(place, &mut self.what)?;
                Timers::check(self.what.len())?;
                let state = Some(work.accumulator.first(value)?);
                entry.set(Pane { state, end: span.end, armed: next, changed: true });
            }
            Some(pane) => {
                // `add` changes nothing when it fails, so neither does this.
                let first = if pane.state.is_none() { Some(work.accumulator.first(value)?) } else { None };
                if let Some(pane) = entry.get_mut() {
                    match (&mut pane.state, first) {
                        (Some(state), _) => work.accumulator.add(state, value)?,
                        (none, first) => *none = first,
                    }
                    pane.changed = true;
                    pane.armed = pane.armed.min(next);
                }
            }
        }
        if before.is_none_or(|before| next < before) {
            write_place(place, &mut self.what)?;
            work.move_timer(before, next, &self.what)?;
        }
        Ok(())
    }

    /// A record failed in one of its windows: the others are as they were. Their timers may stay, and find nothing.
    fn take_back<T: Data, G: Accumulator<T, State = S>>(
        &mut self,
        place: &mut (K, i64),
        work: &mut Work<'_, K, T, G>,
    ) -> Result<()> {
        for (start, before) in std::mem::take(&mut self.undo) {
            place.1 = start;
            let mut entry = self.table.entry(place, work.state)?;
            let after = entry.get().map(|pane| pane.armed);
            let armed = before.as_ref().map(|pane| pane.armed);
            match before {
                Some(pane) => entry.set(pane),
                None => entry.remove(),
            }
            if armed != after {
                write_place(place, &mut self.what)?;
                if let Some(after) = after {
                    work.remove_timer(after, &self.what)?;
                }
                if let Some(armed) = armed {
                    work.set_timer(armed, &self.what)?;
                }
            }
        }
        Ok(())
    }

    /// A result with every record, for each of its windows.
    fn emit_updates<T: Data, G: Accumulator<T, State = S>>(
        &mut self,
        place: &mut (K, i64),
        work: &mut Work<'_, K, T, G>,
    ) -> Result<()> {
        for at in 0..self.spans.len() {
            let Some(span) = self.spans.get(at).copied() else { break };
            if work.rule.close(span) <= work.now.as_millis() {
                continue;
            }
            place.1 = span.start;
            let mut entry = self.table.entry(place, work.state)?;
            if let Some(pane) = entry.get_mut() {
                pane.changed = false;
                if let Some(state) = &pane.state {
                    work.emit(place.0.clone(), span, state);
                }
                if work.rule.deltas {
                    pane.state = None;
                }
            }
        }
        Ok(())
    }

    /// A window's timer is due: its result, and what comes next.
    fn fire_at<T: Data, G: Accumulator<T, State = S>>(
        &mut self,
        place: &(K, i64),
        time: i64,
        work: &mut Work<'_, K, T, G>,
    ) -> Result<()> {
        let rule: Rule = *work.rule;
        let mut entry = self.table.entry(place, work.state)?;
        let Some(pane) = entry.get().filter(|pane| pane.armed == time) else { return Err(super::gone()) };
        let span = Span { start: place.1, end: pane.end };
        let close = rule.close(span);
        if pane.changed
            && let Some(state) = &pane.state
        {
            work.emit(place.0.clone(), span, state);
        }
        if time >= close {
            entry.remove();
            return Ok(());
        }
        if let Some(pane) = entry.get_mut() {
            (pane.changed, pane.armed) = (false, close);
            if rule.deltas {
                pane.state = None;
            }
        }
        write_place(place, &mut self.what)?;
        work.set_timer(close, &self.what)
    }
}
