//! State that ends.

use super::{Event, driver, program, send_event as send, send_in_pieces};
use crate::codec::Json;
use crate::config::Config;
use crate::processor::ErrorPolicy;
use crate::state::TimeToLive;
use crate::testing::TestDriver;
use crate::topology::{StreamBuilder, Together};
use crate::{KeyedStream, Stream};
use onceflow_storage::{MemoryStores, Order, StoreFactory};
use onceflow_types::{Name, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn after_write(millis: u64) -> TimeToLive {
    TimeToLive::after_write(ms(millis))
}

/// Events with a key and a time, by their own time, without tolerance for disorder.
fn events(builder: &StreamBuilder) -> Stream<Event> {
    let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO);
    events.select_timestamp(|(_, time)| Timestamp::from_millis(*time))
}

fn by_key(builder: &StreamBuilder) -> KeyedStream<u32, Event, Together> {
    events(builder).key_by(|(key, _)| *key).partitioned_by_key()
}

fn counts(time_to_live: TimeToLive) -> TestDriver {
    driver(|builder| {
        let counts = by_key(builder).count("counts").time_to_live(time_to_live);
        counts.on_error(ErrorPolicy::Skip).sink("out", "out", Json::new());
    })
}

fn out(driver: &TestDriver) -> Vec<(u32, u64)> {
    driver.bodies("out").iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
}

/// Entries of the operator's table, and its timers.
fn live(driver: &mut TestDriver, name: &str) -> (usize, usize) {
    let state = driver.state_mut(0).unwrap();
    let (table, timers) = (state.table(&Name::new(name).unwrap()).unwrap(), Name::new(name).unwrap());
    let timers = state.part_of_table(&timers, "timers").unwrap();
    let count = |table| {
        let mut cursor = state.scan(table, Order::Ascending).unwrap();
        let mut entries = 0;
        while let Some((key, _)) = cursor.next().unwrap() {
            // The time acted on is no timer.
            entries += usize::from(key.get(2) != Some(&0) || table != timers);
        }
        entries
    };
    (count(table), count(timers))
}

/// Case 59: a value is there at an age of 59,999 ms and gone at 60,000 ms, committed or not, restarted or not.
#[test]
fn expiry_is_exact_on_read() {
    for restart in [false, true] {
        let mut driver = counts(after_write(60_000));
        for event in [(1, 0), (2, 0), (1, 59_999), (2, 60_000), (1, 119_998), (1, 179_998)] {
            send(&mut driver, event);
            if restart {
                driver.commit().unwrap();
                driver.abort().unwrap();
            }
        }
        driver.commit().unwrap();
        assert_eq!(out(&driver), [(1, 1), (2, 1), (1, 2), (2, 1), (1, 3), (1, 1)]);
    }
}

/// Case 59: expired entries leave the store, so that it holds what may still be read and nothing else, across a restart in the
/// middle, and that its directory grows no more once it holds 60 s. `keys` come over 600 s; `size` says how large it is.
fn does_not_grow(stores: Arc<dyn StoreFactory>, keys: u32, size: impl Fn() -> u64) {
    let topology = program(|builder| {
        by_key(builder).count("counts").time_to_live(after_write(60_000)).sink("out", "out", Json::new());
    });
    let mut driver = TestDriver::with_stores(&topology.unwrap(), &[], stores).unwrap();
    let (per_second, mut most, mut largest) = (keys / 600, 0, [0; 2]);
    for second in 0..600 {
        for key in 0..per_second {
            send(&mut driver, (second * per_second + key, i64::from(second) * 1_000));
        }
        driver.commit().unwrap();
        let half = &mut largest[usize::from(second >= 300)];
        *half = size().max(*half);
        if second % 60 == 59 {
            most = most.max(live(&mut driver, "counts").0);
        }
        if second == 300 {
            driver.abort().unwrap();
        }
    }
    // A little more than what 60 s bring, as all of a second have one time.
    assert!(most <= (61 * per_second) as usize, "live={most}");
    assert!(most >= (59 * per_second) as usize, "live={most}");
    driver.advance_event_time(Timestamp::from_millis(599_000 + 61_000)).unwrap();
    driver.commit().unwrap();
    assert_eq!(live(&mut driver, "counts"), (0, 0));
    assert_eq!(out(&driver).len(), (600 * per_second) as usize);
    assert!(out(&driver).iter().all(|(_, count)| *count == 1));
    let [first, second] = largest;
    assert!(second <= first / 2 * 3, "largest in each half: {largest:?}");
}

/// 1,000,000 with optimisation, else fewer.
const KEYS: u32 = if cfg!(debug_assertions) { 12_000 } else { 1_000_000 };

