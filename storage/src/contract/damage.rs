//! Rule 10: damage is typed. Every file of a store is cut, emptied, changed and removed, each in a copy of its own.

use super::support::{Contract, Tree, TreeFile, entries, point};
use crate::{Delta, KeyRange, Order, StoreFactory};
use onceflow_types::{ErrorKind, Result};
use std::fs;

const KEYS: u64 = 400;
const EPOCHS: u64 = 20;

/// Rule 10: a truncated, missing or changed file gives `Corrupt`, at open or at the read that meets it, or the right
/// data; never other data, an empty store or a panic. The store was closed cleanly, so the right data is that of the
/// last commit. `Invalid` is allowed at open where the damage hides that the directory is a store at all.
pub fn rule_10_damage_is_typed(contract: &Contract<'_>) {
    let factory = contract.factory("whole");
    let mut store = Contract::open(&*factory).unwrap();
    for epoch in 1..=EPOCHS {
        store.commit(&changes(epoch), &point(epoch)).unwrap();
    }
    drop(store);
    if !contract.path("whole").exists() {
        return;
    }
    let tree = Tree::read(&contract.path("whole")).unwrap();
    for (number, file) in tree.0.iter().enumerate() {
        for (name, damage) in DAMAGES {
            let mut damaged = file.clone();
            if !damage(&mut damaged) {
                continue;
            }
            // A name of its own, as a panic inside an engine may leave files open.
            let folder = format!("{number}-{name}");
            let place = contract.path(&folder);
            tree.write(&place).unwrap();
            if *name == REMOVAL {
                fs::remove_file(place.join(&file.path)).unwrap();
            } else {
                damaged.write(&place).unwrap();
            }
            let factory = contract.factory(&folder);
            if let Err(error) = read(&*factory) {
                let what = format!("{name} of {}", file.path.display());
                let typed = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid);
                assert!(typed, "rule 10, {what}: {error:?}");
                rebuild(&*factory, error.kind(), &what);
            }
            drop(factory);
            fs::remove_dir_all(place).unwrap();
        }
    }
}

/// The value of each key is the last epoch that changed it.
fn changes(epoch: u64) -> Delta {
    let mut delta = Delta::default();
    for key in (0..KEYS).filter(|key| key % EPOCHS <= epoch) {
        delta.put(&key.to_be_bytes(), &epoch.to_be_bytes().repeat(4));
    }
    delta
}

/// Reads everything: fails with the error of the store, panics when the data is not right.
fn read(factory: &dyn StoreFactory) -> Result<()> {
    let store = Contract::open(factory)?;
    let found = store.commit_point()?.cloned();
    assert_eq!(found, Some(point(EPOCHS)), "rule 10: an empty or older store");
    for order in [Order::Ascending, Order::Descending] {
        let found = entries(&*store, KeyRange::all(), order)?;
        assert_eq!(found.len() as u64, KEYS, "rule 7: a scan ended early");
        assert!(found.iter().all(|(_, value)| *value == EPOCHS.to_be_bytes().repeat(4)), "rule 10: other data");
    }
    let mut value = vec![];
    for key in 0..KEYS {
        assert!(store.get(&key.to_be_bytes(), &mut value)?, "rule 10: a key is lost");
    }
    Ok(())
}

/// A damaged store can be dropped and rebuilt.
fn rebuild(factory: &dyn StoreFactory, kind: ErrorKind, what: &str) {
    if kind == ErrorKind::Corrupt {
        factory.destroy(&Contract::job(), &Contract::task(0)).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let mut store = Contract::open(factory).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(store.commit_point().unwrap(), None);
        store.commit(&changes(1), &point(1)).unwrap();
    }
}

/// Changes a file; false when there is nothing to change.
type Damage = fn(&mut TreeFile) -> bool;

const REMOVAL: &str = "removal";

const DAMAGES: &[(&str, Damage)] = &[
    (REMOVAL, |_| true),
    ("truncation to nothing", |file| resize(file, |_| 0)),
    ("loss of the last 100 bytes", |file| resize(file, |len| len.saturating_sub(100))),
    ("loss of the second half", |file| resize(file, |len| len / 2)),
    ("flip of 64 bytes at the start", |file| flip(file, |_| 0, 64)),
    ("flip of one byte in the middle", |file| flip(file, |len| len / 2, 1)),
    ("flip of 128 bytes in the middle", |file| flip(file, |len| len / 2, 128)),
    ("flip of 64 bytes at the end", |file| flip(file, |len| len.saturating_sub(64), 64)),
];

fn resize(file: &mut TreeFile, len: fn(usize) -> usize) -> bool {
    let end = len(file.bytes.len());
    let changed = end as u64 != file.len;
    file.bytes.truncate(end);
    file.len = end as u64;
    changed
}

fn flip(file: &mut TreeFile, at: fn(usize) -> usize, count: usize) -> bool {
    let start = at(file.bytes.len());
    file.bytes.iter_mut().skip(start).take(count).map(|byte| *byte ^= 0xff).count() > 0
}
