//! Processors: state, timers and outputs of a user's own program, across epochs, crashes and restarts.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use onceflow::codec::Json;
use onceflow::process::{ListState, MapState, Process, Processor, Setup, SideOutput, Timer, ValueState};
use onceflow::storage::MemoryStores;
use onceflow::testing::{CrashPoint, TestDriver};
use onceflow::types::{Error, ErrorKind, Result, Timestamp};
use onceflow::{Config, ErrorPolicy, StreamBuilder, Topology};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Event = (u8, i64, i64);
type Texts = BTreeMap<u8, Vec<String>>;

/// A topology around one processor, which sees each event's number; time is the event's.
fn topology<R: Processor<u8, i64, Output = String>>(make: impl Fn() -> R + Send + Sync + 'static) -> Topology {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO).idle_timeout(None);
    let events = events.select_timestamp(|(_, time, _)| Timestamp::from_millis(*time));
    let keyed = events.key_by(|(key, ..)| *key).partitioned_by_key().map_values(|(_, _, number)| number);
    let processed = keyed.process("program", make).on_error(ErrorPolicy::dead_letter("bad"));
    processed.sink("out", "out", Json::new());
    processed.side(&ODD).sink("odd", "odd", Json::new());
    builder.build().unwrap()
}

const ODD: SideOutput<i64> = SideOutput::new(1);

fn send(driver: &mut TestDriver, (key, time, number): Event) {
    driver.send("in", &serde_json::to_vec(&(key, time, number)).unwrap()).unwrap();
}

fn out(driver: &TestDriver) -> Vec<(u8, String)> {
    driver.bodies("out").iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
}

/// Keeps everything there is: a value, a list, a map; odd numbers go aside; a timer every ten numbers of time.
#[derive(Default)]
struct Keeper {
    sum: ValueState<i64>,
    last: ListState<i64>,
    counts: MapState<i64, u64>,
}

impl Processor<u8, i64> for Keeper {
    type Output = String;

    fn open(&mut self, setup: &mut Setup<'_, u8>) -> Result<()> {
        self.sum = setup.value("sum")?;
        self.last = setup.list("last")?;
        self.counts = setup.map("counts")?;
        Ok(())
    }

    fn process(&mut self, number: i64, cx: &mut Process<'_, u8, String>) -> Result<()> {
        if number == -1 {
            cx.emit("dropped with the error".to_owned());
            return Err(Error::record("minus one"));
        }
        *cx.value(&self.sum)?.get_or_insert_with(|| 0) += number;
        let mut last = cx.list(&self.last)?;
        last.push(number)?;
        if last.len()? > 3 {
            last.pop_first()?;
        }
        let mut counts = cx.map(&self.counts)?;
        *counts.entry(&(number % 4))?.get_or_insert_with(|| 0) += 1;
        if number % 2 == 1 {
            cx.emit_to(&ODD, number)?;
        }
        let next = (cx.time().as_millis().div_euclid(10) + 1) * 10;
        cx.set_event_timer(Timestamp::from_millis(next))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, u8, String>) -> Result<()> {
        let Timer::Event(time) = timer else { return Err(Error::bug("no other timer is set")) };
        let sum = cx.value(&self.sum)?.get().copied().unwrap_or(0);
        let last = cx.list(&self.last)?.all()?;
        let counts = cx.map(&self.counts)?.all()?;
        cx.emit(format!("{time} {sum} {last:?} {counts:?}"));
        if sum > 100 {
            cx.value(&self.sum)?.remove();
            cx.list(&self.last)?.clear()?;
            for (number, _) in counts {
                cx.map(&self.counts)?.entry(&number)?.remove();
            }
        }
        Ok(())
    }
}

/// The same, plainly.
fn plain(events: &[Event]) -> (Texts, Vec<(u8, i64)>) {
    #[derive(Default)]
    struct State {
        sum: i64,
        last: Vec<i64>,
        counts: BTreeMap<i64, u64>,
        timers: Vec<i64>,
    }
    let mut states: BTreeMap<u8, State> = BTreeMap::new();
    let mut out: Texts = BTreeMap::new();
    let mut odd: Vec<(u8, i64)> = vec![];
    let mut watermark = i64::MIN;
    let mut fire = |states: &mut BTreeMap<u8, State>, watermark: i64| {
        for (key, state) in states {
            state.timers.sort_unstable();
            state.timers.dedup();
            let due: Vec<i64> = state.timers.iter().copied().filter(|timer| *timer <= watermark).collect();
            state.timers.retain(|timer| *timer > watermark);
            for time in due {
                let counts: Vec<(i64, u64)> = by_stored_key(&state.counts);
                out.entry(*key).or_default().push(format!("{time} {} {:?} {counts:?}", state.sum, state.last));
                if state.sum > 100 {
                    (state.sum, state.last, state.counts) = (0, vec![], BTreeMap::new());
                }
            }
        }
    };
    for (key, time, number) in events.iter().copied() {
        if number != -1 {
            let state = states.entry(key).or_default();
            state.sum += number;
            state.last.push(number);
            if state.last.len() > 3 {
                state.last.remove(0);
            }
            *state.counts.entry(number % 4).or_default() += 1;
            if number % 2 == 1 {
                odd.push((key, number));
            }
            state.timers.push((time.div_euclid(10) + 1) * 10);
        }
        // What was set for a time that is over comes before the next record.
        fire(&mut states, watermark);
        watermark = watermark.max(time);
        fire(&mut states, watermark);
    }
    (out, odd)
}

