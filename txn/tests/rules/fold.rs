//! The fold from any point equals the fold from the start, whatever the journal holds.

use onceflow_txn::record_checksum;
use onceflow_txn::*;
use onceflow_types::wire::checksum;
use onceflow_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A journal record as a test wants it: relative to what is current where it lands.
#[derive(Clone, Copy, Debug)]
struct Op {
    kind: u8,
    /// 0: the right generation, else one that is off.
    generation: u8,
    /// 1: the next epoch, else one that is off.
    epoch: u8,
    detail: u8,
}

fn op() -> impl Strategy<Value = Op> {
    (0u8..16, prop_oneof![8 => Just(0u8), 1 => 1u8..4], prop_oneof![6 => Just(1u8), 1 => 0u8..4], 0u8..4)
        .prop_map(|(kind, generation, epoch, detail)| Op { kind, generation, epoch, detail })
}

/// Turns wishes into records, with a fold of its own to know what is current; some records are copies of earlier ones.
fn journal(ops: &[Op]) -> Vec<Vec<u8>> {
    let mut fold = Fold::default();
    let mut journal: Vec<Vec<u8>> = vec![];
    for op in ops {
        let bytes = match op.kind {
            0 => b"a stranger's".to_vec(),
            1..=3 if !journal.is_empty() => journal[journal.len() * usize::from(op.detail) / 4].clone(),
            _ => record(&fold, *op, &journal).encode(),
        };
        let decoded = decode(&bytes).unwrap();
        if fold.apply(fold.next(), &decoded, record_checksum(&bytes)).is_ok() {
            journal.push(bytes);
        }
    }
    journal
}

fn record(fold: &Fold, op: Op, journal: &[Vec<u8>]) -> JournalRecord {
    let incarnation = fold.incarnation().unwrap_or(Incarnation::new(1));
    let current = fold.generation().unwrap_or(Generation::ZERO);
    let generation = Generation::new((current.get() + u64::from(op.generation)) % (fold.next().get() + 1));
    let epoch = Epoch::new((fold.epoch().get() + u64::from(op.epoch)).max(1));
    let bytes = vec![journal.len() as u8, op.detail];
    match op.kind {
        4 | 5 => JournalRecord::Claim(Claim {
            incarnation,
            nonce: Nonce::new(1 + u128::from(fold.next().get()) * u128::from(fold.generation().is_some())),
            replaces: fold.generation().map(|_| generation),
            owner: Owner::default(),
            topology_hash: 0,
        }),
        6..=9 => JournalRecord::Delta(DeltaPart {
            incarnation,
            generation,
            epoch,
            part: u32::from(op.detail % 2),
            parts: 2,
            bytes: vec![op.detail % 2],
        }),
        // Mostly the last epoch, which a Release names; `op.epoch` speaks of the next one.
        10 => {
            let epoch = Epoch::new((fold.epoch().get() + u64::from(op.epoch)).saturating_sub(1));
            JournalRecord::Release(Release { incarnation, generation, epoch })
        }
        _ => JournalRecord::Commit(Box::new(Commit {
            incarnation,
            generation,
            epoch,
            offsets: [(Partition::new("in", "b", 0), fold.next())].into_iter().collect(),
            watermarks: BTreeMap::new(),
            clock: Timestamp::from_millis(0),
            channels: BTreeMap::new(),
            tails: Offsets::default(),
            published_through: Epoch::new(epoch.get().saturating_sub(1 + u64::from(op.detail))),
            // Complete only when both parts came before it; otherwise the fold says DataLoss and it is not written.
            body: if op.kind == 11 {
                CommitBody::Parts { parts: 2, checksum: checksum(&[0, 1]) }
            } else {
                CommitBody::Inline(bytes)
            },
        })),
    }
}

