//! The fuzz functions on the committed corpus, on random bytes and on damaged real ones. `cargo xtask fuzz` goes further.
//!
//! `fuzz/corpus/<target>/` holds what fuzzing found worth keeping and, as `valid-…`, real encodings; `UPDATE=1` rewrites
//! the latter. The targets for what only the feature `fuzzing` makes reachable run where it is on (`--all-features`).
#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

#[path = "hostile/seeds.rs"]
mod seeds;
#[path = "../fuzz/src/lib.rs"]
mod targets;

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn target(name: &str) -> fn(&[u8]) {
    targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1
}

/// Real bytes of each kind, for the targets that are compiled in.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let known = |name: &str| targets::TARGETS.iter().any(|(known, _)| *known == name);
    seeds::all().into_iter().filter(|(name, _)| known(name)).collect()
}

proptest! {
    #[test]
    fn random_bytes_break_no_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        targets::TARGETS.iter().for_each(|(_, target)| target(&bytes));
    }

    #[test]
    fn damaged_bytes_break_no_decoder(sample: proptest::sample::Index, place: proptest::sample::Index, byte: u8, cut: proptest::sample::Index) {
        let samples = samples();
        let mut bytes = samples[sample.index(samples.len())].1.clone();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        targets::TARGETS.iter().for_each(|(_, target)| target(&bytes));
        bytes.truncate(cut.index(bytes.len()));
        targets::TARGETS.iter().for_each(|(_, target)| target(&bytes));
    }

    #[test]
    fn long_lists_of_operations_break_no_state_machine(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        for name in ["fold_operations", "coordinator_operations", "dedup_operations"] {
            target(name)(&bytes);
        }
    }
}

#[test]
fn real_encodings_pass_and_are_in_the_corpus() {
    let mut numbers = std::collections::BTreeMap::<&str, usize>::new();
    for (name, bytes) in samples() {
        target(name)(&bytes);
        let number = numbers.entry(name).or_default();
        let file = corpus().join(name).join(format!("valid-{number}"));
        *number += 1;
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let kept =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}; run with UPDATE=1", file.display()));
        assert_eq!(kept, bytes, "{}: run with UPDATE=1", file.display());
    }
}

#[test]
fn the_committed_corpus_breaks_nothing() {
    let mut unknown: BTreeSet<String> = BTreeSet::new();
    for folder in std::fs::read_dir(corpus()).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let Some((_, target)) = targets::TARGETS.iter().find(|(known, _)| *known == name) else {
            unknown.insert(name);
            continue;
        };
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(!files.is_empty(), "{name}");
        files.iter().for_each(|file| target(&std::fs::read(file).unwrap()));
    }
    let all_are_compiled_in = cfg!(all(feature = "fuzzing", feature = "avro"));
    assert!(unknown.is_empty() || !all_are_compiled_in, "folders of no target: {unknown:?}");
    for (name, _) in targets::TARGETS {
        assert!(corpus().join(name).is_dir(), "no corpus for {name}");
    }
}

/// The functions must see what they are for: a good encoding passes the decoder that the target calls.
#[test]
fn the_real_encodings_are_good() {
    seeds::check();
}
