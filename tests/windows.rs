//! Windows and event time: cases that users of other systems met, by their numbers, each with the right result.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use onceflow::codec::Json;
use onceflow::storage::MemoryStores;
use onceflow::testing::{CrashPoint, TestDriver};
use onceflow::topology::WindowedBy;
use onceflow::types::{ErrorKind, Timestamp};
use onceflow::{Config, ErrorPolicy, StreamBuilder, Trigger, Windowed, Windows};
use std::sync::Arc;
use std::time::Duration;

type Event = (String, i64);
type Row = (String, i64, i64, u64);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Counts events per key in windows, in one task; late ones go to `late`.
fn counting(
    windows: Windows,
    change: impl FnOnce(
        WindowedBy<String, Event, onceflow::topology::Together>,
    ) -> WindowedBy<String, Event, onceflow::topology::Together>,
) -> TestDriver {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let keyed = events.key_by(|(key, _)| key.clone()).partitioned_by_key();
    let counts = change(keyed.window("counts", windows)).count();
    counts.sink("out", "out", Json::new());
    counts.late_to("late", "late", Json::new());
    TestDriver::new(&builder.build().unwrap()).unwrap()
}

fn send(driver: &mut TestDriver, key: &str, time: i64) {
    driver.send("in", &serde_json::to_vec(&(key, time)).unwrap()).unwrap();
    driver.commit().unwrap();
}

fn rows(driver: &TestDriver) -> Vec<Row> {
    let row = |body: Vec<u8>| {
        let (key, row): (String, Windowed<u64>) = serde_json::from_slice(&body).unwrap();
        (key, row.window_start.as_millis(), row.window_end.as_millis(), row.value)
    };
    driver.bodies("out").into_iter().map(row).collect()
}

fn row(key: &str, start: i64, end: i64, count: u64) -> Row {
    (key.to_owned(), start, end, count)
}

#[test]
fn case_37_a_session_waits_for_gap_and_grace_and_comes_once() {
    let mut driver = counting(Windows::session(ms(10)), |windows| windows.lateness(ms(5)));
    send(&mut driver, "A", 0);
    send(&mut driver, "B", 14);
    send(&mut driver, "A", 10);
    assert_eq!(rows(&driver), [], "a distance equal to the gap is no end");
    // The case's watermark is one millisecond below ours: 25 there is 26 here.
    send(&mut driver, "B", 25);
    assert_eq!(rows(&driver), []);
    send(&mut driver, "B", 26);
    assert_eq!(rows(&driver), [row("A", 0, 21, 2)]);
    send(&mut driver, "B", 90);
    assert_eq!(rows(&driver).len(), 3, "A once, and two sessions of B");
    let mut driver = counting(Windows::session(ms(10)), |windows| windows.lateness(ms(5)));
    send(&mut driver, "A", 0);
    send(&mut driver, "A", 11);
    send(&mut driver, "B", 90);
    assert_eq!(rows(&driver), [row("A", 0, 11, 1), row("A", 11, 22, 1)]);
}

#[test]
fn case_39_lateness_is_the_same_after_a_restore() {
    const MINUTE: i64 = 60_000;
    for crash in [None, Some(CrashPoint::BeforeDecide), Some(CrashPoint::AfterDecide), Some(CrashPoint::AfterPublish)] {
        let mut driver = counting(Windows::tumbling(ms(61 * MINUTE as u64)), |windows| windows);
        for time in [0, 1, 2, 60 * MINUTE] {
            send(&mut driver, "k", time);
        }
        driver.send("in", &serde_json::to_vec(&("k", 61 * MINUTE)).unwrap()).unwrap();
        match crash {
            Some(point) => assert!(driver.crash_at(point).unwrap()),
            None => driver.commit().unwrap(),
        }
        driver.abort().unwrap();
        send(&mut driver, "k", 60 * MINUTE + 30_000);
        assert_eq!(rows(&driver), [row("k", 0, 61 * MINUTE, 4)], "{crash:?}");
        assert_eq!(driver.bodies("late").len(), 1, "{crash:?}");
        driver.abort().unwrap();
        driver.commit().unwrap();
        assert_eq!((rows(&driver).len(), driver.bodies("late").len()), (1, 1), "{crash:?}");
    }
}

