//! Who owned each task last, by the journals.

use super::assignment::Owners;
use crate::job::Job;
use crate::membership::member_of;
use crate::task::TaskSeat;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use onceflow_log::{Log, MemberId, ReadLimit};
use onceflow_txn::{Decoded, JournalRecord, decode};
use onceflow_types::{Offset, Partition, Result};
use std::time::Duration;

/// Journals asked at once.
const ASKED_MAX: usize = 16;

/// The last owner of each task that ever had one.
///
/// Taken from the last record of each journal, and the Claim that it hangs from. Only the assignment depends on it, so a
/// record that the fold would call void may count; all processes read the same one.
///
/// # Errors
/// `Retry` when the log cannot be reached.
pub(super) async fn last_owners(job: &Job, seats: impl IntoIterator<Item = &TaskSeat>) -> Result<Owners> {
    let asked = stream::iter(seats.into_iter().map(|seat| async move {
        let journal = seat.id.partition(crate::topics::journal(&job.topology.job, &seat.plan.name));
        let owner = last_owner(&*job.log, &journal).await.map_err(|e| e.context(format!("task {}", seat.id)))?;
        Ok(owner.map(|owner| (seat.id.clone(), owner)))
    }));
    let owners: Vec<Option<_>> = asked.buffer_unordered(ASKED_MAX).try_collect().await?;
    Ok(owners.into_iter().flatten().collect())
}

async fn last_owner(log: &dyn Log, journal: &Partition) -> Result<Option<MemberId>> {
    let range = log.offsets(journal).await?;
    let Some(last) = range.next.get().checked_sub(1).map(Offset::new).filter(|last| *last >= range.first) else {
        return Ok(None);
    };
    let generation = match record_at(log, journal, last).await? {
        Some(JournalRecord::Claim(claim)) => return Ok(member_of(&claim.owner).ok()),
        Some(JournalRecord::Delta(delta)) => delta.generation,
        Some(JournalRecord::Commit(commit)) => commit.generation,
        Some(JournalRecord::Snapshot(snapshot)) => snapshot.generation,
        Some(JournalRecord::Release(release)) => release.generation,
        None => return Ok(None),
    };
    let claimed = Offset::new(generation.get());
    if claimed < range.first || claimed >= last {
        return Ok(None);
    }
    match record_at(log, journal, claimed).await? {
        Some(JournalRecord::Claim(claim)) => Ok(member_of(&claim.owner).ok()),
        _ => Ok(None),
    }
}

/// `None` for what is no record of ours, or of a version that only its opening may judge.
async fn record_at(log: &dyn Log, journal: &Partition, offset: Offset) -> Result<Option<JournalRecord>> {
    let limit = ReadLimit { records_max: 1, bytes_max: 1, wait_max: Duration::ZERO };
    let records = log.read(journal, offset, limit).await?;
    let body = records.iter().next().and_then(|record| record.body().ok());
    Ok(match body.map(decode) {
        Some(Ok(Decoded::Record(record))) => Some(record),
        _ => None,
    })
}
