//! The room of a user's processor.

use super::{BATCH_RECORDS_MAX, Guard, InputClock, Push};
use crate::codec::{Data, Key, decode_key, encode_key};
use crate::process::{KeyTimers, Lent, Now, Process, Processor, Setup, Sides, Tables, Timer, forget};
use crate::record::{Origin, Record};
use crate::stage::Context;
use crate::state::{Due, TaskState, TimerKind, Timers, ValueTable};
use crate::time::{Input, Progress, Watermark, is_event_time};
use onceflow_types::{Error, Name, Result, Timestamp};

/// How many timers fire before the epoch is ended and somebody else has a turn.
const FIRINGS_MAX: usize = 100_000;

/// What the user chose for a processor.
#[derive(Clone, Debug)]
pub(crate) struct ProcessOptions {
    pub(crate) table: Name,
    pub(crate) cache_entries: usize,
}

/// Runs a user's processor.
pub(crate) struct ProcessRoom<K, O, P> {
    processor: P,
    name: Name,
    cache_entries: usize,
    tables: Tables,
    key_timers: KeyTimers<K>,
    timers: Timers,
    clock: InputClock,
    /// How far the output has come: behind the clock when an epoch had no room for all that was due.
    fired: Timestamp,
    input: Input,
    guard: Guard,
    key_bytes: Vec<u8>,
    lengths: Vec<usize>,
    out: Vec<Record<(K, O)>>,
    sides: Sides,
    next: Box<dyn Push<(K, O)>>,
}

/// One call of a processor.
enum Call<T> {
    Record { value: T, time: Timestamp, origin: Origin },
    Timer(Timer),
}

impl<K: Key, O: Data, P> ProcessRoom<K, O, P> {
    pub(crate) fn new(
        processor: P,
        options: &ProcessOptions,
        guard: Guard,
        (clock, input): (InputClock, Input),
        sides: Sides,
        next: Box<dyn Push<(K, O)>>,
    ) -> Self {
        ProcessRoom {
            processor,
            name: options.table.clone(),
            cache_entries: options.cache_entries,
            tables: Tables::default(),
            key_timers: ValueTable::with_cache(options.table.clone(), options.cache_entries),
            timers: Timers::new(options.table.clone()),
            clock,
            fired: Timestamp::MIN,
            input,
            guard,
            key_bytes: vec![],
            lengths: vec![],
            out: vec![],
            sides,
            next,
        }
    }

