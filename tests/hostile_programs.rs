//! Programs and times that nobody should write, and that somebody will: no panic, no endless loop, no wrong result.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use onceflow::codec::Json;
use onceflow::process::{Process, Processor, Setup, Timer, ValueState};
use onceflow::state::TimeToLive;
use onceflow::testing::TestDriver;
use onceflow::topology::Together;
use onceflow::types::{ErrorKind, Result, Timestamp};
use onceflow::{ErrorPolicy, JoinWindow, KeyedStream, StreamBuilder, Trigger, Windowed, Windows};
use std::time::Duration;

type Event = (String, i64);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn events(builder: &StreamBuilder, topic: &str) -> KeyedStream<String, Event, Together> {
    let events =
        builder.source(topic, Json::<Event>::new()).on_error(ErrorPolicy::Skip).out_of_orderness(Duration::ZERO);
    let events = events.select_timestamp(|(_, time)| Timestamp::from_millis(*time));
    events.key_by(|(key, _)| key.clone()).partitioned_by_key()
}

fn put(driver: &mut TestDriver, topic: &str, key: &str, time: i64) {
    driver.send(topic, &serde_json::to_vec(&(key, time)).unwrap()).unwrap();
}

fn send(driver: &mut TestDriver, key: &str, time: i64) {
    put(driver, "in", key, time);
    driver.commit().unwrap();
}

fn rows(driver: &TestDriver) -> Vec<(String, i64, i64, u64)> {
    let row = |body: Vec<u8>| {
        let (key, row): (String, Windowed<u64>) = serde_json::from_slice(&body).unwrap();
        (key, row.window_start.as_millis(), row.window_end.as_millis(), row.value)
    };
    driver.bodies("out").into_iter().map(row).collect()
}

fn counting(windows: Windows, lateness: Duration, trigger: Trigger) -> Result<TestDriver> {
    let builder = StreamBuilder::new("job")?;
    let counts = events(&builder, "in").window("counts", windows).lateness(lateness).trigger(trigger).count();
    let counts = counts.on_error(ErrorPolicy::Skip);
    counts.sink("out", "out", Json::new());
    TestDriver::new(&builder.build()?)
}

const FAR: i64 = i64::MAX / 4;

#[test]
fn the_ends_of_time_neither_panic_nor_wrap() {
    let century = ms(100 * 365 * 86_400_000);
    let all = [
        Windows::tumbling(Duration::MAX),
        Windows::hopping(Duration::MAX, Duration::MAX / 2),
        Windows::tumbling(century).offset(Duration::MAX),
        Windows::daily("Europe/Berlin"),
        Windows::session(Duration::MAX),
        Windows::session(ms(1)),
        Windows::sliding(Duration::MAX),
    ];
    let triggers = [Trigger::OnClose, Trigger::OnUpdate, Trigger::Every(ms(1)), Trigger::Every(Duration::MAX)];
    for (windows, trigger) in all.iter().flat_map(|windows| triggers.map(|trigger| (windows, trigger))) {
        for lateness in [Duration::ZERO, Duration::MAX] {
            let Ok(mut driver) = counting(windows.clone(), lateness, trigger) else { continue };
            let times = [i64::MIN, -FAR - 1, -FAR, 0, 1, FAR, FAR + 1, i64::MAX];
            for time in times {
                put(&mut driver, "in", "k", time);
            }
            driver.commit().unwrap();
            driver.advance_event_time(Timestamp::MAX).unwrap();
            driver.commit().unwrap();
            // Days are those of the calendar, which knows less.
            let refused = if windows.to_string().starts_with("daily") { 6 } else { 4 };
            assert_eq!(driver.counters().skipped, refused, "{windows} {lateness:?} {trigger}");
            assert!(rows(&driver).iter().all(|(_, start, end, _)| start < end), "{windows} {lateness:?} {trigger}");
            let counted: u64 = rows(&driver).iter().map(|row| row.3).sum();
            assert!(counted + driver.counters().late >= 8 - refused, "{windows} {lateness:?} {trigger}");
        }
    }
}

