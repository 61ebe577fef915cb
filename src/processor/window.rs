//! Windows: what all kinds of them share. How time comes, what is due, what is late, what goes on.

mod count;
mod look_back;
mod panes;
mod sessions;

use super::{BATCH_RECORDS_MAX, Guard, InputClock, Push};
use crate::accumulator::Accumulator;
use crate::codec::{Data, Key};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::{Due, TaskState, TimerKind, Timers};
use crate::time::{Input, Progress, Watermark, is_event_time};
use crate::window::{Rule, Span, Windowed, Windows};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::sync::Arc;

pub(crate) use count::CountWindows;
pub(crate) use look_back::LookBack;
pub(crate) use panes::Panes;
pub(crate) use sessions::Sessions;

/// What the user chose for a window operator.
#[derive(Clone, Debug)]
pub(crate) struct WindowOptions {
    pub(crate) table: Name,
    pub(crate) windows: Windows,
    pub(crate) rule: Rule,
    pub(crate) cache_entries: usize,
}

/// Records with their windows.
type Batch<K, T> = Vec<Record<(K, Windowed<T>)>>;

/// One way to keep windows.
pub(crate) trait Shape<K, T, G: Accumulator<T>>: Send {
    /// Binds its table.
    fn open(&mut self, state: &mut TaskState) -> Result<()>;

    /// Adds a record to its windows. After an error nothing has changed.
    fn add(&mut self, key: K, value: &T, time: Timestamp, work: &mut Work<'_, K, T, G>) -> Result<()>;

    /// A timer of its own is due.
    fn fire(&mut self, due: &Due, work: &mut Work<'_, K, T, G>) -> Result<()>;

    /// Writes its cache into the overlay.
    fn seal(&mut self, state: &mut TaskState) -> Result<()>;
}

/// What a shape works with, lent for one record or timer.
pub(crate) struct Work<'w, K, T, G: Accumulator<T>> {
    pub(crate) state: &'w mut TaskState,
    pub(crate) timers: &'w mut Timers,
    pub(crate) rule: &'w Rule,
    pub(crate) accumulator: &'w G,
    /// How far event time has come: windows whose time to go is not behind it are gone.
    pub(crate) now: Timestamp,
    /// How far the results have come.
    fired: Timestamp,
    origin: Origin,
    out: &'w mut Batch<K, G::Output>,
    late: &'w mut Batch<K, T>,
}

impl<K: Key, T: Data, G: Accumulator<T>> Work<'_, K, T, G> {
    /// Puts a window's result out.
    pub(crate) fn emit(&mut self, key: K, span: Span, state: &G::State) {
        let value = (key, Windowed::of(span, self.accumulator.result(state)));
        let timestamp = Timestamp::from_millis(span.end - 1);
        self.out.push(Record { value, timestamp, watermark: self.fired, origin: self.origin });
    }

    /// Puts a record aside that is late for a window.
    pub(crate) fn late(&mut self, key: K, span: Span, value: &T, timestamp: Timestamp) {
        let value = (key, Windowed::of(span, value.clone()));
        self.late.push(Record { value, timestamp, watermark: Timestamp::MIN, origin: self.origin });
    }

    pub(crate) fn set_timer(&mut self, time: i64, what: &[u8]) -> Result<()> {
        self.timers.set(TimerKind::Event, Timestamp::from_millis(time), what, self.state)
    }

    /// Moves a timer to an earlier time, or sets it when there was none.
    pub(crate) fn move_timer(&mut self, before: Option<i64>, time: i64, what: &[u8]) -> Result<()> {
        if let Some(before) = before {
            self.remove_timer(before, what)?;
        }
        self.set_timer(time, what)
    }

    pub(crate) fn remove_timer(&mut self, time: i64, what: &[u8]) -> Result<()> {
        self.timers.remove(TimerKind::Event, Timestamp::from_millis(time), what, self.state)
    }
}

/// A window operator.
pub(crate) struct WindowRoom<K, T, G: Accumulator<T>, S> {
    shape: S,
    rule: Rule,
    accumulator: Arc<G>,
    guard: Guard,
    clock: InputClock,
    timers: Timers,
    /// How far the results have come: behind the clock when an epoch had no room for all that was due.
    fired: Timestamp,
    input: Input,
    out: Batch<K, G::Output>,
    late: Batch<K, T>,
    next: Box<dyn Push<(K, Windowed<G::Output>)>>,
    next_late: Box<dyn Push<(K, Windowed<T>)>>,
}

/// Where a window operator stands in its stage.
pub(crate) struct Place<K, T, O> {
    pub(crate) guard: Guard,
    pub(crate) clock: InputClock,
    pub(crate) input: Input,
    pub(crate) next: Box<dyn Push<(K, Windowed<O>)>>,
    pub(crate) next_late: Box<dyn Push<(K, Windowed<T>)>>,
}