#[test]
fn state_does_not_grow_with_the_keys_that_were() {
    does_not_grow(Arc::new(MemoryStores::default()), KEYS, || 0);
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn does_not_grow_on_disk(backend: onceflow_storage::Backend) {
    let directory = tempfile::tempdir().unwrap();
    let stores = onceflow_storage::StoreOptions::new(backend, directory.path());
    does_not_grow(Arc::new(stores), KEYS, || directory_bytes(directory.path()));
}

/// The size of the files but for fjall's journals, which have a size of their own: 64 MiB each, most of it a hole.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn directory_bytes(directory: &std::path::Path) -> u64 {
    // A file may go between the listing and the look.
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => directory_bytes(&entry.path()),
        Ok(data) if entry.path().extension().is_none_or(|kind| kind != "jnl") => data.len(),
        _ => 0,
    });
    bytes.sum()
}

#[cfg(feature = "fjall")]
#[test]
fn state_does_not_grow_on_fjall() {
    does_not_grow_on_disk(onceflow_storage::Backend::Fjall);
}

#[cfg(feature = "rocksdb")]
#[test]
fn state_does_not_grow_on_rocksdb() {
    does_not_grow_on_disk(onceflow_storage::Backend::RocksDb);
}

/// A key that is used all the time has one timer, which is set again when it finds the value in use.
#[test]
fn a_busy_key_has_one_timer() {
    let mut driver = counts(after_write(1_000));
    for time in 0..500 {
        send(&mut driver, (1, time * 10));
        driver.commit().unwrap();
        assert_eq!(live(&mut driver, "counts"), (1, 1));
    }
    assert_eq!(out(&driver).last(), Some(&(1, 500)));
    driver.advance_event_time(Timestamp::from_millis(5_989)).unwrap();
    driver.commit().unwrap();
    assert_eq!(live(&mut driver, "counts"), (1, 1));
    driver.advance_event_time(Timestamp::from_millis(5_990)).unwrap();
    driver.commit().unwrap();
    assert_eq!(live(&mut driver, "counts"), (0, 0));
}

/// A repeat is an access and no write: it makes the difference for `distinct`.
#[test]
fn access_and_write_are_told_apart() {
    let once = |time_to_live| {
        let mut driver = driver(|builder| {
            by_key(builder).distinct("once", time_to_live).values().sink("out", "out", Json::new());
        });
        for time in [0, 6, 12, 18, 27, 37] {
            send(&mut driver, (1, time));
        }
        driver.commit().unwrap();
        let time = |body: &Vec<u8>| serde_json::from_slice::<Event>(body).unwrap().1;
        driver.bodies("out").iter().map(time).collect::<Vec<_>>()
    };
    assert_eq!(once(TimeToLive::after_write(ms(10))), [0, 12, 27, 37]);
    assert_eq!(once(TimeToLive::after_access(ms(10))), [0, 37]);
}

/// A record that is late, even by more than the time to live, leaves a value that lives as long as any other.
#[test]
fn a_late_record_is_remembered_from_now_on() {
    let mut driver = driver(|builder| {
        by_key(builder).distinct("once", after_write(10)).values().sink("out", "out", Json::new());
    });
    for event in [(1, 100), (2, 50), (2, 50), (1, 109), (2, 50), (1, 110), (2, 50)] {
        send(&mut driver, event);
        driver.commit().unwrap();
    }
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let out: Vec<String> = driver.bodies("out").into_iter().map(text).collect();
    assert_eq!(out, ["[1,100]", "[2,50]", "[1,110]", "[2,50]"]);
}

/// A record that is far ahead finds nothing; when it fails, the next one finds what was there.
#[test]
fn a_record_that_fails_ends_nothing() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Json::<Event>::new()).out_of_orderness(ms(1_000));
        let numbers = numbers.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
        let numbers = numbers.key_by(|_| 0u8).partitioned_by_key();
        let sums = numbers.sum("sums", |(number, _)| if *number == 9 { f64::NAN } else { f64::from(*number) });
        sums.time_to_live(after_write(10)).on_error(ErrorPolicy::Skip).values().sink("out", "out", Json::new());
    });
    for event in [(1, 0), (9, 500), (2, 5), (4, 500)] {
        send(&mut driver, event);
    }
    driver.commit().unwrap();
    assert_eq!(driver.bodies("out"), [b"1.0", b"3.0", b"4.0"]);
    assert_eq!(driver.counters().skipped, 1);
}

#[test]
fn a_time_that_can_be_none_is_a_record_error() {
    let mut driver = counts(after_write(10));
    for event in [(1, 5), (1, i64::MAX), (1, i64::MIN), (1, 6)] {
        send(&mut driver, event);
    }
    driver.commit().unwrap();
    assert_eq!(out(&driver), [(1, 1), (1, 2)]);
    assert_eq!(driver.counters().skipped, 2);
}