/// All that a fold knows besides how it came there: a Claim before its beginning is unknown to it.
fn known(fold: &Fold) -> impl PartialEq + std::fmt::Debug {
    (fold.point(), fold.incarnation(), fold.generation(), fold.nonce(), fold.released(), fold.next())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_fold_from_any_point_equals_the_fold_from_the_start(ops in vec(op(), 0..60)) {
        let journal = journal(&ops);
        let decoded: Vec<(Decoded, u32)> = journal.iter().map(|bytes| (decode(bytes).unwrap(), record_checksum(bytes))).collect();
        let mut fold = Fold::default();
        let (mut results, mut points) = (vec![], vec![]);
        for (offset, (record, sum)) in decoded.iter().enumerate() {
            results.push(fold.apply(Offset::new(offset as u64), record, *sum).unwrap());
            points.extend(fold.point().map(|point| (offset + 1, point)));
        }
        for (taken_at, point) in points {
            let mut bytes = vec![];
            point.encode(&mut bytes);
            let point = CommitPoint::decode(&bytes).unwrap();
            let mut other = Fold::from_point(&point);
            for (offset, (record, sum)) in decoded.iter().enumerate().skip(point.journal_next.get() as usize) {
                let result = other.apply(Offset::new(offset as u64), record, *sum).unwrap();
                if offset >= taken_at {
                    prop_assert_eq!(&result, &results[offset], "at {}", offset);
                }
            }
            prop_assert_eq!(known(&other), known(&fold));
            if other.claim().is_some() {
                prop_assert_eq!(other.claim(), fold.claim());
            }
        }
    }

    /// Each unpublished epoch of each point is found again, as it was, from the point's first offset on; and not where
    /// something else lies.
    #[test]
    fn unpublished_epochs_are_read_again_as_they_were(ops in vec(op(), 0..60)) {
        let journal = journal(&ops);
        let decoded: Vec<(Decoded, u32)> = journal.iter().map(|bytes| (decode(bytes).unwrap(), record_checksum(bytes))).collect();
        let records = |from: usize| {
            decoded.iter().enumerate().skip(from).map(|(offset, (decoded, sum))| (Offset::new(offset as u64), decoded, *sum))
        };
        let mut fold = Fold::default();
        let mut committed = BTreeMap::new();
        for (offset, record, sum) in records(0) {
            if let Folded::Committed(one) = fold.apply(offset, record, sum).unwrap() {
                committed.insert(one.commit.epoch, one);
            }
            let Some(point) = fold.point() else { continue };
            for unpublished in &point.unpublished {
                let from = point.read_from().get() as usize;
                let again = recover_body(records(from), unpublished, point.incarnation).unwrap();
                prop_assert_eq!(&again, &*committed[&unpublished.epoch]);
                let moved = Unpublished { commit_offset: unpublished.commit_offset.next(), ..*unpublished };
                let other = recover_body(records(from), &moved, point.incarnation);
                prop_assert_eq!(other.unwrap_err().kind(), ErrorKind::DataLoss);
                let other = recover_body(records(from), unpublished, Incarnation::new(99));
                prop_assert_eq!(other.unwrap_err().kind(), ErrorKind::DataLoss);
            }
        }
    }
}

#[test]
fn offsets_out_of_order_are_a_bug_and_change_nothing() {
    let mut fold = Fold::default();
    let foreign = Decoded::Foreign(Foreign::NotOurs);
    for offset in [1, 7] {
        assert_eq!(fold.apply(Offset::new(offset), &foreign, 0).unwrap_err().kind(), ErrorKind::Bug);
    }
    assert_eq!(fold, Fold::default());
    fold.apply(Offset::ZERO, &foreign, 0).unwrap();
    assert_eq!(fold.apply(Offset::ZERO, &foreign, 0).unwrap_err().kind(), ErrorKind::Bug);
}

#[test]
fn a_gap_in_the_records_of_a_recovery_is_a_bug() {
    let foreign = Decoded::Foreign(Foreign::NotOurs);
    let unpublished = Unpublished { epoch: Epoch::new(1), body_from: Offset::new(3), commit_offset: Offset::new(6) };
    let records = [(Offset::new(3), &foreign, 0), (Offset::new(5), &foreign, 0)];
    let error = recover_body(records, &unpublished, Incarnation::new(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
}
