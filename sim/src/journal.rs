//! Reads journals by rules of its own: the fold of DESIGN 3.2, written a second time, so that the checker does not trust
//! what it checks.

use crate::world::World;
use onceflow::txn::{Commit, Decoded, JournalRecord, decode};
use onceflow::types::{Epoch, Generation, Partition};

/// What a journal decides.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// The valid Commits in order, with the generation that made them.
    pub(crate) commits: Vec<Commit>,
    /// Claims that became generations.
    pub(crate) claims: u64,
    /// What is wrong with the journal itself.
    pub(crate) wrong: Option<String>,
    /// The offset that a Snapshot covers which no crash takes, the highest one: retention may remove everything below.
    pub(crate) covered: u64,
}

impl Decided {
    pub(crate) fn last(&self) -> Option<&Commit> {
        self.commits.last()
    }

    /// Folds one journal, from the model's truth.
    pub(crate) fn read(world: &World, journal: &Partition) -> Decided {
        let mut decided = Decided::default();
        let Some(broker) = world.brokers.get(&journal.broker) else { return decided };
        let mut generation: Option<Generation> = None;
        let mut released = false;
        for (message, offset) in broker.all(journal).zip(0..) {
            let record = match decode(&message.body) {
                Ok(Decoded::Record(record)) => record,
                Ok(Decoded::Foreign(_)) => continue,
                Err(error) => {
                    decided.wrong = Some(format!("offset {offset}: {}", error.report()));
                    continue;
                }
            };
            match record {
                JournalRecord::Claim(claim) if claim.replaces == generation => {
                    generation = Some(Generation::new(offset));
                    released = false;
                    decided.claims += 1;
                }
                JournalRecord::Commit(commit) => {
                    let next = decided.last().map_or(Epoch::new(1), |last| last.epoch.next());
                    if generation == Some(commit.generation) && commit.epoch == next && !released {
                        decided.commits.push(*commit);
                    }
                }
                JournalRecord::Release(release) => {
                    let last = decided.last().map(|last| last.epoch);
                    released |= generation == Some(release.generation) && last == Some(release.epoch);
                }
                JournalRecord::Snapshot(snapshot) if broker.keeps(journal, offset) => {
                    decided.covered = decided.covered.max(snapshot.through.get());
                }
                JournalRecord::Claim(_) | JournalRecord::Delta(_) | JournalRecord::Snapshot(_) => {}
            }
        }
        decided
    }
}
