//! A store from a snapshot.

use super::super::journal::Journal;
use super::chunk::Header;
use super::find::{find, find_newest};
use super::read::{Piece, read, read_header};
use crate::job::Job;
use crate::status::{Line, SnapshotProgress};
use onceflow_storage::{Delta, StateStore};
use onceflow_txn::{Claim, Snapshot};
use onceflow_types::{CommitPoint, Error, ErrorKind, Offset, Result, TaskId};

/// A store after a look for snapshots.
pub(in crate::task) struct Restored {
    pub(in crate::task) store: Box<dyn StateStore>,
    /// Where the snapshot stood that the store now stands for; `None`: none was used.
    pub(in crate::task) point: Option<CommitPoint>,
    /// The Claim of the point's generation.
    pub(in crate::task) claim: Option<Claim>,
}

/// What is restored, and from where.
#[derive(Clone, Copy)]
pub(in crate::task) struct Restoring<'t> {
    pub(in crate::task) job: &'t Job,
    pub(in crate::task) task: &'t TaskId,
    pub(in crate::task) line: &'t Line,
    pub(in crate::task) journal: &'t Journal,
    /// The journal's first readable record, and its end as shown.
    pub(in crate::task) range: (Offset, Offset),
}

/// Whether the journal begins behind what the local store covers; an empty store covers nothing.
pub(in crate::task) fn is_needed(point: Option<&CommitPoint>, first: Offset) -> bool {
    first > covered(point)
}

fn covered(point: Option<&CommitPoint>) -> Offset {
    point.map_or(Offset::ZERO, |point| point.journal_next)
}

