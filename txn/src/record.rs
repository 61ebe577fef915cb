//! The journal's records and their bytes.
//!
//! ```text
//!  ┌───────┬─────────┬──────┬───────────────────────────┬─────────┐
//!  │ OFJR  │ version │ kind │ payload, by kind          │ CRC32C  │
//!  │ 4     │ u8 = 1  │ u8   │                           │ u32     │  of everything before it
//!  └───────┴─────────┴──────┴───────────────────────────┴─────────┘
//! ```
//!
//! Magic, version and the CRC at the end keep their places in every later version, so that a damaged record can be told
//! from a newer one. Items as in [`onceflow_types::wire`]; `partition`, `offsets`, `watermarks` and `channels` as in the
//! commit point.
//!
//! | kind | payload |
//! | --- | --- |
//! | 1 Claim | incarnation `u128` · nonce `u128` · replaces: `u8` 0, or 1 and count · host text · directory text · topology hash `u64` |
//! | 2 Delta | incarnation `u128` · generation count · epoch count · part count · parts count · bytes |
//! | 3 Commit | incarnation `u128` · generation count · epoch count · offsets · watermarks · clock `i64` · channels · tails (offsets) · published through count · body: `u8` 0 and bytes, or 1, parts count and checksum `u32` |
//! | 4 Snapshot | incarnation `u128` · generation count · epoch count · through count · commit offset count · commit checksum `u32` · partition · first count · chunks count · checksum `u32` |
//! | 5 Release | incarnation `u128` · generation count · epoch count |
//!
//! Decoding is strict: a record has exactly one form. What cannot be decoded is [`Foreign`] and skipped, and the bounds
//! below are part of the format, as two readers that skip different records would see different journals.

use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{
    Channel, Epoch, Error, Generation, Incarnation, Nonce, Offset, Offsets, Partition, Result, Sequence, Timestamp,
    decode_channels, decode_offsets, decode_partition, decode_watermarks, encode_channels, encode_offsets,
    encode_partition, encode_watermarks,
};
use std::collections::BTreeMap;

/// The first bytes of every journal record.
pub const RECORD_MAGIC: [u8; 4] = *b"OFJR";
/// The version that this program writes.
pub const RECORD_VERSION: u8 = 1;
/// Longest host or directory of an [`Owner`], in bytes. No file system has longer paths.
pub const OWNER_TEXT_BYTES_MAX: usize = 128 << 10;
/// Most bytes in one Delta, or in a Commit's inline body, that a reader accepts. Writers stay below by far: the broker
/// limits a message to 4 MiB.
pub const RECORD_BODY_BYTES_MAX: usize = 32 << 20;
/// Most Deltas of one epoch.
pub const PARTS_MAX: u32 = 4096;

const FRAME_BYTES: usize = 10;

/// One record of a task's journal.
#[derive(Clone, PartialEq, Debug)]
pub enum JournalRecord {
    /// A new owner.
    Claim(Claim),
    /// A piece of an epoch's body.
    Delta(DeltaPart),
    /// The decision about an epoch.
    Commit(Box<Commit>),
    /// Where the whole state up to a Commit was written.
    Snapshot(Box<Snapshot>),
    /// A clean hand-over.
    Release(Release),
}

/// A new owner takes the task. Valid iff `replaces` is the generation that is current where it lands; its offset is
/// then the new generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The journal's incarnation; in the first Claim of a journal its own nonce.
    pub incarnation: Incarnation,
    /// By which the writer knows its own Claim.
    pub nonce: Nonce,
    /// The generation that the writer read as current; `None`: none yet.
    pub replaces: Option<Generation>,
    /// Who claims.
    pub owner: Owner,
    /// A hash of the topology that the owner runs.
    pub topology_hash: u64,
}

/// Where an owner runs. An old owner is known dead when its Claim names this host and directory, and the lock of that
/// directory is ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The machine's name.
    pub host: String,
    /// Its state directory, absolute.
    pub directory: String,
}

/// A piece of an epoch's encoded body that is too large to travel in the Commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeltaPart {
    /// The journal's incarnation.
    pub incarnation: Incarnation,
    /// The writer's generation.
    pub generation: Generation,
    /// The epoch that it belongs to.
    pub epoch: Epoch,
    /// Which piece, from 0.
    pub part: u32,
    /// How many there are, 1 or more.
    pub parts: u32,
    /// The piece.
    pub bytes: Vec<u8>,
}