    /// Calls the processor for a key. Output of a call that fails is dropped, and its error is the policy's affair.
    fn call<T: Data>(&mut self, key: &K, call: Call<T>, cx: &mut Context<'_>) -> Result<()>
    where
        P: Processor<K, T, Output = O>,
    {
        let (time, origin) = match &call {
            Call::Record { time, origin, .. } => (*time, *origin),
            Call::Timer(Timer::Event(time) | Timer::Processing(time)) => (*time, Origin::NONE),
        };
        self.key_bytes.clear();
        let emitted = self.out.len();
        let event = match &call {
            Call::Record { time, .. } => self.clock.time().max(*time),
            Call::Timer(Timer::Event(time)) => *time,
            Call::Timer(Timer::Processing(_)) => self.clock.time(),
        };
        let now = Now { event, processing: cx.now() };
        self.sides.lengths(&mut self.lengths);
        let mut result = encode_key(key, &mut self.key_bytes);
        if matches!(call, Call::Record { .. }) && !is_event_time(time) && self.tables.live_by_event_time()? {
            result = Err(crate::window::out_of_range(time));
        }
        if result.is_ok() {
            let lent = Lent {
                state: cx.state,
                tables: &mut self.tables,
                timers: &mut self.timers,
                key_timers: &mut self.key_timers,
                out: &mut self.out,
                sides: &mut self.sides,
                fired: self.fired,
                watermark: self.clock.time(),
                now,
                origin,
            };
            let firing = match &call {
                Call::Record { .. } => None,
                Call::Timer(Timer::Event(time)) => Some((TimerKind::Event, *time)),
                Call::Timer(Timer::Processing(time)) => Some((TimerKind::Processing, *time)),
            };
            let mut process = Process { lent, key, key_bytes: &self.key_bytes, time, firing };
            result = match call {
                Call::Record { value, .. } => self.processor.process(value, &mut process),
                Call::Timer(timer) => self.processor.on_timer(timer, &mut process),
            };
        }
        self.tables.settle(cx.state)?;
        if let Err(error) = result {
            self.out.truncate(emitted);
            self.sides.truncate(&self.lengths);
            self.guard.reject(error, origin, time, cx)?;
        }
        if self.out.len() + self.sides.len() >= BATCH_RECORDS_MAX { self.flush(cx) } else { Ok(()) }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let mut cx = cx.of_input(self.input);
        self.sides.each(|side| side.flush(&mut cx))?;
        self.next.push(&mut self.out, &mut cx)
    }

    /// Fires all that is due by one kind of time, unless the epoch is full before.
    fn fire_due<T: Data>(&mut self, kind: TimerKind, now: Timestamp, cx: &mut Context<'_>) -> Result<()>
    where
        P: Processor<K, T, Output = O>,
    {
        let mut fired = 0;
        while self.timers.is_due(kind, now) {
            if cx.leaves_what_is_due() {
                return Ok(());
            }
            // Timers that set timers leave no trace by which the epoch would ever be full.
            if fired >= FIRINGS_MAX {
                cx.state.times_mut().set_behind();
                return Ok(());
            }
            let due = self.timers.take_due(kind, now, cx.state)?;
            fired += due.len();
            for (at, timer) in due.iter().enumerate() {
                if cx.is_full() {
                    // The others wait for the next epoch.
                    self.timers.put_back(kind, due.get(at..).unwrap_or_default(), cx.state)?;
                    break;
                }
                self.fire(kind, timer, cx)?;
            }
        }
        if kind == TimerKind::Event {
            self.fired = self.fired.max(self.clock.time());
        }
        Ok(())
    }

    fn fire<T: Data>(&mut self, kind: TimerKind, due: &Due, cx: &mut Context<'_>) -> Result<()>
    where
        P: Processor<K, T, Output = O>,
    {
        let key: K = decode_key(&due.what)?;
        // Taken back by a timer that was taken out together with it.
        if !forget(&mut self.key_timers, &key, kind, due.time, cx.state)? {
            return Ok(());
        }
        let timer = match kind {
            TimerKind::Event => {
                self.fired = self.fired.max(due.time.saturating_add(-1));
                Timer::Event(due.time)
            }
            TimerKind::Processing => Timer::Processing(due.time),
        };
        self.call(&key, Call::Timer(timer), cx)
    }

    /// The event-time timers of a key that the epoch had no room for: they come before its next record.
    ///
    /// # Errors
    /// `Invalid` when they set each other for earlier times without end.
    fn fire_of_key<T: Data>(&mut self, key: &K, cx: &mut Context<'_>) -> Result<()>
    where
        P: Processor<K, T, Output = O>,
    {
        let (mut furthest, mut standing) = (i64::MIN, 0);
        loop {
            let now = self.clock.time().as_millis().min(i64::MAX - 1);
            let entry = self.key_timers.entry(key, cx.state)?;
            let first = entry.get().and_then(|set| set.first().copied());
            let Some((_, time)) = first.filter(|(kind, time)| *kind == TimerKind::Event as u8 && *time <= now) else {
                return Ok(());
            };
            standing = if time > furthest { 0 } else { standing + 1 };
            furthest = furthest.max(time);
            if standing == FIRINGS_MAX {
                return Err(Error::invalid(format!("timers set each other without end: operator={}", self.name)));
            }
            let time = Timestamp::from_millis(time);
            self.key_bytes.clear();
            encode_key(key, &mut self.key_bytes)?;
            self.timers.remove(TimerKind::Event, time, &self.key_bytes, cx.state)?;
            forget(&mut self.key_timers, key, TimerKind::Event, time, cx.state)?;
            self.call(key, Call::Timer(Timer::Event(time)), cx)?;
        }
    }
}

impl<K, T, O, P> Push<(K, T)> for ProcessRoom<K, O, P>
where
    K: Key,
    T: Data,
    O: Data,
    P: Processor<K, T, Output = O>,
{
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.key_timers.open(state)?;
        let acted_on = self.timers.open(state)?;
        self.clock.restore(acted_on);
        self.fired = acted_on.min(self.timers.next(TimerKind::Event).saturating_add(-1));
        self.processor.open(&mut Setup::new(&self.name, &mut self.tables, state, self.cache_entries))?;
        self.sides.each(|side| side.open(state))?;
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, T)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            self.clock.hear_record(cx.input(), record.watermark);
            // Also what an earlier record of the batch has set for a time that is over.
            self.fire_due(TimerKind::Event, self.clock.time(), cx)?;
            let Record { value: (key, value), timestamp: time, origin, .. } = record;
            if self.timers.is_due(TimerKind::Event, self.clock.time()) {
                // The epoch is full, and this key may be one of those that wait.
                self.fire_of_key(&key, cx)?;
            }
            self.call(&key, Call::Record { value, time, origin }, cx)?;
        }
        self.fire_due(TimerKind::Event, self.clock.time(), cx)?;
        self.flush(cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.clock.hear(progress);
        self.fire_due(TimerKind::Event, self.clock.time(), cx)?;
        self.fire_due(TimerKind::Processing, cx.now(), cx)?;
        self.tables.remove_due(self.fired, cx)?;
        self.flush(cx)?;
        let wake = self.timers.next(TimerKind::Processing);
        if wake < Timestamp::MAX {
            cx.state.times_mut().wake_at(wake);
        }
        let watermark = Watermark { time: self.fired, idle: self.clock.watermark().idle };
        let progress = Progress { input: self.input, watermark };
        let mut cx = cx.of_input(self.input);
        self.sides.each(|side| side.advance(progress, &mut cx))?;
        self.next.advance(progress, &mut cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.tables.seal(cx.state)?;
        self.key_timers.seal(cx.state)?;
        self.timers.seal(self.clock.time(), cx.state)?;
        self.sides.each(|side| side.seal(cx))?;
        self.next.seal(cx)
    }
}
