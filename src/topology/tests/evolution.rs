//! A program that changes while its state stays.

use super::program;
use crate::codec::Json;
use crate::config::Config;
use crate::state::Migration;
use crate::testing::TestDriver;
use crate::topology::{StreamBuilder, Topology};
use onceflow_storage::StoreFactory;
use onceflow_types::ErrorKind;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

fn topology(write: impl FnOnce(&StreamBuilder)) -> Topology {
    program(write).unwrap()
}

/// The program of the first day: a sum in cents, and a count.
fn first() -> Topology {
    topology(|builder| {
        let cents = builder.source("in", Json::<u64>::new()).key_by(|cents| cents % 2).partitioned_by_key();
        let spent = cents.aggregate("spent", || 0u64, |sum, cents| *sum += cents);
        spent.sink("out", "out", Json::new());
        cents.count("counts").sink("counts", "counts", Json::new());
    })
}

#[derive(Clone, Serialize, Deserialize)]
struct Spent {
    cents: u64,
    largest: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Limited {
    limit: u64,
    cents: u64,
    largest: u64,
}

fn to_second() -> Migration<Spent> {
    Migration::to(1).from(0, |cents: u64| Spent { cents, largest: 0 })
}

fn to_third() -> Migration<Limited> {
    let limited = |spent: Spent| Limited { limit: 100, cents: spent.cents, largest: spent.largest };
    Migration::to(2).from(1, limited).from(0, move |cents: u64| limited(Spent { cents, largest: 0 }))
}

/// The second day: an operator inserted before the old ones, a sink added, the state of `spent` another type.
fn second(migration: Option<Migration<Spent>>) -> Topology {
    topology(|builder| {
        let source = builder.source("in", Json::<u64>::new());
        let cents = source.map(|cents| cents).key_by(|cents| cents % 2).partitioned_by_key();
        cents.max("largest", |cents| *cents).sink("largest", "largest", Json::new());
        let mut spent = cents.aggregate(
            "spent",
            || Spent { cents: 0, largest: 0 },
            |spent, cents| *spent = Spent { cents: spent.cents + cents, largest: spent.largest.max(*cents) },
        );
        if let Some(migration) = migration {
            spent = spent.migration(migration);
        }
        spent.sink("out", "out", Json::new());
        cents.count("counts").sink("counts", "counts", Json::new());
    })
}

/// The third day: another type again, and the count is given up.
fn third() -> Topology {
    topology(|builder| {
        let cents = builder.source("in", Json::<u64>::new()).key_by(|cents| cents % 2).partitioned_by_key();
        let spent = cents.aggregate(
            "spent",
            || Limited { limit: 100, cents: 0, largest: 0 },
            |spent, cents| (spent.cents, spent.largest) = (spent.cents + cents, spent.largest.max(*cents)),
        );
        spent.migration(to_third()).sink("out", "out", Json::new());
        cents.max("largest", |cents| *cents).sink("largest", "largest", Json::new());
    })
}

fn texts(driver: &TestDriver, topic: &str) -> Vec<String> {
    driver.bodies(topic).into_iter().map(|body| String::from_utf8(body).unwrap()).collect()
}

fn send(driver: &mut TestDriver, cents: &[u64]) {
    for cents in cents {
        driver.send("in", cents.to_string().as_bytes()).unwrap();
    }
    driver.commit().unwrap();
}

fn upgrade() -> Config {
    Config { allow_upgrade: true, ..Config::default() }
}

fn goes_on_with_its_state(stores: Arc<dyn StoreFactory>) {
    let mut driver = TestDriver::with_stores(&first(), &[], stores).unwrap();
    send(&mut driver, &[3, 4, 5, 6]);
    let refused = driver.restart_with(&second(Some(to_second())), Config::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "the topology is another one: {refused}");
    driver.restart_with(&second(Some(to_second())), upgrade()).unwrap();
    // Key 0 stays as the first day wrote it.
    send(&mut driver, &[1]);
    assert_eq!(texts(&driver, "out").last().unwrap(), r#"[1,{"cents":9,"largest":1}]"#);
    assert_eq!(texts(&driver, "counts").last().unwrap(), "[1,3]");
    assert_eq!(texts(&driver, "largest"), ["[1,1]"]);

    let refused = driver.restart_with(&third(), upgrade()).unwrap_err();
    assert!(refused.to_string().contains(r#"["counts"]"#), "{refused}");
    let dropped = Config { allow_dropped: vec!["counts".to_owned()], ..upgrade() };
    driver.restart_with(&third(), dropped).unwrap();
    send(&mut driver, &[1, 2]);
    let last: Vec<_> = texts(&driver, "out").split_off(5);
    let from_second = r#"[1,{"limit":100,"cents":10,"largest":1}]"#;
    let from_first = r#"[0,{"limit":100,"cents":12,"largest":2}]"#;
    assert_eq!(last, [from_second, from_first]);
    assert_eq!(texts(&driver, "largest"), ["[1,1]", "[1,1]", "[0,2]"]);
}

#[test]
fn a_changed_program_goes_on_with_its_state() {
    goes_on_with_its_state(Arc::new(onceflow_storage::MemoryStores::default()));
}

#[cfg(feature = "fjall")]
#[test]
fn a_changed_program_goes_on_with_its_state_on_fjall() {
    use onceflow_storage::{Backend, StoreOptions};
    let directory = tempfile::tempdir().unwrap();
    goes_on_with_its_state(Arc::new(StoreOptions::new(Backend::Fjall, directory.path())));
}

/// What no migration reads stops the task and changes nothing; the right program goes on.
#[test]
fn a_value_that_no_migration_reads_stops_the_task() {
    let stop = |driver: &mut TestDriver, topology: &Topology| {
        driver.restart_with(topology, upgrade()).and_then(|()| driver.commit()).unwrap_err()
    };
    let mut driver = TestDriver::new(&first()).unwrap();
    send(&mut driver, &[300]);
    driver.send("in", b"4").unwrap();
    // Read as what it is not: the bytes of a number are no `Spent`.
    assert_eq!(stop(&mut driver, &second(None)).kind(), ErrorKind::Corrupt);
    let from_nothing = stop(&mut driver, &second(Some(Migration::to(1))));
    assert_eq!(from_nothing.kind(), ErrorKind::Invalid, "{from_nothing}");
    driver.restart_with(&second(Some(to_second())), upgrade()).unwrap();
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["[0,300]", r#"[0,{"cents":304,"largest":4}]"#]);
    // Back again: the value has a version that the first program does not know.
    driver.send("in", b"2").unwrap();
    let dropped = Config { allow_dropped: vec!["largest".to_owned()], ..upgrade() };
    let newer = driver.restart_with(&first(), dropped).and_then(|()| driver.commit()).unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Invalid, "{newer}");
}

#[test]
fn a_migration_to_another_type_is_refused_when_the_topology_is_built() {
    let refused = program(|builder| {
        let keyed = builder.source("in", Json::<u64>::new()).key_by(|_| 0u8).partitioned_by_key();
        keyed.count("counts").migration(Migration::<String>::to(1));
    });
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("migration is to another type than the state's"), "{refused}");
}

#[test]
fn another_job_is_not_an_upgrade() {
    let mut driver = TestDriver::new(&first()).unwrap();
    let other = StreamBuilder::new("other").unwrap();
    other.source("in", Json::<u64>::new()).for_each(|_| ());
    assert_eq!(driver.restart_with(&other.build().unwrap(), upgrade()).unwrap_err().kind(), ErrorKind::Invalid);
}
