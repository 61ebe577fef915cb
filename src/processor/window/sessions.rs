//! Sessions: per key, records that are not far apart.

use super::{Shape, WindowOptions, Work};
use crate::accumulator::Accumulator;
use crate::codec::{Data, Key, StateValue, decode_key, encode_key};
use crate::state::{Due, TaskState, Timers, ValueTable};
use crate::window::{Rule, Span, Trigger};
use onceflow_types::{Result, Timestamp};
use serde::{Deserialize, Serialize};

/// One session of a key.
#[derive(Clone, Serialize, Deserialize)]
struct Session<S> {
    start: i64,
    last: i64,
    /// Nothing has come since the last delta.
    state: Option<S>,
    /// Whether something has come since the last result.
    changed: bool,
    /// When it fires next by time.
    next: i64,
}

/// The open sessions of a key, in the order of their times; they are more than the gap apart.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenSessions<S> {
    /// When the key's timer is due: when the first of them fires, or before, as sessions grow.
    armed: i64,
    sessions: Vec<Session<S>>,
}

/// Session windows. A key with very many open sessions is one large entry: the gap is what keeps them few.
pub(crate) struct Sessions<K, S> {
    gap: i64,
    table: ValueTable<K, OpenSessions<S>>,
    what: Vec<u8>,
}

impl<K: Key, S: StateValue> Sessions<K, S> {
    pub(crate) fn new(gap: i64, options: &WindowOptions) -> Self {
        let table = ValueTable::with_cache(options.table.clone(), options.cache_entries);
        Sessions { gap, table, what: vec![] }
    }
}

/// A session of records from `start` to `last` ends a millisecond after the gap has passed.
fn span_of(start: i64, last: i64, gap: i64) -> Span {
    Span { start, end: last.saturating_add(gap).saturating_add(1) }
}

impl<K: Key, T: Data, G: Accumulator<T>> Shape<K, T, G> for Sessions<K, G::State> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)
    }

    fn add(&mut self, key: K, value: &T, time: Timestamp, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let (at, now) = (time.as_millis(), work.now.as_millis());
        self.what.clear();
        encode_key(&key, &mut self.what)?;
        // Before anything is changed, as a key that is too long is the record's error.
        Timers::check(self.what.len())?;
        let due = self.table.entry(&key, work.state)?.get().map(|open| open.armed);
        if let Some(armed) = due.filter(|armed| *armed <= now) {
            // The epoch had no room for it. What comes now is not part of it.
            work.remove_timer(armed, &self.what)?;
            self.fire_through(&key, now, work)?;
        }
        let gap = self.gap;
        let mut entry = self.table.entry(&key, work.state)?;
        let open = entry.get().map_or(&[][..], |open| &open.sessions);
        let touched = open.partition_point(|session| session.last.saturating_add(gap) < at);
        let behind = open.partition_point(|session| session.start.saturating_sub(gap) <= at);
        let merged = merge(open.get(touched..behind).unwrap_or_default(), at, value, work.accumulator)?;
        let span = span_of(merged.start, merged.last, gap);
        if work.rule.close(span) <= now {
            work.late(key, span, value, time);
            return Ok(());
        }
        let mut session = Session { next: work.rule.next_fire(span, work.now), ..merged };
        if work.rule.trigger == Trigger::OnUpdate {
            if let Some(state) = &session.state {
                work.emit(key.clone(), span, state);
            }
            session.changed = false;
            session.state = session.state.filter(|_| !work.rule.deltas);
        }
        let open = entry.get_or_insert_with(|| OpenSessions { armed: i64::MAX, sessions: vec![] });
        open.sessions.splice(touched..behind, [session]);
        let (before, first) = (open.armed, open.sessions.iter().map(|session| session.next).min());
        // A timer that is too early finds a session that has grown, and is set again.
        open.armed = first.map_or(before, |first| first.min(before));
        let armed = open.armed;
        if armed < before {
            work.move_timer((before < i64::MAX).then_some(before), armed, &self.what)?;
        }
        Ok(())
    }

    fn fire(&mut self, due: &Due, work: &mut Work<'_, K, T, G>) -> Result<()> {
        let key: K = decode_key(&due.what)?;
        let now = due.time.as_millis();
        if self.table.entry(&key, work.state)?.get().is_none_or(|open| open.armed != now) {
            return Err(super::gone());
        }
        self.what.clear();
        self.what.extend_from_slice(&due.what);
        self.fire_through(&key, now, work)
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.seal(state)
    }
}

/// A new value, and the sessions that it touches, as one.
fn merge<T, G: Accumulator<T>>(
    touched: &[Session<G::State>],
    at: i64,
    value: &T,
    accumulator: &G,
) -> Result<Session<G::State>> {
    let (mut start, mut last) = (at, at);
    let mut state: Option<G::State> = None;
    for session in touched {
        (start, last) = (start.min(session.start), last.max(session.last));
        match (&mut state, &session.state) {
            (Some(state), Some(other)) => accumulator.merge(state, other)?,
            (none, Some(other)) => *none = Some(other.clone()),
            (_, None) => {}
        }
    }
    match &mut state {
        Some(state) => accumulator.add(state, value)?,
        none => *none = Some(accumulator.first(value)?),
    }
    Ok(Session { start, last, state, changed: true, next: 0 })
}

impl<K: Key, S: StateValue + Data> Sessions<K, S> {
    /// Fires the sessions of a key that are due by `now`, and sets its timer anew.
    fn fire_through<T: Data, G: Accumulator<T, State = S>>(
        &mut self,
        key: &K,
        now: i64,
        work: &mut Work<'_, K, T, G>,
    ) -> Result<()> {
        let (gap, rule): (i64, Rule) = (self.gap, *work.rule);
        let mut entry = self.table.entry(key, work.state)?;
        let Some(open) = entry.get_mut() else { return Ok(()) };
        for session in open.sessions.iter_mut().filter(|session| session.next <= now) {
            let span = span_of(session.start, session.last, gap);
            if session.changed
                && let Some(state) = &session.state
            {
                work.emit(key.clone(), span, state);
            }
            session.changed = false;
            if rule.deltas {
                session.state = None;
            }
            // What is gone is left for the next line.
            session.next = rule.close(span);
        }
        open.sessions.retain(|session| session.next > now);
        match open.sessions.iter().map(|session| session.next).min() {
            Some(next) => {
                open.armed = next;
                work.set_timer(next, &self.what)
            }
            None => {
                entry.remove();
                Ok(())
            }
        }
    }
}
