//! Joins: cases that users of other systems met, by their numbers, each with the right result.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use onceflow::codec::Json;
use onceflow::storage::{Backend, MemoryStores, StoreFactory};
use onceflow::testing::TestDriver;
use onceflow::topology::{Joining, Stream};
use onceflow::types::{ErrorKind, Timestamp};
use onceflow::{JoinWindow, StreamBuilder, Windows};
use std::sync::Arc;
use std::time::Duration;

/// Key, time, name.
type Event = (String, i64, String);
type Names = (Option<String>, Option<String>);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn events(builder: &StreamBuilder, topic: &str) -> Stream<Event> {
    let source = builder.source(topic, Json::<Event>::new()).out_of_orderness(Duration::ZERO);
    source.select_timestamp(|(_, time, _)| Timestamp::from_millis(*time))
}

fn names(left: Option<&Event>, right: Option<&Event>) -> Names {
    (left.map(|left| left.2.clone()), right.map(|right| right.2.clone()))
}

#[derive(Clone, Copy)]
enum Kind {
    Inner,
    Left,
    Outer,
}

/// Joins `left` and `right` in one task.
fn joining(kind: Kind, window: JoinWindow, stores: Arc<dyn StoreFactory>) -> TestDriver {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone()).partitioned_by_key();
    let joining: Joining<String, Event, Event> = keyed("left").join("joined", &keyed("right"), window);
    let joined = match kind {
        Kind::Inner => joining.inner(|left, right| names(Some(left), Some(right))),
        Kind::Left => joining.left(|left, right| names(Some(left), right)),
        Kind::Outer => joining.outer(names),
    };
    joined.values().sink("out", "out", Json::new());
    TestDriver::with_stores(&builder.build().unwrap(), &[], stores).unwrap()
}

fn in_memory(kind: Kind, window: JoinWindow) -> TestDriver {
    joining(kind, window, Arc::new(MemoryStores::default()))
}

fn put(driver: &mut TestDriver, topic: &str, key: &str, time: i64, name: &str) {
    driver.send(topic, &serde_json::to_vec(&(key, time, name)).unwrap()).unwrap();
}

fn send(driver: &mut TestDriver, topic: &str, key: &str, time: i64, name: &str) {
    put(driver, topic, key, time, name);
    driver.commit().unwrap();
}

/// Moves event time on by records of another key.
fn stream_time(driver: &mut TestDriver, time: i64) {
    put(driver, "left", "other", time, "-");
    put(driver, "right", "other", time + 1_000_000, "-");
    driver.commit().unwrap();
}

/// The pairs so far, sorted, without those of the other key.
fn pairs(driver: &TestDriver) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = driver
        .bodies("out")
        .iter()
        .map(|body| serde_json::from_slice::<Names>(body).unwrap())
        .map(|(left, right)| (left.unwrap_or("null".into()), right.unwrap_or("null".into())))
        .filter(|(left, right)| left != "-" && right != "-")
        .collect();
    pairs.sort();
    pairs
}

fn pair(left: &str, right: &str) -> (String, String) {
    (left.into(), right.into())
}

#[test]
fn case_45_nothing_comes_out_unmatched_inside_the_grace_time() {
    let mut driver = in_memory(Kind::Left, JoinWindow::within(ms(10)).grace(ms(10)));
    stream_time(&mut driver, 15);
    send(&mut driver, "left", "k", 0, "a");
    send(&mut driver, "right", "k", 5, "x");
    stream_time(&mut driver, 21);
    stream_time(&mut driver, 1_000);
    assert_eq!(pairs(&driver), [pair("a", "x")]);
}

#[test]
fn case_45_a_row_without_a_partner_comes_out_once_when_it_is_closed() {
    let mut driver = in_memory(Kind::Left, JoinWindow::within(ms(10)).grace(ms(10)));
    stream_time(&mut driver, 15);
    send(&mut driver, "left", "k", 0, "a");
    stream_time(&mut driver, 20);
    assert_eq!(pairs(&driver), []);
    stream_time(&mut driver, 21);
    stream_time(&mut driver, 1_000);
    assert_eq!(pairs(&driver), [pair("a", "null")]);
}

