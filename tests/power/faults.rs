//! Faulty storage: each call of one standard run fails once, the disk is full from it on, or it writes a half; a sync
//! takes long.

use crate::dice::Dice;
use crate::disk::{Disk, Kept};
use crate::images::{Ledger, PLACE, check};
use crate::recording::{Call, What};
use crate::shim::{self, Fault, How, Run};
use crate::subject::{Found, Life, Seen, Subject};
use std::fs;
use std::path::Path;

const LIFE: Life = Life { seed: 2, steps: 16 };
/// Images made of a run in which a sync failed.
const IMAGES_AFTER_SYNC: usize = 4;

/// Runs with at most `count` faults, spread over all calls of the run; prints the line for the ledger.
pub fn run(subject: &dyn Subject, library: &Path, count: usize) {
    let sites = sites(&record(subject, library, None).1.calls);
    let mut ledger = Ledger::default();
    let (mut stopped, mut images) = (0, Ledger::default());
    // The whole run also where only some of its calls are tried.
    let chosen = (0..count.min(sites.len())).map(|number| sites[number * sites.len() / count.min(sites.len())]);
    for fault in chosen {
        let (watched, run) = record(subject, library, Some(fault));
        let what = format!("{fault:?}");
        let seen = heard(&run.calls);
        if run.success {
            stopped += usize::from(seen.marks.iter().any(|mark| mark.starts_with("failed")));
            let found = check(subject, &watched.path().join(PLACE), LIFE, &seen)
                .and_then(|found| judge(subject, fault, found, &seen));
            ledger.count(found.map_err(|text| format!("{text} {:?}", failures(&seen))), &what);
        } else {
            ledger.count(Err(format!("the process failed: {}", run.output)), &what);
        }
        if fault.class == 's' {
            after_a_failed_sync(subject, &run.calls, &what, &mut images);
        }
    }
    println!(
        "\nfaults: store={} sites={} {} stopped={stopped} | power lost after a failed sync: {}",
        subject.name(),
        sites.len(),
        ledger.figures(),
        images.figures()
    );
    ledger.finish(subject.name());
    images.finish(subject.name());
}

/// Runs in which one sync takes long, `count` of them, spread over all syncs of the run: nothing fails, and all is there.
pub fn run_slow(subject: &dyn Subject, library: &Path, count: usize) {
    let calls = record(subject, library, None).1.calls;
    let syncs = calls.iter().filter(|call| call.class() == Some('s')).count();
    assert!(syncs > 0, "{}: nothing is synced", subject.name());
    let count = count.min(syncs);
    for number in (0..count).map(|at| at * syncs / count + syncs / count / 2) {
        let fault = Fault { class: 's', number, how: How::Slow };
        let (watched, run) = record(subject, library, Some(fault));
        assert!(run.success, "{}: {fault:?}: {}", subject.name(), run.output);
        let seen = heard(&run.calls);
        assert!(failures(&seen).is_empty(), "{}: {fault:?}: {:?}", subject.name(), failures(&seen));
        let found = check(subject, &watched.path().join(PLACE), LIFE, &seen);
        assert!(matches!(found, Ok(Found::Opened(_))), "{}: {fault:?}: {found:?}", subject.name());
    }
    println!("\nslow syncs: store={} syncs={syncs} slow={count} wrong=0", subject.name());
}

fn record(subject: &dyn Subject, library: &Path, fault: Option<Fault>) -> (tempfile::TempDir, Run) {
    let watched = shim::scratch();
    fs::create_dir(watched.path().join(PLACE)).unwrap();
    let order = format!("{} {} {}", subject.name(), LIFE.seed, LIFE.steps);
    let run = shim::run(library, &order, watched.path(), fault);
    assert!(fault.is_some() || run.success, "{order}: {}", run.output);
    (watched, run)
}

/// All that can fail, in the order of the calls.
fn sites(calls: &[Call]) -> Vec<Fault> {
    let mut counts = std::collections::BTreeMap::<char, usize>::new();
    let mut sites = vec![];
    for call in calls {
        let Some(class) = call.class() else { continue };
        let count = counts.entry(class).or_default();
        let number = *count;
        *count += 1;
        let kinds: &[How] = match call.what {
            What::Write { .. } => &[How::Once, How::Full, How::Short],
            What::Open { creates: true, .. } | What::Allocate { .. } | What::MakeDirectory => &[How::Once, How::Full],
            _ => &[How::Once],
        };
        sites.extend(kinds.iter().map(|how| Fault { class, number, how: *how }));
    }
    sites
}

fn heard(calls: &[Call]) -> Seen {
    let mut seen = Seen { power_lost: false, faulty: true, ..Seen::nothing() };
    calls.iter().filter_map(Call::marks).for_each(|marks| seen.hear(marks));
    seen
}

fn failures(seen: &Seen) -> Vec<&String> {
    seen.marks.iter().filter(|mark| mark.starts_with("failed") || *mark == "drop").collect()
}

/// A full disk damages nothing: what was there is kept, so that it is there when space was made, and an error says so.
fn judge(subject: &dyn Subject, fault: Fault, found: Found, seen: &Seen) -> Result<Found, String> {
    let lost = seen.dropped > 0 || matches!(found, Found::Refused(_));
    let failed = seen.marks.iter().any(|mark| mark.starts_with("failed"));
    match fault.how {
        How::Full if lost && subject.outlives_a_full_disk() => Err(format!("a full disk cost the data: {found:?}")),
        How::Full if failed && !failures(seen).iter().any(|mark| mark.contains("free space")) => {
            Err("does not say what to do".to_owned())
        }
        _ => Ok(found),
    }
}

/// The pages of a failed sync may never reach the disk, whatever later syncs say.
fn after_a_failed_sync(subject: &dyn Subject, calls: &[Call], what: &str, ledger: &mut Ledger) {
    let Some(failed) = calls.iter().position(|call| matches!(call.what, What::Sync { .. }) && call.result < 0) else {
        return;
    };
    let empty = shim::scratch();
    fs::create_dir(empty.path().join(PLACE)).unwrap();
    let mut disk = Disk::read(empty.path());
    let mut seen = Seen { faulty: true, ..Seen::nothing() };
    let mut dice = Dice::new(failed as u64);
    let mut moments: Vec<usize> = (1..IMAGES_AFTER_SYNC).map(|_| failed + dice.up_to(calls.len() - failed)).collect();
    moments.push(calls.len());
    for at in 0..=calls.len() {
        for moment in moments.iter().filter(|moment| **moment == at) {
            let image = shim::scratch();
            disk.store(image.path(), Kept::draw(&mut dice), &mut dice);
            let found = check(subject, &image.path().join(PLACE), LIFE, &seen);
            ledger.count(found, &format!("{what} power lost at call {moment} of {}", calls.len()));
        }
        if let Some(call) = calls.get(at) {
            disk.apply(call);
            if let Some(marks) = call.marks() {
                seen.hear(marks);
            }
        }
    }
}
