//! State of processors that ends.

use super::{Event, program, send_event as send, send_in_pieces};
use crate::codec::Json;
use crate::config::Config;
use crate::process::{ListState, MapState, Process, Processor, Setup, Timer, ValueState};
use crate::processor::ErrorPolicy;
use crate::state::TimeToLive;
use crate::testing::TestDriver;
use crate::topology::Topology;
use onceflow_storage::{MemoryStores, Order, StoreFactory};
use onceflow_types::{Name, Result, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A value, a list and a map, as a record finds or leaves them.
type Seen = (Option<u64>, Vec<i64>, BTreeMap<i64, u64>);

fn after_write(millis: u64) -> TimeToLive {
    TimeToLive::after_write(Duration::from_millis(millis))
}

fn after_access(millis: u64) -> TimeToLive {
    TimeToLive::after_access(Duration::from_millis(millis))
}

/// A processor over events by their own time, whose keys and times it sees.
fn topology<R: Processor<u32, i64, Output: serde::Serialize>>(
    cache_entries: usize,
    make: impl Fn() -> R + Send + Sync + 'static,
) -> Topology {
    let program = program(|builder| {
        let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO);
        let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
        let keyed = events.key_by(|(key, _)| *key).partitioned_by_key().map_values(|(_, time)| time);
        let processed = keyed.process("program", make).cache_entries(cache_entries).on_error(ErrorPolicy::Skip);
        processed.sink("out", "out", Json::new());
    });
    program.unwrap()
}

fn out<T: serde::de::DeserializeOwned>(driver: &TestDriver) -> Vec<(u32, T)> {
    driver.bodies("out").iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
}

/// Entries of parts of the operator's state; the time acted on is none.
fn entries(driver: &mut TestDriver, parts: &[&str]) -> usize {
    let state = driver.state_mut(0).unwrap();
    let mut entries = 0;
    for part in parts {
        let table = state.part_of_table(&Name::new("program").unwrap(), part).unwrap();
        let mut cursor = state.scan(table, Order::Ascending).unwrap();
        while let Some((key, _)) = cursor.next().unwrap() {
            entries += usize::from(!part.starts_with("timers") || key.get(2) != Some(&0));
        }
    }
    entries
}

const PARTS: [&str; 7] =
    ["of-count", "of-last", "of-last-items", "of-by", "timers-of-count", "timers-of-last", "timers-of-by"];

/// Changes all its state at even times, and only looks at it at odd ones.
struct Keeper {
    time_to_live: TimeToLive,
    count: ValueState<u64>,
    last: ListState<i64>,
    by: MapState<i64, u64>,
}

impl Keeper {
    fn new(time_to_live: TimeToLive) -> Self {
        Keeper { time_to_live, count: ValueState::default(), last: ListState::default(), by: MapState::default() }
    }
}

impl Processor<u32, i64> for Keeper {
    type Output = Seen;

    fn open(&mut self, setup: &mut Setup<'_, u32>) -> Result<()> {
        self.count = setup.value_with("count", self.time_to_live)?;
        self.last = setup.list_with("last", self.time_to_live)?;
        self.by = setup.map_with("by", self.time_to_live)?;
        Ok(())
    }

    fn process(&mut self, time: i64, cx: &mut Process<'_, u32, Seen>) -> Result<()> {
        let writes = time % 2 == 0;
        let mut count = cx.value(&self.count)?;
        if writes {
            *count.get_or_insert_with(|| 0) += 1;
        }
        let count = count.get().copied();
        let mut last = cx.list(&self.last)?;
        if writes {
            last.push(time)?;
        }
        let last = last.all()?;
        let mut by = cx.map(&self.by)?;
        let mut entry = by.entry(&(time % 3))?;
        if writes {
            *entry.get_or_insert_with(|| 0) += 1;
        }
        let by = by.all()?.into_iter().collect();
        cx.emit((count, last, by));
        Ok(())
    }
}

