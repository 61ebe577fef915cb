//! Error policies: nothing is lost silently, and a record that fails changes nothing.

use super::{Number, driver, program, send, texts};
use crate::Config;
use crate::codec::{Bytes, Encode, Json, Postcard, Utf8};
use crate::output::{MESSAGE_BYTES_MAX, Output};
use crate::processor::{
    DEAD_LETTER_BROKER, DEAD_LETTER_ERROR, DEAD_LETTER_OFFSET, DEAD_LETTER_QUEUE, DEAD_LETTER_STAGE, DEAD_LETTER_TOPIC,
    DEAD_LETTER_TRUNCATED, DEAD_LETTER_UNIQUE_KEY, Emit, ErrorPolicy,
};
use crate::stage::{Context, Counters, SourceBatch, SourceRecord};
use crate::state::TaskState;
use crate::testing::TestDriver;
use crate::topology::StreamBuilder;
use onceflow_storage::{MemoryStore, Overlay};
use onceflow_types::{Error, ErrorKind, Name, Offset, Partition, Result, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_dead_letter_is_the_original_with_what_went_wrong_and_where() {
    let mut driver = driver(|builder| {
        builder.source("in", Number).on_error(ErrorPolicy::dead_letter("bad")).sink("out", "out", Number);
    });
    driver.set_time(Timestamp::from_millis(77));
    driver.send("in", b"1").unwrap();
    let properties = b"TAGS\x01t\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01K1\x02";
    driver.send_with("in", 0, properties, b"tw\x01o").unwrap();
    driver.send("in", b"3").unwrap();
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["1", "3"], "the others go on");
    let [letter] = &driver.read("bad")[..] else { panic!("one dead letter") };
    assert_eq!((&letter.body[..], letter.timestamp.as_millis()), (b"tw\x01o".as_slice(), 77));
    assert_eq!(letter.source.map(|source| source.offset), Some(Offset::new(1)));
    let wanted = [
        ("TAGS", "t"),
        (DEAD_LETTER_TOPIC, "in"),
        (DEAD_LETTER_BROKER, "test"),
        (DEAD_LETTER_QUEUE, "0"),
        (DEAD_LETTER_OFFSET, "1"),
        (DEAD_LETTER_UNIQUE_KEY, "K1"),
        (DEAD_LETTER_STAGE, "in"),
        (DEAD_LETTER_ERROR, "not a number: given=\"tw\\u{1}o\": invalid digit found in string"),
    ];
    for (name, value) in wanted {
        assert_eq!(letter.property(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!((letter.property("TRAN_MSG"), letter.property("UNIQ_KEY")), (None, None));
    assert_eq!((driver.counters().dead_letters, driver.counters().records_out), (1, 2));
}

#[test]
fn dead_letters_belong_to_the_epoch() {
    let mut driver = driver(|builder| {
        builder.source("in", Number).on_error(ErrorPolicy::dead_letter("bad")).for_each(|_| ());
    });
    driver.send("in", b"x").unwrap();
    driver.process().unwrap();
    driver.abort().unwrap();
    assert!(driver.read("bad").is_empty());
    driver.commit().unwrap();
    assert_eq!(driver.read("bad").len(), 1);
}

#[test]
fn dead_letters_that_cannot_hold_everything_say_so() {
    let mut driver = driver(|builder| {
        builder.source("in", Number).on_error(ErrorPolicy::dead_letter("bad")).for_each(|_| ());
    });
    driver.send_with("in", 0, format!("a\u{1}{}\u{2}", "p".repeat(32_000)).as_bytes(), b"x").unwrap();
    driver.send("in", &vec![b'x'; MESSAGE_BYTES_MAX + 1]).unwrap();
    driver.send("in", b"").unwrap();
    driver.commit().unwrap();
    let letters = driver.read("bad");
    assert_eq!(letters[0].property(DEAD_LETTER_TRUNCATED).as_deref(), Some("properties"));
    assert_eq!((letters[0].property("a"), &letters[0].body[..]), (None, b"x".as_slice()));
    assert_eq!(letters[1].property(DEAD_LETTER_TRUNCATED).as_deref(), Some("body"));
    let letter = &letters[1];
    assert!(letter.body.len() + 4_000 > MESSAGE_BYTES_MAX && letter.body.len() < MESSAGE_BYTES_MAX);
    assert!(letters[2].body.starts_with(b"not a number"), "no body can be empty");
}

#[test]
fn fail_stops_with_the_place_and_nothing_of_the_epoch_happens() {
    let mut driver = driver(|builder| {
        builder.source("in", Number).sink("out", "out", Number);
    });
    send(&mut driver, "in", [1]);
    driver.send("in", b"two").unwrap();
    let error = driver.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record);
    assert_eq!(error.to_string(), "stage in at in@test:0 offset 1: not a number: given=\"two\"");
    assert!(driver.read("out").is_empty());
    assert_eq!(driver.counters().failed, 1);
}

#[test]
fn a_body_that_cannot_be_had_is_the_source_stages_affair() {
    let topology = program(|builder| {
        builder.source("in", Number).on_error(ErrorPolicy::dead_letter("bad")).for_each(|_| ());
    })
    .unwrap();
    let mut rooms = (topology.subtopologies[0].build)();
    let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap();
    let (mut output, mut counters) = (Output::new(&[1]), Counters::default());
    rooms.open(&mut state).unwrap();
    let partition = Partition::new("in", "b", 0);
    let body = Err("compressed body is damaged");
    let record = SourceRecord { body, properties: b"", timestamp: Timestamp::MIN, offset: Offset::new(9) };
    let batch = SourceBatch { partition: &partition, records: vec![record] };
    let mut cx = Context::new(&mut state, &mut output, &mut counters, Timestamp::MIN);
    rooms.process(0, &batch, &mut cx).unwrap();
    assert_eq!(rooms.process(1, &batch, &mut cx).unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(output.sinks()[0].queues()[0].iter().next().unwrap().body, b"compressed body is damaged");
}

/// Fails `failures` times for each of its calls' first value, with an error of a kind.
fn flaky(builder: &StreamBuilder, failures: u32, kind: ErrorKind, policy: ErrorPolicy) {
    let left = Arc::new(AtomicU32::new(failures));
    let numbers = builder.source("in", Number).try_map(move |n| {
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(Error::new(kind, "not now")),
            Err(_) => Ok(*n),
        }
    });
    numbers.name("ask").on_error(policy).sink("out", "out", Number);
}

#[test]
fn retry_tries_as_often_as_it_says_and_then_stops() {
    for kind in [ErrorKind::Record, ErrorKind::Retry] {
        let mut enough = driver(|builder| flaky(builder, 3, kind, ErrorPolicy::Retry { tries: 3 }));
        send(&mut enough, "in", [1, 2]);
        enough.commit().unwrap();
        assert_eq!(texts(&enough, "out"), ["1", "2"]);
        assert_eq!(enough.counters().retried, 3);

        let mut too_few = driver(|builder| flaky(builder, 3, kind, ErrorPolicy::Retry { tries: 2 }));
        send(&mut too_few, "in", [1]);
        let error = too_few.commit().unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, "stage ask at in@test:0 offset 0: not now"));
    }
}

