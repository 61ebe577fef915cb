//! Power loss and faulty storage, for each disk state backend and for the embedded log.
//!
//! A process lives a life on a store while `shim.c` writes down every call that changes its files, with the data. From
//! that come images: directories as they may be found after power was lost at a given call (see `disk.rs`). Each is opened
//! and read: the data of a whole epoch (of a whole prefix of operations, for the log), not older than what was promised to
//! last, or a typed error.
//!
//! Settings, by environment:
//! - `ONCEFLOW_POWER_IMAGES`: how many images for each subject; else 500, 10,000 with `ONCEFLOW_LONG=1`, and in builds
//!   without optimisation a small number.
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
mod images;
#[allow(dead_code, reason = "the faults use the rest")]
mod recording;
#[allow(dead_code, reason = "the faults use the rest")]
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

const SUBJECTS: [&dyn Subject; 3] = [&FJALL, &ROCKSDB, &SLED];

/// The process under the shim. Does nothing in an ordinary test run.
#[test]
fn the_process() {
    let Ok(order) = std::env::var(shim::CHILD) else { return };
    let watched = std::env::var(shim::WATCH).unwrap();
    let words: Vec<&str> = order.split(' ').collect();
    let [name, seed, steps] = words[..] else { panic!("not an order: {order}") };
    let subject = SUBJECTS.into_iter().find(|subject| subject.name() == name).expect("a subject");
    let life = Life { seed: seed.parse().unwrap(), steps: steps.parse().unwrap() };
    let mut marks = Marks::create(&Path::new(&watched).join("marks"));
    subject.live(&Path::new(&watched).join(images::PLACE), life, &mut marks);
}

fn image_count() -> usize {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let long = std::env::var("ONCEFLOW_LONG").is_ok_and(|long| long == "1");
    number("ONCEFLOW_POWER_IMAGES").unwrap_or(match (long, cfg!(debug_assertions)) {
        (true, _) => 10_000,
        (false, false) => 500,
        (false, true) => 40,
    })
}

fn images(subject: &Store) {
    if !subject.backend.is_available() {
        println!("NOT RUN: power loss of {}: built without it", subject.name());
        return;
    }
    if let Some(library) = shim::shim() {
        images::run(subject, library, image_count());
    }
}

#[test]
fn fjall_is_at_a_whole_epoch_after_loss_of_power() {
    images(&FJALL);
}

#[test]
fn rocksdb_is_at_a_whole_epoch_after_loss_of_power() {
    images(&ROCKSDB);
}

#[test]
fn sled_is_refused_after_loss_of_power_unless_it_was_closed() {
    images(&SLED);
}
