//! Power loss and faulty storage, for each disk state backend and for the embedded log.
//!
//! A process lives a life on a store while `shim.c` writes down every call that changes its files, with the data. From
//! that come images: directories as they may be found after power was lost at a given call (see `disk.rs`). Each is opened
//! and read: the data of a whole epoch (of a whole prefix of operations, for the log), not older than what was promised to
//! last, or a typed error. The same process is run with each of its calls failing once (`faults.rs`), and each file of
//! what it left is changed by a byte (`flips.rs`).
//!
//! Settings, by environment:
//! - `ONCEFLOW_POWER_IMAGES`: how many images for each subject; else 500, 10,000 with `ONCEFLOW_LONG=1`, and in builds
//!   without optimisation a small number.
//! - `ONCEFLOW_POWER_FAULTS`, `ONCEFLOW_POWER_FLIPS`: how many faults for each subject, and bytes of each file; else
//!   300 and 12, all and 200 with `ONCEFLOW_LONG=1`.
//! - `ONCEFLOW_POWER_KEEP`: a directory for images that were found wrong.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a test fails by panicking"
)]

mod content;
mod dice;
mod disk;
mod faults;
mod flips;
mod images;
#[cfg(feature = "embedded")]
mod logs;
mod recording;
mod shim;
mod stores;
mod subject;

use onceflow::storage::Backend;
use std::path::Path;
use stores::Store;
use subject::{Life, Marks, Subject};

const FJALL: Store = Store { backend: Backend::Fjall, crash_consistent: true };
const ROCKSDB: Store = Store { backend: Backend::RocksDb, crash_consistent: true };
const SLED: Store = Store { backend: Backend::Sled, crash_consistent: false };

/// All that this program was built with.
fn subjects() -> Vec<Box<dyn Subject>> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![];
    for store in [FJALL, ROCKSDB, SLED] {
        if store.backend.is_available() {
            subjects.push(Box::new(store));
        }
    }
    #[cfg(feature = "embedded")]
    {
        use onceflow::log::embedded::Sync;
        subjects.push(Box::new(logs::EmbeddedSubject { sync: Sync::EachAppend }));
        subjects.push(Box::new(logs::EmbeddedSubject { sync: Sync::Never }));
    }
    subjects
}

/// The process under the shim. Does nothing in an ordinary test run.
#[test]
fn the_process() {
    let Ok(order) = std::env::var(shim::CHILD) else { return };
    let watched = std::env::var(shim::WATCH).unwrap();
    let words: Vec<&str> = order.split(' ').collect();
    let [name, seed, steps] = words[..] else { panic!("not an order: {order}") };
    let subject = subjects().into_iter().find(|subject| subject.name() == name).expect("a subject");
    let life = Life { seed: seed.parse().unwrap(), steps: steps.parse().unwrap() };
    let mut marks = Marks::create(&Path::new(&watched).join("marks"));
    subject.live(&Path::new(&watched).join(images::PLACE), life, &mut marks);
}

/// The number that an environment variable names, or one for long runs, for runs with optimisation, and for others.
fn number(variable: &str, long: usize, optimised: usize, other: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) if std::env::var("ONCEFLOW_LONG").is_ok_and(|long| long == "1") => long,
        Err(_) if cfg!(debug_assertions) => other,
        Err(_) => optimised,
    }
}

fn with(name: &str, test: impl FnOnce(&dyn Subject, &Path)) {
    match (subjects().into_iter().find(|subject| subject.name() == name), shim::shim()) {
        (Some(subject), Some(library)) => test(&*subject, library),
        (None, _) => println!("NOT RUN: {name}: built without it"),
        (_, None) => println!("NOT RUN: {name}: no shim"),
    }
}

fn images(name: &str) {
    with(name, |subject, library| images::run(subject, library, number("ONCEFLOW_POWER_IMAGES", 10_000, 500, 40)));
}

fn faults(name: &str) {
    with(name, |subject, library| faults::run(subject, library, number("ONCEFLOW_POWER_FAULTS", 100_000, 300, 20)));
}

fn slow_syncs(name: &str) {
    with(name, |subject, library| faults::run_slow(subject, library, number("ONCEFLOW_POWER_SLOW", 20, 2, 1)));
}

fn flips(name: &str) {
    with(name, |subject, _| flips::run(subject, number("ONCEFLOW_POWER_FLIPS", 200, 12, 3) as u64));
}

#[test]
fn fjall_is_at_a_whole_epoch_after_loss_of_power() {
    images("fjall");
}

#[test]
fn rocksdb_is_at_a_whole_epoch_after_loss_of_power() {
    images("rocksdb");
}

#[test]
fn sled_is_refused_after_loss_of_power_unless_it_was_closed() {
    images("sled");
}

#[test]
fn the_log_has_all_that_was_acknowledged_after_loss_of_power() {
    images("log");
}

#[test]
fn the_unsynced_log_has_a_beginning_or_says_that_it_is_damaged_after_loss_of_power() {
    images("log-unsynced");
}

#[test]
fn fjall_is_right_or_says_so_after_each_fault() {
    faults("fjall");
}

#[test]
fn rocksdb_is_right_or_says_so_after_each_fault() {
    faults("rocksdb");
}

#[test]
fn sled_is_right_or_says_so_after_each_fault() {
    faults("sled");
}

#[test]
fn the_log_has_all_that_was_acknowledged_after_each_fault() {
    faults("log");
}

#[test]
fn fjall_outlives_a_sync_that_takes_long() {
    slow_syncs("fjall");
}

#[test]
fn rocksdb_outlives_a_sync_that_takes_long() {
    slow_syncs("rocksdb");
}

#[test]
fn sled_outlives_a_sync_that_takes_long() {
    slow_syncs("sled");
}

#[test]
fn the_log_outlives_a_sync_that_takes_long() {
    slow_syncs("log");
}

#[test]
fn a_changed_byte_in_any_file_is_noticed_by_each_store() {
    ["fjall", "rocksdb", "sled"].into_iter().for_each(flips);
}

#[test]
fn a_changed_byte_in_any_file_is_noticed_by_the_log() {
    flips("log");
}
