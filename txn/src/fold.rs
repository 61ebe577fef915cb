//! The one fold: what the records of a journal, in queue order, say.
//!
//! | record | valid iff, where it lands | then |
//! | --- | --- | --- |
//! | Claim | `replaces` is the current generation; the first one's incarnation is its own nonce, every other one's is the journal's | its offset is the generation, pending Deltas are dropped |
//! | Delta | incarnation and generation are current, the epoch is the last + 1, no Release since the Claim | kept for its Commit |
//! | Commit | as a Delta | the epoch has happened |
//! | Release | incarnation, generation and epoch are current | everything is published; the rest of the generation is void |
//! | Snapshot | its incarnation is the journal's | every epoch up to its own is published: it is written only then. True for good, so a zombie's or a late copy counts, too |
//!
//! Everything else is [`Void`]: a zombie's record, or a copy of a record that was sent again. The fold depends on the
//! records alone, so everybody who reads the same prefix knows the same; started from a [`CommitPoint`] it comes to the
//! same state as from the first record.

use crate::parts::{Parts, body_of};
use crate::{Claim, Commit, Decoded, DeltaPart, Foreign, JournalRecord, Release};
use onceflow_types::{
    Channel, CommitPoint, Epoch, Error, Generation, Incarnation, Nonce, Offset, Offsets, Partition, Result, Sequence,
    Timestamp, Unpublished,
};
use std::collections::BTreeMap;

/// What the journal says up to [`next`](Self::next). `default()` is the state before the first record, at offset 0.
///
/// ```
/// use onceflow_txn::{Claim, Decoded, Fold, Folded, JournalRecord, Owner, Void};
/// use onceflow_types::{Generation, Incarnation, Nonce, Offset};
///
/// let claim = |nonce, replaces| {
///     Decoded::Record(JournalRecord::Claim(Claim {
///         incarnation: Incarnation::new(7),
///         nonce: Nonce::new(nonce),
///         replaces,
///         owner: Owner::default(),
///         topology_hash: 0,
///     }))
/// };
/// let mut fold = Fold::default();
/// let first = fold.apply(Offset::new(0), &claim(7, None), 0)?;
/// assert_eq!(first, Folded::Claimed { generation: Generation::new(0) });
/// // A copy of it, landing late, replaces nothing that is still current.
/// assert_eq!(fold.apply(Offset::new(1), &claim(7, None), 0)?, Folded::Void(Void::StaleClaim));
/// let second = fold.apply(Offset::new(2), &claim(8, Some(Generation::new(0))), 0)?;
/// assert_eq!(second, Folded::Claimed { generation: Generation::new(2) });
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Fold {
    next: Offset,
    current: Option<Current>,
    claim: Option<Claim>,
    last: Option<Box<Last>>,
    published_through: Epoch,
    unpublished: Vec<Unpublished>,
    parts: Option<Parts>,
    /// Where the valid Release of the current generation lies.
    released: Option<Offset>,
}

/// Who owns the task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Current {
    incarnation: Incarnation,
    generation: Generation,
    nonce: Nonce,
}

/// What the last valid Commit said.
#[derive(Clone, PartialEq, Debug)]
struct Last {
    epoch: Epoch,
    offsets: Offsets,
    watermarks: BTreeMap<Partition, Timestamp>,
    clock: Timestamp,
    channels: BTreeMap<Channel, Sequence>,
    tails: Offsets,
    commit_offset: Offset,
    commit_checksum: u32,
}

/// What one record did.
#[derive(Clone, PartialEq, Debug)]
pub enum Folded {
    /// A new owner.
    Claimed {
        /// Its generation.
        generation: Generation,
    },
    /// A part was kept for its Commit.
    DeltaKept,
    /// An epoch has happened.
    Committed(Box<Committed>),
    /// The owner has handed over.
    Released,
    /// A Snapshot of this journal: everything up to its epoch is published and proven. Whether it can be used is for its
    /// reader to judge.
    Snapshot,
    /// A record of ours that does nothing here. To be counted.
    Void(Void),
    /// No record of ours. To be counted.
    Foreign(Foreign),
}

/// Why a record does nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Void {
    /// Nobody has claimed the task yet.
    BeforeClaim,
    /// A Claim that replaces a generation which is not the current one: a copy, or a lost race.
    StaleClaim,
    /// Another life of the journal.
    OtherIncarnation,
    /// A zombie's record.
    OtherGeneration,
    /// The epoch is not the next one: a copy, or what came after a lost record.
    OtherEpoch,
    /// The generation has handed over.
    AfterRelease,
    /// A part that is there already.
    RepeatedDelta,
}