/// The decision: when it is valid where it lands, the epoch has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The journal's incarnation.
    pub incarnation: Incarnation,
    /// The writer's generation.
    pub generation: Generation,
    /// The epoch, 1 or more.
    pub epoch: Epoch,
    /// The next offset to read, per input partition.
    pub offsets: Offsets,
    /// Event time up to which each input is complete.
    pub watermarks: BTreeMap<Partition, Timestamp>,
    /// The processing time of the epoch.
    pub clock: Timestamp,
    /// The next sequence of **every** channel of the task, not only of those that this epoch wrote to.
    pub channels: BTreeMap<Channel, Sequence>,
    /// Lower bounds of the target queues' positions.
    pub tails: Offsets,
    /// Every epoch up to this one is published and proven; below `epoch`.
    pub published_through: Epoch,
    /// The epoch's [body](crate::EpochBody), encoded.
    pub body: CommitBody,
}

/// Where the encoded body of an epoch is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitBody {
    /// In the Commit.
    Inline(Vec<u8>),
    /// In Deltas before it.
    Parts {
        /// How many, 1 or more.
        parts: u32,
        /// The checksum of all of them joined.
        checksum: u32,
    },
}

/// Says where the fold state and the store up to a Commit were written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The journal's incarnation.
    pub incarnation: Incarnation,
    /// The generation of the Commit.
    pub generation: Generation,
    /// Its epoch.
    pub epoch: Epoch,
    /// Every record below this offset is folded into the snapshot.
    pub through: Offset,
    /// The Commit's offset.
    pub commit_offset: Offset,
    /// The checksum of the Commit's record.
    pub commit_checksum: u32,
    /// Where the snapshot is.
    pub location: SnapshotLocation,
}

/// The messages that hold a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotLocation {
    /// The queue.
    pub partition: Partition,
    /// The offset of the first chunk.
    pub first: Offset,
    /// How many chunks there are.
    pub chunks: u32,
    /// The checksum of all of them joined.
    pub checksum: u32,
}

/// A clean hand-over: everything up to the epoch is published and proven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The journal's incarnation.
    pub incarnation: Incarnation,
    /// The writer's generation.
    pub generation: Generation,
    /// The last decided epoch. Without it a late copy would hide an epoch that was decided after it was sent.
    pub epoch: Epoch,
}

/// What a message in the journal turned out to be.
#[derive(Clone, PartialEq, Debug)]
pub enum Decoded {
    /// A record.
    Record(JournalRecord),
    /// Something else: skipped and counted, by every reader alike.
    Foreign(Foreign),
}

/// Why a message is no record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Foreign {
    /// It does not begin with [`RECORD_MAGIC`].
    NotOurs,
    /// Its checksum differs.
    BadChecksum,
    /// Its checksum holds, but it has not the form that its version prescribes.
    Malformed,
}

impl JournalRecord {
    /// The record as bytes.
    ///
    /// # Panics
    /// For a record that [`decode`] would not give back: one beyond the bounds of this module, or with a part, epoch or
    /// `published_through` that cannot be. Such a record would be skipped by every reader.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.plausible(), "a record beyond the bounds of the format");
        let mut bytes = Vec::with_capacity(self.size_hint());
        bytes.extend_from_slice(&RECORD_MAGIC);
        bytes.put_u8(RECORD_VERSION);
        bytes.put_u8(self.kind());
        match self {
            JournalRecord::Claim(claim) => encode_claim(claim, &mut bytes),
            JournalRecord::Delta(delta) => encode_delta(delta, &mut bytes),
            JournalRecord::Commit(commit) => encode_commit(commit, &mut bytes),
            JournalRecord::Snapshot(snapshot) => encode_snapshot(snapshot, &mut bytes),
            JournalRecord::Release(release) => {
                encode_place(release.incarnation, release.generation, release.epoch, &mut bytes);
            }
        }
        let sum = checksum(&bytes);
        bytes.put_u32(sum);
        bytes
    }

    fn kind(&self) -> u8 {
        match self {
            JournalRecord::Claim(_) => 1,
            JournalRecord::Delta(_) => 2,
            JournalRecord::Commit(_) => 3,
            JournalRecord::Snapshot(_) => 4,
            JournalRecord::Release(_) => 5,
        }
    }

    fn size_hint(&self) -> usize {
        match self {
            JournalRecord::Delta(delta) => delta.bytes.len() + 64,
            JournalRecord::Commit(commit) => match &commit.body {
                CommitBody::Inline(body) => body.len() + 512,
                CommitBody::Parts { .. } => 512,
            },
            _ => 256,
        }
    }

    /// The relations between fields that every record has; checked before it is written and after it is read.
    fn plausible(&self) -> bool {
        match self {
            JournalRecord::Claim(claim) => {
                claim.owner.host.len() <= OWNER_TEXT_BYTES_MAX && claim.owner.directory.len() <= OWNER_TEXT_BYTES_MAX
            }
            JournalRecord::Delta(delta) => {
                delta.epoch > Epoch::ZERO
                    && delta.part < delta.parts
                    && delta.parts <= PARTS_MAX
                    && delta.bytes.len() <= RECORD_BODY_BYTES_MAX
            }
            JournalRecord::Commit(commit) => {
                let body = match &commit.body {
                    CommitBody::Inline(body) => body.len() <= RECORD_BODY_BYTES_MAX,
                    CommitBody::Parts { parts, .. } => (1..=PARTS_MAX).contains(parts),
                };
                commit.published_through < commit.epoch && body
            }
            JournalRecord::Snapshot(snapshot) => {
                snapshot.epoch > Epoch::ZERO && snapshot.commit_offset < snapshot.through
            }
            JournalRecord::Release(_) => true,
        }
    }
}

