//! State as a test sees it, and as [`onceflow::Runtime::query`] does: committed, migrated, and not too old.
#![allow(missing_docs, clippy::pedantic, clippy::unwrap_used, reason = "helpers of tests are tests")]

use onceflow::codec::{Data, Json, StateValue, Utf8};
use onceflow::process::{Process, Processor, Setup, ValueState};
use onceflow::state::{Migration, TimeToLive};
use onceflow::testing::TestDriver;
use onceflow::types::{ErrorKind, Result};
use onceflow::{Config, StreamBuilder, Topology, Windows};
use std::time::Duration;

fn key(key: &str) -> String {
    key.to_owned()
}

#[test]
fn only_what_is_committed_is_seen() {
    let builder = StreamBuilder::new("job").unwrap();
    let words = builder.source("in", Utf8).key_by(|word| word.clone());
    words.count("counts").sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    driver.send("in", b"a").unwrap();
    driver.commit().unwrap();
    driver.send("in", b"a").unwrap();
    driver.process().unwrap();
    assert_eq!(driver.value::<String, u64>("counts", &key("a")).unwrap(), Some(1));
    driver.abort().unwrap();
    assert_eq!(driver.value::<String, u64>("counts", &key("a")).unwrap(), Some(1));
    driver.commit().unwrap();
    assert_eq!(driver.values::<String, u64>("counts").unwrap(), [(key("a"), 2)]);
}

#[test]
fn a_value_whose_time_is_over_is_not_seen_before_it_is_removed() {
    let builder = StreamBuilder::new("job").unwrap();
    let words = builder.source("in", Utf8).key_by(|word| word.clone());
    let life = TimeToLive::after_write(Duration::from_secs(60)).processing_time();
    words.count("counts").time_to_live(life).sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    driver.send("in", b"a").unwrap();
    driver.commit().unwrap();
    for (millis, seen) in [(59_999, Some(1)), (60_000, None)] {
        // No task has heard of that time yet.
        driver.set_time(onceflow::types::Timestamp::from_millis(millis));
        assert_eq!(driver.value::<String, u64>("counts", &key("a")).unwrap(), seen, "{millis}");
        assert_eq!(driver.values::<String, u64>("counts").unwrap().len(), usize::from(seen.is_some()));
    }
    driver.commit().unwrap();
    assert_eq!(driver.values::<String, u64>("counts").unwrap(), []);
}

fn lengths<V: Copy + Sync + Into<u64> + StateValue + Data>(
    add: fn(&mut V, &String),
    first: V,
    migration: Option<Migration<V>>,
) -> Topology {
    let builder = StreamBuilder::new("job").unwrap();
    let words = builder.source("in", Utf8).key_by(|word| word.clone());
    let letters = words.aggregate("letters", move || first, add);
    let letters = match migration {
        Some(migration) => letters.migration(migration),
        None => letters,
    };
    letters.map(|_, letters| letters.into()).sink("out", "out", Json::new());
    builder.build().unwrap()
}

#[test]
fn a_value_of_an_earlier_program_is_seen_as_its_migration_makes_it() {
    let old = lengths::<u32>(|sum, word| *sum += u32::try_from(word.len()).unwrap(), 0, None);
    let mut driver = TestDriver::new(&old).unwrap();
    driver.send("in", b"abc").unwrap();
    driver.commit().unwrap();
    let migration = Migration::<u64>::to(1).from(0, |old: u32| u64::from(old) * 10);
    let new = lengths::<u64>(|sum, word| *sum += word.len() as u64, 0, Some(migration));
    driver.restart_with(&new, Config { allow_upgrade: true, ..Config::default() }).unwrap();
    assert_eq!(driver.value::<String, u64>("letters", &key("abc")).unwrap(), Some(30));
    let old_type = driver.value::<String, u32>("letters", &key("abc")).unwrap_err();
    assert_eq!(old_type.kind(), ErrorKind::Invalid);
}

/// Remembers the last value of each key.
#[derive(Default)]
struct Last {
    last: ValueState<u64>,
}

impl Processor<String, u64> for Last {
    type Output = u64;

    fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
        self.last = setup.value("last")?;
        Ok(())
    }

    fn process(&mut self, value: u64, cx: &mut Process<'_, String, u64>) -> Result<()> {
        cx.value(&self.last)?.set(value);
        Ok(())
    }
}

#[test]
fn tables_and_values_of_processors_are_seen_and_windows_have_none() {
    let builder = StreamBuilder::new("job").unwrap();
    let pairs = builder.source("in", Json::<(String, u64)>::new()).key_by(|(word, _)| word.clone());
    let values = pairs.map_values(|(_, value)| value);
    values.process("watch", Last::default).values().sink("none", "none", Json::new());
    values.window("minutes", Windows::tumbling(Duration::from_secs(60))).count().sink("counts", "counts", Json::new());
    let names = builder.source("names", Json::<(String, String)>::new()).key_by(|(word, _)| word.clone());
    let names = names.map_values(|(_, name)| name).table("names");
    values.join_table("named", &names).inner(|value, name| format!("{name}={value}")).sink(
        "named",
        "named",
        Json::new(),
    );
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    driver.send("names", br#"["a","Anna"]"#).unwrap();
    driver.send("in", br#"["a",7]"#).unwrap();
    driver.commit().unwrap();
    assert_eq!(driver.value::<String, u64>("watch#last", &key("a")).unwrap(), Some(7));
    assert_eq!(driver.value::<String, String>("named", &key("a")).unwrap(), Some(key("Anna")));
    for name in ["minutes", "watch", "nothing"] {
        assert_eq!(driver.values::<String, u64>(name).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
    }
}