#[test]
fn windows_of_no_size_are_refused() {
    for windows in [
        Windows::tumbling(Duration::ZERO),
        Windows::tumbling(Duration::from_nanos(999)),
        Windows::hopping(ms(10), Duration::ZERO),
        Windows::hopping(ms(10), ms(11)),
        Windows::hopping(Duration::MAX, ms(1)),
        Windows::session(Duration::ZERO),
        Windows::sliding(Duration::ZERO),
        Windows::count(0),
        Windows::daily("Nowhere/Atall"),
        Windows::daily("Europe/Berlin").offset(Duration::MAX),
    ] {
        let error = counting(windows.clone(), Duration::ZERO, Trigger::OnClose).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{windows}: {error}");
    }
}

#[test]
fn a_jump_of_time_fires_once_for_what_has_changed() {
    let mut driver = counting(Windows::tumbling(ms(2_000_000_000_000)), Duration::ZERO, Trigger::Every(ms(1))).unwrap();
    send(&mut driver, "k", 0);
    send(&mut driver, "k", 1_000_000_000_000);
    send(&mut driver, "k", 1_999_999_999_999);
    driver.advance_event_time(Timestamp::from_millis(i64::MAX)).unwrap();
    driver.commit().unwrap();
    // A record comes before the time that it brings.
    assert_eq!(rows(&driver).into_iter().map(|row| row.3).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn most_windows_of_one_record() {
    let mut driver = counting(Windows::hopping(ms(9_999), ms(3)), Duration::ZERO, Trigger::OnClose).unwrap();
    send(&mut driver, "k", 0);
    driver.advance_event_time(Timestamp::MAX).unwrap();
    driver.commit().unwrap();
    assert_eq!(rows(&driver).len(), 3_333);
}

struct Arms<F>(F);

impl<F> Processor<String, Event> for Arms<F>
where
    F: Fn(Option<Timer>, &mut Process<'_, String, String>) -> Result<()> + Send + 'static,
{
    type Output = String;
    fn process(&mut self, _: Event, cx: &mut Process<'_, String, String>) -> Result<()> {
        (self.0)(None, cx)
    }
    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, String, String>) -> Result<()> {
        (self.0)(Some(timer), cx)
    }
}

fn texts(driver: &TestDriver, topic: &str) -> Vec<String> {
    driver.bodies(topic).into_iter().map(|body| String::from_utf8(body).unwrap()).collect()
}

fn say(cx: &mut Process<'_, String, String>, text: String) -> Result<()> {
    cx.emit(text);
    Ok(())
}

fn arming(
    f: impl Fn(Option<Timer>, &mut Process<'_, String, String>) -> Result<()> + Clone + Send + Sync + 'static,
) -> TestDriver {
    let builder = StreamBuilder::new("job").unwrap();
    let out = events(&builder, "in").process("arms", move || Arms(f.clone())).on_error(ErrorPolicy::Skip);
    out.values().sink("out", "out", Json::new());
    TestDriver::new(&builder.build().unwrap()).unwrap()
}

#[test]
fn timers_of_the_past_set_in_a_timer_fire_once_each() {
    let mut driver = arming(|timer, cx| match timer {
        Some(Timer::Event(at)) if at.as_millis() > 996 => {
            cx.emit(at.as_millis().to_string());
            cx.set_event_timer(at.saturating_add(-1))
        }
        Some(_) => Ok(()),
        None => cx.set_event_timer(Timestamp::from_millis(1_000)),
    });
    send(&mut driver, "k", 0);
    driver.advance_event_time(Timestamp::from_millis(2_000)).unwrap();
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), [r#""1000""#, r#""999""#, r#""998""#, r#""997""#]);
}

#[test]
fn timers_at_the_ends_of_time_fire_but_for_the_very_last() {
    let mut driver = arming(|timer, cx| match timer {
        None => {
            for time in [i64::MIN, -FAR, 0, FAR, i64::MAX - 1, i64::MAX] {
                cx.set_event_timer(Timestamp::from_millis(time))?;
                cx.set_processing_timer(Timestamp::from_millis(time))?;
            }
            Ok(())
        }
        Some(Timer::Event(time)) => say(cx, format!("event {}", time.as_millis())),
        Some(Timer::Processing(time)) => say(cx, format!("processing {}", time.as_millis())),
    });
    send(&mut driver, "k", 10);
    driver.advance_event_time(Timestamp::MAX).unwrap();
    driver.commit().unwrap();
    driver.set_time(Timestamp::MAX);
    driver.advance_event_time(Timestamp::MAX).unwrap();
    driver.commit().unwrap();
    let times = [i64::MIN, -FAR, 0, FAR, i64::MAX - 1];
    let mut expected: Vec<String> =
        ["event", "processing"].into_iter().flat_map(|kind| times.map(|time| format!("\"{kind} {time}\""))).collect();
    let mut got = texts(&driver, "out");
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
}

#[test]
fn a_timer_that_sets_itself_again_is_a_record_error() {
    let again = |timer: Option<Timer>, cx: &mut Process<'_, String, String>| match timer {
        Some(Timer::Event(at)) => cx.set_event_timer(at),
        Some(Timer::Processing(at)) => cx.set_processing_timer(at),
        None => {
            cx.set_event_timer(Timestamp::from_millis(1_000))?;
            cx.set_processing_timer(Timestamp::from_millis(1_000))
        }
    };
    let mut driver = arming(again);
    send(&mut driver, "k", 0);
    driver.advance_event_time(Timestamp::from_millis(2_000)).unwrap();
    driver.advance_time(ms(2_000)).unwrap();
    driver.commit().unwrap();
    assert_eq!(driver.counters().skipped, 2);
}

#[test]
fn timers_that_set_each_other_without_end_stop_the_job_when_their_key_comes_again() {
    let mut driver = arming(|timer, cx| match timer {
        Some(Timer::Event(at)) => cx.set_event_timer(Timestamp::from_millis(if at.as_millis() == 10 { 9 } else { 10 })),
        None if cx.key() == "k" => cx.set_event_timer(Timestamp::from_millis(10)),
        _ => Ok(()),
    });
    for (key, time) in [("k", 0), ("other", 2_000), ("k", 2_001)] {
        put(&mut driver, "in", key, time);
    }
    let error = driver.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("timers set each other without end: operator=arms"), "{error}");
}

#[test]
fn a_stream_joined_with_itself() {
    let builder = StreamBuilder::new("job").unwrap();
    let stream = events(&builder, "in");
    let joined = stream.join("self", &stream, JoinWindow::within(ms(10)));
    joined.inner(|l, r| (l.1, r.1)).values().sink("out", "out", Json::<(i64, i64)>::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for time in [0, 5, 20] {
        send(&mut driver, "k", time);
    }
    let mut got: Vec<(i64, i64)> = driver.bodies("out").iter().map(|b| serde_json::from_slice(b).unwrap()).collect();
    got.sort();
    assert_eq!(got, [(0, 0), (0, 5), (5, 0), (5, 5), (20, 20)]);
}

#[test]
fn a_join_at_the_ends_of_time() {
    let wide = JoinWindow::before(Duration::MAX).after(Duration::ZERO).grace(Duration::MAX);
    for window in [JoinWindow::within(Duration::MAX), JoinWindow::within(Duration::ZERO), wide] {
        let builder = StreamBuilder::new("job").unwrap();
        let (left, right) = (events(&builder, "in"), events(&builder, "right"));
        let joined = left.join("j", &right, window).outer(|l, r| (l.map(|l| l.1), r.map(|r| r.1)));
        joined.on_error(ErrorPolicy::Skip).values().sink("out", "out", Json::<(Option<i64>, Option<i64>)>::new());
        let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
        let times = [-FAR, 0, FAR];
        for time in [i64::MIN, -FAR, 0, FAR, i64::MAX] {
            put(&mut driver, "in", "k", time);
            put(&mut driver, "right", "k", time);
            driver.commit().unwrap();
        }
        driver.advance_event_time(Timestamp::MAX).unwrap();
        driver.commit().unwrap();
        assert_eq!(driver.counters().skipped, 4, "{window:?}");
        let rows = driver.bodies("out").into_iter().map(|body| serde_json::from_slice(&body).unwrap());
        let rows: Vec<(Option<i64>, Option<i64>)> = rows.collect();
        assert!(times.iter().all(|time| rows.contains(&(Some(*time), Some(*time)))), "{window:?}: {rows:?}");
    }
}

#[test]
fn sessions_that_meet_three_at_a_time() {
    let mut driver = counting(Windows::session(ms(10)), ms(1_000), Trigger::OnClose).unwrap();
    for time in [0, 20, 40, 10, 30] {
        send(&mut driver, "k", time);
    }
    send(&mut driver, "x", 10_000);
    assert_eq!(rows(&driver), [("k".into(), 0, 51, 5)]);
    let mut driver = counting(Windows::session(ms(10)), ms(1_000), Trigger::OnUpdate).unwrap();
    for time in [0, 11, 22, 33] {
        send(&mut driver, "k", time);
    }
    for time in [5, 16, 27] {
        send(&mut driver, "k", time);
    }
    assert_eq!(rows(&driver).last().unwrap(), &("k".into(), 0, 44, 7));
}

#[test]
fn programs_without_sense_are_refused_or_run() {
    // What nobody takes is computed all the same.
    let builder = StreamBuilder::new("job").unwrap();
    events(&builder, "in").window("counts", Windows::tumbling(ms(10))).count();
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    send(&mut driver, "k", 0);
    send(&mut driver, "k", 10);
    assert_eq!(driver.counters().records_in, 2);

    let refused = |write: &dyn Fn(&StreamBuilder)| {
        let builder = StreamBuilder::new("job").unwrap();
        write(&builder);
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Invalid);
    };
    refused(&|_| ());
    refused(&|builder| {
        let stream = events(builder, "in");
        stream.window("same", Windows::tumbling(ms(10))).count().sink("a", "a", Json::new());
        stream.process("same", Keeps::default).sink("b", "b", Json::new());
    });
    refused(&|builder| {
        let stream = events(builder, "in");
        stream.sink("same", "a", Json::new());
        stream.sink("same", "b", Json::new());
    });
    refused(&|builder| {
        events(builder, "in").sink("a", "a", Json::new());
        events(builder, "in").sink("b", "b", Json::new());
    });
}

#[derive(Default)]
struct Keeps {
    last: ValueState<i64>,
}

impl Processor<String, Event> for Keeps {
    type Output = Option<i64>;
    fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
        self.last = setup.value_with("last", TimeToLive::after_write(Duration::MAX))?;
        Ok(())
    }
    fn process(&mut self, (_, time): Event, cx: &mut Process<'_, String, Option<i64>>) -> Result<()> {
        let mut last = cx.value(&self.last)?;
        let before = last.get().copied();
        last.set(time);
        cx.emit(before);
        Ok(())
    }
}

