//! What a job does with input, directories and settings that are wrong: a typed error that says where, or the policy the
//! user chose; never a silent loss, never a half-done start.
#![cfg(feature = "embedded")]
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod faulty;

use faulty::ledger::{Ledger, Settled, append_batch, entries, make_topic, memory, quick, read_raw, read_view};
use faulty::{Call, Fault, FaultyLog, On};
use onceflow::codec::{Json, Utf8};
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MessageBatch, find_property};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::txn::{Frame, Identity};
use onceflow::types::wire::checksum;
use onceflow::types::{Epoch, Error, ErrorKind, Generation, Incarnation, Name, Sequence, TaskId, Timestamp};
use onceflow::{
    Config, DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, DEAD_LETTER_QUEUE, DEAD_LETTER_STAGE, DEAD_LETTER_TOPIC,
    ErrorPolicy, Runtime, TaskStatus,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A log with topics, and a place for state.
struct Place {
    log: Arc<dyn Log>,
    directory: TempDir,
}

impl Place {
    async fn new(topics: &[&str]) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
        let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options).unwrap());
        for topic in topics {
            make_topic(&*log, topic).await;
        }
        Place { log, directory }
    }

    fn disk(&self) -> Arc<dyn StoreFactory> {
        Arc::new(StoreOptions::new(Backend::Fjall, self.directory.path().join("state")))
    }

    async fn send(&self, topic: &str, properties: &[u8], body: &[u8]) {
        let mut batch = MessageBatch::default();
        batch.push(properties, body).unwrap();
        append_batch(&*self.log, topic, &batch).await;
    }

    async fn start(
        &self,
        topology: Topology,
        stores: &Arc<dyn StoreFactory>,
        config: Config,
    ) -> onceflow::types::Result<Runtime> {
        Runtime::builder(topology, self.log.clone(), stores.clone()).config(config).start().await
    }

    /// Runs until everything is processed; returns the status of the one task that reads `source`.
    async fn run(
        &self,
        topology: Topology,
        stores: &Arc<dyn StoreFactory>,
        config: Config,
        source: &str,
    ) -> TaskStatus {
        let mut runtime = self.start(topology, stores, config).await.unwrap();
        assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
        let status = runtime.status()[&task(source)].clone();
        runtime.drain().await.unwrap();
        status
    }

    /// Runs until the job stops, and returns why.
    async fn fail(&self, topology: Topology, stores: &Arc<dyn StoreFactory>, config: Config) -> Error {
        match self.start(topology, stores, config).await {
            Err(error) => error,
            Ok(mut runtime) => {
                let stopped = tokio::time::timeout(PATIENCE, runtime.wait()).await;
                stopped.expect("the job stops").expect_err("with an error")
            }
        }
    }

    async fn bodies(&self, topic: &str, job: &str) -> Vec<String> {
        let (records, ..) = read_view(&self.log, topic, job).await;
        records.iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()).collect()
    }
}

fn task(subtopology: &str) -> TaskId {
    TaskId { subtopology: Name::new(subtopology).unwrap(), broker: "local".into(), queue: 0 }
}

fn says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{}", error.report());
    for part in parts {
        assert!(error.report().contains(part), "{part}: {}", error.report());
    }
}

/// Numbers in, doubled out.
fn doubled(policy: ErrorPolicy) -> Topology {
    let builder = StreamBuilder::new("numbers").unwrap();
    let numbers = builder.source("numbers-in", Json::<i64>::new()).start(StartPolicy::Earliest).on_error(policy);
    numbers.map(|number| number * 2).sink("doubled", "numbers-out", Json::new());
    builder.build().unwrap()
}

async fn numbers() -> Place {
    let place = Place::new(&["numbers-in", "numbers-out", "numbers-bad"]).await;
    place.send("numbers-in", b"", b"1").await;
    place.send("numbers-in", b"KEYS\x01k7\x02TAGS\x01t\x02", b"\xff not a number").await;
    place.send("numbers-in", b"", b"3").await;
    place
}

