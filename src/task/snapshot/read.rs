//! The units of a snapshot, checked.

use super::super::ahead::Ahead;
use super::chunk::{Chunk, Header, SUM_BYTES, UNIT_BYTES_MAX};
use onceflow_log::Log;
use onceflow_storage::Delta;
use onceflow_txn::Snapshot;
use onceflow_types::wire::{checksum, checksum_append};
use onceflow_types::{Error, ErrorKind, Result, TaskId};
use std::sync::Arc;

/// A part of the entries.
pub(super) struct Piece<'p> {
    pub(super) entries: &'p Delta,
    /// As it lies in the snapshot.
    pub(super) bytes: usize,
    /// How many chunks of the snapshot were read up to here.
    pub(super) chunks_read: u32,
}

/// Reads the header of a snapshot of `task`.
///
/// # Errors
/// As [`read`].
pub(super) async fn read_header(log: &Arc<dyn Log>, task: &TaskId, snapshot: &Snapshot) -> Result<Header> {
    read_units(log, task, snapshot, None).await
}

/// Reads a whole snapshot of `task` and hands its entries to `load`, piece by piece. The caller trusts nothing before
/// this returns `Ok`: only the end shows that all was there.
///
/// # Errors
/// `Corrupt` when it is damaged, incomplete, another task's or not what its record says; `Retry` when the log is away;
/// `Invalid` for a newer format; and what `load` returns.
pub(super) async fn read(
    log: &Arc<dyn Log>,
    task: &TaskId,
    snapshot: &Snapshot,
    mut load: impl FnMut(Piece<'_>) -> Result<()>,
) -> Result<Header> {
    read_units(log, task, snapshot, Some(&mut load)).await
}

type Load<'l> = &'l mut dyn FnMut(Piece<'_>) -> Result<()>;

/// Everything, or without `load` the header only.
async fn read_units(
    log: &Arc<dyn Log>,
    task: &TaskId,
    snapshot: &Snapshot,
    mut load: Option<Load<'_>>,
) -> Result<Header> {
    let (place, chunks) = (&snapshot.location.partition, snapshot.location.chunks);
    let range = log.offsets(place).await.map_err(gone)?;
    let mut ahead = Ahead::new(log.clone(), place.clone(), snapshot.location.first, range.next);
    let mut units = Units::new(task, snapshot);
    let mut header = None;
    while units.number < chunks {
        let wanted = if load.is_some() { u64::from(chunks - units.number) } else { 1 };
        let readable = ahead.at() >= range.first;
        let batch = if readable { ahead.read(wanted).await.map_err(gone)? } else { None };
        let Some(batch) = batch else {
            return Err(Error::corrupt(format!(
                "chunks are missing: queue={place} needed={} first={} next={} read={}",
                ahead.at(),
                range.first,
                range.next,
                units.number
            )));
        };
        for record in batch.iter() {
            if units.number == chunks {
                break;
            }
            let unit = units.take(record.body().unwrap_or_default()).map_err(|e| e.context(record.offset()))?;
            match (unit, &mut load) {
                (None, _) => {}
                (Some(unit), None) => return checked(Header::decode(&unit)?, snapshot),
                (Some(unit), _) if header.is_none() => header = Some(checked(Header::decode(&unit)?, snapshot)?),
                (Some(unit), Some(load)) => {
                    let entries = &Delta::decode(&unit)?;
                    load(Piece { entries, bytes: unit.len(), chunks_read: units.number })?;
                }
            }
        }
        // A log that answers at once would leave no turn to whoever shares the thread, or wants to stop this.
        tokio::task::yield_now().await;
    }
    units.finish()?;
    header.ok_or_else(|| Error::corrupt("snapshot without a header"))
}

/// A queue that the log no longer has, or not this far, is damage to the snapshot and not to the log.
fn gone(error: Error) -> Error {
    match error.kind() {
        ErrorKind::DataLoss | ErrorKind::Invalid => Error::corrupt("chunks cannot be read").with_source(error),
        _ => error,
    }
}

/// The header must be what the journal's record says.
fn checked(header: Header, snapshot: &Snapshot) -> Result<Header> {
    let point = &header.point;
    let same = point.incarnation == snapshot.incarnation
        && point.generation == snapshot.generation
        && point.epoch == snapshot.epoch
        && point.journal_next == snapshot.through
        && point.commit_offset == snapshot.commit_offset
        && point.commit_checksum == snapshot.commit_checksum;
    if same { Ok(header) } else { Err(Error::corrupt("snapshot header is not what its journal record says")) }
}

/// Joins pieces to units.
struct Units<'s> {
    task: &'s TaskId,
    snapshot: &'s Snapshot,
    /// The id in chunk 0.
    id: Option<u128>,
    /// The number of the next chunk.
    number: u32,
    sum: u32,
    unit: Vec<u8>,
    more: bool,
}

impl<'s> Units<'s> {
    fn new(task: &'s TaskId, snapshot: &'s Snapshot) -> Self {
        Units { task, snapshot, id: None, number: 0, sum: checksum(&[]), unit: vec![], more: false }
    }

    /// Takes the next message of the queue; returns a unit when it is whole.
    fn take(&mut self, body: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(chunk) = Chunk::decode(body)? else {
            return match self.id {
                None => Err(Error::corrupt("the first chunk is damaged or gone")),
                // Whatever it was: if it was ours, its number will be missing.
                Some(_) => Ok(None),
            };
        };
        let id = *self.id.get_or_insert(chunk.snapshot);
        if id != chunk.snapshot || chunk.number < self.number {
            // Another snapshot's, or a chunk that was sent again.
            return Ok(None);
        }
        if chunk.task != *self.task || chunk.number != self.number {
            return Err(Error::corrupt(format!(
                "chunk is not the next one of this task: task={} expected={} given={}",
                chunk.task, self.number, chunk.number
            )));
        }
        if self.unit.len() + chunk.piece.len() > UNIT_BYTES_MAX {
            return Err(Error::corrupt("unit is too long"));
        }
        self.number += 1;
        self.sum = checksum_append(self.sum, body.get(..body.len() - SUM_BYTES).unwrap_or_default());
        self.unit.extend_from_slice(chunk.piece);
        self.more = chunk.more;
        Ok((!chunk.more).then(|| std::mem::take(&mut self.unit)))
    }

    fn finish(&self) -> Result<()> {
        if self.more || self.sum != self.snapshot.location.checksum {
            return Err(Error::corrupt("snapshot is not whole, or not the one that its journal record names"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_txn::SnapshotLocation;
    use onceflow_types::{Epoch, Generation, Incarnation, Name, Offset, Partition};

    fn task(queue: u32) -> TaskId {
        TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue }
    }

    fn chunk(snapshot: u128, number: u32, more: bool, piece: &[u8]) -> Vec<u8> {
        Chunk { task: task(0), snapshot, number, more, piece }.encode()
    }

    /// Two units, the first in two chunks.
    fn chunks(snapshot: u128, last: &[u8]) -> Vec<Vec<u8>> {
        vec![chunk(snapshot, 0, true, b"ab"), chunk(snapshot, 1, false, b"c"), chunk(snapshot, 2, false, last)]
    }

    fn snapshot_of(chunks: &[Vec<u8>]) -> Snapshot {
        let contents = chunks.iter().map(|chunk| &chunk[..chunk.len() - SUM_BYTES]);
        Snapshot {
            incarnation: Incarnation::new(1),
            generation: Generation::new(1),
            epoch: Epoch::new(1),
            through: Offset::new(9),
            commit_offset: Offset::new(8),
            commit_checksum: 0,
            location: SnapshotLocation {
                partition: Partition::new("t", "b", 0),
                first: Offset::ZERO,
                chunks: u32::try_from(chunks.len()).unwrap(),
                checksum: contents.fold(checksum(&[]), checksum_append),
            },
        }
    }

    fn join(snapshot: &Snapshot, whose: &TaskId, queue: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let (mut units, mut joined) = (Units::new(whose, snapshot), vec![]);
        for body in queue {
            if units.number < snapshot.location.chunks {
                joined.extend(units.take(body)?);
            }
        }
        units.finish()?;
        Ok(joined)
    }

    #[test]
    fn chunks_between_them_and_copies_are_passed_over() {
        let own = chunks(7, b"d");
        let queue = [&own[0], &chunk(8, 0, false, b"x"), &own[0], &own[1], &b"barrier".to_vec(), &own[1], &own[2]];
        let queue = queue.map(Clone::clone);
        assert_eq!(join(&snapshot_of(&own), &task(0), &queue).unwrap(), [b"abc".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn what_is_missing_damaged_or_anothers_is_corrupt() {
        let own = chunks(7, b"d");
        let snapshot = snapshot_of(&own);
        let mut damaged = own.clone();
        damaged[1][20] ^= 1;
        let cases = [
            ("first missing", task(0), own[1..].to_vec()),
            ("middle missing", task(0), vec![own[0].clone(), own[2].clone()]),
            ("last missing", task(0), own[..2].to_vec()),
            ("damaged", task(0), damaged),
            ("another task's", task(1), own.clone()),
            // Of the same form and length: only its content tells.
            ("another snapshot", task(0), chunks(7, b"e")),
            ("another snapshot's id", task(0), chunks(8, b"d")),
        ];
        for (name, whose, queue) in cases {
            let error = join(&snapshot, &whose, &queue).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        }
        assert!(join(&snapshot, &task(0), &own).is_ok());
    }
}