fn case_47(stores: Arc<dyn StoreFactory>) {
    let mut driver = joining(Kind::Left, JoinWindow::within(ms(5)), stores);
    put(&mut driver, "left", "k", 1, "L1");
    put(&mut driver, "left", "k", 2, "L2");
    driver.commit().unwrap();
    put(&mut driver, "left", "k", 20, "L20");
    put(&mut driver, "right", "other", 10, "-");
    driver.commit().unwrap();
    assert_eq!(pairs(&driver), [pair("L1", "null"), pair("L2", "null")]);
    send(&mut driver, "right", "k", 21, "R21");
    assert_eq!(pairs(&driver), [pair("L1", "null"), pair("L2", "null"), pair("L20", "R21")]);
}

#[test]
fn case_47_eviction_sees_the_writes_of_its_own_epoch() {
    case_47(Arc::new(MemoryStores::default()));
    let on_disk = |backend: &Backend| backend.is_available() && *backend != Backend::Memory;
    for backend in Backend::ALL.into_iter().filter(on_disk) {
        let directory = tempfile::tempdir().unwrap();
        case_47(Arc::new(onceflow::storage::StoreOptions::new(backend, directory.path())));
    }
}

#[test]
fn case_43_a_join_by_days_of_another_zone_is_cut_and_fires_at_their_own_midnight() {
    const DAY: i64 = 86_400_000;
    let midnight = 1_704_124_800_000;
    for windows in [Windows::daily("Asia/Shanghai"), Windows::tumbling(ms(86_400_000)).offset(ms(57_600_000))] {
        let builder = StreamBuilder::new("job").unwrap();
        let key = |(key, ..): &Event| key.clone();
        let joined = events(&builder, "left").join(&events(&builder, "right")).where_key(key).equal_to(key);
        let joined = joined.window("joined", windows).apply(|left, right| names(Some(left), Some(right)));
        joined.map(|_, pair| pair.value).sink("out", "out", Json::new());
        let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
        put(&mut driver, "left", "k", midnight - 1, "before");
        put(&mut driver, "left", "k", midnight, "after");
        put(&mut driver, "right", "k", midnight - DAY, "first of the day");
        put(&mut driver, "right", "k", midnight + DAY - 1, "last of the day");
        driver.commit().unwrap();
        driver.advance_event_time(Timestamp::from_millis(midnight)).unwrap();
        driver.commit().unwrap();
        assert_eq!(pairs(&driver), [pair("before", "first of the day")]);
        driver.advance_event_time(Timestamp::from_millis(midnight + DAY - 1)).unwrap();
        driver.commit().unwrap();
        assert_eq!(pairs(&driver).len(), 1, "the day is not over");
        driver.advance_event_time(Timestamp::from_millis(midnight + DAY)).unwrap();
        driver.commit().unwrap();
        assert_eq!(pairs(&driver), [pair("after", "last of the day"), pair("before", "first of the day")]);
        assert_eq!(driver.counters().late, 0);
    }
}

#[test]
fn all_pairs_come_out_and_both_bounds_are_included() {
    let mut driver = in_memory(Kind::Inner, JoinWindow::before(ms(2)).after(ms(5)));
    for time in [100, 101] {
        put(&mut driver, "left", "k", time, &format!("L{time}"));
    }
    for time in [97, 98, 105, 106, 107] {
        put(&mut driver, "right", "k", time, &format!("R{time}"));
    }
    driver.commit().unwrap();
    let want = [pair("L100", "R105"), pair("L100", "R98"), pair("L101", "R105"), pair("L101", "R106")];
    assert_eq!(pairs(&driver), want);
}

#[test]
fn a_full_outer_join_puts_out_each_row_without_a_partner_once() {
    let mut driver = in_memory(Kind::Outer, JoinWindow::within(ms(5)));
    put(&mut driver, "left", "k", 1, "L1");
    put(&mut driver, "left", "k", 20, "L20");
    put(&mut driver, "right", "k", 8, "R8");
    put(&mut driver, "right", "k", 21, "R21");
    driver.commit().unwrap();
    driver.advance_event_time(Timestamp::from_millis(1_000)).unwrap();
    driver.commit().unwrap();
    assert_eq!(pairs(&driver), [pair("L1", "null"), pair("L20", "R21"), pair("null", "R8")]);
}