/// Small numbers in the order of their stored form: 0, -1, 1, -2, 2, …
fn by_stored_key(counts: &BTreeMap<i64, u64>) -> Vec<(i64, u64)> {
    let mut all: Vec<(i64, u64)> = counts.iter().map(|(number, count)| (*number, *count)).collect();
    all.sort_by_key(|(number, _)| ((number << 1) ^ (number >> 63)).unsigned_abs());
    all
}

#[derive(Clone, Debug)]
enum Step {
    Send(Event),
    Commit,
    Abort,
    Crash(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u8..4, 0i64..60, -2i64..40).prop_map(Step::Send),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => (0..CrashPoint::ALL.len()).prop_map(Step::Crash),
    ];
    vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 1_000 }))]

    // Aim: state, timers and outputs are those of a plain program, whatever is cut. Method: time goes up on the whole, with
    // jumps back; caches of one entry and epochs of few messages in half of the runs.
    #[test]
    fn a_processor_equals_a_plain_program(steps in steps(), small: bool, batch in 1usize..5) {
        let config = Config { epoch_halves_max: if small { 3 } else { 4_000 }, ..Config::default() };
        let topology = topology(Keeper::default);
        let mut driver = TestDriver::with_config(&topology, &[], Arc::new(MemoryStores::default()), config).unwrap();
        driver.batch_records_max(batch);
        let mut events = vec![];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send((key, time, value)) => {
                    let event = (key, time + number as i64 * 3, value);
                    send(&mut driver, event);
                    events.push(event);
                }
                Step::Commit => driver.commit().unwrap(),
                Step::Abort => driver.abort().unwrap(),
                Step::Crash(point) => { driver.crash_at(CrashPoint::ALL[point]).unwrap(); }
            }
        }
        driver.commit().unwrap();
        let (want, odd) = plain(&events);
        let mut got: BTreeMap<u8, Vec<String>> = BTreeMap::new();
        out(&driver).into_iter().for_each(|(key, text)| got.entry(key).or_default().push(text));
        prop_assert_eq!(got, want);
        let aside: Vec<(u8, i64)> = driver.bodies("odd").iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
        prop_assert_eq!(aside, odd);
        prop_assert_eq!(driver.bodies("bad").len(), events.iter().filter(|(_, _, number)| *number == -1).count());
    }
}

/// Answers a number by as many milliseconds of processing time later; zero takes the last timer back.
#[derive(Default)]
struct Later {
    timer: ValueState<i64>,
}

impl Processor<u8, i64> for Later {
    type Output = String;

    fn open(&mut self, setup: &mut Setup<'_, u8>) -> Result<()> {
        self.timer = setup.value("timer")?;
        Ok(())
    }

    fn process(&mut self, number: i64, cx: &mut Process<'_, u8, String>) -> Result<()> {
        if let Some(before) = cx.value(&self.timer)?.get().copied() {
            cx.cancel_processing_timer(Timestamp::from_millis(before))?;
        }
        if number > 0 {
            let at = cx.now().saturating_add(number);
            cx.value(&self.timer)?.set(at.as_millis());
            cx.set_processing_timer(at)?;
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, u8, String>) -> Result<()> {
        cx.value(&self.timer)?.remove();
        let text = format!("{timer:?} at {}", cx.now());
        cx.emit(text);
        Ok(())
    }
}

#[test]
fn processing_time_timers_fire_without_records_once_and_survive_a_crash() {
    let mut driver = TestDriver::new(&topology(Later::default)).unwrap();
    driver.set_time(Timestamp::from_millis(1_000));
    send(&mut driver, (1, 0, 500));
    send(&mut driver, (2, 0, 500));
    send(&mut driver, (2, 0, 0));
    driver.commit().unwrap();
    driver.advance_time(Duration::from_millis(499)).unwrap();
    driver.commit().unwrap();
    assert_eq!(out(&driver), []);
    driver.abort().unwrap();
    driver.advance_time(Duration::from_millis(2)).unwrap();
    driver.abort().unwrap(); // it fired, and that was not committed
    assert_eq!(out(&driver), []);
    assert!(driver.crash_at(CrashPoint::AfterDecide).unwrap());
    driver.commit().unwrap();
    assert_eq!(out(&driver), [(1, "Processing(1500) at 1501".to_owned())]);
    driver.advance_time(Duration::from_secs(60)).unwrap();
    driver.commit().unwrap();
    assert_eq!(out(&driver).len(), 1);
}

#[test]
fn state_that_is_not_named_or_named_twice_is_a_typed_error() {
    struct Unnamed(ValueState<i64>);
    impl Processor<u8, i64> for Unnamed {
        type Output = String;
        fn process(&mut self, _: i64, cx: &mut Process<'_, u8, String>) -> Result<()> {
            cx.value(&self.0)?.set(1);
            Ok(())
        }
    }
    let mut driver = TestDriver::new(&topology(|| Unnamed(ValueState::default()))).unwrap();
    send(&mut driver, (1, 0, 5));
    assert_eq!(driver.commit().unwrap_err().kind(), ErrorKind::Bug);

    struct Twice;
    impl Processor<u8, i64> for Twice {
        type Output = String;
        fn open(&mut self, setup: &mut Setup<'_, u8>) -> Result<()> {
            setup.value::<i64>("same")?;
            setup.list::<i64>("same").map(drop)
        }
        fn process(&mut self, _: i64, _: &mut Process<'_, u8, String>) -> Result<()> {
            Ok(())
        }
    }
    assert_eq!(TestDriver::new(&topology(|| Twice)).unwrap_err().kind(), ErrorKind::Invalid);
}
