//! Records of the model as records of the product, and both folds side by side.

use crate::{Dice, bounds, rules};
use onceflow_model::rules::{Bounds, Rules};
use onceflow_model::world::{self, NONE, Rec};
use onceflow_txn::record_checksum;
use onceflow_txn::{
    Claim, Commit, CommitBody, Decoded, DeltaPart, Fold, Folded, JournalRecord, Owner, Release, Void, decode,
};
use onceflow_types::wire::checksum;
use onceflow_types::{
    Channel, Epoch, ErrorKind, Generation, Incarnation, Name, Nonce, Offset, Offsets, Partition, Sequence, Timestamp,
};

/// Both folds of one journal.
#[derive(Clone)]
pub(crate) struct Pair {
    model: world::Fold,
    pub(crate) product: Fold,
    length: u8,
}

/// Whether the journal can be read on.
#[derive(PartialEq)]
pub(crate) enum Goes {
    On,
    LostData,
}

impl Pair {
    pub(crate) fn start() -> Self {
        Pair { model: world::Fold::start(), product: Fold::default(), length: 0 }
    }

    /// Folds one more record and compares what both say about it and about everything.
    pub(crate) fn push(&mut self, record: &Rec, rules: &Rules, bounds: &Bounds) -> Goes {
        let bytes = record_bytes(record, self.product.incarnation(), bounds);
        let decoded = decode(&bytes).unwrap();
        assert!(matches!(decoded, Decoded::Record(_)), "{record:?}");
        let before = self.model.clone();
        self.model.step(self.length, record, rules, bounds);
        let folded = match self.product.apply(Offset::new(u64::from(self.length)), &decoded, record_checksum(&bytes)) {
            Ok(folded) => folded,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DataLoss, "{error:?}");
                assert!(only_its_parts_are_missing(&before, record, bounds), "{record:?} after {before:?}");
                return Goes::LostData;
            }
        };
        self.length += 1;
        self.compare_record(&before, record, &folded);
        self.compare_state();
        Goes::On
    }

    fn compare_record(&self, before: &world::Fold, record: &Rec, folded: &Folded) {
        let model = &self.model;
        let valid = match *record {
            Rec::Claim { .. } => model.generation == self.length - 1,
            // A Release stays visible in the model until the next Claim, and its Deltas stay in the slot.
            Rec::Delta { generation, epoch, part } => {
                let kept =
                    (model.pending.0, model.pending.1) == (generation, epoch) && model.pending.2 >> part & 1 == 1;
                kept && !model.released
            }
            Rec::Commit { .. } => model.epoch != before.epoch,
            Rec::Release { generation, epoch } => {
                model.released && (generation, epoch) == (model.generation, model.epoch)
            }
        };
        let product = match (record, folded) {
            (Rec::Claim { .. }, Folded::Claimed { .. })
            | (Rec::Delta { .. }, Folded::DeltaKept | Folded::Void(Void::RepeatedDelta))
            | (Rec::Commit { .. }, Folded::Committed(_))
            | (Rec::Release { .. }, Folded::Released) => true,
            // A copy of the valid Release changes nothing in either.
            (Rec::Release { .. }, Folded::Void(Void::AfterRelease)) => before.released,
            (_, Folded::Void(_)) => false,
            other => panic!("{other:?}"),
        };
        assert_eq!(product, valid, "{record:?} after {before:?}: {folded:?}");
    }

    fn compare_state(&self) {
        let (model, product) = (&self.model, &self.product);
        let known = |number: u8| (number != NONE).then_some(u64::from(number));
        assert_eq!(product.generation().map(Generation::get), known(model.generation));
        assert_eq!(product.nonce().map(Nonce::get), known(model.nonce).map(nonce));
        assert_eq!(product.epoch().get(), u64::from(model.epoch));
        assert_eq!(product.published_through().get(), u64::from(model.published));
        assert_eq!(product.released(), model.released);
        let unpublished: Vec<u8> = product.unpublished().iter().map(|one| one.epoch.get() as u8).collect();
        let commits = model.commits.iter().filter_map(|record| match record {
            Rec::Commit { epoch, .. } if *epoch > model.published => Some(*epoch),
            _ => None,
        });
        assert_eq!(unpublished, commits.collect::<Vec<_>>());
        if let Some(point) = product.point() {
            assert_eq!(point.channels[&channel()].get(), u64::from(model.seq));
        }
    }
}

/// The model calls such a Commit void, the product lost data: its writer had all parts acknowledged.
fn only_its_parts_are_missing(before: &world::Fold, record: &Rec, bounds: &Bounds) -> bool {
    let Rec::Commit { generation, epoch, .. } = *record else { return false };
    let complete = before.pending == (generation, epoch, (1 << bounds.parts) - 1);
    generation == before.generation && epoch == before.epoch + 1 && !before.released && !complete
}

/// A record of the journal as it is read.
pub(crate) fn decoded(bytes: &[u8]) -> Decoded {
    decode(bytes).unwrap()
}

fn nonce(model: u64) -> u128 {
    100 + u128::from(model)
}

fn channel() -> Channel {
    Channel { sink: Name::new("sink").unwrap(), target: Partition::new("out", "b", 0) }
}

