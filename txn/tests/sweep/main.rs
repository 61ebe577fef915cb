//! Every schedule of a small run, cut anywhere once and twice, with one fault anywhere: the reader's view is exactly the
//! output of the valid Commits.
//!
//! The owners are the production [`Coordinator`](onceflow_txn::Coordinator) and
//! [`Publisher`](onceflow_txn::Publisher) in a small engine that does one thing at a time; journal, queues and stores are
//! vectors. A schedule says before which effect an owner crashes or is paused, when a paused one goes on, and which
//! request goes wrong. After it a fresh owner finishes the work undisturbed, and the outcome is compared with a second,
//! plain fold of the journal. That the sweep can fail is shown by wrong engines: each of them is found out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "test data is small")]

mod check;
mod owner;
mod schedule;
mod world;

use owner::{Mutation, Setup};
use schedule::{Cut, Ran, Resume, Schedule, run};
use world::{Fate, Fault};

const INLINE: Setup = Setup { eager: true, release: true, ballast: 0, mutation: None };
const CUTS: [Cut; 3] = [Cut::Crash, Cut::LosesDisk, Cut::Pause];

fn plain(setup: Setup) -> Schedule {
    Schedule { setup, faults: vec![], cuts: vec![], resume: Resume::Last }
}

/// Runs all schedules and returns how many there were.
fn sweep(schedules: impl Iterator<Item = Schedule>) -> Result<usize, String> {
    let mut count = 0;
    for schedule in schedules {
        if run(&schedule)? != Ran::TooShort {
            count += 1;
        }
    }
    Ok(count)
}

/// How many effects an undisturbed owner has.
fn effects(setup: Setup) -> usize {
    match run(&plain(setup)).unwrap() {
        Ran::Whole(effects) => effects,
        Ran::TooShort => unreachable!("it is not cut"),
    }
}

/// Every way to cut one owner; `resumes` are the moments at which a paused one goes on.
fn one_cut(setup: Setup, effects: usize, resumes: &[Resume]) -> impl Iterator<Item = Schedule> {
    let cuts = (0..=effects).flat_map(|at| CUTS.map(|cut| (at, cut)));
    cuts.flat_map(move |cut| {
        let resumes = if cut.1 == Cut::Pause { resumes } else { &[Resume::Last] };
        resumes.iter().map(move |resume| Schedule { cuts: vec![cut], resume: *resume, ..plain(setup) })
    })
}

fn resumes(effects: usize, step: usize) -> Vec<Resume> {
    let at = (0..effects + 12).step_by(step).flat_map(|at| [Resume::At(at), Resume::InTurn(at)]);
    at.chain([Resume::Last]).collect()
}

fn two_cuts(setup: Setup, effects: usize, resumes: &[Resume]) -> impl Iterator<Item = Schedule> {
    let cuts = (0..=effects).flat_map(|at| CUTS.map(|cut| (at, cut)));
    let pairs = cuts.flat_map(move |first| (0..=effects + 12).flat_map(move |at| CUTS.map(|cut| [first, (at, cut)])));
    pairs.flat_map(move |cuts| {
        let paused = cuts.iter().any(|(_, cut)| *cut == Cut::Pause);
        let resumes = if paused { resumes } else { &[Resume::Last] };
        resumes.iter().map(move |resume| Schedule { cuts: cuts.to_vec(), resume: *resume, ..plain(setup) })
    })
}

/// More appends than an undisturbed run and a take-over have.
const APPENDS: usize = 10;
/// More requests to the sink broker.
const REQUESTS: usize = 26;

/// Every single fault.
fn faults(effects: usize) -> Vec<Fault> {
    let fates = [Fate::Weak, Fate::Late(1), Fate::Late(2), Fate::Late(4), Fate::Lost];
    let mut faults = vec![Fault::Lag(1), Fault::Lag(2), Fault::Lag(5)];
    faults.extend((0..APPENDS).flat_map(|at| fates.map(|fate| Fault::Append(at, fate))));
    faults.extend((0..REQUESTS).flat_map(|at| fates.map(|fate| Fault::Request(at, fate))));
    faults.extend((0..REQUESTS).map(Fault::Disconnect));
    faults.extend((0..effects).flat_map(|at| [Fault::SinkPower(at), Fault::JournalPower(at)]));
    faults
}

#[test]
fn an_undisturbed_run_is_right() {
    for eager in [true, false] {
        for release in [true, false] {
            for ballast in [0, 300 << 10, 1100 << 10] {
                let setup = Setup { eager, release, ballast, mutation: None };
                println!("{setup:?}: {} effects", effects(setup));
            }
        }
    }
}

/// One fault and one cut, or none.
fn faults_and_cuts(setup: Setup, effects: usize, step: usize) -> impl Iterator<Item = Schedule> {
    let cuts = (0..=effects + 6).step_by(step).flat_map(|at| CUTS.map(|cut| vec![(at, cut)]));
    let cuts: Vec<_> = std::iter::once(vec![]).chain(cuts).collect();
    faults(effects).into_iter().flat_map(move |fault| {
        let cuts = cuts.clone().into_iter();
        cuts.flat_map(move |cuts| {
            let paused = cuts.iter().any(|(_, cut)| *cut == Cut::Pause);
            let resumes = if paused { &[Resume::At(6), Resume::InTurn(3), Resume::Last][..] } else { &[Resume::Last] };
            resumes.iter().map(move |resume| Schedule {
                setup,
                faults: vec![fault],
                cuts: cuts.clone(),
                resume: *resume,
            })
        })
    })
}

