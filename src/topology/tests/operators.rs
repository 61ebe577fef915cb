//! What operators do, and in which order records come out.

use super::{Number, driver, program, send, texts};
use crate::codec::{Json, Utf8};
use crate::output::SourcePosition;
use crate::processor::{Emit, ErrorPolicy};
use crate::testing::{TestDriver, TestMessage};
use crate::topology::{Delivery, StartPolicy, StreamBuilder};
use onceflow_types::{Error, Name, Offset, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[test]
fn a_chain_without_state_does_what_it_says() {
    let seen = Arc::new(Mutex::new(vec![]));
    let shown = seen.clone();
    let mut driver = driver(|builder| {
        let numbers =
            builder.source("in", Number).filter(|n| n % 2 == 1).inspect(move |n| shown.lock().unwrap().push(*n));
        numbers.flat_map(|n| vec![n, n * 10]).map(|n| n + 1).sink("out", "out", Number);
    });
    send(&mut driver, "in", 1..=4);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["2", "11", "4", "31"]);
    assert_eq!(*seen.lock().unwrap(), [1, 3]);
    assert_eq!((driver.counters().records_in, driver.counters().records_out), (4, 4));
}

#[test]
fn a_flat_map_of_very_many_keeps_the_order() {
    let mut driver = driver(|builder| {
        builder.source("in", Number).flat_map(|n| 0..n).sink("out", "out", Number);
    });
    send(&mut driver, "in", [10_000, 2]);
    driver.commit().unwrap();
    let want: Vec<String> = (0..10_000).chain(0..2).map(|n| n.to_string()).collect();
    assert_eq!(texts(&driver, "out"), want);
}

#[test]
fn each_record_goes_through_every_branch_before_the_next_one() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number);
        let negative = numbers.map(|n| -n);
        numbers.merge(&negative).sink("out", "out", Number);
    });
    send(&mut driver, "in", 1..=3);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["-1", "1", "-2", "2", "-3", "3"], "the map was written first");
}

#[test]
fn a_stream_merged_with_itself_has_every_record_twice() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number);
        numbers.merge(&numbers).sink("out", "out", Number);
    });
    send(&mut driver, "in", 1..=2);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["1", "1", "2", "2"]);
}

#[test]
fn keyed_views_keep_key_and_value_together() {
    let mut driver = driver(|builder| {
        let counts = builder.source("in", Number).key_by(|n| n % 2).partitioned_by_key().count("counts");
        counts.map_values(|n| n * 100).filter(|key, _| *key == 1).pairs().sink("odd", "odd", Json::new());
        counts.values().map(|n| i64::try_from(n).unwrap()).sink("values", "values", Number);
        counts.merge(&counts).map(|key, n| format!("{key}:{n}")).sink("twice", "twice", Utf8);
    });
    send(&mut driver, "in", [1, 2, 3]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "odd"), ["[1,100]", "[1,200]"]);
    assert_eq!(texts(&driver, "values"), ["1", "1", "2"]);
    assert_eq!(texts(&driver, "twice"), ["1:1", "1:1", "0:1", "0:1", "1:2", "1:2"]);
}

#[test]
fn a_room_with_two_ways_in_is_sealed_once_after_both() {
    // Aim: what is put out per epoch comes once, and holds what both branches put in while they were sealed. Method: two
    // operators that emit at the seal feed a third one through a merge.
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number).key_by(|n| n % 2).partitioned_by_key();
        let small = numbers.reduce("least", |a, b| *a.min(b)).emit(Emit::PerEpoch);
        let large = numbers.reduce("most", |a, b| *a.max(b)).emit(Emit::PerEpoch);
        let both = small.merge(&large);
        both.sum("sum", |n| *n).emit(Emit::PerEpoch).sink("out", "out", Json::new());
    });
    send(&mut driver, "in", [5, 9, 7]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["[1,14]"]);
    send(&mut driver, "in", [1]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["[1,14]", "[1,24]"], "14 + 1 + 9");
}

#[test]
fn per_epoch_emits_changed_keys_in_the_order_of_their_first_change_with_the_latest_time() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number).select_timestamp(|n| Timestamp::from_millis(*n));
        let counts = numbers.key_by(|n| n % 3).partitioned_by_key().count("counts").emit(Emit::PerEpoch);
        counts.sink("out", "out", Json::new()).delivery(Delivery::Outbox { framed: true });
    });
    send(&mut driver, "in", [7, 3, 100, 9, 1]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["[1,3]", "[0,2]"]);
    let times: Vec<_> =
        driver.read("out").iter().map(|message| (message.timestamp.as_millis(), message.source)).collect();
    assert_eq!(times, [(100, None), (9, None)]);
    driver.commit().unwrap();
    assert_eq!(driver.read("out").len(), 2, "nothing changed, nothing comes out");
}