/// The record as a writer of the product would encode it who has read a journal of this incarnation.
pub(crate) fn record_bytes(record: &Rec, incarnation: Option<Incarnation>, bounds: &Bounds) -> Vec<u8> {
    let own = incarnation.unwrap_or(Incarnation::new(1));
    let place = |generation: u8, epoch: u8| (Generation::new(u64::from(generation)), Epoch::new(u64::from(epoch)));
    let record = match *record {
        Rec::Claim { nonce: number, expects } => {
            let nonce = Nonce::new(nonce(u64::from(number)));
            JournalRecord::Claim(Claim {
                incarnation: if expects == NONE { nonce.into() } else { own },
                nonce,
                replaces: (expects != NONE).then(|| Generation::new(u64::from(expects))),
                owner: Owner::default(),
                topology_hash: 0,
            })
        }
        Rec::Delta { generation, epoch, part } => {
            let (generation, epoch) = place(generation, epoch);
            let (part, parts) = (u32::from(part), u32::from(bounds.parts));
            JournalRecord::Delta(DeltaPart {
                incarnation: own,
                generation,
                epoch,
                part,
                parts,
                bytes: vec![part as u8],
            })
        }
        Rec::Commit { generation, epoch, published, seq, .. } => {
            let (generation, epoch) = place(generation, epoch);
            let body: Vec<u8> = (0..bounds.parts).collect();
            JournalRecord::Commit(Box::new(Commit {
                incarnation: own,
                generation,
                epoch,
                offsets: Offsets::default(),
                watermarks: [].into(),
                clock: Timestamp::from_millis(0),
                channels: [(channel(), Sequence::new(u64::from(seq + bounds.outputs)))].into(),
                tails: Offsets::default(),
                published_through: Epoch::new(u64::from(published)),
                body: if bounds.parts == 0 {
                    CommitBody::Inline(vec![])
                } else {
                    CommitBody::Parts { parts: u32::from(bounds.parts), checksum: checksum(&body) }
                },
            }))
        }
        Rec::Release { generation, epoch } => {
            let (generation, epoch) = place(generation, epoch);
            JournalRecord::Release(Release { incarnation: own, generation, epoch })
        }
    };
    record.encode()
}

/// Every record that a journal of this length could get next, within small numbers.
fn letters(length: u8, parts: u8, epochs: u8, nonce: u8) -> Vec<Rec> {
    let generations: Vec<u8> = (0..length.min(4)).collect();
    let mut letters: Vec<Rec> =
        generations.iter().copied().chain([NONE]).map(|expects| Rec::Claim { nonce, expects }).collect();
    for &generation in &generations {
        for epoch in 1..=epochs {
            letters.extend((0..parts).map(|part| Rec::Delta { generation, epoch, part }));
            letters.extend((0..epoch).map(|published| Rec::Commit {
                generation,
                epoch,
                published,
                seq: epoch - 1,
                halves: [NONE; 2],
            }));
        }
        letters.extend((0..=epochs).map(|epoch| Rec::Release { generation, epoch }));
    }
    letters
}

fn enumerate(pair: &Pair, depth: u8, parts: u8, epochs: u8) -> u64 {
    if depth == 0 {
        return 1;
    }
    let (rules, bounds) = (rules(), bounds(parts));
    let mut count = 1;
    for record in letters(pair.length, parts, epochs, pair.length) {
        let mut next = pair.clone();
        if next.push(&record, &rules, &bounds) == Goes::On {
            count += enumerate(&next, depth - 1, parts, epochs);
        }
    }
    count
}

#[test]
fn both_folds_agree_on_every_short_journal() {
    for (parts, epochs) in [(0, 2), (1, 1), (2, 1)] {
        assert!(enumerate(&Pair::start(), 5, parts, epochs) > 3_000);
    }
}

#[test]
fn both_folds_agree_on_long_random_journals() {
    let rules = rules();
    let mut dice = Dice(0x5eed);
    let (mut epochs, mut generations, mut lost) = (0u64, 0u64, 0u64);
    for run in 0..3_000u16 {
        let bounds = bounds((run % 3) as u8);
        let mut pair = Pair::start();
        let mut written: Vec<Rec> = vec![];
        for length in 0..40 {
            let record = if dice.below(5) == 0 && !written.is_empty() {
                written[dice.below(written.len())]
            } else {
                likely(&pair.model, length, &bounds, &mut dice)
            };
            let mut next = pair.clone();
            if next.push(&record, &rules, &bounds) == Goes::LostData {
                lost += 1;
                continue;
            }
            written.push(record);
            pair = next;
        }
        epochs += pair.product.epoch().get();
        generations += pair.product.generation().map_or(0, |_| 1);
    }
    // The journals are not idle: the numbers are of one seed and say that things happened in them.
    assert!(epochs > 5_000 && generations > 2_900 && lost > 1_000, "{epochs} {generations} {lost}");
}

/// A record that is valid more often than not.
fn likely(model: &world::Fold, length: u8, bounds: &Bounds, dice: &mut Dice) -> Rec {
    let off = |dice: &mut Dice| u8::from(dice.below(6) == 0) * dice.below(3) as u8;
    let current = if model.generation == NONE { 0 } else { model.generation };
    let generation = current.saturating_sub(off(dice));
    let epoch = (model.epoch + 1 + off(dice)).saturating_sub(off(dice)).max(1);
    match dice.below(12) {
        0 | 1 => {
            let expects = if model.generation == NONE { NONE } else { generation };
            Rec::Claim { nonce: length % 16, expects }
        }
        2 => Rec::Release { generation, epoch: epoch - 1 },
        3..=7 if bounds.parts > 0 => Rec::Delta { generation, epoch, part: dice.below(bounds.parts.into()) as u8 },
        _ => {
            let published = dice.below(epoch.into()) as u8;
            Rec::Commit { generation, epoch, published, seq: epoch - 1, halves: [NONE; 2] }
        }
    }
}