#[tokio::test]
async fn an_undecodable_record_stops_the_job_and_loses_nothing() {
    let place = numbers().await;
    let stores = memory();
    for _ in 0..2 {
        let error = place.fail(doubled(ErrorPolicy::Fail), &stores, quick()).await;
        says(&error, ErrorKind::Record, &["numbers-in@local:0", "offset 1", "stage numbers-in"]);
    }
    let upgrade = Config { allow_upgrade: true, ..quick() };
    let status = place.run(doubled(ErrorPolicy::dead_letter("numbers-bad")), &stores, upgrade, "numbers-in").await;
    assert_eq!(status.stages.dead_letters, 1);
    assert_eq!(place.bodies("numbers-out", "numbers").await, ["2", "6"]);
}

#[tokio::test]
async fn a_panic_in_a_users_function_stops_the_job_and_loses_nothing() {
    let place = numbers().await;
    let topology = |careful: bool| {
        let builder = StreamBuilder::new("numbers").unwrap();
        let numbers = builder.source("numbers-in", Json::<i64>::new()).start(StartPolicy::Earliest);
        let checked = numbers.on_error(ErrorPolicy::Skip).map(move |number| {
            assert!(careful || number != 3, "three is not allowed");
            number * 2
        });
        checked.sink("doubled", "numbers-out", Json::new());
        builder.build().unwrap()
    };
    let stores = memory();
    let error = place.fail(topology(false), &stores, quick()).await;
    says(&error, ErrorKind::Bug, &["panicked", "three is not allowed"]);
    place.run(topology(true), &stores, quick(), "numbers-in").await;
    assert_eq!(place.bodies("numbers-out", "numbers").await, ["2", "6"]);
}

#[tokio::test]
async fn a_skipped_record_is_counted() {
    let place = numbers().await;
    let status = place.run(doubled(ErrorPolicy::Skip), &memory(), quick(), "numbers-in").await;
    assert_eq!((status.stages.skipped, status.stages.dead_letters, status.stages.records_in), (1, 0, 3));
    assert_eq!(place.bodies("numbers-out", "numbers").await, ["2", "6"]);
}

#[tokio::test]
async fn a_dead_letter_has_the_original_bytes_and_properties_and_says_where_it_was() {
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let place = numbers().await;
        let policy = ErrorPolicy::DeadLetter { topic: "numbers-bad".into(), delivery };
        let status = place.run(doubled(policy), &memory(), quick(), "numbers-in").await;
        assert_eq!((status.stages.skipped, status.stages.dead_letters), (0, 1));
        assert_eq!(place.bodies("numbers-out", "numbers").await, ["2", "6"]);
        let (letters, ..) = read_view(&place.log, "numbers-bad", "numbers").await;
        assert_eq!(letters.len(), 1);
        assert_eq!(&letters[0].body[..], b"\xff not a number");
        let property =
            |name| String::from_utf8_lossy(find_property(&letters[0].properties, name).unwrap()).into_owned();
        assert_eq!((property("KEYS"), property("TAGS")), ("k7".to_owned(), "t".to_owned()));
        assert_eq!(
            (property(DEAD_LETTER_TOPIC), property(DEAD_LETTER_QUEUE)),
            ("numbers-in".to_owned(), "0".to_owned())
        );
        assert_eq!(
            (property(DEAD_LETTER_OFFSET), property(DEAD_LETTER_STAGE)),
            ("1".to_owned(), "numbers-in".to_owned())
        );
        assert!(!property(DEAD_LETTER_ERROR).is_empty());
    }
}

#[tokio::test]
async fn a_missing_topic_is_named_at_the_start() {
    for missing in ["numbers-in", "numbers-out", "numbers-bad"] {
        let there: Vec<&str> =
            ["numbers-in", "numbers-out", "numbers-bad"].into_iter().filter(|topic| *topic != missing).collect();
        let place = Place::new(&there).await;
        let topology = doubled(ErrorPolicy::dead_letter("numbers-bad"));
        let started = place.start(topology, &memory(), quick()).await;
        says(&started.unwrap_err(), ErrorKind::Invalid, &[missing, "no such topic"]);
    }
}