/// The same, plainly: each value with its time of last use, looked at before each record.
fn plain(records: &[Event], time_to_live: i64, from_access: bool) -> Vec<(u32, Seen)> {
    struct Kept<T>(Option<(T, i64)>);
    impl<T: Clone> Kept<T> {
        fn look(&mut self, now: i64, time_to_live: i64, from_access: bool) {
            self.0 = self.0.take().filter(|(_, used)| now - used < time_to_live);
            if let (Some((_, used)), true) = (&mut self.0, from_access) {
                *used = now.max(*used);
            }
        }
        fn change(&mut self, now: i64, none: T, change: impl FnOnce(&mut T)) {
            let (value, used) = self.0.get_or_insert((none, now));
            change(value);
            *used = now.max(*used);
        }
        fn value(&self) -> Option<T> {
            self.0.as_ref().map(|(value, _)| value.clone())
        }
    }
    struct State(Kept<u64>, Kept<Vec<i64>>, BTreeMap<i64, Kept<u64>>);
    let (mut states, mut watermark, mut out) = (BTreeMap::<u32, State>::new(), i64::MIN, vec![]);
    for &(key, time) in records {
        let now = watermark.max(time);
        watermark = now;
        let State(count, last, by) =
            states.entry(key).or_insert_with(|| State(Kept(None), Kept(None), BTreeMap::new()));
        count.look(now, time_to_live, from_access);
        last.look(now, time_to_live, from_access);
        let entry = by.entry(time % 3).or_insert(Kept(None));
        entry.look(now, time_to_live, from_access);
        if time % 2 == 0 {
            count.change(now, 0, |count| *count += 1);
            last.change(now, vec![], |last| last.push(time));
            entry.change(now, 0, |count| *count += 1);
        }
        for kept in by.values_mut() {
            kept.look(now, time_to_live, false);
        }
        let by = by.iter().filter_map(|(of, kept)| Some((*of, kept.value()?))).collect();
        out.push((key, (count.value(), last.value().unwrap_or_default(), by)));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // Aim: what a processor finds does not depend on batches, epochs, cache, removal or crashes, and all of it ends. Method:
    // beside plain variables, with times in disorder, epochs of one record or many, and epochs that are full at once.
    #[test]
    fn state_of_a_processor_ends_as_plain_variables_do(
        records in vec((0u32..4, -60i64..200), 1..60),
        cuts in vec((1usize..9, 0usize..12), 60),
        time_to_live in 1u64..80,
        from_access in any::<bool>(),
        cache in 1usize..4,
        small in any::<bool>(),
    ) {
        let life = if from_access { after_access(time_to_live) } else { after_write(time_to_live) };
        let topology = topology(cache, move || Keeper::new(life));
        let stores: Arc<dyn StoreFactory> = Arc::new(MemoryStores::default());
        let bytes = if small { 1 } else { Config::default().epoch_state_bytes_max };
        let config = Config { epoch_state_bytes_max: bytes, ..Config::default() };
        let mut driver = TestDriver::with_config(&topology, &[], stores, config).unwrap();
        send_in_pieces(&mut driver, &records, cuts);
        prop_assert_eq!(out::<Seen>(&driver), plain(&records, i64::try_from(time_to_live).unwrap(), from_access));
        driver.advance_event_time(Timestamp::from_millis(1_000)).unwrap();
        driver.commit().unwrap();
        prop_assert_eq!(entries(&mut driver, &PARTS), 0);
    }
}

/// Sets a value at its first record, with a timer a millisecond before it ends and one when it does.
#[derive(Default)]
struct Watched {
    value: ValueState<u8>,
}

impl Processor<u32, i64> for Watched {
    type Output = (i64, bool);

    fn open(&mut self, setup: &mut Setup<'_, u32>) -> Result<()> {
        self.value = setup.value_with("value", after_write(10))?;
        Ok(())
    }

    fn process(&mut self, time: i64, cx: &mut Process<'_, u32, (i64, bool)>) -> Result<()> {
        if time == 0 {
            cx.value(&self.value)?.set(1);
            cx.set_event_timer(Timestamp::from_millis(9))?;
            cx.set_event_timer(Timestamp::from_millis(10))?;
        }
        Ok(())
    }

    fn on_timer(&mut self, _: Timer, cx: &mut Process<'_, u32, (i64, bool)>) -> Result<()> {
        let (time, is_there) = (cx.time().as_millis(), cx.value(&self.value)?.get().is_some());
        cx.emit((time, is_there));
        Ok(())
    }
}

/// A timer sees state as it is at the timer's time, however far event time has come when it fires.
#[test]
fn a_timer_finds_what_is_alive_at_its_time() {
    for later in [9, 10, 1_000] {
        let mut driver = TestDriver::new(&topology(8, Watched::default)).unwrap();
        for event in [(1, 0), (2, later), (2, 1_000)] {
            send(&mut driver, event);
        }
        driver.commit().unwrap();
        assert_eq!(out::<(i64, bool)>(&driver), [(1, (9, true)), (1, (10, false))]);
        assert_eq!(entries(&mut driver, &["of-value", "timers-of-value"]), 0);
    }
}

#[test]
fn a_time_that_can_be_none_is_a_record_error() {
    let mut driver = TestDriver::new(&topology(8, || Keeper::new(after_write(10)))).unwrap();
    for event in [(1, 2), (1, i64::MAX - 1), (1, i64::MIN), (1, 4)] {
        send(&mut driver, event);
    }
    driver.commit().unwrap();
    assert_eq!(driver.counters().skipped, 2);
    let last = |(_, (count, last, _)): &(u32, Seen)| (*count, last.clone());
    assert_eq!(out::<Seen>(&driver).iter().map(last).collect::<Vec<_>>(), [(Some(1), vec![2]), (Some(2), vec![2, 4])]);
}

/// By processing time the state is emptied without a record.
#[test]
fn processing_time_empties_the_state_of_a_processor() {
    let life = after_write(1_000).processing_time();
    let mut driver = TestDriver::new(&topology(8, move || Keeper::new(life))).unwrap();
    driver.set_time(Timestamp::from_millis(10_000));
    send(&mut driver, (1, 0));
    driver.commit().unwrap();
    driver.advance_time(Duration::from_millis(999)).unwrap();
    driver.commit().unwrap();
    assert_eq!(entries(&mut driver, &PARTS), 7);
    driver.advance_time(Duration::from_millis(1)).unwrap();
    driver.commit().unwrap();
    assert_eq!(entries(&mut driver, &PARTS), 0);
    send(&mut driver, (1, 2));
    driver.commit().unwrap();
    assert_eq!(out::<Seen>(&driver)[1].1.0, Some(1));
}

struct Named(&'static str);

impl Processor<u32, i64> for Named {
    type Output = i64;

    fn open(&mut self, setup: &mut Setup<'_, u32>) -> Result<()> {
        match self.0 {
            "nothing" => setup.map_with::<u8, u8>("a", after_write(0)).map(drop),
            part => setup.list::<u8>("a").and_then(|_| setup.value::<u8>(part)).map(drop),
        }
    }

    fn process(&mut self, _: i64, _: &mut Process<'_, u32, i64>) -> Result<()> {
        Ok(())
    }
}

/// The items of a list have a part of the state of their own, which is nobody else's.
#[test]
fn parts_of_state_do_not_meet() {
    let opened = |name| TestDriver::new(&topology(8, move || Named(name))).map(drop);
    for name in ["a", "a-items"] {
        assert!(opened(name).unwrap_err().to_string().contains("state is named twice"), "{name}");
    }
    assert!(opened("nothing").unwrap_err().to_string().contains("time to live must be at least 1 ms"));
    opened("b").unwrap();
}
