//! The oracle test (goal G9): windows by a slow and obviously right implementation, which shares no code with the engine,
//! and by the engine, on random streams: random order, negative times, epochs cut anywhere, crashes at every step, batches of
//! any size, epochs that are full in the middle of firing, one or four partitions, with and without a repartition.
//!
//! `ONCEFLOW_ORACLE=100000` sets the number of streams, `ONCEFLOW_ORACLE_SEED=7` runs one; `ONCEFLOW_LONG=1` means 20 times as many.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod batch;
mod dice;
mod join_batch;
mod joins;
mod run;

use run::Stores;

/// Streams in a run of the tests; without optimisation, a taste of it.
const STREAMS: u64 = if cfg!(debug_assertions) { 30 } else { 5_000 };
/// Streams of those on a store on disk.
const STREAMS_ON_DISK: u64 = if cfg!(debug_assertions) { 3 } else { 25 };
/// How many times as many there are in `cargo xtask test --long`.
const LONG_FACTOR: u64 = 20;

fn streams(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("ONCEFLOW_ORACLE_SEED"), number("ONCEFLOW_ORACLE")) {
        (Some(seed), _) => vec![seed],
        (None, Some(number)) => (0..number).collect(),
        (None, None) if std::env::var_os("ONCEFLOW_LONG").is_some() => (0..default * LONG_FACTOR).collect(),
        (None, None) => (0..default).collect(),
    }
}

/// Aim: whatever the windows, the trigger, the cuts and the crashes are, results and late records of each key are those of
/// the batch implementation, in their order. Method: everything follows from a seed, which a failure names.
fn equal(seeds: Vec<u64>, stores: Stores) {
    each(seeds, |seed| run::run(seed, stores));
}

fn each(seeds: Vec<u64>, run: impl Fn(u64) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4);
    let share = seeds.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for seeds in seeds.chunks(share) {
            let run = &run;
            scope.spawn(move || seeds.iter().for_each(|seed| run(*seed)));
        }
    });
}

#[test]
fn the_engine_equals_the_batch_implementation() {
    equal(streams(STREAMS), Stores::Memory);
}

/// Aim and method as above, for every kind of join.
#[test]
fn joins_equal_their_batch_implementation() {
    each(streams(STREAMS), |seed| joins::run(seed, Stores::Memory));
}

#[cfg(feature = "fjall")]
#[test]
fn joins_equal_their_batch_implementation_on_fjall() {
    each(streams(STREAMS_ON_DISK), |seed| joins::run(seed, Stores::Disk(onceflow::storage::Backend::Fjall)));
}

#[cfg(feature = "rocksdb")]
#[test]
fn joins_equal_their_batch_implementation_on_rocksdb() {
    each(streams(STREAMS_ON_DISK), |seed| joins::run(seed, Stores::Disk(onceflow::storage::Backend::RocksDb)));
}

#[cfg(feature = "fjall")]
#[test]
fn the_engine_equals_the_batch_implementation_on_fjall() {
    equal(streams(STREAMS_ON_DISK), Stores::Disk(onceflow::storage::Backend::Fjall));
}

#[cfg(feature = "rocksdb")]
#[test]
fn the_engine_equals_the_batch_implementation_on_rocksdb() {
    equal(streams(STREAMS_ON_DISK), Stores::Disk(onceflow::storage::Backend::RocksDb));
}