#[cfg(feature = "fjall")]
mod directories {
    use super::*;

    async fn ran(place: &Place, ledger: &Ledger, upto: u64) {
        ledger.make_topics(&*place.log).await;
        ledger.produce(&*place.log, &entries(0, upto)).await;
        place.run(ledger.topology(), &place.disk(), quick(), faulty::ledger::SOURCE).await;
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
            if from.is_dir() {
                copy(&from, &to);
            } else {
                std::fs::copy(&from, &to).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn state_of_another_job_is_refused_and_left_as_it_is() {
        let place = Place::new(&[]).await;
        let (first, second) = (Ledger::new("first"), Ledger::new("second"));
        ran(&place, &first, 4).await;
        second.make_topics(&*place.log).await;
        let state = place.directory.path().join("state");
        copy(&state.join("first"), &state.join("second"));
        let error = place.fail(second.topology(), &place.disk(), quick()).await;
        says(&error, ErrorKind::Invalid, &["another job", "found=first", "wanted=second"]);
        assert_eq!(second.fold(&place.log).await.generation(), None, "nothing was claimed");
        assert_eq!(first.committed_in_state(&*place.disk()).get(), 4);
    }

    #[tokio::test]
    async fn state_of_a_newer_format_is_refused_and_left_as_it_is() {
        let place = Place::new(&[]).await;
        let ledger = Ledger::new("newer");
        ran(&place, &ledger, 4).await;
        let root = place.directory.path().join("state");
        let format = onceflow::storage::task_directory(&root, &ledger.name(), &ledger.task()).join("FORMAT");
        let old = std::fs::read(&format).unwrap();
        let mut newer = old.clone();
        newer[8..10].copy_from_slice(&2u16.to_le_bytes());
        let content = newer.len() - 4;
        let sum = checksum(&newer[..content]);
        newer[content..].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&format, &newer).unwrap();
        let error = place.fail(ledger.topology(), &place.disk(), quick()).await;
        says(&error, ErrorKind::Invalid, &["another format", "version=2"]);
        assert_eq!(std::fs::read(&format).unwrap(), newer);
        std::fs::write(&format, &old).unwrap();
        assert_eq!(ledger.committed_in_state(&*place.disk()).get(), 4);
    }

    #[tokio::test]
    async fn a_directory_that_is_in_use_is_waited_for() {
        let place = Place::new(&[]).await;
        let ledger = Ledger::new("shared");
        ledger.make_topics(&*place.log).await;
        let all = entries(0, 6);
        ledger.produce(&*place.log, &all[..4]).await;
        let (log, other) = (FaultyLog::new(place.log.clone()), FaultyLog::new(place.log.clone()));
        let mut one = ledger.start(&log, &place.disk(), quick()).await;
        assert!(matches!(ledger.settle(&mut one, &log, &place.log, &all[..4]).await, Settled::Done));
        let mut two = ledger.start(&other, &place.disk(), quick()).await;
        while two.status()[&ledger.task()].protocol.fenced == 0 {
            faulty::pause(Duration::from_millis(2)).await;
        }
        assert_eq!(two.status()[&ledger.task()].generation, None);
        let status = one.status()[&ledger.task()].clone();
        assert_eq!((status.protocol.openings, status.protocol.fenced), (1, 0), "the first one did not notice");
        one.drain().await.unwrap();
        ledger.produce(&*place.log, &all[4..]).await;
        assert!(matches!(ledger.settle(&mut two, &other, &place.log, &all).await, Settled::Done));
        two.drain().await.unwrap();
        ledger.check(&place.log, &all).await.unwrap();
    }

    #[tokio::test]
    async fn a_log_directory_that_holds_something_else_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("accounts.txt"), "mine").unwrap();
        let error = EmbeddedLog::open(directory.path(), EmbeddedOptions::default()).unwrap_err();
        says(&error, ErrorKind::Invalid, &["not a log"]);
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["accounts.txt"]);
    }
}

