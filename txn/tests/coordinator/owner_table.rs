//! `coordinator.txt`.

use crate::table::{Step, run};
use onceflow_txn::record_checksum;
use onceflow_txn::*;
use onceflow_types::*;
use std::collections::{BTreeMap, BTreeSet};

/// A journal that anybody writes to, and one owner.
#[derive(Default)]
struct World {
    journal: Vec<Vec<u8>>,
    point: Option<CommitPoint>,
    coordinator: Option<Coordinator>,
    read: Option<(Offset, Option<Offset>)>,
    appended: Vec<u8>,
}

pub(crate) fn channel(sink: &str) -> Channel {
    Channel { sink: Name::new(sink).unwrap(), target: Partition::new(sink, "b", 0) }
}

fn owner(host: &str) -> Owner {
    Owner { host: host.into(), directory: "/state".into() }
}

/// A half of the epoch; its sequence is one per epoch.
pub(crate) fn half(epoch: u64, nth: u64) -> ListedHalf {
    let channel = channel("pay");
    let handle = HalfHandle {
        target: channel.target.clone(),
        commit_log_offset: 100 * epoch + nth,
        half_queue_offset: nth,
        unique_key: format!("K{epoch}.{nth}").into(),
    };
    ListedHalf { channel, sequence: Sequence::new(epoch - 1), handle }
}

fn noise(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    (0..bytes).map(byte).collect()
}

fn sealed(step: &Step<'_>, epoch: u64) -> Sealed {
    let batch =
        OutboxBatch { channel: channel("log"), first: Sequence::new(epoch - 1), count: 1, messages: vec![1, 2] };
    let mut offsets = Offsets::default();
    offsets.set(&Partition::new("in", "b", 0), Offset::new(10 * epoch));
    let next = Sequence::new(step.or("sequence", epoch));
    Sealed {
        offsets,
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: BTreeMap::from([(channel("pay"), next), (channel("log"), next)]),
        tails: Offsets::default(),
        published_through: Epoch::new(step.or("published", 0)),
        changes: noise(step.or("kib", 0) << 10, epoch),
        halves: step.or("halves", 1) as usize,
        outbox: vec![batch],
    }
}

impl World {
    fn fold(&self) -> Fold {
        let mut fold = Fold::default();
        for (offset, bytes) in (0..).map(Offset::new).zip(&self.journal) {
            fold.apply(offset, &decode(bytes).unwrap(), record_checksum(bytes)).unwrap();
        }
        fold
    }

    /// A record by somebody else, made as the fold of the journal would have it unless the line says otherwise.
    fn wrote(&mut self, step: &Step<'_>) -> String {
        let fold = self.fold();
        let nonce = step.or("nonce", 1);
        let incarnation = fold.incarnation().unwrap_or(Incarnation::new(nonce.into()));
        let generation = step.number("gen").map_or(fold.generation(), |number| Some(Generation::new(number)));
        let epoch = Epoch::new(step.or("epoch", fold.epoch().get() + u64::from(!step.has("release"))));
        let record = match step.words[0] {
            "claim" => JournalRecord::Claim(Claim {
                incarnation,
                nonce: Nonce::new(nonce.into()),
                replaces: generation,
                owner: owner(step.text("host").unwrap_or("other")),
                topology_hash: step.or("hash", 7),
            }),
            "commit" => {
                let sealed = sealed(step, epoch.get());
                let halves = (0..sealed.halves as u64).map(|nth| half(epoch.get(), nth)).collect();
                let body = EpochBody { changes: sealed.changes, halves, outbox: sealed.outbox };
                JournalRecord::Commit(Box::new(Commit {
                    incarnation,
                    generation: generation.unwrap(),
                    epoch,
                    offsets: sealed.offsets,
                    watermarks: sealed.watermarks,
                    clock: sealed.clock,
                    channels: sealed.channels,
                    tails: sealed.tails,
                    published_through: sealed.published_through,
                    body: CommitBody::Inline(body.encode().unwrap()),
                }))
            }
            "delta" => JournalRecord::Delta(DeltaPart {
                incarnation,
                generation: generation.unwrap(),
                epoch,
                part: 0,
                parts: 1,
                bytes: vec![1],
            }),
            "release" => JournalRecord::Release(Release { incarnation, generation: generation.unwrap(), epoch }),
            what => panic!("wrote {what}"),
        };
        self.journal.push(record.encode());
        format!("at {}", self.journal.len() - 1)
    }

    fn open(&mut self, step: &Step<'_>) -> String {
        let claim_of = |point: &CommitPoint| match decode(self.journal.get(point.generation.get() as usize)?).unwrap() {
            Decoded::Record(JournalRecord::Claim(claim)) if !step.has("unknown") => Some(claim),
            _ => None,
        };
        let opening = Opening {
            nonce: Nonce::new(step.or("nonce", 9).into()),
            owner: owner(step.text("host").unwrap_or("own")),
            topology_hash: step.or("hash", 7),
            upgrade: step.has("upgrade"),
            previous: self.point.as_ref().and_then(claim_of),
            point: self.point.clone(),
            journal_first: Offset::new(step.or("first", 0)),
            internal_sinks: BTreeSet::from([Name::new("log").unwrap()]),
            tries_max: 3,
        };
        match Coordinator::open(opening) {
            Ok((coordinator, actions)) => {
                self.coordinator = Some(coordinator);
                self.show(actions)
            }
            Err(error) => format!("{}: {error}", error.kind().as_str()),
        }
    }

