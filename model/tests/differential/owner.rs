//! The production coordinator beside the model's owners: every walk of the model is a schedule, and after each of its
//! steps both must be at the same place: who owns, who was fenced, what is decided, and the same records in flight.
//!
//! Left out: Release (the product's owner never goes on after one), and loss of power (the product's owner drops the task
//! where the model's reads again).

use crate::journal::decoded;
use crate::{Dice, rules};
use onceflow_model::rules::{Bounds, Rules, S3};
use onceflow_model::step::{Label, next};
use onceflow_model::world::{NONE, Owner, Pc, Rec, Store, World};
use onceflow_txn::record_checksum;
use onceflow_txn::{Action, Changes, Coordinator, Decoded, Event, JournalRecord, Opening, ReadRecord, Sealed, decode};
use onceflow_types::{
    Channel, CommitPoint, Epoch, ErrorKind, Generation, Name, Nonce, Offset, Offsets, Partition, Sequence, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// One opened task.
struct Driven {
    coordinator: Coordinator,
    /// What its store would give back after a crash.
    point: Option<CommitPoint>,
    /// The bytes of the append whose outcome is open.
    pending: Option<Vec<u8>>,
    /// The commit that the store was asked for.
    applying: Option<CommitPoint>,
    owned_epochs: Option<Vec<u64>>,
    stopped: Option<ErrorKind>,
}

/// The product's half of a world.
#[derive(Default)]
struct Beside {
    journal: Vec<ReadRecord>,
    /// Each record of the model as its writer encoded it: resends and late copies are these bytes.
    bytes: BTreeMap<Rec, Vec<u8>>,
    driven: BTreeMap<u8, Driven>,
    /// Owners of the model are interchangeable; a store is known by what is in it.
    points: BTreeMap<Store, Option<CommitPoint>>,
    fenced: u64,
    decided: u64,
}

impl Driven {
    fn open(nonce: u8, point: Option<CommitPoint>) -> (Self, Vec<Action>) {
        let (coordinator, actions) = Coordinator::open(Opening {
            nonce: Nonce::new(100 + u128::from(nonce)),
            owner: onceflow_txn::Owner { host: format!("host-{nonce}"), directory: String::new() },
            topology_hash: 0,
            upgrade: false,
            point: point.clone(),
            previous: None,
            journal_first: Offset::ZERO,
            internal_sinks: BTreeSet::new(),
            tries_max: 100,
        })
        .unwrap();
        let driven = Driven { coordinator, point, pending: None, applying: None, owned_epochs: None, stopped: None };
        (driven, actions)
    }

    /// Carries out actions; `end` is how far an opening can read.
    fn carry_out(&mut self, actions: Vec<Action>, journal: &[ReadRecord], end: usize) {
        for action in actions {
            match action {
                Action::Read { from, through } => {
                    let end = through.map_or(end, |through| through.get() as usize + 1);
                    let records = journal[..end].get(from.get() as usize..).unwrap_or_default().to_vec();
                    let more = self.coordinator.step(Event::Read { records, at_end: through.is_none() });
                    self.carry_out(more, journal, end);
                }
                Action::Append { record, .. } => self.pending = Some(record),
                Action::Apply(permit) => {
                    let point = Some(permit.point().clone());
                    if *permit.changes() == Changes::Sealed { self.applying = point } else { self.point = point }
                }
                Action::Owned { plans, .. } => {
                    self.owned_epochs = Some(plans.iter().map(|plan| plan.epoch.get()).collect());
                }
                Action::Publish(_) => {}
                Action::Stop(error) => self.stopped = Some(error.kind()),
                Action::Prepare { .. } | Action::Released => panic!("{action:?}"),
            }
        }
    }

    fn event(&mut self, event: Event, journal: &[ReadRecord]) {
        let actions = self.coordinator.step(event);
        self.carry_out(actions, journal, journal.len());
    }
}

fn owner(world: &World, nonce: u8) -> Option<&Owner> {
    world.owners.iter().find(|owner| owner.pc != Pc::Idle && owner.nonce == nonce)
}

/// The record that a step sent: it landed, or it is in flight.
fn sent(before: &World, after: &World) -> Rec {
    if after.journal.len() > before.journal.len() {
        return after.journal[before.journal.len()];
    }
    let count = |world: &World, record: &Rec| world.j_net.iter().filter(|other| *other == record).count();
    *after.j_net.iter().find(|record| count(after, record) > count(before, record)).unwrap()
}

fn sealed(owner: &Owner, bounds: &Bounds) -> Sealed {
    let target = Partition::new("out", "b", 0);
    let channel = Channel { sink: Name::new("sink").unwrap(), target };
    // Too large for the Commit, and not to be compressed, when the model's epochs have a Delta.
    let mut dice = Dice(1);
    let len = if bounds.parts == 0 { 8 } else { onceflow_txn::INLINE_BYTES_MAX + 1 };
    Sealed {
        offsets: Offsets::default(),
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: [(channel, Sequence::new(u64::from(owner.seq + bounds.outputs)))].into(),
        tails: Offsets::default(),
        published_through: Epoch::new(owner.published.into()),
        changes: (0..len).map(|_| dice.below(256) as u8).collect(),
        halves: 0,
        outbox: vec![],
    }
}

impl Beside {
    fn step(&mut self, before: &World, label: Label, after: &World, bounds: &Bounds) {
        match label.what {
            "begins to open" => self.begins(label.who, after),
            "S0 opens epoch" => {
                let sealed = Box::new(sealed(owner(after, label.who).unwrap(), bounds));
                self.event(label.who, Event::Sealed(sealed));
            }
            "S4 applies epoch" => {
                let driven = self.driven.get_mut(&label.who).unwrap();
                driven.point = driven.applying.take();
                self.event(label.who, Event::Applied);
            }
            "…timed out (in flight)" | "…landed, no SEND_OK" => {
                self.sends(label.who, before, after);
                self.event(label.who, Event::Unknown);
            }
            what if what.contains("SEND_OK at") => {
                self.sends(label.who, before, after);
                self.driven.get_mut(&label.who).unwrap().pending = None;
                self.event(label.who, Event::Acknowledged(Offset::new(label.arg.into())));
            }
            "crashes, store kept" | "crashes, store lost" => {
                self.driven.remove(&label.who);
                return;
            }
            "re-reads the journal for its lease up to" => return self.renews(label, after),
            _ => {}
        }
        self.lands(after);
        if label.who != NONE {
            self.compare(label.who, after);
        }
    }

    fn begins(&mut self, nonce: u8, after: &World) {
        let store = owner(after, nonce).unwrap().store.as_ref();
        let point = store.and_then(|store| self.points[store].clone());
        let (mut driven, actions) = Driven::open(nonce, point);
        driven.carry_out(actions, &self.journal, after.j_seen.into());
        self.driven.insert(nonce, driven);
    }

    /// The model's owner sends a record: the product's must be sending the same, byte for byte the same as before.
    fn sends(&mut self, nonce: u8, before: &World, after: &World) {
        let (record, pending) = (sent(before, after), self.driven[&nonce].pending.clone().unwrap());
        let known = self.bytes.entry(record).or_insert_with(|| pending.clone());
        assert_eq!(*known, pending, "{record:?}");
        let same_kind = match (record, decode(&pending).unwrap()) {
            (Rec::Claim { expects, .. }, Decoded::Record(JournalRecord::Claim(claim))) => {
                claim.replaces.map(Generation::get) == (expects != NONE).then_some(expects.into())
            }
            (Rec::Delta { generation, epoch, part }, Decoded::Record(JournalRecord::Delta(delta))) => {
                (delta.generation.get(), delta.epoch.get(), delta.part)
                    == (generation.into(), epoch.into(), part.into())
            }
            (Rec::Commit { generation, epoch, published, .. }, Decoded::Record(JournalRecord::Commit(commit))) => {
                (commit.generation.get(), commit.epoch.get(), commit.published_through.get())
                    == (generation.into(), epoch.into(), published.into())
            }
            _ => false,
        };
        assert!(same_kind, "{record:?}");
        self.lands(after);
    }

    fn lands(&mut self, after: &World) {
        for record in &after.journal[self.journal.len()..] {
            let bytes = &self.bytes[record];
            let offset = Offset::new(self.journal.len() as u64);
            self.journal.push(ReadRecord { offset, decoded: decoded(bytes), checksum: record_checksum(bytes) });
        }
    }

    fn event(&mut self, nonce: u8, event: Event) {
        self.driven.get_mut(&nonce).unwrap().event(event, &self.journal);
    }

    /// A publisher that reads a newer Claim stops, whatever its coordinator is doing.
    fn renews(&mut self, label: Label, after: &World) {
        let coordinator = &self.driven[&label.who].coordinator;
        let from = (coordinator.cursor().get() as usize).min(label.arg.into());
        let newer = coordinator.newer_claim(&self.journal[from..label.arg.into()]);
        assert_eq!(newer.is_some(), owner(after, label.who).is_none(), "{:?}", after.journal);
        if newer.is_some() {
            self.driven.remove(&label.who);
            self.fenced += 1;
        }
    }

    fn compare(&mut self, nonce: u8, after: &World) {
        let Some(model) = owner(after, nonce) else {
            let stopped = self.driven.remove(&nonce).unwrap().stopped;
            assert_eq!(stopped, Some(ErrorKind::Fenced), "{:?}", after.journal);
            self.fenced += 1;
            return;
        };
        let driven = &self.driven[&nonce];
        assert_eq!(driven.stopped, None, "{:?}", after.journal);
        let sending = driven.pending.as_deref().map(|bytes| decode(bytes).unwrap());
        let same = match (model.pc, &sending) {
            (Pc::Ready, None) => driven.applying.is_none() && driven.owned_epochs.is_some(),
            (Pc::Apply, None) => driven.applying.is_some(),
            (Pc::Claim, Some(Decoded::Record(JournalRecord::Claim(_))))
            | (Pc::Delta, Some(Decoded::Record(JournalRecord::Delta(_))))
            | (Pc::Commit, Some(Decoded::Record(JournalRecord::Commit(_)))) => true,
            _ => false,
        };
        assert!(same, "model is at {:?}, product sends {sending:?}: {:?}", model.pc, after.journal);
        if model.pc == Pc::Claim {
            return;
        }
        let coordinator = &driven.coordinator;
        assert_eq!(coordinator.epoch().get(), u64::from(model.done));
        assert_eq!(coordinator.fold().generation().unwrap().get(), u64::from(model.generation));
        assert_eq!(coordinator.cursor().get(), u64::from(model.known), "{:?}", after.journal);
        self.decided = self.decided.max(model.done.into());
        if let Some(store) = &model.store {
            self.points.insert(store.clone(), driven.point.clone());
        }
    }

    /// What a new owner is told to finish is what the model's finishes.
    fn compare_unpublished(&mut self, nonce: u8, after: &World) {
        let (Some(model), Some(driven)) = (owner(after, nonce), self.driven.get_mut(&nonce)) else { return };
        let mut epochs: Vec<u64> = model.queue.iter().map(|message| message.epoch.into()).collect();
        epochs.dedup();
        assert_eq!(driven.owned_epochs, Some(epochs), "{:?}", after.journal);
    }
}

fn is_left_out(world: &World, label: Label, after: &World) -> bool {
    let releasing = owner(world, label.who).is_some_and(|owner| owner.pc == Pc::Ready)
        && (label.what.starts_with("Release") || label.what.starts_with('…'));
    // A read that lags behind the opener's own store: the product knows more than what it read, and claims better.
    let lagging = label.what == "begins to open"
        && owner(after, label.who).unwrap().store.as_ref().is_some_and(|store| store.off > after.j_seen);
    releasing || lagging
}

fn walk(rules: &Rules, bounds: &Bounds, seed: u64) -> (u64, u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::start(bounds);
    let mut beside = Beside::default();
    while world.journal.len() < 40 {
        let mut all = next(&world, rules, bounds);
        all.retain(|(label, after)| !is_left_out(&world, *label, after));
        if all.is_empty() {
            break;
        }
        let (label, after) = all.swap_remove(dice.below(all.len()));
        beside.step(&world, label, &after, bounds);
        if label.what == "Claim SEND_OK at" {
            beside.compare_unpublished(label.who, &after);
        }
        assert_eq!(after.bad, None);
        world = after;
    }
    (beside.fenced, beside.decided)
}

fn walks(rules: &Rules, bounds: &Bounds, count: u64) {
    let (mut fenced, mut decided) = (0, 0);
    for seed in 1..=count {
        let (stopped, epochs) = walk(rules, bounds, seed);
        fenced += stopped;
        decided += epochs;
    }
    assert!(fenced > count / 4 && decided > count, "too little happened: fenced={fenced} decided={decided}");
}

fn wide() -> Bounds {
    Bounds { owners: 3, claims: 6, epochs: 4, faults: 5, crashes: 3, halves: false, parts: 0, ..Bounds::base() }
}

#[test]
fn the_coordinator_goes_where_the_models_owner_goes() {
    walks(&rules(), &wide(), 2_000);
    walks(&rules(), &Bounds { store_loss: true, crashes: 5, claims: 8, ..wide() }, 1_000);
    walks(&rules(), &Bounds { parts: 1, ..wide() }, 40);
}

/// The comparison must be able to fail: an owner without one of the rules parts from the product.
#[test]
fn an_owner_without_a_rule_is_found_out() {
    let wrong = [
        Rules { s3: S3::Blind, ..rules() },
        Rules { read_between: false, ..rules() },
        Rules { claim_needs_ok: false, ..rules() },
        Rules { store_keeps_unpublished: false, ..rules() },
    ];
    for rules in wrong {
        let found = std::panic::catch_unwind(|| walks(&rules, &wide(), 2_000));
        assert!(found.is_err(), "{rules:?}");
    }
}
