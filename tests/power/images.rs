//! Loss of power at every sync and at moments in between.

use crate::dice::Dice;
use crate::disk::{Disk, Kept};
use crate::recording::{Call, What};
use crate::shim::{self, Run};
use crate::subject::{Found, Life, Seen, Subject};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Images of one recording.
const ROUND: usize = 250;
/// Steps of a life that begins with nothing, and of one that begins with what a loss of power left.
const STEPS_FRESH: u64 = 90;
const STEPS_AGAIN: u64 = 30;

/// How many images were made, and what was found on them.
#[derive(Default)]
pub struct Ledger {
    images: usize,
    opened: usize,
    refused: BTreeMap<&'static str, usize>,
    calls: usize,
    syncs: usize,
    wrong: Vec<String>,
}

impl Ledger {
    pub fn count(&mut self, found: Result<Found, String>, what: &str) {
        self.images += 1;
        match found {
            Ok(Found::Opened(_)) => self.opened += 1,
            Ok(Found::Refused(kind)) => *self.refused.entry(kind.as_str()).or_default() += 1,
            Err(text) => self.wrong.push(format!("{what}: {text}")),
        }
    }

    pub fn figures(&self) -> String {
        let refused: String = self.refused.iter().map(|(kind, count)| format!(" {kind}={count}")).collect();
        let (images, opened, wrong) = (self.images, self.opened, self.wrong.len());
        format!("images={images} opened={opened}{refused} wrong={wrong}")
    }

    /// Fails when anything was wrong.
    pub fn finish(&self, name: &str) {
        assert!(self.wrong.is_empty(), "{name}: {} wrong\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}

/// An image to go on with, and what was said up to its moment.
type Base = (TempDir, Seen);

/// Makes `count` images and looks at each; prints the line for the ledger.
///
/// Every second recording begins with an image of the one before, so power is also lost while a store recovers.
pub fn run(subject: &dyn Subject, library: &Path, count: usize) {
    let mut ledger = Ledger::default();
    let mut base = None;
    let recordings = count.div_ceil(ROUND);
    for round in 0..recordings {
        let seed = round as u64 / 2 + 1;
        let images = (count - ledger.images).min(ROUND);
        let again = base.take();
        let steps = if again.is_some() { STEPS_AGAIN } else { STEPS_FRESH };
        let life = Life { seed, steps };
        base = one_round(subject, library, life, again, images, &mut ledger);
    }
    println!(
        "\npower: store={} {} recordings={recordings} calls={} syncs={}",
        subject.name(),
        ledger.figures(),
        ledger.calls,
        ledger.syncs
    );
    ledger.finish(subject.name());
}

/// Records one life and makes images of it; returns one of them for the next round, when this one began with nothing.
fn one_round(
    subject: &dyn Subject,
    library: &Path,
    life: Life,
    base: Option<Base>,
    images: usize,
    ledger: &mut Ledger,
) -> Option<Base> {
    let fresh = base.is_none();
    let (watched, mut seen) = base.unwrap_or_else(|| (shim::scratch(), Seen::nothing()));
    fs::create_dir_all(watched.path().join(PLACE)).unwrap();
    let _ = fs::remove_file(watched.path().join("marks"));
    let mut disk = Disk::read(watched.path());
    let order = format!("{} {} {}", subject.name(), life.seed, life.steps);
    let Run { calls, success, output } = shim::run(library, &order, watched.path(), None);
    assert!(success, "{order}: {output}");
    ledger.calls += calls.len();
    ledger.syncs += calls.iter().filter(|call| is_sync(call)).count();

    let mut dice = Dice::new(life.seed << 1 | u64::from(fresh));
    let moments = moments(&calls, images, &mut dice);
    let for_next = fresh.then(|| moments[dice.up_to(moments.len() - 1)]);
    let (mut next, mut kept_for_next) = (0, None);
    for (at, call) in calls.iter().enumerate() {
        // The moment before the call is carried out.
        while let Some(moment) = moments.get(next).filter(|moment| **moment == at) {
            let kept = Kept::draw(&mut dice);
            let image = shim::scratch();
            let what =
                format!("seed={} fresh={fresh} call={moment} of {} {kept:?} image={next}", life.seed, calls.len());
            disk.store(image.path(), kept, &mut dice.clone());
            let found = check(subject, &image.path().join(PLACE), life, &seen);
            if let Err(text) = &found {
                keep(subject, &disk, kept, &dice, &format!("{what}\n{text}\n{}", list(&calls[..at])));
            }
            ledger.count(found, &what);
            if for_next == Some(*moment) && kept_for_next.is_none() {
                let again = shim::scratch();
                disk.store(again.path(), kept, &mut dice.clone());
                kept_for_next = Some((again, seen.clone()));
            }
            dice.next();
            next += 1;
        }
        disk.apply(call);
        if let Some(marks) = call.marks() {
            seen.hear(marks);
        }
    }
    kept_for_next
}

/// [`Subject::check`], while no process is started.
pub fn check(subject: &dyn Subject, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
    let _looking = shim::looking();
    subject.check(place, life, seen)
}

/// Where the subject lies in the watched directory.
pub const PLACE: &str = "place";

fn is_sync(call: &Call) -> bool {
    matches!(call.what, What::Sync { .. }) && call.result >= 0
}

/// The moments to make images of, in order: before each sync and after it, as far as `count` goes, else moments drawn.
fn moments(calls: &[Call], count: usize, dice: &mut Dice) -> Vec<usize> {
    let syncs = calls.iter().enumerate().filter(|(_, call)| is_sync(call)).map(|(at, _)| at);
    let mut moments: Vec<usize> = syncs.filter(|at| at + 1 < calls.len()).flat_map(|at| [at, at + 1]).collect();
    while moments.len() > count {
        moments.swap_remove(dice.up_to(moments.len() - 1));
    }
    while moments.len() < count {
        moments.push(dice.up_to(calls.len() - 1));
    }
    moments.sort_unstable();
    moments
}

/// Keeps an image that was found wrong, when a directory for them is named.
fn keep(subject: &dyn Subject, disk: &Disk, kept: Kept, dice: &Dice, what: &str) {
    let Ok(folder) = std::env::var("ONCEFLOW_POWER_KEEP") else { return };
    let place = Path::new(&folder).join(format!("{}-{}", subject.name(), dice.clone().next()));
    disk.store(&place, kept, &mut dice.clone());
    fs::write(place.join("what"), what).unwrap();
}

/// The calls up to the image, a line each.
fn list(calls: &[Call]) -> String {
    let line = |(at, call): (usize, &Call)| {
        let what = match (call.marks(), &call.what) {
            (Some(marks), _) => String::from_utf8_lossy(marks).trim_end().to_owned(),
            (None, What::Write { offset, data, .. }) => format!("writes {} at {offset}", data.len()),
            (None, what) => format!("{what:?}"),
        };
        format!("{at} {} = {} {what}\n", call.path, call.result)
    };
    calls.iter().enumerate().map(line).collect()
}