#[test]
fn only_record_errors_are_skipped() {
    let mut driver = driver(|builder| flaky(builder, 1, ErrorKind::Invalid, ErrorPolicy::Skip));
    send(&mut driver, "in", [1]);
    assert_eq!(driver.commit().unwrap_err().kind(), ErrorKind::Invalid);
}

/// Case 57 of the reference cases: `i64::MAX`, 1, -1.
fn summed(policy: ErrorPolicy) -> TestDriver {
    let mut driver = driver(|builder| {
        let sums = builder.source("in", Number).key_by(|_| 0u8).sum("sums", |n| *n).on_error(policy);
        sums.values().sink("out", "out", Number);
    });
    send(&mut driver, "in", [i64::MAX, 1, -1]);
    driver
}

#[test]
fn a_sum_out_of_range_is_a_record_error_and_leaves_the_state_alone() {
    for abort in [false, true] {
        let mut driver = summed(ErrorPolicy::dead_letter("bad"));
        if abort {
            driver.commit().unwrap();
            driver.abort().unwrap();
        }
        driver.commit().unwrap();
        assert_eq!(texts(&driver, "out"), [i64::MAX.to_string(), (i64::MAX - 1).to_string()]);
        let letters = driver.read("bad");
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].property(DEAD_LETTER_STAGE).as_deref(), Some("sums"));
        let text = format!("sum is out of range: sum={} value=1", i64::MAX);
        assert_eq!(letters[0].property(DEAD_LETTER_ERROR), Some(text));
    }
    let error = summed(ErrorPolicy::Fail).commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record);
}

#[test]
fn a_count_at_its_limit_is_a_record_error() {
    let topology = program(|builder| {
        let counts = builder.source("in", Number).key_by(|_| 0u8).partitioned_by_key().count("counts");
        counts.on_error(ErrorPolicy::Skip).values().sink("out", "out", Json::new());
    })
    .unwrap();
    let mut driver = TestDriver::new(&topology).unwrap();
    let state = driver.state_mut(0).unwrap();
    let table = state.table(&Name::new("counts").unwrap()).unwrap();
    let mut value = vec![];
    Postcard::new().encode(&(u64::MAX - 1), &mut value).unwrap();
    state.put(&[&table.prefix()[..], &[0]].concat(), &value);
    driver.commit().unwrap();
    driver.restart_with(&topology, Config::default()).unwrap();
    send(&mut driver, "in", [1, 1, 1]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), [u64::MAX.to_string()]);
    assert_eq!(driver.counters().skipped, 2);
}

