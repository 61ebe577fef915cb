//! A store from a snapshot.

use super::super::journal::Journal;
use super::chunk::Header;
use super::find::find;
use super::read::{read, read_header};
use crate::job::Job;
use onceflow_storage::{Delta, StateStore};
use onceflow_txn::{Claim, Snapshot};
use onceflow_types::{CommitPoint, Error, ErrorKind, Offset, Result, TaskId};

/// A store that stands where a snapshot stood; the point is the snapshot's.
pub(in crate::task) struct Restored {
    pub(in crate::task) store: Box<dyn StateStore>,
    pub(in crate::task) point: CommitPoint,
    /// The Claim of the point's generation.
    pub(in crate::task) claim: Option<Claim>,
}

/// Whether the journal begins behind what the local store covers; an empty store covers nothing.
pub(in crate::task) fn is_needed(point: Option<&CommitPoint>, first: Offset) -> bool {
    first > covered(point)
}

fn covered(point: Option<&CommitPoint>) -> Offset {
    point.map_or(Offset::ZERO, |point| point.journal_next)
}

/// Puts the newest usable snapshot in the place of `store`. A store at the same Commit is kept and only takes over the
/// point, in memory until its next commit: nothing was decided since, as in a task that was idle. It is also kept as it
/// is when no snapshot can be used.
///
/// # Errors
/// `DataLoss` when no snapshot can be used, `Retry` when the log is away.
pub(in crate::task) async fn restore(
    job: &Job,
    task: &TaskId,
    journal: &Journal,
    store: Box<dyn StateStore>,
    (first, end): (Offset, Offset),
) -> Result<Restored> {
    let snapshots = find(journal, first, end).await?;
    let mut newest_damage = None;
    for snapshot in &snapshots {
        let same = is_at(store.commit_point()?, snapshot);
        // Once over everything before local state is touched: it may be all that an operator has left.
        let header = if same {
            read_header(&*job.log, task, snapshot).await
        } else {
            read(&*job.log, task, snapshot, |_| Ok(())).await
        };
        match header {
            Ok(header) if same => return keep(store, header),
            Ok(header) => return load(job, task, store, snapshot, header).await,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let (epoch, report) = (snapshot.epoch, error.report());
                tracing::warn!(%task, %epoch, error = %report, "snapshot cannot be used, looking for an older one");
                newest_damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let covered = covered(store.commit_point()?);
    let error = Error::data_loss(format!(
        "the journal begins behind what the local state covers and no snapshot can be used; bring back the local state \
         or the snapshot topic from a backup, or reset the task and process its sources again: journal_first={first} \
         covered_to={covered} snapshots={}",
        snapshots.len()
    ));
    Err(match newest_damage {
        Some(damage) => error.with_source(damage),
        None => error,
    })
}

/// A store of the same Commit with the snapshot's point.
fn keep(store: Box<dyn StateStore>, header: Header) -> Result<Restored> {
    let point = header.point;
    let same = store.commit_point()?.is_some_and(|stored| {
        (&stored.offsets, &stored.channels, stored.clock) == (&point.offsets, &point.channels, point.clock)
    });
    if !same {
        return Err(Error::data_loss(format!(
            "a snapshot and the local state disagree about the same commit, the journal was truncated or recreated: \
             epoch={} commit_offset={}",
            point.epoch, point.commit_offset
        )));
    }
    Ok(Restored { store, point, claim: header.claim })
}

/// Whether a store holds the state of the snapshot's Commit.
fn is_at(point: Option<&CommitPoint>, snapshot: &Snapshot) -> bool {
    point.is_some_and(|point| {
        point.incarnation == snapshot.incarnation
            && point.epoch == snapshot.epoch
            && point.commit_offset == snapshot.commit_offset
            && point.commit_checksum == snapshot.commit_checksum
    })
}

/// A cut anywhere before the commit leaves a store without a point: the next opening empties it and starts over.
async fn load(
    job: &Job,
    task: &TaskId,
    old: Box<dyn StateStore>,
    snapshot: &Snapshot,
    header: Header,
) -> Result<Restored> {
    drop(old);
    job.stores.destroy(&job.topology.job, task)?;
    let mut store = job.stores.open(&job.topology.job, task)?;
    let again = read(&*job.log, task, snapshot, |entries| store.load(entries)).await?;
    if again != header {
        return Err(Error::corrupt("snapshot changed while it was read"));
    }
    store.commit(&Delta::default(), &header.point)?;
    metrics::counter!("onceflow_snapshots_restored_total").increment(1);
    tracing::info!(%task, epoch = %snapshot.epoch, through = %snapshot.through, "state restored from a snapshot");
    Ok(Restored { store, point: header.point, claim: header.claim })
}