#[test]
fn a_missing_key_never_matches_and_is_counted_and_still_comes_out_of_a_left_join() {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| Some(key.clone()).filter(|key| !key.is_empty()));
    let joined = keyed("left").join("joined", &keyed("right"), JoinWindow::within(ms(5)));
    joined.left(|left, right| names(Some(left), right)).values().sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for topic in ["left", "right"] {
        put(&mut driver, topic, "", 1, topic);
        put(&mut driver, topic, "k", 1, topic);
    }
    driver.commit().unwrap();
    assert_eq!(pairs(&driver), [pair("left", "null"), pair("left", "right")]);
    assert_eq!(driver.counters().missing_keys, 2);
}

#[test]
fn three_streams_are_joined_one_after_the_other() {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone());
    let paid = keyed("orders").join("paid", &keyed("payments"), JoinWindow::within(ms(10)));
    let paid = paid.left(|order, payment| (order.2.clone(), payment.map(|payment| payment.2.clone())));
    let sent = paid.join("sent", &keyed("parcels"), JoinWindow::within(ms(50)));
    sent.left(|paid, parcel| (paid.0.clone(), paid.1.clone(), parcel.map(|parcel| parcel.2.clone()))).values().sink(
        "out",
        "out",
        Json::new(),
    );
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for key in ["1", "2", "3"] {
        put(&mut driver, "orders", key, 100, &format!("order {key}"));
    }
    for key in ["1", "2"] {
        put(&mut driver, "payments", key, 105, &format!("payment {key}"));
    }
    put(&mut driver, "parcels", "1", 140, "parcel 1");
    driver.commit().unwrap();
    driver.advance_event_time(Timestamp::from_millis(1_000)).unwrap();
    driver.commit().unwrap();
    let mut bodies: Vec<String> =
        driver.bodies("out").into_iter().map(|body| String::from_utf8(body).unwrap()).collect();
    bodies.sort();
    let want = [r#"["order 1","payment 1","parcel 1"]"#, r#"["order 2","payment 2",null]"#, r#"["order 3",null,null]"#];
    assert_eq!(bodies, want);
}

#[test]
fn a_join_of_topics_with_different_queues_does_not_start() {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone()).partitioned_by_key();
    let joined = keyed("left").join("joined", &keyed("right"), JoinWindow::within(ms(5)));
    joined.inner(|left, right| names(Some(left), Some(right))).values().sink("out", "out", Json::new());
    let topology = builder.build().unwrap();
    TestDriver::with_queues(&topology, &[("left", 4), ("right", 4)]).unwrap();
    let error = TestDriver::with_queues(&topology, &[("left", 4), ("right", 2)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("need the same queues"), "{error}");
}

#[test]
fn a_repartition_of_another_width_is_refused_as_well() {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone());
    let (left, right) = (keyed("left").repartition("l").queues(2), keyed("right").repartition("r").queues(3));
    let joined = left.join_latest("joined", &right, ms(5)).inner(|left, right| names(Some(left), Some(right)));
    joined.values().sink("out", "out", Json::new());
    let error = TestDriver::new(&builder.build().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn a_latest_value_counts_as_long_as_it_lives() {
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone()).partitioned_by_key();
    let joined = keyed("left").join_latest("joined", &keyed("right"), ms(10));
    joined.left(|left, right| names(Some(left), right)).values().sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    send(&mut driver, "right", "k", 100, "old");
    send(&mut driver, "right", "k", 105, "new");
    send(&mut driver, "right", "k", 103, "older");
    send(&mut driver, "left", "k", 114, "L114");
    send(&mut driver, "left", "k", 115, "L115");
    send(&mut driver, "right", "other", 115, "-");
    send(&mut driver, "left", "k", 116, "L116");
    assert_eq!(pairs(&driver), [pair("L114", "new"), pair("L115", "new"), pair("L116", "null")]);
}

#[test]
fn a_table_does_not_hold_event_time_up() {
    // Aim: windows behind a join with a table close by the stream's time alone.
    let builder = StreamBuilder::new("job").unwrap();
    let keyed = |topic| events(&builder, topic).key_by(|(key, ..)| key.clone()).partitioned_by_key();
    let named = keyed("uses").join_table("named", &keyed("cards").table("cards"));
    let named = named.inner(|left, right| names(Some(left), Some(right)));
    let counts = named.window("counts", Windows::tumbling(ms(10))).count();
    counts.map(|_, count| count.value).sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    send(&mut driver, "cards", "k", 1, "owner");
    for time in [2, 5, 11] {
        send(&mut driver, "uses", "k", time, "use");
    }
    assert_eq!(driver.bodies("out"), [b"2"]);
}
