//! The rules that need nothing but the store. Numbers as at [`StateStore`](crate::StateStore).

use super::support::{Contract, copy_directory, entries, point, puts};
use crate::{Delta, KeyRange, Order};
use onceflow_types::{CommitPoint, Epoch, ErrorKind, Incarnation, Offset};
use std::collections::BTreeMap;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn all(store: &dyn crate::StateStore) -> Entries {
    entries(store, KeyRange::all(), Order::Ascending).unwrap()
}

fn keys(store: &dyn crate::StateStore, range: KeyRange<'_>, order: Order) -> Vec<Vec<u8>> {
    entries(store, range, order).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// Rule 1: after a crash the store equals the state after some commit, point included. The crash is a copy of the
/// directory between commits.
pub fn rule_01_a_crash_leaves_a_whole_commit(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    for epoch in 1..=6u64 {
        let mut delta = Delta::default();
        for key in 0..200u64 {
            if (key + epoch) % 5 == 0 {
                delta.delete(&key.to_be_bytes());
            } else {
                delta.put(&key.to_be_bytes(), &epoch.to_be_bytes());
            }
        }
        store.commit(&delta, &point(epoch)).unwrap();
        if !contract.path("live").exists() {
            continue;
        }
        let name = format!("crash-{epoch}");
        copy_directory(&contract.path("live"), &contract.path(&name)).unwrap();
        match Contract::open(&*contract.factory(&name)) {
            Ok(copy) => {
                let found = copy.commit_point().unwrap().map_or(0, |point| point.epoch.get());
                assert!(found <= epoch);
                let want: Entries = (0..200u64)
                    .filter(|key| found > 0 && (key + found) % 5 != 0)
                    .map(|key| (key.to_be_bytes().to_vec(), found.to_be_bytes().to_vec()))
                    .collect();
                assert_eq!(all(&*copy), want, "rule 1: the state of epoch {found}");
            }
            Err(error) => assert!(error.kind() == ErrorKind::Corrupt && !store.crash_consistent(), "{error:?}"),
        }
    }
}

/// Rule 2: `commit_point` is that of the last commit, also after reopening.
pub fn rule_02_point_and_state_are_one(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    assert_eq!(store.commit_point().unwrap(), None);
    for epoch in 1..=3 {
        store.commit(&puts([(&b"epoch"[..], &[epoch][..])]), &point(epoch.into())).unwrap();
        assert_eq!(store.commit_point().unwrap(), Some(&point(epoch.into())));
        drop(store);
        store = Contract::open(&*factory).unwrap();
        assert_eq!(store.commit_point().unwrap(), Some(&point(epoch.into())), "rule 2");
        assert_eq!(all(&*store), [(b"epoch".to_vec(), vec![epoch])]);
    }
    store.commit(&Delta::default(), &point(4)).unwrap();
    drop(store);
    let store = Contract::open(&*factory).unwrap();
    assert_eq!(store.commit_point().unwrap(), Some(&point(4)), "an epoch without changes moves the point");
}

/// Rule 3: any first epoch from 1, then one by one, in one incarnation, or the same without changes and further on in the
/// journal; otherwise `Bug` and nothing changed.
pub fn rule_03_epochs_have_no_gaps(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    let change = puts([(&b"k"[..], &b"new"[..])]);
    assert_eq!(store.commit(&change, &point(0)).unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(store.commit_point().unwrap(), None);
    store.commit(&puts([(&b"k"[..], &b"old"[..])]), &point(41)).unwrap();
    let mut other = point(42);
    other.incarnation = Incarnation::new(8);
    for wrong in [point(40), point(41), point(43), other] {
        assert_eq!(store.commit(&change, &wrong).unwrap_err().kind(), ErrorKind::Bug, "rule 3: {}", wrong.epoch);
        assert_eq!(store.commit_point().unwrap().unwrap().epoch, Epoch::new(41));
        assert_eq!(all(&*store), [(b"k".to_vec(), b"old".to_vec())]);
    }
    store.commit(&change, &point(42)).unwrap();

    // The journal goes on without an epoch.
    let further = |by: i64| CommitPoint {
        journal_next: Offset::new(point(42).journal_next.get().checked_add_signed(by).unwrap()),
        ..point(42)
    };
    store.commit(&Delta::default(), &further(3)).unwrap();
    store.commit(&Delta::default(), &further(3)).unwrap();
    let other = CommitPoint { commit_checksum: point(42).commit_checksum + 1, ..further(4) };
    for (delta, wrong) in [(change, further(4)), (Delta::default(), further(2)), (Delta::default(), other)] {
        assert_eq!(store.commit(&delta, &wrong).unwrap_err().kind(), ErrorKind::Bug, "rule 3: the same epoch");
    }
    drop(store);
    let store = Contract::open(&*factory).unwrap();
    assert_eq!(store.commit_point().unwrap(), Some(&further(3)));
}

/// Rule 5: what is committed is read, and nothing else; a changed value replaces the old one as a whole.
pub fn rule_05_commits_are_read(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    let mut value = b"left over".to_vec();
    assert!(!store.get(b"a", &mut value).unwrap());
    assert!(value.is_empty(), "rule 5: the buffer of a missing key is cleared");
    store.commit(&puts([(&b"a"[..], &b"a long value"[..]), (b"b", b"2")]), &point(1)).unwrap();
    let mut second = puts([(&b"a"[..], &b"x"[..]), (b"c", b"3")]);
    second.delete(b"b");
    second.delete(b"never there");
    store.commit(&second, &point(2)).unwrap();
    assert!(store.get(b"a", &mut value).unwrap());
    assert_eq!(value, b"x");
    assert!(!store.get(b"b", &mut value).unwrap());
    assert_eq!(all(&*store), [(b"a".to_vec(), b"x".to_vec()), (b"c".to_vec(), b"3".to_vec())]);
    let too_long = puts([(&vec![0; crate::KEY_BYTES_MAX + 1][..], &b""[..])]);
    assert_eq!(store.commit(&too_long, &point(3)).unwrap_err().kind(), ErrorKind::Invalid);
    let longest = vec![7; crate::KEY_BYTES_MAX];
    store.commit(&puts([(&longest[..], &b"end"[..])]), &point(3)).unwrap();
    assert!(store.get(&longest, &mut value).unwrap());
}

/// Rule 6: order, bounds and prefixes in both directions, with neighbours that share prefixes and bytes 0x00 and 0xff.
pub fn rule_06_scans_keep_order_and_bounds(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    let mut sorted: Vec<Vec<u8>> = vec![vec![]];
    for a in [0u8, 1, b'g', 0xfe, 0xff] {
        sorted.push(vec![a]);
        sorted.extend([0u8, 1, 0xff].map(|b| vec![a, b]));
        sorted.extend([0u8, 0xff].map(|c| vec![a, 0xff, c]));
    }
    sorted.sort();
    store.commit(&puts(sorted.iter().map(|key| (&key[..], &b"v"[..]))), &point(1)).unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(store);
            store = Contract::open(&*factory).unwrap();
        }
        for start in &sorted {
            for range in
                [KeyRange::prefix(start), KeyRange::new(start, &[0xff]), KeyRange::new(start, &[1, 1]), KeyRange::all()]
            {
                let mut want: Vec<_> = sorted.iter().filter(|key| range.contains(key)).cloned().collect();
                assert_eq!(keys(&*store, range.clone(), Order::Ascending), want, "rule 6: {range:?}");
                want.reverse();
                assert_eq!(keys(&*store, range.clone(), Order::Descending), want, "rule 6: {range:?}");
            }
        }
    }
}

