//! The simulation is real: the same seed gives the same run, and the protocol's faults that it found stay found.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use onceflow_sim::{Fault, Wish, Workload, run};

/// Seeds that are run in a test; `cargo xtask sim` runs more of them, in release.
const SEEDS: u64 = if cfg!(debug_assertions) { 40 } else { 400 };
/// Seeds that are run twice (goal G1b).
const TWICE: u64 = if cfg!(debug_assertions) { 10 } else { 100 };

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..TWICE {
        let (first, second) = (run(&Wish::new(seed)), run(&Wish::new(seed)));
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}

#[test]
fn other_seeds_give_other_runs() {
    assert_ne!(run(&Wish::new(1)).trace, run(&Wish::new(2)).trace);
}

#[test]
fn nothing_is_lost_or_doubled_under_any_mix_of_faults() {
    for seed in 0..SEEDS {
        let report = run(&Wish::new(seed));
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
    }
}

#[test]
fn every_kind_of_fault_happens() {
    for fault in Fault::ALL {
        let happened = (0..).map(Wish::new).take(60).any(|wish| run(&wish).counts.of(*fault) > 0);
        assert!(happened, "{fault}");
    }
}

/// Runs seeds of a mix that once broke a rule of the protocol.
fn mix(workload: Workload, faults: &[Fault], seeds: u64) {
    for seed in 0..seeds {
        let wish = Wish { seed, workload: Some(workload), faults: faults.to_vec(), plant: None };
        let violations = run(&wish).violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    }
}

/// Decision 0024: a message was read that nothing kept; its broker lost it in a power cut, and the task went on behind it.
#[test]
fn a_record_that_the_broker_lost_before_it_was_kept_is_in_no_epoch() {
    let faults = [Fault::BrokerPower, Fault::Weak, Fault::Reset, Fault::Partition, Fault::Late];
    mix(Workload::Chain, &faults, SEEDS);
}

/// Decision 0025: a batch whose reply was lost was torn by loss of power, and its first message was taken for the whole.
#[test]
fn a_batch_that_was_torn_is_completed() {
    mix(Workload::Counts, &[Fault::BrokerPower, Fault::ReplyLost, Fault::Weak, Fault::Reset], SEEDS);
}

/// A journal's beginning went between two reads of an opening, and the job stopped.
#[test]
fn retention_may_remove_a_journals_beginning_at_any_moment() {
    let faults = [Fault::Retention, Fault::KillProcess, Fault::ProcessPower, Fault::DiskGone, Fault::Slow];
    mix(Workload::Transfers, &faults, SEEDS / 4);
}
