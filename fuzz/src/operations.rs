//! State machines as lists of operations: each byte says what happens next.

use onceflow_storage::Delta;
use onceflow_txn::{
    Action, Changes, ChannelKey, Claim, Commit, CommitBody, Coordinator, Decoded, DedupReader, DedupSettings,
    DeltaPart, EpochBody, Event, Fold, Folded, JournalRecord, ListedHalf, Opening, Owner, ReadRecord, Release, Sealed,
    Snapshot, SnapshotLocation, Start, record_checksum,
};
use onceflow_types::wire::checksum;
use onceflow_types::{
    Channel, Epoch, ErrorKind, Generation, HalfHandle, Incarnation, Name, Nonce, Offset, Offsets, Partition, Sequence,
    TaskId, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Most operations of one list: what is found in longer ones is found in shorter ones.
const OPERATIONS_MAX: usize = 200;

/// Bytes as choices; 0 when there are none left.
struct Choices<'b>(&'b [u8]);

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn below(&mut self, bound: u8) -> u64 {
        u64::from(self.next().unwrap_or(0) % bound)
    }

    fn odds(&mut self, one_in: u8) -> bool {
        self.next().is_some_and(|byte| byte % one_in == one_in - 1)
    }
}

fn queue() -> Partition {
    Partition::new("target", "broker", 0)
}

fn channel(number: u64) -> Channel {
    Channel { sink: Name::new(format!("sink-{number}")).expect("a name"), target: queue() }
}

fn claim(incarnation: u128, nonce: u128, replaces: Option<Generation>) -> Claim {
    Claim {
        incarnation: Incarnation::new(incarnation),
        nonce: Nonce::new(nonce),
        replaces,
        owner: Owner::default(),
        topology_hash: 1,
    }
}

fn commit(incarnation: Incarnation, generation: Generation, epoch: Epoch, published: Epoch) -> Commit {
    let mut offsets = Offsets::default();
    offsets.set(&Partition::new("source", "broker", 0), Offset::new(epoch.get().saturating_mul(2)));
    Commit {
        incarnation,
        generation,
        epoch,
        offsets,
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: [(channel(0), Sequence::new(epoch.get()))].into(),
        tails: Offsets::default(),
        published_through: published,
        body: CommitBody::Inline(EpochBody::default().encode().expect("an empty body")),
    }
}

fn decoded(record: JournalRecord) -> (Decoded, u32) {
    let bytes = record.encode();
    (onceflow_txn::decode(&bytes).expect("an encoded record decodes"), record_checksum(&bytes))
}

/// A journal of incarnation 9: generation 1 owns it, epoch 4 is decided, epoch 2 published.
pub(crate) fn fold_with_epochs() -> Fold {
    let mut fold = Fold::default();
    let mut apply = |record| {
        let (decoded, sum) = decoded(record);
        fold.apply(fold.next(), &decoded, sum).expect("a good record");
    };
    apply(JournalRecord::Claim(claim(9, 9, None)));
    apply(JournalRecord::Claim(claim(9, 10, Some(Generation::new(0)))));
    for epoch in 1..=4 {
        let published = Epoch::new((epoch - 1).min(2));
        let commit = commit(Incarnation::new(9), Generation::new(1), Epoch::new(epoch), published);
        apply(JournalRecord::Commit(Box::new(commit)));
    }
    fold
}