#[test]
fn a_life_without_end_at_the_ends_of_time() {
    let builder = StreamBuilder::new("job").unwrap();
    let kept = events(&builder, "in").process("keeps", Keeps::default).on_error(ErrorPolicy::Skip);
    kept.values().sink("out", "out", Json::new());
    let counted = events_again(&builder);
    counted.sink("counts", "counts", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for time in [i64::MIN, -FAR, 0, FAR, i64::MAX] {
        send(&mut driver, "k", time);
        put(&mut driver, "other", "k", time);
        driver.commit().unwrap();
    }
    assert_eq!(driver.counters().skipped, 4);
    // 146 million years lie between the first and the last: twice the longest life.
    assert_eq!(texts(&driver, "out"), ["null", "null", "null"]);
    assert_eq!(texts(&driver, "counts"), [r#"["k",1]"#, r#"["k",1]"#, r#"["k",1]"#]);
}

fn events_again(builder: &StreamBuilder) -> onceflow::topology::Running<String, u64> {
    events(builder, "other")
        .count("counts")
        .time_to_live(TimeToLive::after_access(Duration::MAX))
        .on_error(ErrorPolicy::Skip)
}

/// Around the longest key that the store takes, less what each operator puts before it.
fn long_keys() -> Vec<usize> {
    [0, 1, 60 * 1024, 70_000].into_iter().chain(65_490..65_540).collect()
}

/// A key is taken or refused as a whole: one that is refused brings nothing out and leaves nothing behind.
#[test]
fn a_key_is_taken_or_refused() {
    let all = [Windows::tumbling(ms(10)), Windows::session(ms(10)), Windows::sliding(ms(10)), Windows::daily("UTC")];
    for windows in all {
        let mut driver = counting(windows.clone(), Duration::ZERO, Trigger::OnClose).unwrap();
        let sizes = long_keys();
        for size in &sizes {
            put(&mut driver, "in", &"k".repeat(*size), 0);
            put(&mut driver, "in", &"k".repeat(*size), 0);
        }
        driver.commit().unwrap();
        driver.advance_event_time(Timestamp::from_millis(1 << 40)).unwrap();
        driver.commit().unwrap();
        let taken: u64 = match windows {
            _ if windows == Windows::sliding(ms(10)) => rows(&driver).len() as u64,
            _ => rows(&driver).iter().map(|row| row.3).sum(),
        };
        assert_eq!(taken + driver.counters().skipped, 2 * sizes.len() as u64, "{windows}");
        assert!(taken > 6 && driver.counters().skipped > 2, "{windows} taken={taken}");
    }
}

#[test]
fn a_key_is_taken_or_refused_by_a_join() {
    for latest in [false, true] {
        let builder = StreamBuilder::new("job").unwrap();
        let (left, right) = (events(&builder, "in"), events(&builder, "right"));
        let both = |l: Option<&Event>, r: Option<&Event>| (l.is_some(), r.is_some());
        let joined = if latest {
            left.join_latest("j", &right, ms(10)).outer(both)
        } else {
            left.join("j", &right, JoinWindow::within(ms(10))).outer(both)
        };
        joined.on_error(ErrorPolicy::Skip).values().sink("out", "out", Json::<(bool, bool)>::new());
        let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
        for size in long_keys() {
            put(&mut driver, "in", &"k".repeat(size), 0);
            driver.commit().unwrap();
            put(&mut driver, "right", &"k".repeat(size), 0);
            driver.commit().unwrap();
        }
        driver.advance_event_time(Timestamp::from_millis(1 << 40)).unwrap();
        driver.commit().unwrap();
        // A refused key is refused on both sides.
        let pairs = texts(&driver, "out").iter().filter(|row| *row == "[true,true]").count();
        let skipped = usize::try_from(driver.counters().skipped).unwrap();
        assert_eq!(pairs * 2 + skipped, 2 * long_keys().len(), "latest={latest}");
        assert_eq!(texts(&driver, "out").len(), if latest { 2 * pairs } else { pairs }, "latest={latest}");
    }
}

#[test]
fn a_key_that_no_timer_can_have_leaves_no_trace() {
    let mut driver = arming(|timer, cx| match timer {
        None => cx.set_event_timer(Timestamp::from_millis(5)),
        Some(_) => {
            let length = cx.key().len();
            say(cx, length.to_string())
        }
    });
    for size in long_keys() {
        put(&mut driver, "in", &"k".repeat(size), 0);
        put(&mut driver, "in", &"k".repeat(size), 1);
    }
    driver.commit().unwrap();
    driver.advance_event_time(Timestamp::from_millis(10)).unwrap();
    driver.commit().unwrap();
    let fired = texts(&driver, "out").len();
    assert_eq!(2 * fired + usize::try_from(driver.counters().skipped).unwrap(), 2 * long_keys().len());
}
