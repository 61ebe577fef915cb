//! The bytes of a chunk and of the header; drawn in the [module above](super).

use onceflow_storage::VALUE_BYTES_MAX;
use onceflow_txn::{Claim, Decoded, JournalRecord};
use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{BROKER_BYTES_MAX, CommitPoint, Error, NAME_BYTES_MAX, Name, Result, TaskId};

pub(super) const MAGIC: [u8; 4] = *b"OFSN";
const VERSION: u8 = 1;
/// Most bytes of a piece, and the size to which entries are gathered.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Most bytes around a piece: names of a task at their longest, and fixed fields.
pub(super) const AROUND_BYTES_MAX: usize = 1 << 10;
/// How many bytes the checksum at a chunk's end takes. The checksum over all chunks leaves these out: CRC32C over bytes
/// that end in their own is the same whatever they are.
pub(super) const SUM_BYTES: usize = 4;
/// Most bytes of a unit: one entry with the longest value, or the largest point.
pub(super) const UNIT_BYTES_MAX: usize = VALUE_BYTES_MAX + PIECE_BYTES_MAX;

/// One message of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chunk<'b> {
    pub(super) task: TaskId,
    pub(super) snapshot: u128,
    pub(super) number: u32,
    /// Whether its unit goes on in the next chunk.
    pub(super) more: bool,
    pub(super) piece: &'b [u8],
}

impl<'b> Chunk<'b> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.piece.len() + AROUND_BYTES_MAX);
        bytes.extend_from_slice(&MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_str(self.task.subtopology.as_str());
        bytes.put_str(&self.task.broker);
        bytes.put_count(self.task.queue.into());
        bytes.put_u128(self.snapshot);
        bytes.put_count(self.number.into());
        bytes.put_u8(self.more.into());
        bytes.put_bytes(self.piece);
        let sum = checksum(&bytes);
        bytes.put_u32(sum);
        bytes
    }

    /// Reads a message; `None` when it is no whole chunk.
    ///
    /// # Errors
    /// `Invalid` for a whole chunk of a newer version.
    pub(super) fn decode(bytes: &'b [u8]) -> Result<Option<Chunk<'b>>> {
        let Some((content, sum)) = bytes.split_last_chunk::<SUM_BYTES>() else { return Ok(None) };
        let Some(content) = content.strip_prefix(&MAGIC) else { return Ok(None) };
        if checksum(bytes.get(..bytes.len() - SUM_BYTES).unwrap_or_default()) != u32::from_le_bytes(*sum) {
            return Ok(None);
        }
        let mut from = Decoder::new(content);
        match from.u8() {
            Ok(VERSION) => Ok(fields(&mut from).ok()),
            Ok(newer) if newer > VERSION => Err(Error::invalid(format!(
                "snapshot of a newer format, upgrade onceflow: version={newer} known={VERSION}"
            ))),
            _ => Ok(None),
        }
    }
}

fn fields<'b>(from: &mut Decoder<'b>) -> Result<Chunk<'b>> {
    let too_large = |_| Error::corrupt("number is too large");
    let task = TaskId {
        subtopology: Name::new(from.str(NAME_BYTES_MAX)?)?,
        broker: from.str(BROKER_BYTES_MAX)?.into(),
        queue: u32::try_from(from.count()?).map_err(too_large)?,
    };
    let chunk = Chunk {
        task,
        snapshot: from.u128()?,
        number: u32::try_from(from.count()?).map_err(too_large)?,
        more: match from.u8()? {
            0 => false,
            1 => true,
            other => return Err(Error::corrupt(format!("flag is neither 0 nor 1: given={other}"))),
        },
        piece: from.bytes(PIECE_BYTES_MAX)?,
    };
    from.clone().finish()?;
    Ok(chunk)
}

/// Unit 0.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Header {
    pub(super) point: CommitPoint,
    /// The Claim of the point's generation: it may be gone from the journal.
    pub(super) claim: Option<Claim>,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (mut point, mut bytes) = (vec![], vec![]);
        self.point.encode(&mut point);
        bytes.put_bytes(&point);
        let claim = self.claim.as_ref().map(|claim| JournalRecord::Claim(claim.clone()).encode());
        bytes.put_bytes(&claim.unwrap_or_default());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Header> {
        let mut from = Decoder::new(bytes);
        let point = CommitPoint::decode(from.bytes(UNIT_BYTES_MAX)?)?;
        let claim = match from.bytes(UNIT_BYTES_MAX)? {
            [] => None,
            record => match onceflow_txn::decode(record)? {
                Decoded::Record(JournalRecord::Claim(claim)) => Some(claim),
                other => return Err(Error::corrupt(format!("snapshot header holds no claim: {other:?}"))),
            },
        };
        from.finish()?;
        Ok(Header { point, claim })
    }
}

/// For fuzzing: a chunk that can be read, written again.
#[cfg(feature = "fuzzing")]
pub fn chunk_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Chunk::decode(bytes).ok().flatten().map(|chunk| chunk.encode())
}

/// For fuzzing: a header that can be read, written again.
#[cfg(feature = "fuzzing")]
pub fn header_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Header::decode(bytes).ok().map(|header| header.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    fn chunk(piece: &[u8]) -> Chunk<'_> {
        let task = TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue: 3 };
        Chunk { task, snapshot: 7, number: 300, more: true, piece }
    }

    #[test]
    fn a_chunk_is_drawn_byte_by_byte() {
        let bytes = chunk(b"xy").encode();
        let (content, _) = bytes.split_last_chunk::<4>().unwrap();
        let snapshot = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let expected = [&b"OFSN\x01\x01s\x01b\x03"[..], &snapshot, &[0xac, 0x02, 1, 2], b"xy"].concat();
        assert_eq!(content, expected);
        assert_eq!(Chunk::decode(&bytes).unwrap().unwrap(), chunk(b"xy"));
    }

    #[test]
    fn a_chunk_with_any_bit_changed_or_byte_missing_is_none() {
        let bytes = chunk(b"piece").encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(Chunk::decode(&changed).unwrap(), None, "byte {at}");
            assert_eq!(Chunk::decode(&bytes[..at]).unwrap(), None, "cut at {at}");
        }
    }

    #[test]
    fn a_newer_chunk_stops_an_older_program() {
        let mut bytes = chunk(b"").encode();
        bytes.truncate(bytes.len() - 4);
        bytes[4] = VERSION + 1;
        let sum = checksum(&bytes);
        bytes.put_u32(sum);
        assert_eq!(Chunk::decode(&bytes).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
