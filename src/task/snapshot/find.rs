//! Which snapshots of a journal can be used.
//!
//! **The journal's life.** A journal has one incarnation, that of its first Claim; but the first Claim may be gone, and
//! a process that outlived a reset may have left a record of an earlier life. What counts is who decides epochs: the
//! incarnation of the readable Commits. A journal without them belongs to its snapshots. When these do not agree
//! nothing here can tell which life is the true one, and a wrong guess would bring back foreign state: that is an error.

use super::super::journal::Journal;
use onceflow_txn::{Decoded, JournalRecord, ReadRecord, Snapshot};
use onceflow_types::{Error, Incarnation, Offset, Result};
use std::collections::{BTreeSet, VecDeque};

/// Most Snapshot records that are remembered: the newest ones. A journal holds about three.
const FOUND_MAX: usize = 16;

/// How many records a look from the journal's end backwards takes first, and at most; twice as many each time.
const LOOK_RECORDS_FIRST: u64 = 64;
const LOOK_RECORDS_MAX: u64 = 4_096;

/// Reads the journal from `first` to `end` and returns the snapshots that reach `first`, newest first. Memory is bounded
/// by the reads under way.
///
/// # Errors
/// `DataLoss` when the journal holds records of several lives, `Retry` when the log is away.
pub(super) async fn find(journal: &Journal, first: Offset, end: Offset) -> Result<Vec<Snapshot>> {
    let found = look(journal, first, first, end).await?;
    usable(journal, first, found.of_this_life()?).await
}

/// The newest snapshots of a journal that is whole from `first` on, newest first: those of the last part of it that has any.
/// So little is read of a journal that has one, and none is missed that matters.
///
/// The journal's life is known, as its first Claim is there.
///
/// # Errors
/// `Retry` when the log is away.
pub(super) async fn find_newest(journal: &Journal, first: Offset, end: Offset) -> Result<Vec<Snapshot>> {
    let Some(life) = first_life(journal, first, end).await? else { return Ok(vec![]) };
    let (mut behind, mut records) = (end, LOOK_RECORDS_FIRST);
    while behind > first {
        let from = Offset::new(behind.get().saturating_sub(records)).max(first);
        let found = look(journal, first, from, behind).await?;
        let of_this_life = found.newest_first().filter(|snapshot| snapshot.incarnation == life).collect();
        let usable = usable(journal, first, of_this_life).await?;
        if !usable.is_empty() {
            return Ok(usable);
        }
        (behind, records) = (from, LOOK_RECORDS_MAX.min(records * 2));
    }
    Ok(vec![])
}

/// The incarnation of the first Claim, if it is among the first records.
async fn first_life(journal: &Journal, first: Offset, end: Offset) -> Result<Option<Incarnation>> {
    let records = journal.stretch(first, end).read().await?;
    Ok(records.into_iter().find_map(|record| match record.decoded {
        Decoded::Record(JournalRecord::Claim(claim)) if claim.replaces.is_none() => Some(claim.incarnation),
        _ => None,
    }))
}

/// The snapshots between two offsets that reach `first`.
async fn look(journal: &Journal, first: Offset, from: Offset, behind: Offset) -> Result<Found> {
    let (mut found, mut stretch) = (Found::new(first), journal.stretch(from, behind));
    while stretch.at() < behind {
        stretch.read().await?.into_iter().for_each(|record| found.look_at(record));
        // A log that answers at once would leave no turn to whoever shares the thread, or wants to stop this.
        tokio::task::yield_now().await;
    }
    Ok(found)
}

async fn usable(journal: &Journal, first: Offset, snapshots: Vec<Snapshot>) -> Result<Vec<Snapshot>> {
    let mut usable = vec![];
    for snapshot in snapshots {
        if commit_is_there(journal, first, &snapshot).await? {
            usable.push(snapshot);
        }
    }
    Ok(usable)
}

/// Whether the Commit of the snapshot, where it can still be read, is the one that the snapshot means.
async fn commit_is_there(journal: &Journal, first: Offset, snapshot: &Snapshot) -> Result<bool> {
    if snapshot.commit_offset < first {
        return Ok(true);
    }
    let records = journal.read(snapshot.commit_offset, true).await?;
    Ok(records.first().is_some_and(|record| match &record.decoded {
        Decoded::Record(JournalRecord::Commit(commit)) => {
            record.checksum == snapshot.commit_checksum
                && commit.incarnation == snapshot.incarnation
                && commit.epoch == snapshot.epoch
        }
        _ => false,
    }))
}