/// A record made of choices, most often one that could follow.
fn any_record(choices: &mut Choices<'_>, fold: &Fold, parts: &mut Vec<Vec<u8>>) -> Option<JournalRecord> {
    let kind = choices.next()?;
    let stray = choices.odds(4);
    let generation = if stray { Some(Generation::new(choices.below(12))) } else { fold.generation() };
    let incarnation =
        if choices.odds(8) { Incarnation::new(2) } else { fold.incarnation().unwrap_or(Incarnation::new(1)) };
    let epoch = if stray { Epoch::new(choices.below(6)) } else { fold.epoch().next() };
    let place = generation.unwrap_or(Generation::new(0));
    Some(match kind % 6 {
        0 => {
            let nonce = u128::from(choices.below(4)) + 1;
            let first = fold.incarnation().is_none() && !stray;
            let incarnation = if first { nonce } else { incarnation.get() };
            JournalRecord::Claim(claim(incarnation, nonce, generation))
        }
        1 => {
            let (part, count) = (choices.below(3) as u32, choices.below(3) as u32 + 1);
            if part >= count || epoch == Epoch::ZERO {
                return any_record(choices, fold, parts);
            }
            let bytes = vec![kind; choices.below(20) as usize];
            parts.push(bytes.clone());
            JournalRecord::Delta(DeltaPart { incarnation, generation: place, epoch, part, parts: count, bytes })
        }
        2 | 3 => {
            let published = Epoch::new(epoch.get().saturating_sub(1 + choices.below(3)));
            if epoch == Epoch::ZERO {
                return any_record(choices, fold, parts);
            }
            let mut commit = commit(incarnation, place, epoch, published);
            if kind % 6 == 3 {
                let count = choices.below(3) as usize + 1;
                let joined = parts.iter().rev().take(count).rev().flatten().copied().collect::<Vec<_>>();
                commit.body = CommitBody::Parts { parts: count as u32, checksum: checksum(&joined) };
            }
            if choices.odds(16) {
                commit.channels = [(channel(0), Sequence::new(choices.below(9)))].into();
            }
            JournalRecord::Commit(Box::new(commit))
        }
        4 => JournalRecord::Release(Release {
            incarnation,
            generation: place,
            epoch: if stray { epoch } else { fold.epoch() },
        }),
        _ => {
            let through = Offset::new(choices.below(8) + 1);
            let location = SnapshotLocation { partition: queue(), first: Offset::new(0), chunks: 1, checksum: 0 };
            JournalRecord::Snapshot(Box::new(Snapshot {
                incarnation,
                generation: place,
                epoch: epoch.max(Epoch::new(1)),
                through,
                commit_offset: Offset::new(choices.below(through.get() as u8)),
                commit_checksum: 0,
                location,
            }))
        }
    })
}

/// The fold over any records: it never goes back, skips no epoch, is left as it was by an error, and says the same when
/// it is resumed from any of its points.
pub fn fold_operations(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut fold = Fold::default();
    let mut resumed: Option<Fold> = None;
    let mut parts = vec![];
    for _ in 0..OPERATIONS_MAX {
        let Some(record) = any_record(&mut choices, &fold, &mut parts) else { return };
        let (decoded, sum) = decoded(record);
        let before = fold.clone();
        let folded = fold.apply(fold.next(), &decoded, sum);
        let Ok(folded) = folded else {
            assert_eq!(fold, before, "an error changes nothing");
            return;
        };
        assert_eq!(fold.next(), before.next().next());
        assert!(fold.generation() >= before.generation() && fold.published_through() >= before.published_through());
        assert!(fold.published_through() <= fold.epoch());
        let committed = matches!(folded, Folded::Committed(_));
        assert_eq!(fold.epoch(), if committed { before.epoch().next() } else { before.epoch() });
        if matches!(folded, Folded::Void(_)) {
            assert_eq!(
                (fold.point().map(|p| p.epoch), fold.generation()),
                (before.point().map(|p| p.epoch), before.generation())
            );
        }
        if let Some(resumed) = &mut resumed {
            resumed.apply(resumed.next(), &decoded, sum).expect("as the whole fold");
            assert_eq!(resumed.point(), fold.point(), "resumed and whole");
            assert_eq!((resumed.released(), resumed.generation()), (fold.released(), fold.generation()));
        }
        // A point of a moment without waiting Deltas, from which nothing must be folded again.
        if let Some(point) = fold.point().filter(|point| point.journal_next == fold.next())
            && choices.odds(3)
        {
            resumed = Some(Fold::from_point(&point));
        }
    }
}

/// What surrounds one coordinator: a journal that others write to, also between a send and its acknowledgement.
struct World {
    journal: Vec<Vec<u8>>,
    applied: Epoch,
}

impl World {
    fn record(&self, offset: usize) -> ReadRecord {
        let bytes = &self.journal[offset];
        let decoded = onceflow_txn::decode(bytes).expect("of this version");
        ReadRecord { offset: Offset::new(offset as u64), decoded, checksum: record_checksum(bytes) }
    }

    fn fold(&self) -> Fold {
        let mut fold = Fold::default();
        for offset in 0..self.journal.len() {
            let record = self.record(offset);
            // What stops a reader stops it at the same place each time.
            if fold.apply(record.offset, &record.decoded, record.checksum).is_err() {
                break;
            }
        }
        fold
    }

    /// Lets somebody else write: a copy of anything, a record of a zombie, a rival's Claim, or no record at all.
    fn meddle(&mut self, choices: &mut Choices<'_>) {
        let copied = choices.below(255) as usize;
        match choices.below(4) {
            0 if !self.journal.is_empty() => self.journal.push(self.journal[copied % self.journal.len()].clone()),
            1 => self.journal.push(b"OFJRa stranger".to_vec()),
            2 => {
                let record = any_record(choices, &self.fold(), &mut vec![]);
                self.journal.extend(record.map(|record| record.encode()));
            }
            _ => self.journal.push(vec![]),
        }
    }
}