/// Rule 6, with so much data that a backend with a write buffer of 64 KiB to 4 MiB has written and merged tables.
pub fn rule_06_scans_after_flushes(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    let mut model = std::collections::BTreeMap::new();
    for epoch in 1..=12u64 {
        let mut delta = Delta::default();
        for number in 0..2000u64 {
            // A fixed stride through the keys, so that every table overlaps every other.
            let key = ((number * 7919 + epoch * 104_729) % 10_000).to_be_bytes();
            if number % 7 == 0 {
                delta.delete(&key);
                model.remove(&key[..]);
            } else {
                let value = [epoch.to_be_bytes(), number.to_be_bytes()].concat().repeat(8);
                delta.put(&key, &value);
                model.insert(key.to_vec(), value);
            }
        }
        store.commit(&delta, &point(epoch)).unwrap();
    }
    for reopened in [false, true] {
        if reopened {
            drop(store);
            store = Contract::open(&*factory).unwrap();
        }
        let want: Entries = model.clone().into_iter().collect();
        assert_eq!(all(&*store), want, "rule 6, reopened: {reopened}");
        let back = entries(&*store, KeyRange::all(), Order::Descending).unwrap();
        assert!(back.iter().rev().eq(&want), "rule 6, descending, reopened: {reopened}");
    }
}

/// Rule 8: one handle at a time.
pub fn rule_08_one_owner(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut first = Contract::open(&*factory).unwrap();
    first.commit(&puts([(&b"k"[..], &b"v"[..])]), &point(1)).unwrap();
    let second = Contract::open(&*factory).err().unwrap();
    assert_eq!(second.kind(), ErrorKind::Fenced, "rule 8: {second:?}");
    let destroy = factory.destroy(&Contract::job(), &Contract::task(0)).unwrap_err();
    assert_eq!(destroy.kind(), ErrorKind::Fenced, "rule 8: an open store is not destroyed");
    let mut neighbour = factory.open(&Contract::job(), &Contract::task(1)).unwrap();
    neighbour.commit(&puts([(&b"k"[..], &b"other"[..])]), &point(1)).unwrap();
    assert_eq!(all(&*first), [(b"k".to_vec(), b"v".to_vec())], "another task is another store");
    drop(first);
    let again = Contract::open(&*factory).unwrap();
    assert_eq!(all(&*again), [(b"k".to_vec(), b"v".to_vec())]);
}