#[test]
fn case_41_an_idle_queue_does_not_hold_time_up_and_does_not_take_it_back() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO).idle_timeout(ms(5_000));
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let counts = events.key_by(|(key, _)| key.clone()).window("counts", Windows::tumbling(ms(60_000))).count();
    counts.sink("out", "out", Json::new());
    counts.late_to("late", "late", Json::new());
    let mut driver = TestDriver::with_queues(&builder.build().unwrap(), &[("in", 2)]).unwrap();
    let send = |driver: &mut TestDriver, queue: u32, time: i64| {
        driver.send_with("in", queue, b"", &serde_json::to_vec(&("k", time)).unwrap()).unwrap();
        driver.commit().unwrap();
    };
    driver.commit().unwrap();
    for time in [1_000, 100_000] {
        send(&mut driver, 0, time);
    }
    driver.advance_time(ms(4_999)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), [], "the other queue may still come");
    send(&mut driver, 0, 100_001);
    driver.advance_time(ms(1)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), [row("k", 0, 60_000, 1)]);
    send(&mut driver, 1, 30_000);
    assert_eq!(driver.bodies("late").len(), 1, "time does not go back");
    assert_eq!(driver.counters().late, 1);
    send(&mut driver, 1, 119_000);
    send(&mut driver, 0, 121_000);
    assert_eq!(rows(&driver).len(), 1, "both are waited for again");
    send(&mut driver, 1, 120_000);
    assert_eq!(rows(&driver)[1..], [row("k", 60_000, 120_000, 3)]);
}

#[test]
fn case_43_days_of_another_zone_fire_at_their_own_midnight() {
    let (midnight, next) = (1_704_124_800_000, 1_704_211_200_000);
    for windows in [Windows::daily("Asia/Shanghai"), Windows::tumbling(ms(86_400_000)).offset(ms(57_600_000))] {
        let mut driver = counting(windows, |windows| windows);
        send(&mut driver, "k", midnight - 1);
        assert_eq!(rows(&driver), []);
        send(&mut driver, "k", midnight);
        assert_eq!(rows(&driver), [row("k", midnight - 86_400_000, midnight, 1)]);
        send(&mut driver, "other", next - 1);
        assert_eq!(rows(&driver).len(), 1);
        send(&mut driver, "other", next);
        assert!(rows(&driver).contains(&row("k", midnight, next, 1)));
        assert_eq!(driver.counters().late, 0);
    }
}

#[test]
fn case_35_a_time_that_can_be_none_is_a_record_error_and_moves_nothing() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<i64>::new()).select_timestamp(|time| Timestamp::from_millis(*time));
    let keyed = events.key_by(|_| 0u8).partitioned_by_key();
    let counts = keyed.window("counts", Windows::tumbling(ms(5_000))).trigger(Trigger::OnUpdate).count();
    counts.on_error(ErrorPolicy::dead_letter("bad")).sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for time in [i64::MAX, i64::MIN, 1, 2] {
        driver.send("in", time.to_string().as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    assert_eq!(driver.bodies("bad"), [i64::MAX.to_string().into_bytes(), i64::MIN.to_string().into_bytes()]);
    assert_eq!((driver.bodies("out").len(), driver.counters().late), (2, 0));
}

#[test]
fn case_57_a_sum_out_of_range_is_refused_whole_in_all_windows_of_a_record() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<(i64, i64)>::new()).out_of_orderness(Duration::ZERO);
    let events = events.select_timestamp(|(time, _)| Timestamp::from_millis(*time));
    let keyed = events.key_by(|_| 0u8).partitioned_by_key();
    let sums = keyed.window("sums", Windows::hopping(ms(20), ms(10))).sum(|(_, number)| *number);
    sums.on_error(ErrorPolicy::Skip).values().map(|sum| (sum.window_start.as_millis(), sum.value)).sink(
        "out",
        "out",
        Json::new(),
    );
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    // The second is in range in the window from -10, and not in the one from 0.
    for event in [(12, i64::MAX), (5, 1), (13, -1), (900, 0)] {
        driver.send("in", &serde_json::to_vec(&event).unwrap()).unwrap();
    }
    driver.commit().unwrap();
    let out: Vec<(i64, i64)> = driver.bodies("out").iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
    assert_eq!(out, [(0, i64::MAX - 1), (10, i64::MAX - 1)]);
    assert_eq!(driver.counters().skipped, 1);
}