/// The coordinator in a world that resends, reorders and meddles: it applies epochs without a gap, and each only when the
/// fold over the whole journal knows the very Commit. After it stopped it asks for nothing.
pub fn coordinator_operations(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut world = World { journal: vec![], applied: Epoch::ZERO };
    for _ in 0..choices.below(8) {
        world.meddle(&mut choices);
    }
    let opening = Opening {
        nonce: Nonce::new(77),
        owner: Owner::default(),
        topology_hash: 1,
        upgrade: choices.odds(2),
        point: None,
        previous: None,
        journal_first: Offset::new(0),
        internal_sinks: BTreeSet::new(),
        tries_max: 3,
    };
    let Ok((mut coordinator, actions)) = Coordinator::open(opening) else { return };
    let mut actions = VecDeque::from(actions);
    let mut sequence = 0;
    for _ in 0..OPERATIONS_MAX {
        let event = match actions.pop_front() {
            Some(Action::Stop(_) | Action::Released) => {
                assert!(actions.is_empty(), "nothing follows the end");
                assert!(coordinator.step(Event::Release).is_empty(), "it is over");
                return;
            }
            Some(action) => match carry_out(action, &mut world, &mut choices) {
                Some(event) => event,
                None => continue,
            },
            None => match idle(&coordinator, &mut sequence, &mut choices) {
                Some(event) => event,
                None => return,
            },
        };
        actions.extend(coordinator.step(event));
    }
}

fn carry_out(action: Action, world: &mut World, choices: &mut Choices<'_>) -> Option<Event> {
    match action {
        Action::Read { from, through } => {
            if choices.odds(6) {
                world.meddle(choices);
            }
            // A promise of the log: what was acknowledged can be read.
            let from = usize::try_from(from.get()).expect("small");
            let end = world.journal.len();
            let least = through.map_or(from, |through| usize::try_from(through.get()).expect("small") + 1);
            let to = if choices.odds(3) { least.max(from + 1).min(end) } else { end };
            let records = (from..to).map(|offset| world.record(offset)).collect();
            Some(Event::Read { records, at_end: to == end })
        }
        Action::Append { record, .. } => {
            if choices.odds(5) {
                world.meddle(choices);
            }
            let (lost, silent) = (choices.odds(7), choices.odds(5));
            if !lost {
                world.journal.push(record);
            }
            if lost || silent {
                return Some(Event::Unknown);
            }
            let offset = Offset::new(world.journal.len() as u64 - 1);
            if choices.odds(5) {
                world.meddle(choices);
            }
            Some(Event::Acknowledged(offset))
        }
        Action::Prepare { halves, epoch } => {
            let half = |number: usize| ListedHalf {
                channel: channel(0),
                sequence: Sequence::new(number as u64),
                handle: HalfHandle {
                    target: queue(),
                    commit_log_offset: 1,
                    half_queue_offset: 2,
                    unique_key: format!("{epoch}-{number}").into(),
                },
            };
            Some(Event::Prepared((0..halves).map(half).collect()))
        }
        Action::Apply(permit) => {
            let point = permit.point();
            assert_eq!(point.epoch, world.applied.next(), "no epoch is skipped or repeated");
            world.applied = point.epoch;
            let at = usize::try_from(point.commit_offset.get()).expect("small");
            let record = world.record(at);
            assert_eq!(record.checksum, point.commit_checksum);
            let Decoded::Record(JournalRecord::Commit(commit)) = record.decoded else { panic!("a Commit lies there") };
            assert_eq!((commit.epoch, &commit.offsets), (point.epoch, &point.offsets));
            let truth = world.fold();
            assert!(truth.epoch() >= point.epoch, "the journal says so, too");
            match permit.changes() {
                Changes::Sealed => Some(Event::Applied),
                Changes::Journal(_) => None,
            }
        }
        Action::Owned { .. } | Action::Publish(_) => None,
        Action::Stop(_) | Action::Released => unreachable!("the caller has seen to these"),
    }
}