/// Rule 11: after an unclean stop a crash-consistent store opens, and another one is `Corrupt` and can be rebuilt.
pub fn rule_11_an_unclean_stop(contract: &Contract<'_>) {
    let live = contract.factory("live");
    let mut store = Contract::open(&*live).unwrap();
    store.commit(&puts([(&b"k"[..], &b"v"[..])]), &point(20)).unwrap();
    if !contract.path("live").exists() {
        return;
    }
    copy_directory(&contract.path("live"), &contract.path("crash")).unwrap();
    let crashed = contract.factory("crash");
    match Contract::open(&*crashed) {
        Ok(copy) => {
            assert!(store.crash_consistent(), "rule 11");
            assert_eq!(copy.commit_point().unwrap(), Some(&point(20)));
        }
        Err(error) => {
            assert!(!store.crash_consistent() && error.kind() == ErrorKind::Corrupt, "rule 11: {error:?}");
            crashed.destroy(&Contract::job(), &Contract::task(0)).unwrap();
            let rebuilt = Contract::open(&*crashed).unwrap();
            assert_eq!(rebuilt.commit_point().unwrap(), None);
        }
    }
}

/// Rule 12: entries are loaded before the first commit, and valid with it.
pub fn rule_12_loading(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    for piece in 0..10u8 {
        store.load(&puts([(&[piece][..], &b"old"[..])])).unwrap();
        assert_eq!(store.commit_point().unwrap(), None);
    }
    store.load(&puts([(&[3][..], &b"new"[..])])).unwrap();
    let mut last = Delta::default();
    last.delete(&[0]);
    store.commit(&last, &point(500)).unwrap();
    assert_eq!(store.load(&last).unwrap_err().kind(), ErrorKind::Bug, "rule 12");
    drop(store);
    let store = Contract::open(&*factory).unwrap();
    let value = |piece| if piece == 3 { b"new".to_vec() } else { b"old".to_vec() };
    assert_eq!(all(&*store), (1..10u8).map(|piece| (vec![piece], value(piece))).collect::<Entries>());
    assert_eq!(store.commit_point().unwrap(), Some(&point(500)));
}

/// Rule 12: pieces may come in any order, and one that comes again counts as it came last.
pub fn rule_12_loading_in_any_order(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    let mut expected = BTreeMap::new();
    // In order, in order again with other values, and backwards; each piece overlaps the one before it.
    let starts = (0..20u16).chain(0..20).chain((0..20).rev());
    for (round, start) in starts.enumerate() {
        let mut piece = Delta::default();
        for key in (start * 40..start * 40 + 60).map(u16::to_be_bytes) {
            let value = round.to_be_bytes().repeat(round % 20);
            piece.put(&key, &value);
            expected.insert(key.to_vec(), value);
        }
        store.load(&piece).unwrap();
    }
    store.commit(&Delta::default(), &point(3)).unwrap();
    let expected: Entries = expected.into_iter().collect();
    assert_eq!(all(&*store), expected, "rule 12");
    drop(store);
    let store = Contract::open(&*factory).unwrap();
    assert_eq!((all(&*store), store.commit_point().unwrap()), (expected, Some(&point(3))), "rule 12");
}

/// Rule 12: entries without a point are gone after reopening.
pub fn rule_12_loading_without_commit_leaves_nothing(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    for _ in 0..2 {
        let mut store = Contract::open(&*factory).unwrap();
        assert_eq!(all(&*store), [], "rule 12");
        assert_eq!(store.commit_point().unwrap(), None);
        store.load(&puts([(&b"half"[..], &b"snapshot"[..])])).unwrap();
    }
}

/// Rule 13: the empty key is the first key; an empty value is not a missing one.
pub fn rule_13_empty_keys_and_values(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let mut store = Contract::open(&*factory).unwrap();
    store.commit(&puts([(&b""[..], &b""[..]), (&[0], b""), (b"k", b"")]), &point(1)).unwrap();
    let mut value = b"left over".to_vec();
    assert!(store.get(b"", &mut value).unwrap() && value.is_empty(), "rule 13");
    assert_eq!(keys(&*store, KeyRange::all(), Order::Ascending), [vec![], vec![0], b"k".to_vec()]);
    let mut delta = Delta::default();
    delta.delete(b"");
    store.commit(&delta, &point(2)).unwrap();
    assert!(!store.get(b"", &mut value).unwrap());
    assert!(store.get(b"k", &mut value).unwrap() && value.is_empty());
}

/// A destroyed store starts empty and may begin at any epoch of any incarnation; destroying nothing is fine.
pub fn destroy_starts_over(contract: &Contract<'_>) {
    let factory = contract.factory("live");
    let destroy = || factory.destroy(&Contract::job(), &Contract::task(0));
    destroy().unwrap();
    let mut store = Contract::open(&*factory).unwrap();
    store.commit(&puts([(&b"k"[..], &b"v"[..])]), &point(9)).unwrap();
    drop(store);
    destroy().unwrap();
    destroy().unwrap();
    let mut store = Contract::open(&*factory).unwrap();
    assert_eq!(store.commit_point().unwrap(), None);
    assert_eq!(all(&*store), []);
    let mut other = point(3);
    other.incarnation = Incarnation::new(99);
    store.commit(&Delta::default(), &other).unwrap();
}
