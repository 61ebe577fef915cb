//! A changed byte in each file of something that was closed.

use crate::dice::Dice;
use crate::images::{Ledger, PLACE};
use crate::shim;
use crate::subject::{Life, Marks, Seen, Subject};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LIFE: Life = Life { seed: 4, steps: 60 };

/// Changes `positions` bytes of each file, one at a time; prints the line for the ledger.
pub fn run(subject: &dyn Subject, positions: u64) {
    let _looking = shim::looking();
    let whole = shim::scratch();
    fs::create_dir(whole.path().join(PLACE)).unwrap();
    subject.live(&whole.path().join(PLACE), LIFE, &mut Marks::create(&whole.path().join("marks")));
    let mut seen = Seen { power_lost: false, ..Seen::nothing() };
    seen.hear(&fs::read(whole.path().join("marks")).unwrap());
    let files = files(whole.path());
    let (mut dice, mut ledger) = (Dice::new(1), Ledger::default());
    for file in &files {
        let length = used(file);
        for position in 0..positions.min(length) {
            // The beginning and the end of a file are what is damaged most, and where its formats differ most.
            let at = match position {
                0 => 0,
                1 => length - 1,
                _ => dice.below(length),
            };
            let image = shim::scratch();
            copy(whole.path(), image.path(), &files);
            let path = image.path().join(file.strip_prefix(whole.path()).unwrap());
            flip(&path, at, 1 << dice.below(8));
            let what = format!("{} byte {at} of {length}", file.strip_prefix(whole.path()).unwrap().display());
            ledger.count(subject.check_damaged(&image.path().join(PLACE), LIFE, &seen), &what);
        }
    }
    println!("\nflips: store={} files={} {}", subject.name(), files.len(), ledger.figures());
    ledger.finish(subject.name());
}

fn flip(path: &Path, at: u64, bit: u8) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bit], at).unwrap();
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else if !path.ends_with("marks") {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// How long a file is without the zeros that were laid out in advance.
fn used(file: &Path) -> u64 {
    fs::read(file).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn copy(from: &Path, to: &Path, files: &[PathBuf]) {
    for file in files {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        crate::content::Content::read(file).store(&target);
    }
}