/// Tells records apart: the checksum that a record carries, over everything before it. (One over the whole record would
/// be the same for all of them, as CRC32C over bytes that end in their own CRC32C is constant.)
pub fn record_checksum(record: &[u8]) -> u32 {
    record.last_chunk().map_or(0, |sum| u32::from_le_bytes(*sum))
}

/// Reads one message of the journal.
///
/// # Errors
/// `Invalid` for a whole record of a newer version: stop, an older program must not judge it. Everything that is not a
/// record of ours is no error but [`Decoded::Foreign`].
pub fn decode(bytes: &[u8]) -> Result<Decoded> {
    if !bytes.starts_with(&RECORD_MAGIC) {
        return Ok(Decoded::Foreign(Foreign::NotOurs));
    }
    let Some((content, sum)) = bytes.split_last_chunk::<4>().filter(|_| bytes.len() >= FRAME_BYTES) else {
        return Ok(Decoded::Foreign(Foreign::BadChecksum));
    };
    if checksum(content) != u32::from_le_bytes(*sum) {
        return Ok(Decoded::Foreign(Foreign::BadChecksum));
    }
    let mut from = Decoder::new(content.get(RECORD_MAGIC.len()..).unwrap_or_default());
    let version = from.u8()?;
    if version > RECORD_VERSION {
        return Err(Error::invalid(format!(
            "journal record of a newer format, upgrade onceflow: version={version} known={RECORD_VERSION}"
        )));
    }
    let record = if version == RECORD_VERSION { decode_payload(from).ok() } else { None };
    Ok(record.map_or(Decoded::Foreign(Foreign::Malformed), Decoded::Record))
}

fn decode_payload(mut from: Decoder<'_>) -> Result<JournalRecord> {
    let record = match from.u8()? {
        1 => JournalRecord::Claim(decode_claim(&mut from)?),
        2 => JournalRecord::Delta(decode_delta(&mut from)?),
        3 => JournalRecord::Commit(Box::new(decode_commit(&mut from)?)),
        4 => JournalRecord::Snapshot(Box::new(decode_snapshot(&mut from)?)),
        5 => {
            let (incarnation, generation, epoch) = decode_place(&mut from)?;
            JournalRecord::Release(Release { incarnation, generation, epoch })
        }
        kind => return Err(Error::corrupt(format!("unknown kind of record: kind={kind}"))),
    };
    from.finish()?;
    if !record.plausible() {
        return Err(Error::corrupt("record contradicts itself"));
    }
    Ok(record)
}

fn encode_place(incarnation: Incarnation, generation: Generation, epoch: Epoch, to: &mut Vec<u8>) {
    to.put_u128(incarnation.get());
    to.put_count(generation.get());
    to.put_count(epoch.get());
}

fn decode_place(from: &mut Decoder<'_>) -> Result<(Incarnation, Generation, Epoch)> {
    Ok((Incarnation::new(from.u128()?), Generation::new(from.count()?), Epoch::new(from.count()?)))
}

fn encode_claim(claim: &Claim, to: &mut Vec<u8>) {
    to.put_u128(claim.incarnation.get());
    to.put_u128(claim.nonce.get());
    to.put_u8(u8::from(claim.replaces.is_some()));
    if let Some(replaces) = claim.replaces {
        to.put_count(replaces.get());
    }
    to.put_str(&claim.owner.host);
    to.put_str(&claim.owner.directory);
    to.put_u64(claim.topology_hash);
}