impl<K: Key, T: Data, G: Accumulator<T>, S: Shape<K, T, G>> WindowRoom<K, T, G, S> {
    pub(crate) fn new(shape: S, options: &WindowOptions, accumulator: Arc<G>, place: Place<K, T, G::Output>) -> Self {
        let Place { guard, clock, input, next, next_late } = place;
        WindowRoom {
            shape,
            rule: options.rule,
            accumulator,
            guard,
            clock,
            timers: Timers::new(options.table.clone()),
            fired: Timestamp::MIN,
            input,
            out: vec![],
            late: vec![],
            next,
            next_late,
        }
    }

    /// Lends what a shape works with.
    fn work<'w>(&'w mut self, cx: &'w mut Context<'_>, origin: Origin) -> (&'w mut S, Work<'w, K, T, G>) {
        let fired = self.output_time();
        let work = Work {
            state: cx.state,
            timers: &mut self.timers,
            rule: &self.rule,
            accumulator: &*self.accumulator,
            now: self.clock.time(),
            fired,
            origin,
            out: &mut self.out,
            late: &mut self.late,
        };
        (&mut self.shape, work)
    }

    /// How far the results have come: as far as the windows, less the lateness, as results of windows that wait for late
    /// records are that old.
    fn output_time(&self) -> Timestamp {
        self.fired.saturating_add(-self.rule.lateness)
    }

    /// Fires all that is due, unless the epoch is full before.
    fn catch_up(&mut self, cx: &mut Context<'_>) -> Result<()> {
        while self.timers.is_due(TimerKind::Event, self.clock.time()) {
            if cx.leaves_what_is_due() {
                return Ok(());
            }
            let due = self.timers.take_due(TimerKind::Event, self.clock.time(), cx.state)?;
            for (at, timer) in due.iter().enumerate() {
                if cx.is_full() {
                    // The others wait for the next epoch.
                    self.timers.put_back(TimerKind::Event, due.get(at..).unwrap_or_default(), cx.state)?;
                    break;
                }
                // All that was due before it has come out.
                self.fired = self.fired.max(timer.time.saturating_add(-1));
                let (shape, mut work) = self.work(cx, Origin::NONE);
                shape.fire(timer, &mut work)?;
                if self.out.len() >= BATCH_RECORDS_MAX {
                    self.flush(cx)?;
                }
            }
        }
        self.fired = self.fired.max(self.clock.time());
        Ok(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let mut cx = cx.of_input(self.input);
        if !self.late.is_empty() {
            cx.counters.late += self.late.len() as u64;
            self.guard.count_late(self.late.len());
            self.next_late.push(&mut self.late, &mut cx)?;
        }
        self.next.push(&mut self.out, &mut cx)
    }

    fn add(&mut self, record: Record<(K, T)>, cx: &mut Context<'_>) -> Result<()> {
        if !is_event_time(record.timestamp) {
            return Err(crate::window::out_of_range(record.timestamp));
        }
        let (key, value) = record.value;
        let (shape, mut work) = self.work(cx, record.origin);
        shape.add(key, &value, record.timestamp, &mut work)
    }
}

impl<K: Key, T: Data, G: Accumulator<T>, S: Shape<K, T, G>> Push<(K, T)> for WindowRoom<K, T, G, S> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.shape.open(state)?;
        let acted_on = self.timers.open(state)?;
        self.clock.restore(acted_on);
        // What is due already waited for an epoch with room.
        self.fired = acted_on.min(self.timers.next(TimerKind::Event).saturating_add(-1));
        self.next.open(state)?;
        self.next_late.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, T)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            if self.clock.hear_record(cx.input(), record.watermark) {
                self.catch_up(cx)?;
            }
            let (origin, timestamp) = (record.origin, record.timestamp);
            if let Err(error) = self.add(record, cx) {
                self.guard.reject(error, origin, timestamp, cx)?;
            }
            if self.out.len() >= BATCH_RECORDS_MAX {
                self.flush(cx)?;
            }
        }
        self.flush(cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.clock.hear(progress);
        self.catch_up(cx)?;
        self.flush(cx)?;
        let watermark = Watermark { time: self.output_time(), idle: self.clock.watermark().idle };
        let progress = Progress { input: self.input, watermark };
        let mut cx = cx.of_input(self.input);
        self.next_late.advance(progress, &mut cx)?;
        self.next.advance(progress, &mut cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.shape.seal(cx.state)?;
        self.timers.seal(self.clock.time(), cx.state)?;
        self.next_late.seal(cx)?;
        self.next.seal(cx)
    }
}

#[cold]
fn gone() -> Error {
    Error::corrupt("a timer's window is gone")
}