#[test]
fn output_names_the_source_record_it_stems_from() {
    let mut driver = driver(|builder| {
        let first = builder.source("one", Number);
        builder.source("two", Number).flat_map(|n| vec![n, n]).merge(&first).sink("out", "out", Number);
    });
    send(&mut driver, "one", [1, 2]);
    send(&mut driver, "two", [3]);
    driver.commit().unwrap();
    let at = |source, offset| Some(SourcePosition { source, offset: Offset::new(offset) });
    let sources: Vec<_> = driver.read("out").into_iter().map(|message| message.source).collect();
    assert_eq!(sources, [at(0, 0), at(0, 1), at(1, 0), at(1, 0)]);
}

#[test]
fn a_repartition_brings_records_of_a_key_together_and_carries_event_time() {
    let topology = program(|builder| {
        let numbers = builder.source("in", Number).select_timestamp(|n| Timestamp::from_millis(n * 10));
        let sums = numbers.key_by(|n| n % 5).sum("sums", |n| *n).sink("out", "out", Json::new());
        sums.delivery(Delivery::Outbox { framed: true });
    })
    .unwrap();
    let mut driver = TestDriver::with_queues(&topology, &[("in", 3), ("out", 2)]).unwrap();
    for number in 0..30i64 {
        driver.send_with("in", u32::try_from(number % 3).unwrap(), b"", number.to_string().as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    let mut last: BTreeMap<i64, (i64, u32)> = BTreeMap::new();
    for message in driver.read("out") {
        let (key, sum): (i64, i64) = serde_json::from_slice(&message.body).unwrap();
        let (before, queue) = last.insert(key, (sum, message.queue)).unwrap_or((0, message.queue));
        assert_eq!(queue, message.queue, "a key keeps its queue");
        assert_eq!(message.timestamp.as_millis(), (sum - before) * 10);
    }
    let sums: BTreeMap<i64, i64> = last.into_iter().map(|(key, (sum, _))| (key, sum)).collect();
    let want = (0..5).map(|key| (key, (0..30i64).filter(|n| n % 5 == key).sum())).collect();
    assert_eq!(sums, want);
    assert!(driver.read("job-repartition-sums").iter().map(|m| m.queue).any(|queue| queue > 0));
}

#[test]
fn sinks_choose_queue_and_properties() {
    let topology = program(|builder| {
        let numbers = builder.source("in", Number);
        numbers.sink("chosen", "chosen", Number).queue(|n, queues| u32::try_from(*n).unwrap() % queues);
        numbers.sink("keyed", "keyed", Number).key(|n| (n % 2).to_string()).message_keys(|n| format!("n{n}"));
        let tagged = numbers.sink("tagged", "tagged", Number).tag(|n| if *n > 1 { "many" } else { "one" });
        tagged.property("even", |n| (n % 2 == 0).then(|| "yes".to_owned())).delivery(Delivery::Outbox { framed: true });
    })
    .unwrap();
    let mut driver = TestDriver::with_queues(&topology, &[("chosen", 4), ("keyed", 8)]).unwrap();
    send(&mut driver, "in", 0..6);
    driver.commit().unwrap();
    let queues: Vec<_> = driver.read("chosen").iter().map(|m| (m.body[0] - b'0', m.queue)).collect();
    assert_eq!(queues, [(0, 0), (4, 0), (1, 1), (5, 1), (2, 2), (3, 3)]);
    let keyed: std::collections::BTreeSet<_> = driver.read("keyed").iter().map(|m| (m.body[0] % 2, m.queue)).collect();
    assert_eq!(keyed.len(), 2, "one queue for each key");
    assert_eq!(driver.read("keyed")[0].properties, format!("KEYS\u{1}n{}\u{2}", texts(&driver, "keyed")[0]).as_bytes());
    let tagged: Vec<_> = driver.read("tagged").into_iter().map(|m| String::from_utf8(m.properties).unwrap()).collect();
    assert_eq!(
        tagged[..3],
        ["TAGS\u{1}one\u{2}even\u{1}yes\u{2}", "TAGS\u{1}one\u{2}", "TAGS\u{1}many\u{2}even\u{1}yes\u{2}"]
    );
    let sinks = &topology.subtopologies[0].sinks;
    assert_eq!(sinks[2].delivery, Delivery::Outbox { framed: true });
}

#[test]
fn a_plan_says_what_the_engine_must_read_and_make() {
    let topology = program(|builder| {
        let at = StartPolicy::Timestamp(Timestamp::from_millis(5));
        let numbers = builder.source("in", Number).start(at).name("numbers");
        let keyed = numbers.key_by(|n| *n).repartition("by-number").queues(3);
        keyed.count("counts").on_error(ErrorPolicy::dead_letter("bad")).sink("out", "out", Json::new());
    })
    .unwrap();
    let [first, second] = &topology.subtopologies[..] else { panic!("two subtopologies") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("by-number", "numbers"));
    assert_eq!(second.sources[0].start, StartPolicy::Timestamp(Timestamp::from_millis(5)));
    let write = &second.sinks[0];
    assert_eq!((&*write.topic, write.internal, write.queues), ("job-repartition-by-number", true, Some(3)));
    assert_eq!(write.delivery, Delivery::Outbox { framed: true });
    assert!(first.sources[0].internal && first.sources[0].topic == write.topic);
    let sinks: Vec<_> = first.sinks.iter().map(|sink| (sink.name.as_str(), &*sink.topic, sink.internal)).collect();
    assert_eq!(sinks, [("out", "out", false), ("dead-letters", "bad", false)]);
    assert_eq!(first.tables.iter().map(Name::as_str).collect::<Vec<_>>(), ["counts"]);
}

/// A program with everything in it whose order could show how records were batched.
fn everything(builder: &StreamBuilder) {
    let one = builder.source("one", Number);
    let two = builder.source("two", Number).on_error(ErrorPolicy::Skip);
    let both = one.merge(&two).flat_map(|n| (0..n % 4).map(move |i| n + i).collect::<Vec<_>>());
    let kept = both.try_map(|n| if n % 7 == 0 { Err(Error::record("seven")) } else { Ok(*n) });
    let kept = kept.on_error(ErrorPolicy::dead_letter("sevens"));
    let keyed = kept.key_by(|n| n % 3);
    let counted = keyed.count("counts");
    let summed = keyed.repartition("shared").queues(2).sum("sums", |n| *n).map_values(i64::unsigned_abs);
    counted.merge(&summed).sink("merged", "merged", Json::new());
    kept.merge(&kept.map(|n| -n)).filter(|n| n % 2 == 0).sink("signs", "signs", Number);
    let last = kept.key_by(|n| n % 2).partitioned_by_key().reduce("last", |_, n| *n).emit(Emit::PerEpoch);
    last.merge(&last.map_values(|n| n + 1))
        .scan(
            "seen",
            || 0u8,
            |seen, n| {
                *seen = seen.wrapping_add(1);
                (*seen, *n)
            },
        )
        .cache_entries(1)
        .sink("seen", "seen", Json::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Aim: how records are batched, and how many epochs are aborted on the way, never shows. Method: the same input in
    // batches of one, and in batches of any size with aborts before each commit; every topic must be the same.
    #[test]
    fn batching_and_aborts_do_not_show(
        epochs in vec((vec(-40i64..40, 0..12), vec(-40i64..40, 0..12)), 1..5),
        batch in 2usize..9,
    ) {
        let topology = program(everything).unwrap();
        let mut single = TestDriver::new(&topology).unwrap();
        let mut batched = TestDriver::new(&topology).unwrap();
        single.batch_records_max(1);
        batched.batch_records_max(batch);
        for (one, two) in &epochs {
            for driver in [&mut single, &mut batched] {
                send(driver, "one", one.iter().copied());
                send(driver, "two", two.iter().copied());
            }
            single.commit().unwrap();
            batched.process().unwrap();
            batched.abort().unwrap();
            batched.commit().unwrap();
        }
        // Behind a repartition offsets differ: a new owner repeats what may not be published.
        let seen = |driver: &TestDriver, topic: &str| -> Vec<TestMessage> {
            let source = |at: SourcePosition| SourcePosition { offset: Offset::ZERO, ..at };
            let messages = driver.read(topic).into_iter();
            messages.map(|message| TestMessage { source: message.source.map(source), ..message }).collect()
        };
        for topic in ["merged", "signs", "seen", "sevens", "job-repartition-counts", "job-repartition-shared"] {
            prop_assert_eq!(seen(&single, topic), seen(&batched, topic), "{}", topic);
        }
    }
}
