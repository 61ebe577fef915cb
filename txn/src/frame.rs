//! A framed message: many records in one stored message, with one identity and one sequence number.
//!
//! ```text
//!  ┌───────┬─────────┬───────┬──────────┬───────────┬─────────┬────────┬────────────┬─────────────┬────────┐
//!  │ OFFR  │ version │ flags │ identity │ base time │ records │ time   │ raw length │ messages    │ CRC32C │
//!  │ 4     │ u8 1, 2 │ u8    │ binary   │ i64       │ count   │ 2 only │ count, lz4 │ to the end  │ u32    │
//!  └───────┴─────────┴───────┴──────────┴───────────┴─────────┴────────┴────────────┴─────────────┴────────┘
//!
//!   time, in version 2:  idle u8: 0, 1 · watermark i64 · tasks count, 1 or more
//! ```
//!
//! A frame of version 2 says how far its writer's event time has come behind its records, or that its writer is idle, and
//! how many tasks write the topic. It may hold no record at all.
//!
//! Flag 1: the messages are one LZ4 block, and the raw length is there; no other flag is known. The messages are in
//! RocketMQ's batch encoding, opaque here; how many there are is checked by who decodes them. The identity is in the
//! checksummed body, where no property of a stranger can forge it. Magic, version and the CRC at the end keep their
//! places in later versions.

use crate::Identity;
use crate::identity::newer;
use crate::lz4::{compress_if_smaller, inflate};
use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{Error, Result, Timestamp};

/// The first bytes of every framed message's body.
pub const FRAME_MAGIC: [u8; 4] = *b"OFFR";

/// Without time, and with it.
const FRAME_VERSION: u8 = 1;
const FRAME_VERSION_TIMED: u8 = 2;
const FLAG_LZ4: u8 = 1;

/// A framed message, borrowed from the body that it was read from. Its identity is at hand without inflating anything,
/// so that duplicates and strangers cost little.
///
/// ```
/// use onceflow_txn::{Frame, Identity};
/// # use onceflow_types::{Epoch, Generation, Incarnation, Name, Sequence, TaskId, Timestamp};
/// # let identity = Identity {
/// #     job: Name::job("fraud")?, incarnation: Incarnation::new(9),
/// #     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
/// #     generation: Generation::new(12), epoch: Epoch::new(5), sink: Name::new("alerts")?,
/// #     sequence: Sequence::new(40), floor: Sequence::new(38), source: None,
/// # };
/// let messages = [7; 1000];
/// let mut body = Vec::new();
/// Frame::encode_into(&mut body, &identity, Timestamp::from_millis(5), 3, &messages, true);
/// assert!(body.len() < 200);
///
/// let frame = Frame::decode(&body, 1 << 20)?;
/// assert_eq!((&frame.identity, frame.records), (&identity, 3));
/// let mut scratch = Vec::new();
/// assert_eq!(frame.messages(&mut scratch)?, messages);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'b> {
    /// Whose it is, and its place in its channel.
    pub identity: Identity,
    /// The time to which the records' own times are relative, or the time of all of them; its writer's choice.
    pub base_time: Timestamp,
    /// How many records it holds.
    pub records: u32,
    /// How far its writer's event time has come, in a frame that says so.
    pub time: Option<FrameTime>,
    /// The messages as stored.
    stored: &'b [u8],
    /// Their length when they are compressed.
    raw_len: Option<usize>,
}

/// What a frame says about event time. It holds behind the frame's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameTime {
    /// No record that its writer sends later and that is older is on time.
    pub watermark: Timestamp,
    /// Whether nothing comes from its writer at present, so that nobody is to wait for it.
    pub idle: bool,
    /// How many tasks write the topic, its writer among them; at least 1.
    pub tasks: u32,
}

impl<'b> Frame<'b> {
    /// Whether a message body claims to be a frame. A stranger's message may do so, too: [`decode`](Self::decode) tells.
    pub fn is_frame(body: &[u8]) -> bool {
        body.starts_with(&FRAME_MAGIC)
    }

    /// Appends a frame around `messages`, which hold `records` records in RocketMQ's batch encoding; with `compress`, as
    /// LZ4 when that is smaller.
    ///
    /// # Panics
    /// When the identity's floor is above its sequence, or that out of range.
    pub fn encode_into(
        to: &mut Vec<u8>,
        identity: &Identity,
        base_time: Timestamp,
        records: u32,
        messages: &[u8],
        compress: bool,
    ) {
        Frame::encode_timed_into(to, identity, base_time, records, None, messages, compress);
    }