/// What an owner does when nothing is asked of it: seal an epoch, hand over, or, rarely, what it must not.
fn idle(coordinator: &Coordinator, sequence: &mut u64, choices: &mut Choices<'_>) -> Option<Event> {
    match choices.next()? % 16 {
        0 => Some(Event::Release),
        1 => Some(Event::Acknowledged(Offset::new(choices.below(9)))),
        2 => Some(Event::Applied),
        3 => Some(Event::Prepared(vec![])),
        4 => Some(Event::Unknown),
        5 => Some(Event::Read { records: vec![], at_end: true }),
        _ => {
            let halves = choices.below(3) as usize;
            *sequence = (*sequence).max(coordinator.epoch().get()) + halves as u64 + 1;
            let mut delta = Delta::default();
            delta.put(b"key", &sequence.to_le_bytes());
            let mut changes = vec![];
            delta.encode(&mut changes);
            let mut offsets = Offsets::default();
            offsets.set(&Partition::new("source", "broker", 0), Offset::new(*sequence + 1_000));
            Some(Event::Sealed(Box::new(Sealed {
                offsets,
                watermarks: BTreeMap::new(),
                clock: Timestamp::from_millis(0),
                channels: [(channel(0), Sequence::new(*sequence + 1_000))].into(),
                tails: Offsets::default(),
                published_through: coordinator.fold().published_through(),
                changes,
                halves,
                outbox: vec![],
            })))
        }
    }
}

/// The dedup reader among repeats, gaps, stops and late copies: what a channel hands on only grows, an error changes
/// nothing, and what is saved and restored goes on as the original does.
pub fn dedup_operations(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let settings =
        DedupSettings { gap_wait: Duration::from_millis(20), retention: Duration::from_millis(1_000_000), held_max: 8 };
    let mut reader = DedupReader::<(u64, u64)>::new(settings);
    reader.begin(&queue(), if choices.odds(2) { Start::First } else { Start::Middle });
    let mut saved: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut handed: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut now, mut out) = (0, vec![]);
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = choices.next() else { return };
        now += i64::try_from(choices.below(16)).expect("small") - 2;
        // A broker's clock may say anything.
        let time = match choices.next() {
            Some(255) => Timestamp::MAX,
            Some(254) => Timestamp::MIN,
            _ => Timestamp::from_millis(now),
        };
        match operation % 8 {
            0 => reader.pass_gaps(&queue(), time, &mut out),
            1 if choices.odds(4) => reader.hole(&queue(), time),
            2 => {
                save(&mut reader, &mut saved);
                let mut restored = DedupReader::new(settings);
                for (key, value) in &saved {
                    restored.restore(key, value, item_of).expect("what was saved can be restored");
                }
                assert_eq!((restored.held(), restored.channels()), (reader.held(), reader.channels()));
                reader = restored;
            }
            _ => {
                let number = choices.below(2);
                let key = key(number);
                let next = reader.next(&key).map_or(0, Sequence::get);
                let sequence = (next + choices.below(12)).saturating_sub(4);
                let floor = sequence.saturating_sub(choices.below(12));
                let sequence = if choices.odds(32) { u64::MAX >> choices.below(4) } else { sequence };
                let before = (reader.held(), reader.next(&key), out.len());
                let item = (number, sequence);
                let accepted = reader.accept(&key, Sequence::new(sequence), Sequence::new(floor), item, time, &mut out);
                if let Err(error) = accepted {
                    assert!(matches!(error.kind(), ErrorKind::DataLoss | ErrorKind::Record));
                    let after = (reader.held(), reader.next(&key), out.len());
                    assert!(after == before || before.1.is_none(), "an error changes nothing: {before:?} {after:?}");
                }
            }
        }
        for (number, sequence) in out.drain(..) {
            let next = handed.entry(number).or_default();
            assert!(sequence >= *next, "handed on twice or out of order: {number} {sequence} after {next}");
            *next = sequence + 1;
        }
        assert!(reader.held() <= 2 * settings.held_max);
    }
}

fn key(number: u64) -> ChannelKey {
    ChannelKey {
        incarnation: Incarnation::new(9),
        task: TaskId { subtopology: Name::new("s").expect("a name"), broker: "b".into(), queue: 0 },
        sink: channel(number).sink,
        target: queue(),
    }
}

fn save(reader: &mut DedupReader<(u64, u64)>, saved: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let item = |(number, sequence): &(u64, u64), to: &mut Vec<u8>| {
        to.extend(number.to_le_bytes());
        to.extend(sequence.to_le_bytes());
    };
    reader.changes(item, |key, value| match value {
        Some(value) => drop(saved.insert(key.to_vec(), value.to_vec())),
        None => drop(saved.remove(key)),
    });
}

fn item_of(bytes: &[u8]) -> onceflow_types::Result<(u64, u64)> {
    let number = |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Ok((number(0), number(8)))
}