#[test]
fn sums_of_floats_are_finite_or_record_errors() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Utf8).map(|text| text.parse::<f64>().unwrap());
        let sums = numbers.key_by(|_| 0u8).partitioned_by_key().sum("sums", |n| *n).on_error(ErrorPolicy::Skip);
        sums.values().sink("out", "out", Json::new());
    });
    for text in ["1.5", "NaN", "inf", "1e308", "1e308", "-inf", "-1e308"] {
        driver.send("in", text.as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["1.5", "1e+308", "0.0"]);
    assert_eq!(driver.counters().skipped, 4);
}

#[test]
fn a_fallible_aggregate_that_fails_half_way_changes_nothing() {
    let add = |list: &mut Vec<i64>, n: &i64| {
        list.push(*n);
        if *n < 0 { Err(Error::record("negative")) } else { Ok(()) }
    };
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number).key_by(|_| 0u8).partitioned_by_key();
        let lists = numbers.try_aggregate("lists", Vec::new, add).on_error(ErrorPolicy::Skip);
        lists.values().sink("lists", "lists", Json::new());
        let lens = numbers.try_scan("lens", Vec::new, move |list, n| add(list, n).map(|()| list.len()));
        lens.on_error(ErrorPolicy::Skip).values().sink("lens", "lens", Json::new());
    });
    send(&mut driver, "in", [1, -1, 2]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "lists"), ["[1]", "[1,2]"]);
    assert_eq!(texts(&driver, "lens"), ["1", "2"]);
}

/// Encodes numbers below 10 only.
struct Digit;

impl Encode<i64> for Digit {
    fn encode(&self, value: &i64, to: &mut Vec<u8>) -> Result<()> {
        to.push(b'0');
        match *value {
            digit @ 0..10 => *to.last_mut().unwrap() += u8::try_from(digit).unwrap(),
            other => return Err(Error::record(format!("not a digit: given={other}"))),
        }
        Ok(())
    }
}

#[test]
fn a_sink_that_cannot_encode_a_value_sends_the_source_record_to_the_dead_letters() {
    let mut driver = driver(|builder| {
        let tens = builder.source("in", Number).map(|n| n - 10);
        tens.sink("digits", "out", Digit).on_error(ErrorPolicy::dead_letter("bad"));
    });
    send(&mut driver, "in", [11, 25, 12]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), ["1", "2"]);
    let [letter] = &driver.read("bad")[..] else { panic!("one dead letter") };
    assert_eq!(letter.body, b"25", "the original, not what had become of it");
    assert_eq!(letter.property(DEAD_LETTER_STAGE).as_deref(), Some("digits"));
}

#[test]
fn messages_that_the_broker_would_refuse_are_record_errors() {
    let mut driver = driver(|builder| {
        let bodies = builder.source("in", Bytes);
        bodies.sink("out", "out", Bytes).on_error(ErrorPolicy::Skip);
        bodies
            .sink("queue", "queue", Bytes)
            .queue(|body, queues| queues + u32::from(body[0]))
            .on_error(ErrorPolicy::Skip);
        let forged = bodies.sink("forged", "forged", Bytes).property("p", |_| Some("a\u{2}TRAN_MSG\u{1}true".into()));
        forged.on_error(ErrorPolicy::Skip);
    });
    driver.send("in", &vec![1; MESSAGE_BYTES_MAX + 1]).unwrap();
    driver.send("in", &[0]).unwrap();
    driver.commit().unwrap();
    assert_eq!(driver.bodies("out"), [[0]]);
    assert!(driver.read("queue").is_empty() && driver.read("forged").is_empty());
    assert_eq!(driver.counters().skipped, 5);
}

#[test]
fn what_fails_at_the_seal_becomes_a_dead_letter_without_an_original() {
    let mut driver = driver(|builder| {
        let sums = builder.source("in", Number).key_by(|_| 0u8).partitioned_by_key().sum("sums", |n| *n);
        let out = sums.emit(Emit::PerEpoch).values().sink("digits", "out", Digit);
        out.on_error(ErrorPolicy::dead_letter("bad"));
    });
    send(&mut driver, "in", [9, 9]);
    driver.commit().unwrap();
    let [letter] = &driver.read("bad")[..] else { panic!("one dead letter") };
    assert_eq!((&letter.body[..], letter.source), (b"not a digit: given=18".as_slice(), None));
    assert_eq!(letter.property(DEAD_LETTER_OFFSET), None);
}