/// A valid Commit with its whole body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The record.
    pub commit: Commit,
    /// The encoded [`EpochBody`](crate::EpochBody), inline or joined from its parts.
    pub body: Vec<u8>,
    /// Where the Commit lies.
    pub offset: Offset,
    /// From where the body can be read again: its first Delta, or the Commit.
    pub body_from: Offset,
    /// The checksum of the Commit's record.
    pub checksum: u32,
}

impl Fold {
    /// Goes on where `point` ends.
    pub fn from_point(point: &CommitPoint) -> Fold {
        Fold {
            next: point.journal_next,
            current: Some(Current { incarnation: point.incarnation, generation: point.generation, nonce: point.nonce }),
            claim: None,
            last: Some(Box::new(Last {
                epoch: point.epoch,
                offsets: point.offsets.clone(),
                watermarks: point.watermarks.clone(),
                clock: point.clock,
                channels: point.channels.clone(),
                tails: point.tails.clone(),
                commit_offset: point.commit_offset,
                commit_checksum: point.commit_checksum,
            })),
            published_through: point.published_through,
            unpublished: point.unpublished.clone(),
            parts: None,
            released: None,
        }
    }

    /// Folds the record at `offset`, which is [`next`](Self::next). `checksum` is that of the record's bytes.
    ///
    /// # Errors
    /// `DataLoss` for a valid Commit whose Deltas are incomplete or damaged, `Bug` for an offset out of order or a
    /// Commit whose sequences go back. The fold is then as it was.
    pub fn apply(&mut self, offset: Offset, decoded: &Decoded, checksum: u32) -> Result<Folded> {
        if offset != self.next {
            return Err(Error::bug(format!("journal folded out of order: expected={} given={offset}", self.next)));
        }
        let folded = match decoded {
            Decoded::Foreign(foreign) => Folded::Foreign(*foreign),
            Decoded::Record(record) => self.record(offset, record, checksum)?,
        };
        self.next = offset.next();
        Ok(folded)
    }

    fn record(&mut self, offset: Offset, record: &JournalRecord, checksum: u32) -> Result<Folded> {
        let void = match record {
            JournalRecord::Claim(claim) => self.refuse_claim(claim),
            JournalRecord::Delta(delta) => self.refuse_work(delta.incarnation, delta.generation, delta.epoch),
            JournalRecord::Commit(commit) => self.refuse_work(commit.incarnation, commit.generation, commit.epoch),
            JournalRecord::Release(release) => self.refuse_release(release),
            JournalRecord::Snapshot(snapshot) => self.refuse_incarnation(snapshot.incarnation),
        };
        if let Some(void) = void {
            return Ok(Folded::Void(void));
        }
        Ok(match record {
            JournalRecord::Claim(claim) => self.claimed(offset, claim),
            JournalRecord::Delta(delta) => self.delta(offset, delta),
            JournalRecord::Commit(commit) => self.committed(offset, commit, checksum)?,
            JournalRecord::Release(_) => self.hand_over(offset),
            JournalRecord::Snapshot(snapshot) => {
                self.published(snapshot.epoch.min(self.epoch()));
                Folded::Snapshot
            }
        })
    }

    // ---- which records are void ----

    fn refuse_claim(&self, claim: &Claim) -> Option<Void> {
        let incarnation = self.incarnation().unwrap_or_else(|| Incarnation::from(claim.nonce));
        match claim {
            _ if claim.replaces != self.generation() => Some(Void::StaleClaim),
            _ if claim.incarnation != incarnation => Some(Void::OtherIncarnation),
            _ => None,
        }
    }

    /// For records that belong to the epoch after the last.
    fn refuse_work(&self, incarnation: Incarnation, generation: Generation, epoch: Epoch) -> Option<Void> {
        self.refuse_owner(incarnation, generation).or_else(|| match () {
            () if epoch != self.epoch().next() => Some(Void::OtherEpoch),
            () if self.released.is_some() => Some(Void::AfterRelease),
            () => None,
        })
    }

    fn refuse_release(&self, release: &Release) -> Option<Void> {
        self.refuse_owner(release.incarnation, release.generation).or_else(|| match () {
            () if release.epoch != self.epoch() => Some(Void::OtherEpoch),
            () if self.released.is_some() => Some(Void::AfterRelease),
            () => None,
        })
    }

    fn refuse_owner(&self, incarnation: Incarnation, generation: Generation) -> Option<Void> {
        let other = self.generation() != Some(generation);
        self.refuse_incarnation(incarnation).or(other.then_some(Void::OtherGeneration))
    }

    fn refuse_incarnation(&self, incarnation: Incarnation) -> Option<Void> {
        match self.incarnation() {
            None => Some(Void::BeforeClaim),
            Some(own) if own != incarnation => Some(Void::OtherIncarnation),
            Some(_) => None,
        }
    }