struct Found {
    first: Offset,
    /// In offset order.
    snapshots: VecDeque<Snapshot>,
    /// The incarnations of Commits; two are enough to know that there are several.
    deciders: BTreeSet<Incarnation>,
}

impl Found {
    fn new(first: Offset) -> Self {
        Found { first, snapshots: VecDeque::new(), deciders: BTreeSet::new() }
    }

    fn look_at(&mut self, record: ReadRecord) {
        match record.decoded {
            Decoded::Record(JournalRecord::Commit(commit)) if self.deciders.len() < 2 => {
                self.deciders.insert(commit.incarnation);
            }
            Decoded::Record(JournalRecord::Snapshot(snapshot))
                if snapshot.through >= self.first && snapshot.through <= record.offset =>
            {
                if self.snapshots.len() == FOUND_MAX {
                    self.snapshots.pop_front();
                }
                self.snapshots.push_back(*snapshot);
            }
            _ => {}
        }
    }

    fn of_this_life(mut self) -> Result<Vec<Snapshot>> {
        let mut lives = std::mem::take(&mut self.deciders);
        if lives.is_empty() {
            lives.extend(self.snapshots.iter().map(|snapshot| snapshot.incarnation));
        }
        let Some(life) = lives.pop_first() else { return Ok(vec![]) };
        if let Some(other) = lives.pop_first() {
            return Err(Error::data_loss(format!(
                "the journal's beginning is gone and it holds records of two lives, stop what still writes to it and \
                 restore the state of the right one, or reset the task: incarnation={life} other={other}"
            )));
        }
        Ok(self.newest_first().filter(|snapshot| snapshot.incarnation == life).collect())
    }

    fn newest_first(self) -> impl Iterator<Item = Snapshot> {
        self.snapshots.into_iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_txn::{Release, SnapshotLocation};
    use onceflow_types::{Epoch, ErrorKind, Generation, Partition};

    fn read(offset: u64, record: JournalRecord) -> ReadRecord {
        ReadRecord { offset: Offset::new(offset), decoded: Decoded::Record(record), checksum: 0 }
    }

    fn snapshot(life: u128, through: u64) -> JournalRecord {
        JournalRecord::Snapshot(Box::new(Snapshot {
            incarnation: Incarnation::new(life),
            generation: Generation::new(1),
            epoch: Epoch::new(1),
            through: Offset::new(through),
            commit_offset: Offset::new(through - 1),
            commit_checksum: 0,
            location: SnapshotLocation {
                partition: Partition::new("t", "b", 0),
                first: Offset::ZERO,
                chunks: 1,
                checksum: 0,
            },
        }))
    }

    fn throughs(records: impl IntoIterator<Item = (u64, JournalRecord)>) -> Result<Vec<u64>> {
        let mut found = Found::new(Offset::new(100));
        records.into_iter().for_each(|(offset, record)| found.look_at(read(offset, record)));
        Ok(found.of_this_life()?.into_iter().map(|snapshot| snapshot.through.get()).collect())
    }

    #[test]
    fn only_snapshots_that_reach_the_first_record_count_newest_first() {
        let records =
            [(110, snapshot(1, 99)), (111, snapshot(1, 100)), (130, snapshot(1, 130)), (131, snapshot(1, 140))];
        assert_eq!(throughs(records).unwrap(), [130, 100], "99 is too old, 140 stands for what it cannot know");
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_newest() {
        let kept = throughs((200..300).map(|offset| (offset, snapshot(1, offset)))).unwrap();
        assert_eq!((kept.len(), kept[0], kept[15]), (16, 299, 284));
    }

    #[test]
    fn lives_that_nothing_tells_apart_are_an_error() {
        let release =
            Release { incarnation: Incarnation::new(9), generation: Generation::new(1), epoch: Epoch::new(1) };
        let records = [(110, snapshot(1, 110)), (111, JournalRecord::Release(release))];
        assert_eq!(throughs(records).unwrap(), [110], "only who decides epochs counts");
        let records = [(110, snapshot(1, 110)), (111, snapshot(2, 111))];
        assert_eq!(throughs(records).unwrap_err().kind(), ErrorKind::DataLoss);
    }
}