    /// As [`encode_into`](Self::encode_into), with what the frame says about event time.
    ///
    /// # Panics
    /// As [`encode_into`](Self::encode_into).
    pub fn encode_timed_into(
        to: &mut Vec<u8>,
        identity: &Identity,
        base_time: Timestamp,
        records: u32,
        time: Option<FrameTime>,
        messages: &[u8],
        compress: bool,
    ) {
        let start = to.len();
        to.extend_from_slice(&FRAME_MAGIC);
        to.put_u8(if time.is_some() { FRAME_VERSION_TIMED } else { FRAME_VERSION });
        let flags_at = to.len();
        to.put_u8(0);
        identity.encode(to);
        to.put_i64(base_time.as_millis());
        to.put_count(records.into());
        if let Some(time) = time {
            to.put_u8(time.idle.into());
            to.put_i64(time.watermark.as_millis());
            to.put_count(time.tasks.max(1).into());
        }
        let messages_at = to.len();
        to.put_count(messages.len() as u64);
        if compress && compress_if_smaller(messages, to) {
            if let Some(flags) = to.get_mut(flags_at) {
                *flags = FLAG_LZ4;
            }
        } else {
            to.truncate(messages_at);
            to.extend_from_slice(messages);
        }
        let sum = checksum(to.get(start..).unwrap_or_default());
        to.put_u32(sum);
    }

    /// Reads a message body, strictly. The caller compares the identity's job before it believes anything else.
    ///
    /// # Errors
    /// `Invalid` for a whole frame of a newer version. `Record` for anything else that is not a frame, and for one whose
    /// messages are longer than `inflate_bytes_max`.
    pub fn decode(body: &'b [u8], inflate_bytes_max: usize) -> Result<Frame<'b>> {
        let malformed = |e: Error| Error::record("framed message is malformed").with_source(e);
        let (mut from, version) = checked(body).map_err(malformed)?;
        if version > FRAME_VERSION_TIMED {
            return Err(newer(version.into(), FRAME_VERSION_TIMED.into()));
        }
        Frame::decode_known(&mut from, version, inflate_bytes_max).map_err(malformed)
    }

    fn decode_known(from: &mut Decoder<'b>, version: u8, inflate_bytes_max: usize) -> Result<Frame<'b>> {
        let flags = from.u8()?;
        if version < FRAME_VERSION || flags & !FLAG_LZ4 != 0 {
            return Err(Error::corrupt(format!("unknown version or flags: version={version} flags={flags}")));
        }
        let identity = Identity::decode(from)?;
        let base_time = Timestamp::from_millis(from.i64()?);
        let records = u32::try_from(from.count()?).map_err(|_| Error::corrupt("record count is too large"))?;
        let time = if version == FRAME_VERSION_TIMED { Some(decode_time(from)?) } else { None };
        let raw_len = match flags {
            FLAG_LZ4 => Some(usize::try_from(from.count()?).unwrap_or(usize::MAX)),
            _ => None,
        };
        let stored = from.rest();
        let len = raw_len.unwrap_or(stored.len());
        if len > inflate_bytes_max {
            return Err(Error::corrupt(format!("messages are too long: bytes={len} max={inflate_bytes_max}")));
        }
        Ok(Frame { identity, base_time, records, time, stored, raw_len })
    }

    /// The messages; `scratch` holds them when they had to be inflated.
    ///
    /// # Errors
    /// `Record` when they cannot be inflated to the length that the frame names.
    pub fn messages<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8]>
    where
        'b: 's,
    {
        let Some(raw_len) = self.raw_len else { return Ok(self.stored) };
        inflate(self.stored, raw_len, scratch)
            .map_err(|e| Error::record("framed messages cannot be inflated").with_source(e))?;
        Ok(scratch)
    }
}

fn decode_time(from: &mut Decoder<'_>) -> Result<FrameTime> {
    let idle = match from.u8()? {
        0 => false,
        1 => true,
        other => return Err(Error::corrupt(format!("unknown word about idleness: given={other}"))),
    };
    let watermark = Timestamp::from_millis(from.i64()?);
    match u32::try_from(from.count()?) {
        Ok(tasks) if tasks > 0 => Ok(FrameTime { watermark, idle, tasks }),
        _ => Err(Error::corrupt("number of writing tasks is out of range")),
    }
}

/// The content behind the version, and the version.
fn checked(body: &[u8]) -> Result<(Decoder<'_>, u8)> {
    let (content, sum) = body.split_last_chunk::<4>().ok_or_else(|| Error::corrupt("cut off"))?;
    if checksum(content) != u32::from_le_bytes(*sum) {
        return Err(Error::corrupt("checksum differs"));
    }
    let behind_magic = content.strip_prefix(&FRAME_MAGIC).ok_or_else(|| Error::corrupt("not a frame"))?;
    let mut from = Decoder::new(behind_magic);
    let version = from.u8()?;
    Ok((from, version))
}
