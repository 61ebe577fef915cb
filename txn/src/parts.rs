//! The Deltas of one epoch on their way to its Commit, and reading them a second time.

use crate::{BODY_BYTES_MAX, Commit, CommitBody, Committed, Decoded, DeltaPart, JournalRecord};
use onceflow_types::wire::{checksum, checksum_append};
use onceflow_types::{Epoch, Error, Generation, Incarnation, Offset, Result, Unpublished};
use std::collections::BTreeMap;

/// What all parts of an epoch may be together: the largest body, and what its encoding puts around it.
const PARTS_BYTES_MAX: usize = BODY_BYTES_MAX + 64;

/// The parts of one epoch of one generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    /// The journal offset of the first one that was kept.
    pub(crate) from: Offset,
    count: u32,
    bytes: usize,
    kept: BTreeMap<u32, Vec<u8>>,
}

impl Parts {
    /// Starts with the first part at `offset`.
    pub(crate) fn new(offset: Offset, first: &DeltaPart) -> Self {
        let mut parts = Parts { from: offset, count: first.parts, bytes: 0, kept: BTreeMap::new() };
        parts.keep(first);
        parts
    }

    /// Keeps a part; returns false for one that is there already or that contradicts the ones before. Within a
    /// generation an epoch has one content, so the first copy of a part is as good as any.
    pub(crate) fn keep(&mut self, delta: &DeltaPart) -> bool {
        let bytes = self.bytes + delta.bytes.len();
        if delta.parts != self.count || bytes > PARTS_BYTES_MAX || self.kept.contains_key(&delta.part) {
            return false;
        }
        self.bytes = bytes;
        self.kept.insert(delta.part, delta.bytes.clone());
        true
    }

    fn joined(&self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.bytes);
        self.kept.values().for_each(|bytes| joined.extend_from_slice(bytes));
        joined
    }

    fn sum(&self) -> u32 {
        self.kept.values().fold(checksum(&[]), |sum, bytes| checksum_append(sum, bytes))
    }

    fn complete(&self, parts: u32, checksum: u32) -> bool {
        self.count == parts && self.kept.len() == parts as usize && self.sum() == checksum
    }
}

/// The encoded body of a valid Commit at `offset`, and the offset from which it can be read again.
///
/// # Errors
/// `DataLoss` when the Deltas before it are incomplete or their checksum differs: its writer had all of them
/// acknowledged before it sent the Commit.
pub(crate) fn body_of(commit: &Commit, offset: Offset, parts: Option<&Parts>) -> Result<(Vec<u8>, Offset)> {
    let (count, sum) = match &commit.body {
        CommitBody::Inline(body) => return Ok((body.clone(), offset)),
        CommitBody::Parts { parts, checksum } => (*parts, *checksum),
    };
    match parts.filter(|parts| parts.complete(count, sum)) {
        Some(parts) => Ok((parts.joined(), parts.from)),
        None => Err(Error::data_loss(format!(
            "deltas of a valid commit are missing or damaged: offset={offset} epoch={} parts={count} found={}",
            commit.epoch,
            parts.map_or(0, |parts| parts.kept.len())
        ))),
    }
}

/// Reads the Commit of a decided epoch again, with its body: for the handles and the outbox of an epoch that the local
/// store has applied, but that may not be published.
///
/// `records` are the journal's records in offset order without gaps, each with the checksum of its bytes, from
/// `unpublished.body_from` or before it to `unpublished.commit_offset` or behind it.
///
/// # Errors
/// `DataLoss` when what lies at these offsets is not that epoch's Commit with its Deltas. `Bug` for a gap between
/// the records.
pub fn recover_body<'r>(
    records: impl IntoIterator<Item = (Offset, &'r Decoded, u32)>,
    unpublished: &Unpublished,
    incarnation: Incarnation,
) -> Result<Committed> {
    let mut next = unpublished.body_from;
    let mut parts: Option<(Generation, Parts)> = None;
    let wanted = records.into_iter().skip_while(|(offset, ..)| *offset < unpublished.body_from);
    for (offset, decoded, sum) in wanted {
        if offset != next {
            return Err(Error::bug(format!("journal read with a gap: expected={next} given={offset}")));
        }
        next = next.next();
        match decoded {
            Decoded::Record(JournalRecord::Commit(commit)) if offset == unpublished.commit_offset => {
                return committed_again(commit, offset, sum, parts, unpublished, incarnation);
            }
            _ if offset == unpublished.commit_offset => break,
            Decoded::Record(JournalRecord::Delta(delta)) => {
                gather(&mut parts, offset, delta, unpublished.epoch, incarnation);
            }
            _ => {}
        }
    }
    Err(not_there(unpublished))
}

/// The first Delta of the epoch lies at `body_from` and names the generation; those of others are not taken.
fn gather(
    parts: &mut Option<(Generation, Parts)>,
    offset: Offset,
    delta: &DeltaPart,
    epoch: Epoch,
    incarnation: Incarnation,
) {
    if delta.incarnation != incarnation || delta.epoch != epoch {
        return;
    }
    match parts {
        None => *parts = Some((delta.generation, Parts::new(offset, delta))),
        Some((generation, parts)) if *generation == delta.generation => {
            parts.keep(delta);
        }
        Some(_) => {}
    }
}

fn committed_again(
    commit: &Commit,
    offset: Offset,
    checksum: u32,
    parts: Option<(Generation, Parts)>,
    unpublished: &Unpublished,
    incarnation: Incarnation,
) -> Result<Committed> {
    let parts = parts.filter(|(generation, _)| *generation == commit.generation).map(|(_, parts)| parts);
    let (body, body_from) = body_of(commit, offset, parts.as_ref())?;
    if commit.incarnation != incarnation || commit.epoch != unpublished.epoch || body_from != unpublished.body_from {
        return Err(not_there(unpublished));
    }
    Ok(Committed { commit: commit.clone(), body, offset, body_from, checksum })
}

#[cold]
fn not_there(unpublished: &Unpublished) -> Error {
    Error::data_loss(format!(
        "the commit of an unpublished epoch is no longer where it was: epoch={} body_from={} commit_offset={}",
        unpublished.epoch, unpublished.body_from, unpublished.commit_offset
    ))
}