/// Aim: one record that closes very many windows does not make an epoch larger than its bound. Method: 3,000 windows, epochs
/// of at most 100 messages, and a crash in the middle of it.
#[test]
fn very_many_windows_close_over_several_epochs() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<(u32, i64)>::new()).out_of_orderness(Duration::ZERO);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let keyed = events.key_by(|(key, _)| *key).partitioned_by_key();
    let counts = keyed.window("counts", Windows::tumbling(ms(1_000))).count().cache_entries(10);
    counts.sink("out", "out", Json::new());
    let stores = Arc::new(MemoryStores::default());
    let config = Config { epoch_halves_max: 100, ..Config::default() };
    let mut driver = TestDriver::with_config(&builder.build().unwrap(), &[], stores, config).unwrap();
    let send = |driver: &mut TestDriver, key: u32, time: i64| {
        driver.send("in", &serde_json::to_vec(&(key, time)).unwrap()).unwrap();
    };
    (0..3_000).for_each(|key| send(&mut driver, key, i64::from(key % 7)));
    driver.commit().unwrap();
    send(&mut driver, 0, 1_000);
    assert!(driver.crash_at(CrashPoint::AfterDecide).unwrap());
    driver.commit().unwrap();
    let mut keys: Vec<u32> = vec![];
    for body in driver.bodies("out") {
        let (key, row): (u32, Windowed<u64>) = serde_json::from_slice(&body).unwrap();
        assert_eq!((row.window_end.as_millis(), row.value), (1_000, 1));
        keys.push(key);
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..3_000).collect::<Vec<_>>());
}

/// Windows of windows: results come with the time of their window, and the second operator has a time of its own.
#[test]
fn windows_can_follow_windows() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<Event>::new()).out_of_orderness(Duration::ZERO);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    let seconds = events.key_by(|(key, _)| key.clone()).window("seconds", Windows::tumbling(ms(1_000)));
    let seconds = seconds.lateness(ms(500)).count();
    let minutes = seconds.window("minutes", Windows::tumbling(ms(60_000)));
    let most = minutes.max(|second| second.value);
    most.sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for (key, time) in [("a", 100), ("a", 200), ("b", 300), ("a", 59_100), ("b", 60_700), ("a", 61_500), ("b", 130_000)]
    {
        send(&mut driver, key, time);
    }
    let mut rows = rows(&driver);
    rows.sort();
    assert_eq!(
        rows,
        [row("a", 0, 60_000, 2), row("a", 60_000, 120_000, 1), row("b", 0, 60_000, 1), row("b", 60_000, 120_000, 1)]
    );
    assert_eq!(driver.counters().late, 0);
}

#[test]
fn processing_time_closes_windows_without_records() {
    let builder = StreamBuilder::new("job").unwrap();
    let events = builder.source("in", Json::<Event>::new()).processing_time();
    let counts = events.key_by(|(key, _)| key.clone()).window("counts", Windows::tumbling(ms(1_000))).count();
    counts.sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    driver.set_time(Timestamp::from_millis(5_400));
    send(&mut driver, "a", 0);
    send(&mut driver, "a", 0);
    driver.advance_time(ms(599)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), []);
    driver.advance_time(ms(1)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), [row("a", 5_000, 6_000, 2)]);
}

#[test]
fn event_time_can_be_moved_on_by_hand() {
    let mut driver = counting(Windows::tumbling(ms(10)), |windows| windows);
    send(&mut driver, "a", 3);
    driver.advance_event_time(Timestamp::from_millis(9)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), []);
    driver.advance_event_time(Timestamp::from_millis(10)).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver), [row("a", 0, 10, 1)]);
    send(&mut driver, "a", 4);
    assert_eq!(driver.bodies("late").len(), 1);
}

#[test]
fn windows_that_cannot_be_are_refused_at_the_start() {
    let refused = |windows: Windows, trigger: Trigger| {
        let builder = StreamBuilder::new("job").unwrap();
        let keyed = builder.source("in", Json::<Event>::new()).key_by(|(key, _)| key.clone());
        keyed.window("counts", windows).trigger(trigger).count();
        builder.build().unwrap_err()
    };
    for (windows, trigger) in [
        (Windows::tumbling(Duration::ZERO), Trigger::OnClose),
        (Windows::daily("Nowhere/Land"), Trigger::OnClose),
        (Windows::count(3), Trigger::OnUpdate),
    ] {
        let error = refused(windows, trigger);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("window counts: "), "{error}");
    }
}
