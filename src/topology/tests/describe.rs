//! Text, diagram and hash of a topology.

use super::{Number, program};
use crate::codec::{Json, Utf8};
use crate::processor::{Emit, ErrorPolicy};
use crate::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow_types::Error;

fn payments(builder: &StreamBuilder) {
    let cards = builder.source("cards", Number).start(StartPolicy::Earliest).on_error(ErrorPolicy::dead_letter("bad"));
    let transfers = builder.source("transfers", Number).tags(["a", "b"]);
    let all = cards.merge(&transfers).filter(|n| *n > 0);
    let checked = all.try_map(|n| if *n > 9 { Err(Error::record("large")) } else { Ok(*n) });
    let checked = checked.name("check").on_error(ErrorPolicy::Retry { tries: 2 });
    let shared = checked.key_by(|n| *n).repartition("by-card").queues(4);
    shared.count("counts").sink("counts", "card-counts", Json::new());
    let sums = shared.sum("sums", |n| *n).emit(Emit::PerEpoch);
    sums.filter(|_, sum| *sum > 100).sink("alerts", "alerts", Json::new()).on_error(ErrorPolicy::Skip);
    let days = sums.map(|_, sum| sum).key_by(|sum| sum % 2).reduce("largest", |a, b| *a.max(b));
    days.map(|_, n| n.to_string()).sink("largest", "largest", Utf8).delivery(Delivery::Outbox { framed: false });
}

/// Compares with a file of `tests/testdata`; `UPDATE=1` rewrites it.
fn golden(file: &str, text: &str) {
    let path = format!("{}/tests/testdata/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{path} differs; UPDATE=1 rewrites it");
}

#[test]
fn text_and_diagram_are_as_reviewed() {
    let topology = program(payments).unwrap();
    golden("topology-payments.txt", &topology.describe());
    golden("topology-payments.mmd", &topology.mermaid());
}

/// If this fails, running jobs would take an upgrade for another topology: raise it only on purpose.
#[test]
fn the_hash_of_a_program_never_changes() {
    assert_eq!(format!("{:016x}", program(payments).unwrap().hash), HASH);
}

const HASH: &str = "50c1d16dda919c0c";

fn hash(write: impl FnOnce(&StreamBuilder)) -> u64 {
    program(write).unwrap().hash
}

fn totals(builder: &StreamBuilder) {
    builder.source("in", Number).key_by(|n| *n).count("totals").sink("out", "out", Json::new());
}

#[test]
fn what_needs_no_agreement_does_not_change_the_hash() {
    let same: [fn(&StreamBuilder); 4] = [
        |b| {
            let numbers = b.source("in", Number).filter(|n| *n > 0).map(|n| n + 1);
            numbers.key_by(|n| *n).count("totals").map_values(|n| n).sink("out", "out", Json::new());
        },
        |b| {
            let numbers = b.source("in", Number).start(StartPolicy::Earliest).on_error(ErrorPolicy::Skip);
            numbers.key_by(|n| *n).count("totals").cache_entries(7).sink("out", "out", Json::new());
        },
        |b| {
            let numbers = b.source("in", Number);
            numbers.for_each(|_| ());
            numbers.key_by(|n| *n).count("totals").emit(Emit::PerEpoch).sink("out", "out", Json::new());
        },
        |b| {
            // The same by hand.
            let keyed = b.source("in", Number).key_by(|n| *n).repartition("totals");
            keyed.count("totals").sink("out", "out", Json::new()).message_keys(|pair| pair.0.to_string());
        },
    ];
    for write in same {
        assert_eq!(hash(totals), hash(write));
    }
}

#[test]
fn names_topics_tables_deliveries_and_connections_change_the_hash() {
    let other: [fn(&StreamBuilder); 9] = [
        |b| {
            b.source("in", Number).name("i").key_by(|n| *n).count("totals").sink("out", "out", Json::new());
        },
        |b| {
            b.source("in2", Number).name("in").key_by(|n| *n).count("totals").sink("out", "out", Json::new());
        },
        |b| {
            b.source("in", Number).key_by(|n| *n).count("total").sink("out", "out", Json::new());
        },
        |b| {
            b.source("in", Number).key_by(|n| *n).sum("totals", |n| *n).sink("out", "out", Json::new());
        },
        |b| {
            b.source("in", Number).key_by(|n| *n).count("totals").sink("o", "out", Json::new());
        },
        |b| {
            b.source("in", Number).key_by(|n| *n).count("totals").sink("out", "out2", Json::new());
        },
        |b| {
            let out = b.source("in", Number).key_by(|n| *n).count("totals").sink("out", "out", Json::new());
            out.delivery(Delivery::Outbox { framed: false });
        },
        |b| {
            b.source("in", Number).key_by(|n| *n).partitioned_by_key().count("totals").sink("out", "out", Json::new());
        },
        |b| {
            let keyed = b.source("in", Number).key_by(|n| *n).repartition("totals");
            keyed.count("totals");
            keyed.sink("out", "out", Json::new());
        },
    ];
    let mut hashes: Vec<u64> = other.into_iter().map(hash).collect();
    hashes.push(hash(totals));
    let job = |topology: Topology| topology.hash;
    let builder = StreamBuilder::new("job2").unwrap();
    totals(&builder);
    hashes.push(job(builder.build().unwrap()));
    let all = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), all);
}

#[test]
fn the_order_of_the_program_does_not_change_the_hash() {
    let one = hash(|b| {
        b.source("one", Number).sink("first", "first", Number);
        b.source("two", Number).sink("second", "second", Number);
    });
    let other = hash(|b| {
        b.source("two", Number).sink("second", "second", Number);
        b.source("one", Number).sink("first", "first", Number);
    });
    assert_eq!(one, other);
}