/// Counts of words, in a table of this name; or none.
fn counted(table: Option<&str>) -> Topology {
    let builder = StreamBuilder::new("words").unwrap();
    let words = builder.source("words-in", Utf8).start(StartPolicy::Earliest);
    if let Some(table) = table {
        let counts = words.key_by(|word| word.clone()).partitioned_by_key().count(table);
        counts.sink("counts", "words-out", Json::<(String, u64)>::new());
    } else {
        words.map(|word| (word, 0)).sink("counts", "words-out", Json::<(String, u64)>::new());
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn another_topology_needs_leave_to_take_tasks_over_and_to_drop_state() {
    let place = Place::new(&["words-in", "words-out"]).await;
    let stores = memory();
    place.send("words-in", b"", b"a").await;
    place.run(counted(Some("counts")), &stores, quick(), "words-in").await;
    place.send("words-in", b"", b"a").await;
    let journal = read_raw(&place.log, "words-journal-words-in").await.len();

    for table in [Some("tallies"), None] {
        let error = place.fail(counted(table), &stores, quick()).await;
        says(&error, ErrorKind::Invalid, &["another topology", "allow the upgrade", "words-in@local:0"]);
    }
    assert_eq!(read_raw(&place.log, "words-journal-words-in").await.len(), journal, "nothing was claimed");

    let upgrade = Config { allow_upgrade: true, ..quick() };
    let error = place.fail(counted(Some("tallies")), &stores, upgrade.clone()).await;
    says(&error, ErrorKind::Invalid, &["no longer names tables", "\"counts\"", "allow_dropped"]);
    let wrong = Config { allow_dropped: vec!["tallies".to_owned()], ..upgrade.clone() };
    says(&place.fail(counted(Some("tallies")), &stores, wrong).await, ErrorKind::Invalid, &["\"counts\""]);
    assert_eq!(place.bodies("words-out", "words").await, [r#"["a",1]"#], "nothing was processed");

    let dropped = Config { allow_dropped: vec!["counts".to_owned()], ..upgrade };
    place.run(counted(Some("tallies")), &stores, dropped.clone(), "words-in").await;
    assert_eq!(place.bodies("words-out", "words").await, [r#"["a",1]"#, r#"["a",1]"#]);
    // The state left behind is still there for the topology that names it again.
    place.send("words-in", b"", b"a").await;
    let back = Config { allow_dropped: vec!["tallies".to_owned()], ..dropped };
    place.run(counted(Some("counts")), &stores, back, "words-in").await;
    assert_eq!(place.bodies("words-out", "words").await.last().unwrap(), r#"["a",2]"#);
}

fn identity(job: &str, sink: &str, sequence: u64) -> Identity {
    Identity {
        job: Name::job(job).unwrap(),
        incarnation: Incarnation::new(99),
        task: task("stranger"),
        generation: Generation::new(0),
        epoch: Epoch::new(1),
        sink: Name::new(sink).unwrap(),
        sequence: Sequence::new(sequence),
        floor: Sequence::ZERO,
        source: None,
    }
}

fn frame(job: &str, records: &[&[u8]]) -> Vec<u8> {
    let mut messages = MessageBatch::default();
    records.iter().for_each(|body| messages.push(&[], body).unwrap());
    let mut body = vec![];
    let count = u32::try_from(records.len()).unwrap();
    Frame::encode_into(&mut body, &identity(job, "s", 0), Timestamp::MIN, count, messages.as_bytes(), false);
    body
}

fn property(value: &[u8]) -> Vec<u8> {
    [b"ONCEFLOW\x01", value, b"\x02"].concat()
}

/// Messages that look like those of a job and are not.
fn forgeries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let whole = identity("someone-else", "s", 0).to_property();
    let mut wrong_sum = whole.clone().into_bytes();
    wrong_sum.iter_mut().rev().take(1).for_each(|digit| *digit = if *digit == b'0' { b'1' } else { b'0' });
    let frame = frame("someone-else", &[b"1"]);
    let mut broken = frame.clone();
    *broken.last_mut().unwrap() ^= 1;
    vec![
        (vec![], b"5".to_vec()),
        (vec![], vec![]),
        (property(b""), b"6".to_vec()),
        (property(b"1;hello"), b"7".to_vec()),
        (property(&wrong_sum), b"8".to_vec()),
        (property(&whole.as_bytes()[..whole.len() / 2]), b"9".to_vec()),
        (vec![], broken),
        (vec![], b"OFFR".to_vec()),
        (vec![], b"OFFR\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
    ]
}

/// On a topic of the job's own, strangers are counted and skipped; the job's own messages count once, also when somebody
/// sends copies of them.
#[tokio::test]
async fn strangers_on_an_internal_topic_are_counted_and_skipped() {
    let place = Place::new(&[]).await;
    let ledger = Ledger { repartition: true, ..Ledger::new("hunted") };
    ledger.make_topics(&*place.log).await;
    let all = entries(0, 9);
    ledger.produce(&*place.log, &all[..6]).await;
    let stores = memory();
    place.run(ledger.topology(), &stores, quick(), faulty::ledger::SOURCE).await;

    let internal =
        ledger.topology().subtopologies.iter().flat_map(|plan| plan.sources.clone()).find(|source| source.internal);
    let internal = internal.unwrap().topic;
    let own = read_raw(&place.log, &internal).await;
    let mut strangers = forgeries();
    strangers.push((property(identity("someone-else", "s", 0).to_property().as_bytes()), b"10".to_vec()));
    strangers.push((vec![], frame("someone-else", &[b"11"])));
    for (properties, body) in &strangers {
        place.send(&internal, properties, body).await;
    }
    for copy in &own {
        place.send(&internal, b"", copy).await;
    }
    ledger.produce(&*place.log, &all[6..]).await;
    let mut runtime = place.start(ledger.topology(), &stores, quick()).await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
    let sum = |count: fn(&TaskStatus) -> u64| runtime.status().values().map(count).sum::<u64>();
    assert_eq!(sum(|status| status.protocol.foreign_messages), strangers.len() as u64);
    assert_eq!(sum(|status| status.protocol.duplicates_dropped), own.len() as u64);
    assert_eq!(sum(|status| status.stages.failed + status.stages.skipped), 0);
    runtime.drain().await.unwrap();
    ledger.check(&place.log, &all).await.unwrap();
}

/// On a user's topic a stranger's message is a message: what decodes is processed, the rest is the policy's.
#[tokio::test]
async fn forgeries_on_a_users_topic_are_handled_by_the_error_policy() {
    let place = Place::new(&["numbers-in", "numbers-out", "numbers-bad"]).await;
    for (properties, body) in forgeries() {
        place.send("numbers-in", &properties, &body).await;
    }
    place.send("numbers-in", b"", b"100").await;
    let topology = || doubled(ErrorPolicy::dead_letter("numbers-bad"));
    let status = place.run(topology(), &memory(), quick(), "numbers-in").await;
    assert_eq!(place.bodies("numbers-out", "numbers").await, ["10", "12", "14", "16", "18", "200"]);
    assert_eq!((status.stages.dead_letters, status.protocol.foreign_messages), (4, 0));
    let (letters, counts, _) = read_view(&place.log, "numbers-bad", "numbers").await;
    assert_eq!(
        (letters.len(), counts.foreign),
        (4, 0),
        "a letter's identity is the job's, whatever the original carried"
    );
    let originals: Vec<_> =
        forgeries().into_iter().map(|(_, body)| body).filter(|body| body.starts_with(b"OFFR")).collect();
    let bodies: Vec<_> = letters.iter().map(|letter| letter.body.to_vec()).collect();
    assert_eq!(bodies[1..], originals);
}

/// Records that look like a frame, or are one that another job made, are records: out of the first job once, into the
/// second once, byte for byte, also when they are visible twice.
#[tokio::test]
async fn records_that_look_like_frames_stay_records() {
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let place = Place::new(&["raw-in", "raw-mid", "raw-out"]).await;
        let records = [b"OFFR".to_vec(), b"OFFR and text".to_vec(), frame("first", &[b"1", b"2"]), b"plain".to_vec()];
        for record in &records {
            place.send("raw-in", b"TAGS\x01t\x02", record).await;
        }
        // What another job framed is unpacked by whoever reads it.
        let seen = [records[0].clone(), records[1].clone(), b"1".to_vec(), b"2".to_vec(), records[3].clone()];
        let pass_on = |job, from: &str, to: &str| {
            let builder = StreamBuilder::new(job).unwrap();
            let records = builder.source(from, onceflow::codec::Bytes).start(StartPolicy::Earliest);
            let wrapped = records.map(|body| [b"OFFR".to_vec(), body].concat());
            wrapped.sink("on", to, onceflow::codec::Bytes).delivery(delivery);
            builder.build().unwrap()
        };
        let log = FaultyLog::new(place.log.clone());
        let twice = [Call::End, Call::Append].map(|call| log.on_each(On::of(call, "raw-mid"), 1..100, Fault::Twice));
        for (job, from, to) in [("first", "raw-in", "raw-mid"), ("second", "raw-mid", "raw-out")] {
            let stores = memory();
            let mut runtime =
                Runtime::builder(pass_on(job, from, to), log.clone(), stores).config(quick()).start().await.unwrap();
            assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
            runtime.drain().await.unwrap();
        }
        assert!(twice.iter().any(|rule| log.fired(*rule) > 0));
        let (records, counts, _) = read_view(&place.log, "raw-out", "second").await;
        let bodies: Vec<_> = records.iter().map(|record| record.body.to_vec()).collect();
        let wanted = seen.map(|body| [b"OFFROFFR".to_vec(), body].concat());
        assert_eq!((bodies.as_slice(), counts.foreign), (wanted.as_slice(), 0), "{delivery:?}");
    }
}

#[tokio::test]
async fn empty_bodies_and_separators_in_keys_are_records_like_others() {
    let place = Place::new(&["words-in", "words-out", "words-bad"]).await;
    let topology = || {
        let builder = StreamBuilder::new("words").unwrap();
        let words = builder.source("words-in", Utf8).start(StartPolicy::Earliest);
        let counts = words.key_by(|word| word.clone()).repartition("by-word").queues(2).count("counts");
        let texts = counts.map(|word, count| (word, count));
        texts
            .sink("counts", "words-out", Json::<(String, u64)>::new())
            .message_keys(|(word, _)| word.clone())
            .on_error(ErrorPolicy::dead_letter("words-bad"));
        builder.build().unwrap()
    };
    let stores = memory();
    for word in ["", "a", "a\u{1}b\u{2}", "", "a\u{1}b\u{2}", "a"] {
        place.send("words-in", b"", word.as_bytes()).await;
    }
    place.run(topology(), &stores, quick(), "words-in").await;
    let mut seen = place.bodies("words-out", "words").await;
    seen.sort();
    assert_eq!(seen, [r#"["",1]"#, r#"["",2]"#, r#"["a",1]"#, r#"["a",2]"#]);
    let (letters, ..) = read_view(&place.log, "words-bad", "words").await;
    assert_eq!(letters.len(), 2, "a key that would forge a property is not put out");
    for letter in &letters {
        let error = find_property(&letter.properties, DEAD_LETTER_ERROR).unwrap();
        assert!(String::from_utf8_lossy(error).contains("bytes 1 or 2"));
    }
}