#[test]
fn a_time_to_live_of_nothing_is_refused() {
    let refused = program(|builder| {
        by_key(builder).count("counts").time_to_live(after_write(0));
    });
    assert!(refused.unwrap_err().to_string().contains("time to live must be at least 1 ms"));
}

/// Processing time: the clock of the driver says what is gone; without any record the store is emptied.
#[test]
fn processing_time_empties_the_store_without_records() {
    let mut driver = counts(after_write(1_000).processing_time());
    driver.set_time(Timestamp::from_millis(10_000));
    send(&mut driver, (1, 0));
    driver.commit().unwrap();
    driver.advance_time(ms(999)).unwrap();
    send(&mut driver, (1, 1_000_000));
    driver.commit().unwrap();
    driver.advance_time(ms(999)).unwrap();
    driver.commit().unwrap();
    assert_eq!(live(&mut driver, "counts"), (1, 1));
    driver.advance_time(ms(1)).unwrap();
    driver.commit().unwrap();
    assert_eq!(live(&mut driver, "counts"), (0, 0));
    send(&mut driver, (1, 0));
    driver.commit().unwrap();
    assert_eq!(out(&driver), [(1, 1), (1, 2), (1, 1)]);
}

/// Values from before there was a time to live are read as they are, and begin to age with their next use.
#[test]
fn a_time_to_live_can_be_given_later() {
    let program = |time_to_live: Option<TimeToLive>| {
        program(|builder| {
            let mut counts = by_key(builder).count("counts");
            if let Some(time_to_live) = time_to_live {
                counts = counts.time_to_live(time_to_live);
            }
            counts.sink("out", "out", Json::new());
        })
        .unwrap()
    };
    let mut driver = TestDriver::new(&program(None)).unwrap();
    send(&mut driver, (1, 0));
    send(&mut driver, (1, 5));
    driver.commit().unwrap();
    driver.restart_with(&program(Some(after_write(10))), Config::default()).unwrap();
    for time in [100, 109, 119] {
        send(&mut driver, (1, time));
        driver.commit().unwrap();
    }
    // And taken away again: what has a time is read as well.
    driver.restart_with(&program(None), Config::default()).unwrap();
    send(&mut driver, (1, 500));
    driver.commit().unwrap();
    assert_eq!(out(&driver), [(1, 1), (1, 2), (1, 3), (1, 4), (1, 1), (1, 2)]);
}

/// What a plain map says that is asked before each record.
fn plain(records: &[Event], time_to_live: i64) -> Vec<(u32, u64)> {
    let (mut counts, mut watermark, mut out) = (BTreeMap::<u32, (u64, i64)>::new(), i64::MIN, vec![]);
    for &(key, time) in records {
        let now = watermark.max(time);
        let (count, used) = counts.get(&key).copied().unwrap_or((0, i64::MIN));
        let alive = used > i64::MIN && now - used < time_to_live;
        let (count, used) = if alive { (count + 1, used.max(now)) } else { (1, now) };
        counts.insert(key, (count, used));
        out.push((key, count));
        watermark = now;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // Aim: expiry does not depend on batches, epochs, cache, timers or crashes. Method: beside a plain map, with times in
    // disorder, epochs of one record or many, and epochs with no room for what timers change.
    #[test]
    fn counts_with_a_time_to_live_equal_a_plain_map(
        records in vec((0u32..5, -60i64..200), 1..60),
        cuts in vec((1usize..9, 0usize..12), 60),
        time_to_live in 1u64..80,
        cache in 1usize..4,
        small in any::<bool>(),
    ) {
        let topology = program(|builder| {
            let counts = by_key(builder).count("counts").time_to_live(after_write(time_to_live)).cache_entries(cache);
            counts.sink("out", "out", Json::new());
        }).unwrap();
        let stores: Arc<dyn StoreFactory> = Arc::new(MemoryStores::default());
        let bytes = if small { 1 } else { Config::default().epoch_state_bytes_max };
        let config = Config { epoch_state_bytes_max: bytes, ..Config::default() };
        let mut driver = TestDriver::with_config(&topology, &[], stores, config).unwrap();
        send_in_pieces(&mut driver, &records, cuts);
        prop_assert_eq!(out(&driver), plain(&records, i64::try_from(time_to_live).unwrap()));
        driver.advance_event_time(Timestamp::from_millis(1_000)).unwrap();
        driver.commit().unwrap();
        prop_assert_eq!(live(&mut driver, "counts"), (0, 0));
    }
}