    fn read(&self, step: &Step<'_>) -> Event {
        let (from, through) = self.read.unwrap();
        let end = step.or("end", self.journal.len() as u64);
        let range = from.get()..end.min(from.get() + step.or("records", 1_000)).max(from.get());
        let next = range.end;
        let records = range.map(|offset| {
            let bytes = &self.journal[offset as usize];
            ReadRecord {
                offset: Offset::new(offset),
                decoded: decode(bytes).unwrap(),
                checksum: record_checksum(bytes),
            }
        });
        Event::Read { records: records.collect(), at_end: through.is_none() && next >= end }
    }

    /// What was asked to append lands.
    fn land(&mut self) -> Offset {
        self.journal.push(self.appended.clone());
        Offset::new(self.journal.len() as u64 - 1)
    }

    fn event(&mut self, step: &Step<'_>) -> Event {
        match step.verb {
            "read" => self.read(step),
            "ack" => Event::Acknowledged(step.number("at").map_or_else(|| self.land(), Offset::new)),
            "unknown" => Event::Unknown,
            "seal" => {
                let epoch = self.coordinator.as_ref().unwrap().epoch().get() + 1;
                Event::Sealed(Box::new(sealed(step, epoch)))
            }
            "prepared" => {
                let epoch = self.coordinator.as_ref().unwrap().epoch().get() + 1;
                Event::Prepared((0..step.or("halves", 1)).map(|nth| half(epoch, nth)).collect())
            }
            "applied" => Event::Applied,
            "release" => Event::Release,
            "snapshot" => Event::Snapshot(SnapshotLocation {
                partition: Partition::new("snapshots", "b", 0),
                first: Offset::ZERO,
                chunks: 1,
                checksum: 0,
            }),
            verb => panic!("{verb}"),
        }
    }

    fn step(&mut self, step: &Step<'_>) -> String {
        match step.verb {
            "wrote" => self.wrote(step),
            // What was asked to append lands without being acknowledged.
            "landed" => format!("at {}", self.land()),
            "lost" => {
                self.journal.truncate(step.number("from").unwrap() as usize);
                "lost".into()
            }
            "store" => {
                self.point = self.fold().point();
                let point = self.point.as_ref().unwrap();
                format!("epoch={} next={} unpublished={:?}", point.epoch, point.journal_next, unpublished(point))
            }
            "open" => self.open(step),
            "newer" => {
                let coordinator = self.coordinator.as_ref().unwrap();
                self.read = Some((coordinator.cursor(), None));
                let Event::Read { records, .. } = self.read(step) else { unreachable!() };
                format!("{:?}", coordinator.newer_claim(&records))
            }
            _ => {
                let event = self.event(step);
                let actions = self.coordinator.as_mut().unwrap().step(event);
                self.show(actions)
            }
        }
    }

    fn show(&mut self, actions: Vec<Action>) -> String {
        let shown: Vec<String> = actions.into_iter().map(|action| self.show_one(action)).collect();
        if shown.is_empty() { "-".into() } else { shown.join("; ") }
    }

    fn show_one(&mut self, action: Action) -> String {
        match action {
            Action::Read { from, through } => {
                self.read = Some((from, through));
                through.map_or(format!("read {from}.."), |through| format!("read {from}..={through}"))
            }
            Action::Append { record, resend } => {
                let kind = if resend { "again".into() } else { kind(&decode(&record).unwrap()) };
                self.appended = record;
                format!("append {kind}")
            }
            Action::Prepare { epoch, halves } => format!("prepare epoch={epoch} halves={halves}"),
            Action::Apply(permit) => {
                let from = if *permit.changes() == Changes::Sealed { "sealed" } else { "journal" };
                let point = permit.point();
                self.point = Some(point.clone());
                let (epoch, next) = (point.epoch, point.journal_next);
                format!("apply {from} epoch={epoch} next={next} unpublished={:?}", unpublished(point))
            }
            Action::Owned { generation, plans, wait, .. } => {
                let plans: Vec<Epoch> = plans.iter().map(|plan| plan.epoch).collect();
                format!("owned gen={generation} plans={plans:?}{}", if wait { " wait" } else { "" })
            }
            Action::Publish(plan) => {
                let items = plan.items.iter().map(|item| match item.work {
                    Work::End(_) => "end",
                    Work::Send(_) if item.internal => "send-internal",
                    Work::Send(_) => "send",
                });
                format!("publish epoch={} {}", plan.epoch, items.collect::<Vec<_>>().join(","))
            }
            Action::Released => "released".into(),
            Action::Stop(error) => format!("stop {}: {error}", error.kind().as_str()),
        }
    }
}

fn unpublished(point: &CommitPoint) -> Vec<u64> {
    point.unpublished.iter().map(|unpublished| unpublished.epoch.get()).collect()
}

fn kind(decoded: &Decoded) -> String {
    let Decoded::Record(record) = decoded else { return "foreign".into() };
    match record {
        JournalRecord::Claim(claim) => format!("claim replaces={:?}", claim.replaces.map(Generation::get)),
        JournalRecord::Delta(delta) => format!("delta epoch={} {}/{}", delta.epoch, delta.part, delta.parts),
        JournalRecord::Commit(commit) => {
            let body = if matches!(commit.body, CommitBody::Inline(_)) { "inline" } else { "parts" };
            format!(
                "commit gen={} epoch={} published={} {body}",
                commit.generation, commit.epoch, commit.published_through
            )
        }
        JournalRecord::Snapshot(snapshot) => format!("snapshot epoch={} through={}", snapshot.epoch, snapshot.through),
        JournalRecord::Release(release) => format!("release gen={} epoch={}", release.generation, release.epoch),
    }
}

#[test]
fn the_owner_decides_as_written_down() {
    run("coordinator", World::default, World::step);
}
