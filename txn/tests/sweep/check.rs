//! What must hold after any schedule, judged by a plain fold written down here a second time.

use crate::owner::{RECORDS, Store, source, task};
use crate::world::{Message, World, decode_batch, decoded};
use onceflow_txn::{
    ChannelKey, Commit, CommitBody, Decoded, DedupReader, DedupSettings, EpochBody, JournalRecord, Start,
};
use onceflow_types::{Generation, Incarnation, Partition, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// One decided epoch.
pub(crate) struct Decided {
    pub(crate) commit: Commit,
    pub(crate) body: EpochBody,
}

/// The valid Commits of the journal.
pub(crate) fn truth(journal: &[Vec<u8>]) -> Vec<Decided> {
    let mut decided: Vec<Decided> = vec![];
    let mut owner: Option<(Generation, Incarnation)> = None;
    let mut parts: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut released = false;
    for (offset, bytes) in journal.iter().enumerate() {
        let Decoded::Record(record) = decoded(bytes) else { continue };
        let next = decided.len() as u64 + 1;
        match record {
            JournalRecord::Claim(claim) => {
                let incarnation = owner.map_or(Incarnation::from(claim.nonce), |(_, incarnation)| incarnation);
                if claim.replaces == owner.map(|(generation, _)| generation) && claim.incarnation == incarnation {
                    owner = Some((Generation::new(offset as u64), incarnation));
                    parts.clear();
                    released = false;
                }
            }
            JournalRecord::Delta(delta) => {
                if owner == Some((delta.generation, delta.incarnation)) && delta.epoch.get() == next && !released {
                    parts.entry(delta.part).or_insert(delta.bytes);
                }
            }
            JournalRecord::Commit(commit) => {
                if owner == Some((commit.generation, commit.incarnation)) && commit.epoch.get() == next && !released {
                    let body = match &commit.body {
                        CommitBody::Inline(body) => body.clone(),
                        CommitBody::Parts { .. } => parts.values().flatten().copied().collect(),
                    };
                    decided.push(Decided { body: EpochBody::decode(&body).unwrap(), commit: *commit });
                    parts.clear();
                }
            }
            JournalRecord::Release(release) => {
                released |= owner == Some((release.generation, release.incarnation)) && release.epoch.get() + 1 == next;
            }
            JournalRecord::Snapshot(_) => {}
        }
    }
    decided
}

/// What readers must be handed, per queue: `pay` from halves, the others from the outbox.
fn expected(decided: &[Decided], world: &World) -> BTreeMap<Partition, Vec<Message>> {
    let mut all: BTreeMap<Partition, Vec<Message>> = BTreeMap::new();
    for epoch in decided {
        for half in &epoch.body.halves {
            let (target, message) = &world.halves[half.handle.commit_log_offset as usize];
            all.entry(target.clone()).or_default().push(message.clone());
        }
        for batch in &epoch.body.outbox {
            all.entry(batch.channel.target.clone()).or_default().extend(decode_batch(&batch.messages).unwrap());
        }
    }
    all
}

/// What the production reader hands on.
fn reader_view(queue: &Partition, messages: &[Message]) -> Result<Vec<Message>, String> {
    let mut reader = DedupReader::new(DedupSettings::new(Duration::from_secs(10), Duration::from_secs(1_000)));
    reader.begin(queue, Start::First);
    let mut out = vec![];
    for message in messages {
        let key = ChannelKey::of(&message.identity, queue);
        assert_eq!(key.task, task());
        let (sequence, floor) = (message.identity.sequence, message.identity.floor);
        reader
            .accept(&key, sequence, floor, message.clone(), Timestamp::from_millis(0), &mut out)
            .map_err(|error| format!("the reader stops: {}", error.report()))?;
    }
    Ok(out)
}

/// Offsets: each epoch begins where the one before it ended. And its state changes say the same.
fn check_input(decided: &[Decided]) -> Result<(), String> {
    let mut from = 0;
    for epoch in decided {
        let to = epoch.commit.offsets.get(&source()).unwrap().get();
        let mark = format!("records {from} to {to} by {}", epoch.commit.generation);
        if !epoch.body.changes.starts_with(mark.as_bytes()) {
            let changes = String::from_utf8_lossy(&epoch.body.changes).into_owned();
            return Err(format!("epoch {} is not {mark}: {}", epoch.commit.epoch, &changes[..changes.len().min(40)]));
        }
        from = to;
    }
    if from == RECORDS { Ok(()) } else { Err(format!("input was skipped: processed to {from} of {RECORDS}")) }
}

/// A store holds the fold up to its point.
pub(crate) fn check_store(store: &Store, decided: &[Decided]) -> Result<(), String> {
    let epochs = store.point.as_ref().map_or(0, |point| point.epoch.get() as usize);
    if epochs > decided.len() {
        return Err(format!("a store is ahead of the journal: {epochs} of {}", decided.len()));
    }
    let same = store.changes.iter().eq(decided[..epochs].iter().map(|epoch| &epoch.body.changes));
    if same { Ok(()) } else { Err(format!("a store differs from the fold of {epochs} epochs")) }
}

/// Everything, after a fresh owner has finished the work. `raw_once`: no plain consumer may have seen anything twice.
pub(crate) fn check(world: &World, stores: &[&Store], raw_once: bool) -> Result<(), String> {
    let decided = truth(&world.journal);
    check_input(&decided)?;
    stores.iter().try_for_each(|store| check_store(store, &decided))?;
    let expected = expected(&decided, world);
    let unknown = world.queues.keys().find(|queue| !expected.contains_key(queue));
    if let Some(queue) = unknown {
        return Err(format!("output of a void epoch: {queue}"));
    }
    for (queue, wanted) in &expected {
        let raw = world.queues.get(queue).map_or(&[][..], Vec::as_slice);
        if let Some(message) = raw.iter().find(|message| !wanted.contains(message)) {
            return Err(format!("output of a void epoch: {queue} {}", message.payload));
        }
        let view = reader_view(queue, raw)?;
        if view != *wanted {
            return Err(format!("reader view of {queue}: {} of {} messages or out of order", view.len(), wanted.len()));
        }
        if raw_once && raw.len() != wanted.len() && &*queue.topic != "mid" {
            return Err(format!("a plain consumer of {queue} sees {} messages instead of {}", raw.len(), wanted.len()));
        }
    }
    Ok(())
}
