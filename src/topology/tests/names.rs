//! Programs that are refused.

use super::{Number, program};
use crate::codec::Json;
use crate::processor::ErrorPolicy;
use crate::topology::{Delivery, StreamBuilder};
use onceflow_types::ErrorKind;

type Program = fn(&StreamBuilder);

/// What is wrong, and a part of the message.
const REFUSED: [(&str, Program); 21] = [
    ("job has no source", |_| ()),
    ("name must be 1 to 40", |b| {
        b.source("in", Number).sink("no good", "out", Number);
    }),
    ("name must be 1 to 40", |b| {
        b.source("in", Number).key_by(|n| *n).count("");
    }),
    ("topic cannot be the source's name", |b| b.source("%RETRY%in", Number).for_each(|_| ())),
    ("topic must be 1 to 127", |b| b.source("a b", Number).for_each(|_| ())),
    ("topic must be 1 to 127", |b| {
        b.source("in", Number).sink("out", "", Number);
    }),
    ("topic must be 1 to 127", |b| {
        b.source("in", Number).on_error(ErrorPolicy::dead_letter("a.b"));
    }),
    ("source name is used twice", |b| {
        b.source("in", Number);
        b.source("other", Number).name("in");
    }),
    ("sink name is used twice", |b| {
        let numbers = b.source("in", Number);
        numbers.sink("out", "one", Number);
        numbers.sink("out", "two", Number);
    }),
    ("operator name is used twice", |b| {
        let keyed = b.source("in", Number).key_by(|n| *n).partitioned_by_key();
        keyed.count("same");
        keyed.sum("same", |n| *n);
    }),
    ("repartition name is used twice", |b| {
        let keyed = b.source("in", Number).key_by(|n| *n);
        keyed.repartition("same");
        keyed.repartition("same");
    }),
    ("two subtopologies have one name", |b| {
        b.source("in", Number).key_by(|n| *n).count("in");
    }),
    ("two subtopologies have one name", |b| {
        b.source("one", Number).subtopology("part");
        b.source("two", Number).subtopology("part");
    }),
    ("connected sources name different subtopologies", |b| {
        let one = b.source("one", Number).subtopology("first");
        b.source("two", Number).subtopology("second").merge(&one);
    }),
    ("topic is read twice in one subtopology", |b| {
        let one = b.source("in", Number);
        b.source("in", Number).name("again").merge(&one);
    }),
    ("topic is reserved for the job itself", |b| b.source("job-journal-x", Number).for_each(|_| ())),
    ("topic is reserved for the job itself", |b| {
        b.source("in", Number).sink("out", "job-repartition-x", Number);
    }),
    ("dead letter topic has two kinds of delivery", |b| {
        let outbox = ErrorPolicy::DeadLetter { topic: "bad".into(), delivery: Delivery::Outbox { framed: false } };
        let numbers = b.source("in", Number).on_error(outbox);
        numbers.sink("out", "out", Number).on_error(ErrorPolicy::dead_letter("bad"));
    }),
    ("sink name is taken", |b| {
        let numbers = b.source("in", Number).on_error(ErrorPolicy::dead_letter("bad"));
        numbers.sink("dead-letters", "bad", Number);
    }),
    ("repartition needs at least one queue", |b| {
        b.source("in", Number).key_by(|n| *n).repartition("by").queues(0);
    }),
    ("property cannot have this name", |b| {
        b.source("in", Number).sink("out", "out", Number).property("a\u{1}", |_| None);
    }),
];

#[test]
fn wrong_programs_are_refused_with_a_reason() {
    for (reason, write) in REFUSED {
        let error = program(write).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(reason), "expected {reason:?}, got {error:?}");
    }
}

#[test]
fn a_wrong_program_stays_wrong() {
    let builder = StreamBuilder::new("job").unwrap();
    builder.source("in", Number).sink("no good", "out", Number);
    for _ in 0..3 {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(StreamBuilder::new("../job").is_err());
}

#[test]
fn streams_of_two_builders_do_not_mix() {
    let other = StreamBuilder::new("other").unwrap();
    let foreign = other.source("in", Number);
    let error = program(|builder| {
        builder.source("in", Number).merge(&foreign);
    });
    assert_eq!(error.unwrap_err().to_string(), "streams of two builders cannot be merged");
}

#[test]
fn the_longest_names_fit_into_topics() {
    let builder = StreamBuilder::new(&"j".repeat(64)).unwrap();
    let keyed = builder.source("in", Number).key_by(|n| *n);
    keyed.count(&"n".repeat(40)).sink(&"s".repeat(40), "out", Json::new());
    let topology = builder.build().unwrap();
    assert_eq!(topology.subtopologies[0].sinks[0].topic.len(), 64 + 13 + 40);
}

#[test]
fn unconnected_parts_may_use_one_topic() {
    let topology = program(|builder| {
        builder.source("in", Number).for_each(|_| ());
        builder.source("in", Number).name("again").for_each(|_| ());
    })
    .unwrap();
    assert_eq!(topology.subtopologies.len(), 2);
}