fn decode_claim(from: &mut Decoder<'_>) -> Result<Claim> {
    Ok(Claim {
        incarnation: Incarnation::new(from.u128()?),
        nonce: Nonce::new(from.u128()?),
        replaces: match from.u8()? {
            0 => None,
            1 => Some(Generation::new(from.count()?)),
            flag => return Err(Error::corrupt(format!("bad flag: given={flag}"))),
        },
        owner: Owner {
            host: from.str(OWNER_TEXT_BYTES_MAX)?.to_owned(),
            directory: from.str(OWNER_TEXT_BYTES_MAX)?.to_owned(),
        },
        topology_hash: from.u64()?,
    })
}

fn encode_delta(delta: &DeltaPart, to: &mut Vec<u8>) {
    encode_place(delta.incarnation, delta.generation, delta.epoch, to);
    to.put_count(delta.part.into());
    to.put_count(delta.parts.into());
    to.put_bytes(&delta.bytes);
}

fn decode_delta(from: &mut Decoder<'_>) -> Result<DeltaPart> {
    let (incarnation, generation, epoch) = decode_place(from)?;
    Ok(DeltaPart {
        incarnation,
        generation,
        epoch,
        part: decode_u32(from)?,
        parts: decode_u32(from)?,
        bytes: from.bytes(RECORD_BODY_BYTES_MAX)?.to_vec(),
    })
}

fn encode_commit(commit: &Commit, to: &mut Vec<u8>) {
    encode_place(commit.incarnation, commit.generation, commit.epoch, to);
    encode_offsets(&commit.offsets, to);
    encode_watermarks(&commit.watermarks, to);
    to.put_i64(commit.clock.as_millis());
    encode_channels(&commit.channels, to);
    encode_offsets(&commit.tails, to);
    to.put_count(commit.published_through.get());
    match &commit.body {
        CommitBody::Inline(body) => {
            to.put_u8(0);
            to.put_bytes(body);
        }
        CommitBody::Parts { parts, checksum } => {
            to.put_u8(1);
            to.put_count((*parts).into());
            to.put_u32(*checksum);
        }
    }
}

fn decode_commit(from: &mut Decoder<'_>) -> Result<Commit> {
    let (incarnation, generation, epoch) = decode_place(from)?;
    Ok(Commit {
        incarnation,
        generation,
        epoch,
        offsets: decode_offsets(from)?,
        watermarks: decode_watermarks(from)?,
        clock: Timestamp::from_millis(from.i64()?),
        channels: decode_channels(from)?,
        tails: decode_offsets(from)?,
        published_through: Epoch::new(from.count()?),
        body: match from.u8()? {
            0 => CommitBody::Inline(from.bytes(RECORD_BODY_BYTES_MAX)?.to_vec()),
            1 => CommitBody::Parts { parts: decode_u32(from)?, checksum: from.u32()? },
            flag => return Err(Error::corrupt(format!("bad flag: given={flag}"))),
        },
    })
}

fn encode_snapshot(snapshot: &Snapshot, to: &mut Vec<u8>) {
    encode_place(snapshot.incarnation, snapshot.generation, snapshot.epoch, to);
    to.put_count(snapshot.through.get());
    to.put_count(snapshot.commit_offset.get());
    to.put_u32(snapshot.commit_checksum);
    encode_partition(&snapshot.location.partition, to);
    to.put_count(snapshot.location.first.get());
    to.put_count(snapshot.location.chunks.into());
    to.put_u32(snapshot.location.checksum);
}

fn decode_snapshot(from: &mut Decoder<'_>) -> Result<Snapshot> {
    let (incarnation, generation, epoch) = decode_place(from)?;
    Ok(Snapshot {
        incarnation,
        generation,
        epoch,
        through: Offset::new(from.count()?),
        commit_offset: Offset::new(from.count()?),
        commit_checksum: from.u32()?,
        location: SnapshotLocation {
            partition: decode_partition(from)?,
            first: Offset::new(from.count()?),
            chunks: decode_u32(from)?,
            checksum: from.u32()?,
        },
    })
}

fn decode_u32(from: &mut Decoder<'_>) -> Result<u32> {
    let count = from.count()?;
    u32::try_from(count).map_err(|_| Error::corrupt(format!("number is too large: given={count}")))
}