    // ---- what valid records do ----

    fn claimed(&mut self, offset: Offset, claim: &Claim) -> Folded {
        let generation = Generation::new(offset.get());
        self.current = Some(Current { incarnation: claim.incarnation, generation, nonce: claim.nonce });
        self.claim = Some(claim.clone());
        self.parts = None;
        self.released = None;
        Folded::Claimed { generation }
    }

    fn delta(&mut self, offset: Offset, delta: &DeltaPart) -> Folded {
        let Some(parts) = &mut self.parts else {
            self.parts = Some(Parts::new(offset, delta));
            return Folded::DeltaKept;
        };
        if parts.keep(delta) { Folded::DeltaKept } else { Folded::Void(Void::RepeatedDelta) }
    }

    fn committed(&mut self, offset: Offset, commit: &Commit, checksum: u32) -> Result<Folded> {
        let (body, body_from) = body_of(commit, offset, self.parts.as_ref())?;
        self.check_channels(commit)?;
        self.parts = None;
        self.last = Some(Box::new(Last {
            epoch: commit.epoch,
            offsets: commit.offsets.clone(),
            watermarks: commit.watermarks.clone(),
            clock: commit.clock,
            channels: commit.channels.clone(),
            tails: commit.tails.clone(),
            commit_offset: offset,
            commit_checksum: checksum,
        }));
        self.unpublished.push(Unpublished { epoch: commit.epoch, body_from, commit_offset: offset });
        self.published(commit.published_through);
        Ok(Folded::Committed(Box::new(Committed { commit: commit.clone(), body, offset, body_from, checksum })))
    }

    /// A sequence used twice would make readers drop the second message as a duplicate.
    fn check_channels(&self, commit: &Commit) -> Result<()> {
        let before = self.last.iter().flat_map(|last| &last.channels);
        for (channel, next) in before {
            if commit.channels.get(channel).is_none_or(|now| now < next) {
                return Err(Error::bug(format!(
                    "a commit takes back the sequence of a channel: epoch={} sink={} target={} next={next}",
                    commit.epoch, channel.sink, channel.target
                )));
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, offset: Offset) -> Folded {
        self.parts = None;
        self.released = Some(offset);
        self.published(self.epoch());
        Folded::Released
    }

    fn published(&mut self, through: Epoch) {
        self.published_through = self.published_through.max(through);
        self.unpublished.retain(|unpublished| unpublished.epoch > self.published_through);
    }

    // ---- what is known ----

    /// The journal's incarnation; `None` before the first valid Claim.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.current.map(|current| current.incarnation)
    }

    /// The current generation; `None` before the first valid Claim.
    pub fn generation(&self) -> Option<Generation> {
        self.current.map(|current| current.generation)
    }

    /// The nonce of the current generation's Claim.
    pub fn nonce(&self) -> Option<Nonce> {
        self.current.map(|current| current.nonce)
    }

    /// The Claim of the current generation, when it was folded here and not before the point that this fold began at.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// The last decided epoch; 0: none.
    pub fn epoch(&self) -> Epoch {
        self.last.as_ref().map_or(Epoch::ZERO, |last| last.epoch)
    }

    /// The offset of the next record to fold.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Every epoch up to this one is published and proven.
    pub fn published_through(&self) -> Epoch {
        self.published_through
    }

    /// Whether the current generation has handed over.
    pub fn released(&self) -> bool {
        self.released.is_some()
    }

    /// The decided epochs after [`published_through`](Self::published_through), in order.
    pub fn unpublished(&self) -> &[Unpublished] {
        &self.unpublished
    }

    /// The state as of now, for the store; `None` before the first Commit.
    ///
    /// A point has no room for Deltas that wait for their Commit, nor for a Release. So its `journal_next` is
    /// [`next`](Self::next), or the first record that must be folded again for them: what lies between changes nothing
    /// when it is folded twice.
    pub fn point(&self) -> Option<CommitPoint> {
        let (current, last) = (self.current?, self.last.as_deref()?);
        let again = self.parts.as_ref().map(|parts| parts.from).or(self.released);
        Some(CommitPoint {
            incarnation: current.incarnation,
            generation: current.generation,
            nonce: current.nonce,
            epoch: last.epoch,
            offsets: last.offsets.clone(),
            watermarks: last.watermarks.clone(),
            clock: last.clock,
            channels: last.channels.clone(),
            tails: last.tails.clone(),
            published_through: self.published_through,
            commit_offset: last.commit_offset,
            commit_checksum: last.commit_checksum,
            unpublished: self.unpublished.clone(),
            journal_next: again.unwrap_or(self.next),
        })
    }
}