/// What was carried out without an acknowledgement, and is lost later.
fn unproven_then_power(setup: Setup, effects: usize) -> impl Iterator<Item = Schedule> {
    let pairs = (0..effects + 20).flat_map(|at| {
        let weak = (0..APPENDS).map(move |number| [Fault::Append(number, Fate::Weak), Fault::JournalPower(at)]);
        let late = (0..REQUESTS).map(move |number| [Fault::Request(number, Fate::Late(1)), Fault::SinkPower(at)]);
        weak.chain(late)
    });
    pairs.map(move |pair| Schedule { faults: pair.to_vec(), ..plain(setup) })
}

fn two_faults(setup: Setup, effects: usize) -> impl Iterator<Item = Schedule> {
    let all = faults(effects);
    let pairs = (0..all.len()).flat_map({
        let all = all.clone();
        move |second| all[..second].iter().map(|first| vec![*first, all[second]]).collect::<Vec<_>>()
    });
    pairs.map(move |faults| Schedule { setup, faults, cuts: vec![], resume: Resume::Last })
}

const LAZY: Setup = Setup { eager: false, ..INLINE };
const UNRELEASED: Setup = Setup { release: false, ..INLINE };
const ONE_DELTA: Setup = Setup { ballast: 300 << 10, ..INLINE };

#[test]
fn one_cut_anywhere_is_harmless() {
    let mut count = 0;
    for (setup, step) in [(INLINE, 4), (LAZY, 8), (UNRELEASED, 15)] {
        let effects = effects(setup);
        count += sweep(one_cut(setup, effects, &resumes(effects, step))).unwrap();
    }
    let effects = effects(ONE_DELTA);
    count += sweep(one_cut(ONE_DELTA, effects, &[Resume::InTurn(4)])).unwrap();
    println!("{count} schedules with one cut");
}

#[test]
fn two_cuts_anywhere_are_harmless() {
    let effects = effects(INLINE);
    let count = sweep(two_cuts(INLINE, effects, &[Resume::InTurn(5)]).step_by(5)).unwrap();
    println!("{count} schedules with two cuts");
}

#[test]
fn one_fault_anywhere_is_harmless() {
    let mut count = 0;
    for (setup, step) in [(INLINE, 30), (LAZY, 100), (UNRELEASED, 100)] {
        count += sweep(faults_and_cuts(setup, effects(setup), step)).unwrap();
    }
    println!("{count} schedules with one fault");
    let count = sweep(unproven_then_power(INLINE, effects(INLINE))).unwrap();
    println!("{count} schedules with a power loss after an unacknowledged request");
}

/// The whole product: minutes, so only in the long tests.
#[test]
fn all_of_it() {
    if std::env::var_os("ONCEFLOW_LONG").is_none() {
        eprintln!("NOT RUN: the whole product of cuts and faults; `cargo xtask test --long` runs it");
        return;
    }
    let setups = [true, false]
        .into_iter()
        .flat_map(|eager| [true, false].into_iter().map(move |release| Setup { eager, release, ..INLINE }));
    for setup in setups {
        let effects = effects(setup);
        let (dense, coarse) = (resumes(effects, 1), resumes(effects, 7));
        let one = sweep(one_cut(setup, effects, &dense)).unwrap();
        println!("{setup:?}: {one} schedules with one cut");
        let faulty = sweep(faults_and_cuts(setup, effects, 1)).unwrap();
        println!("{setup:?}: {faulty} schedules with one fault");
        let two = sweep(two_cuts(setup, effects, &coarse)).unwrap();
        println!("{setup:?}: {two} schedules with two cuts");
        let pairs = sweep(two_faults(setup, effects)).unwrap();
        println!("{setup:?}: {pairs} schedules with two faults");
    }
    for ballast in [300 << 10, 1100 << 10] {
        let setup = Setup { ballast, ..INLINE };
        let effects = effects(setup);
        let one = sweep(one_cut(setup, effects, &resumes(effects, 5))).unwrap();
        let faulty = sweep(faults_and_cuts(setup, effects, 9)).unwrap();
        println!("{ballast} bytes of state: {one} schedules with one cut, {faulty} with one fault");
    }
}

/// Every wrong engine is found out by the first schedules that can show it.
#[test]
fn every_wrong_engine_is_found_out() {
    use Mutation as M;
    let all = [
        M::DecidesByReading,
        M::PublishesBeforeDecided,
        M::ForgetsUnpublished,
        M::StoreForgetsHandles,
        M::IgnoresNewerClaim,
        M::BlindToOffsets,
        M::ReusesSequences,
        M::ReleasesBeforePublished,
        M::ReleasesBeforeProven,
        M::TrustsEndReplies,
        M::SkipsTheWait,
        M::SkipsTheScan,
        M::FloorTooHigh,
        M::AppliesBeforeDecided,
        M::SkipsInput,
        M::RepeatsInput,
    ];
    let mut missed = vec![];
    for mutation in all {
        let found = [true, false].into_iter().find_map(|eager| {
            let setup = Setup { eager, mutation: Some(mutation), ..INLINE };
            let effects = effects(Setup { mutation: None, ..setup });
            let one_fault = |fault| Schedule { faults: vec![fault], ..plain(setup) };
            let schedules = std::iter::once(plain(setup))
                .chain(one_cut(setup, effects, &[Resume::At(8), Resume::InTurn(4), Resume::Last]))
                .chain(faults(effects + 5).into_iter().map(one_fault))
                .chain(unproven_then_power(setup, effects));
            let (mut count, mut schedules) = (0, schedules);
            schedules.find_map(|schedule| {
                count += 1;
                run(&schedule).err().map(|what| (count, what))
            })
        });
        match found {
            Some((count, what)) => println!("{mutation:?}, schedule {count}: {what}"),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