impl Restoring<'_> {
    /// Puts the newest usable snapshot in the place of `store`. A store at the same Commit is kept and only takes over the
    /// point, in memory until its next commit: nothing was decided since, as in a task that was idle. It is also kept as it
    /// is when no snapshot can be used.
    ///
    /// # Errors
    /// `DataLoss` when no snapshot can be used, `Retry` when the log is away.
    pub(in crate::task) async fn restore(self, mut store: Box<dyn StateStore>) -> Result<Restored> {
        let (first, end) = self.range;
        let snapshots = find(self.journal, first, end).await?;
        let covered_to = covered(store.commit_point()?);
        let mut newest_damage = None;
        for snapshot in &snapshots {
            match self.put_in_place(&mut store, snapshot).await? {
                Ok(header) => return Ok(Restored::at(store, header)),
                Err(damage) => {
                    self.pass_over(snapshot, &damage);
                    newest_damage.get_or_insert(damage);
                }
            }
        }
        let error = Error::data_loss(format!(
            "the journal begins behind what the local state covers and no snapshot can be used; bring back the local state \
             or the snapshot topic from a backup, or reset the task and process its sources again: \
             journal_first={first} covered_to={covered_to} snapshots={}",
            snapshots.len()
        ));
        Err(match newest_damage {
            Some(damage) => error.with_source(damage),
            None => error,
        })
    }

    /// Loads the newest snapshot of a journal that is whole into a store that is empty: the epochs before it need not be
    /// read. Without one that can be used the store stays empty, and the journal gives everything.
    ///
    /// # Errors
    /// `Retry` when the log is away.
    pub(in crate::task) async fn shorten(self, mut store: Box<dyn StateStore>) -> Result<Restored> {
        let (first, end) = self.range;
        for snapshot in find_newest(self.journal, first, end).await? {
            match self.put_in_place(&mut store, &snapshot).await? {
                Ok(header) => return Ok(Restored::at(store, header)),
                Err(damage) => self.pass_over(&snapshot, &damage),
            }
        }
        Ok(Restored { store, point: None, claim: None })
    }

    fn pass_over(self, snapshot: &Snapshot, damage: &Error) {
        let (task, epoch, report) = (self.task, snapshot.epoch, damage.report());
        tracing::warn!(%task, %epoch, error = %report, "snapshot cannot be used, looking for an older one");
    }

    /// Makes `store` stand where the snapshot stood. The inner error: the snapshot is damaged; then the store holds what it
    /// held, or nothing if that was nothing.
    async fn put_in_place(self, store: &mut Box<dyn StateStore>, snapshot: &Snapshot) -> Result<Result<Header>> {
        let log = &self.job.log;
        if is_at(store.commit_point()?, snapshot) {
            let header = or_damage(read_header(log, self.task, snapshot).await)?;
            return header.map_or_else(|damage| Ok(Err(damage)), |header| keep(&**store, header).map(Ok));
        }
        if store.commit_point()?.is_some() {
            // Once over everything before local state is touched: it may be all that an operator has left.
            if let Err(damage) = or_damage(read(log, self.task, snapshot, |_| Ok(())).await)? {
                return Ok(Err(damage));
            }
            self.empty(store)?;
        }
        let loaded = self.load(&mut **store, snapshot).await?;
        if loaded.is_err() {
            self.empty(store)?;
        }
        Ok(loaded)
    }

    /// Puts an empty store in the place of an old one.
    fn empty(self, store: &mut Box<dyn StateStore>) -> Result<()> {
        let (stores, job) = (&self.job.stores, &self.job.topology.job);
        // The old one first: a task's store is open once.
        *store = Box::new(onceflow_storage::MemoryStore::default());
        stores.destroy(job, self.task)?;
        *store = stores.open(job, self.task)?;
        Ok(())
    }

    /// Reads a snapshot into an empty store. A cut anywhere before the commit leaves a store without a point: the next opening
    /// empties it and starts over. The inner error: the snapshot is damaged.
    async fn load(self, store: &mut dyn StateStore, snapshot: &Snapshot) -> Result<Result<Header>> {
        let mut progress = SnapshotProgress { chunks: snapshot.location.chunks, ..SnapshotProgress::default() };
        let show = |progress| self.line.update(|status| status.restore.snapshot = progress);
        show(progress);
        // What the store says is no damage of the snapshot.
        let mut refused = None;
        let read = read(&self.job.log, self.task, snapshot, |Piece { entries, bytes, chunks_read }| {
            if let Err(error) = store.load(entries) {
                refused = Some(error);
                return Err(Error::retry("the store refused a piece"));
            }
            progress.chunks_read = chunks_read;
            progress.entries += entries.len() as u64;
            progress.bytes += bytes as u64;
            metrics::counter!("onceflow_restored_entries_total").increment(entries.len() as u64);
            metrics::counter!("onceflow_restored_bytes_total").increment(bytes as u64);
            show(progress);
            Ok(())
        });
        let read = read.await;
        if let Some(error) = refused {
            return Err(error);
        }
        let header = match or_damage(read)? {
            Ok(header) => header,
            Err(damage) => {
                show(SnapshotProgress::default());
                return Ok(Err(damage));
            }
        };
        store.commit(&Delta::default(), &header.point)?;
        show(SnapshotProgress { chunks_read: progress.chunks, ..progress });
        metrics::counter!("onceflow_snapshots_restored_total").increment(1);
        let (task, epoch, through) = (self.task, snapshot.epoch, snapshot.through);
        tracing::info!(%task, %epoch, %through, entries = progress.entries, "state restored from a snapshot");
        Ok(Ok(header))
    }
}

impl Restored {
    fn at(store: Box<dyn StateStore>, header: Header) -> Restored {
        Restored { store, point: Some(header.point), claim: header.claim }
    }
}

/// Tells damage of a snapshot, which is passed over, from everything else.
fn or_damage<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
        other => Ok(other),
    }
}

/// The header, for a store of the same Commit.
fn keep(store: &dyn StateStore, header: Header) -> Result<Header> {
    let point = &header.point;
    let same = store.commit_point()?.is_some_and(|stored| {
        (&stored.offsets, &stored.channels, stored.clock) == (&point.offsets, &point.channels, point.clock)
    });
    if same {
        return Ok(header);
    }
    Err(Error::data_loss(format!(
        "a snapshot and the local state disagree about the same commit, the journal was truncated or recreated: \
         epoch={} commit_offset={}",
        point.epoch, point.commit_offset
    )))
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
