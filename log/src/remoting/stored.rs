//! Stored messages, as pulls carry them: one after the other (`MessageDecoder.decode`, `CommitLog`; big-endian).
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | total length of this message, this field included |
//! | 4 | magic: `DAA320A7`, or `DAA320AB` for topics longer than 127 bytes |
//! | 4 | body CRC-32 without its sign bit |
//! | 4 | queue |
//! | 4 | flag |
//! | 8 | offset in its queue |
//! | 8 | place in the commit log |
//! | 4 | system flag: bit 0 body is compressed, bit 4 and 5 hosts are IPv6, bit 7 body is a batch, bits 8 to 10 compression |
//! | 8 | born time |
//! | 8 or 20 | born host: address and port |
//! | 8 | stored time |
//! | 8 or 20 | store host |
//! | 4 | times consumed again |
//! | 8 | prepared transaction offset |
//! | 4 + n | body length, body |
//! | 1 or 2, + m | topic length, topic |
//! | 2 + p | properties length, properties |
//!
//! The decoder believes no length and no offset: lengths are checked against the bytes that are there, offsets must be
//! dense from the asked one on. A message whose frame is whole but whose body is damaged is kept, marked; a frame that is
//! not whole ends the batch, and is an error when it comes first, since nothing after it can be placed.

use super::inflate::{INFLATED_BYTES_MAX, inflate};
use crate::{Body, Entry, MESSAGE_OVERHEAD_BYTES, MessageIter, RecordBatch, find_property};
use bytes::Bytes;
use onceflow_types::{Error, Offset, Partition, Result, Timestamp};
use std::ops::Range;

const MAGIC_1: u32 = 0xDAA3_20A7;
const MAGIC_2: u32 = 0xDAA3_20AB;
const FLAG_COMPRESSED: i32 = 0x1;
const FLAG_BORN_HOST_V6: i32 = 0x1 << 4;
const FLAG_STORE_HOST_V6: i32 = 0x1 << 5;
const FLAG_INNER_BATCH: i32 = 0x1 << 7;
/// The producer's name for one try of one send (`MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX`).
pub(crate) const UNIQUE_KEY: &str = "UNIQ_KEY";
/// How many messages an inner batch holds (`MessageConst.PROPERTY_INNER_NUM`).
const INNER_NUM: &str = "INNER_NUM";
/// Most messages of one inner batch; more is a lie.
const INNER_MESSAGES_MAX: u64 = 65_536;
/// Where the body of a message in [`MessageBatch`](crate::MessageBatch)'s encoding begins.
const INNER_BODY_AT: usize = 20;
/// Most bytes of inflated bodies in one read; the batch ends before the message that would exceed it.
const INFLATED_READ_BYTES_MAX: usize = 4 * INFLATED_BYTES_MAX;

/// Bounds of one decoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The first offset that is wanted.
    pub(crate) from: Offset,
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
}

/// One message's frame.
#[expect(clippy::struct_field_names, reason = "the stored time of a stored message")]
struct Stored {
    crc: u32,
    queue: u32,
    offset: u64,
    sys_flag: i32,
    born: Timestamp,
    stored: Timestamp,
    body: Range<usize>,
    topic: Range<usize>,
    properties: Range<usize>,
    end: usize,
}

/// What a check-back says about its half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half<'b> {
    pub(crate) topic: &'b str,
    pub(crate) queue: u32,
    pub(crate) properties: &'b [u8],
}

/// Reads the one message of a check-back, without its body. `None` when it is none.
pub(crate) fn half(bytes: &[u8]) -> Option<Half<'_>> {
    let stored = Stored::parse(bytes, 0).ok().filter(|stored| stored.end == bytes.len())?;
    let topic = std::str::from_utf8(bytes.get(stored.topic)?).ok()?;
    Some(Half { topic, queue: stored.queue, properties: bytes.get(stored.properties)? })
}

/// Decodes a pulled body. The second result says whether all of it was taken.
///
/// # Errors
/// `DataLoss` when the first message is not the asked one or has no whole frame, or a later one leaves a hole.
pub(crate) fn decode(partition: &Partition, bytes: Bytes, bounds: Bounds) -> Result<(RecordBatch, bool)> {
    if u32::try_from(bytes.len()).is_err() {
        return Err(Error::retry(format!("pulled body is too large: bytes={}", bytes.len())));
    }
    let mut to = Records { entries: vec![], inflated: vec![], bytes: 0, bounds };
    let mut at = 0;
    let mut whole = true;
    while at < bytes.len() && !to.is_full() {
        let stored = match Stored::parse(&bytes, at) {
            Ok(stored) => stored,
            Err(reason) if to.entries.is_empty() => {
                let next = to.next();
                return Err(Error::data_loss(format!(
                    "stored message cannot be read: partition={partition} offset={next} reason={reason:?}"
                )));
            }
            Err(_) => {
                whole = false;
                break;
            }
        };
        at = stored.end;
        if !to.take(partition, &bytes, &stored)? {
            whole = false;
            break;
        }
    }
    whole &= at == bytes.len();
    Ok((RecordBatch::new(partition.clone(), bytes, to.inflated.into(), to.entries), whole))
}

/// Offsets of the messages of one queue with this UNIQ_KEY, of a body that holds any messages in any order.
pub(crate) fn offsets_with(bytes: &[u8], queue: u32, unique_key: &str) -> Result<Vec<Offset>, &'static str> {
    let mut offsets = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let stored = Stored::parse(bytes, at)?;
        let properties = bytes.get(stored.properties.clone()).unwrap_or_default();
        if stored.queue == queue && find_property(properties, UNIQUE_KEY) == Some(unique_key.as_bytes()) {
            offsets.push(Offset::new(stored.offset));
        }
        at = stored.end;
    }
    offsets.sort_unstable();
    Ok(offsets)
}

struct Records {
    entries: Vec<Entry>,
    inflated: Vec<u8>,
    bytes: usize,
    bounds: Bounds,
}

impl Records {
    fn next(&self) -> u64 {
        self.entries.last().map_or(self.bounds.from.get(), |last| last.offset.get().saturating_add(1))
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= self.bounds.records_max || self.bytes >= self.bounds.bytes_max
    }

    /// Takes one stored message; `false` ends the batch before it.
    fn take(&mut self, partition: &Partition, bytes: &Bytes, stored: &Stored) -> Result<bool> {
        let body = bytes.get(stored.body.clone()).unwrap_or_default();
        let properties = bytes.get(stored.properties.clone()).unwrap_or_default();
        if stored.sys_flag & FLAG_INNER_BATCH != 0 {
            return self.take_inner(partition, stored, body, properties);
        }
        self.check_offset(partition, stored.offset)?;
        let size = body.len() + properties.len();
        if self.over(size) {
            return Ok(false);
        }
        let Some(body) = self.body(stored, body) else {
            return Ok(false);
        };
        self.push(stored, stored.offset, body, range(&stored.properties), size);
        Ok(true)
    }

    /// A message that holds several, each with an offset of its own. They stay where they are, unless the whole is
    /// compressed: their properties then would lie outside the bytes as read, so they are marked.
    fn take_inner(&mut self, partition: &Partition, stored: &Stored, body: &[u8], properties: &[u8]) -> Result<bool> {
        let number = find_property(properties, INNER_NUM).and_then(|text| std::str::from_utf8(text).ok());
        let number: u64 = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        let end = stored.offset.checked_add(number).filter(|_| (1..=INNER_MESSAGES_MAX).contains(&number));
        let next = self.next();
        // The first batch of a pull may begin below the asked offset.
        let Some(end) = end.filter(|end| stored.offset <= next && next < *end) else {
            return Err(hole(partition, next, stored.offset));
        };
        let reason = if stored.sys_flag & FLAG_COMPRESSED != 0 {
            Some("inner batch is compressed")
        } else if crc(body) != stored.crc {
            Some("body does not match its CRC")
        } else {
            None
        };
        let mut messages = MessageIter::new(if reason.is_some() { &[] } else { body });
        let mut at = stored.body.start;
        for offset in stored.offset..end {
            let message = messages.next().and_then(Result::ok);
            let (body_at, size) = (at + INNER_BODY_AT, message.map_or(0, |m| m.body.len() + m.properties.len()));
            at += MESSAGE_OVERHEAD_BYTES + size;
            if offset < next {
                continue;
            }
            if self.is_full() {
                return Ok(false);
            }
            if let Some(message) = message {
                let body_end = body_at + message.body.len();
                let properties = body_end + 2..body_end + 2 + message.properties.len();
                let body = Body::Plain(range(&(body_at..body_end)));
                self.push(stored, offset, body, range(&properties), size);
            } else {
                let body = Body::Undecodable(reason.unwrap_or("inner batch is cut off"));
                self.push(stored, offset, body, range(&stored.properties), 0);
            }
        }
        Ok(true)
    }

    fn check_offset(&self, partition: &Partition, offset: u64) -> Result<()> {
        let next = self.next();
        if offset == next { Ok(()) } else { Err(hole(partition, next, offset)) }
    }

    fn over(&self, size: usize) -> bool {
        !self.entries.is_empty() && self.bytes + size > self.bounds.bytes_max
    }

    /// `None` when the read has no room left for the inflated body.
    fn body(&mut self, stored: &Stored, body: &[u8]) -> Option<Body> {
        if crc(body) != stored.crc {
            return Some(Body::Undecodable("body does not match its CRC"));
        }
        if stored.sys_flag & FLAG_COMPRESSED == 0 {
            return Some(Body::Plain(range(&stored.body)));
        }
        let start = self.inflated.len();
        if start > 0 && start + INFLATED_BYTES_MAX > INFLATED_READ_BYTES_MAX {
            return None;
        }
        Some(match inflate(stored.sys_flag, body, &mut self.inflated) {
            Ok(_) => Body::Inflated(range(&(start..self.inflated.len()))),
            Err(reason) => Body::Undecodable(reason),
        })
    }

    fn push(&mut self, stored: &Stored, offset: u64, body: Body, properties: Range<u32>, size: usize) {
        let offset = Offset::new(offset);
        self.bytes += size;
        self.entries.push(Entry { offset, born: stored.born, stored: stored.stored, body, properties });
    }
}

fn hole(partition: &Partition, expected: u64, found: u64) -> Error {
    Error::data_loss(format!("offsets have a hole: partition={partition} expected={expected} found={found}"))
}

/// RocketMQ drops the sign bit (`UtilAll.crc32`).
fn crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

/// Fits, as [`decode`] and the cap on inflation have checked.
fn range(range: &Range<usize>) -> Range<u32> {
    let short = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    short(range.start)..short(range.end)
}

impl Stored {
    fn parse(bytes: &[u8], at: usize) -> Result<Stored, &'static str> {
        const CUT: &str = "cut off";
        let rest = bytes.get(at..).ok_or(CUT)?;
        let total = rest.first_chunk::<4>().ok_or(CUT)?;
        let total = usize::try_from(i32::from_be_bytes(*total)).map_err(|_| "negative length")?;
        let message = rest.get(..total).ok_or("longer than what is there")?;
        let mut from = Cursor { bytes: message, at: 4 };
        let topic_length_bytes = match from.u32().ok_or(CUT)? {
            MAGIC_1 => 1,
            MAGIC_2 => 2,
            _ => return Err("unknown magic"),
        };
        let mut parse = || {
            let crc = from.u32()?;
            let queue = from.u32()?;
            from.skip(4)?;
            let offset = from.u64()?;
            from.skip(8)?;
            let sys_flag = from.u32()?.cast_signed();
            let born = Timestamp::from_millis(from.u64()?.cast_signed());
            from.skip(host_bytes(sys_flag & FLAG_BORN_HOST_V6))?;
            let stored = Timestamp::from_millis(from.u64()?.cast_signed());
            from.skip(host_bytes(sys_flag & FLAG_STORE_HOST_V6))?;
            from.skip(12)?;
            let body = from.part(4)?;
            let topic = from.part(topic_length_bytes)?;
            let properties = from.part(2)?;
            let [body, topic, properties] = [body, topic, properties].map(|part| part.start + at..part.end + at);
            Some(Stored { crc, queue, offset, sys_flag, born, stored, body, topic, properties, end: at + total })
        };
        let stored = parse().ok_or("a length inside is longer than the message")?;
        if from.at != total {
            return Err("bytes are left over");
        }
        if i64::try_from(stored.offset).is_err() {
            return Err("negative offset");
        }
        Ok(stored)
    }
}

fn host_bytes(is_v6: i32) -> usize {
    if is_v6 == 0 { 8 } else { 20 }
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Cursor<'_> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let chunk = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*chunk)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        let at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len())?;
        self.at = at;
        Some(())
    }

    /// A part behind its length, which has 1, 2 or 4 bytes. Longer lengths than a signed number can say are refused.
    fn part(&mut self, length_bytes: usize) -> Option<Range<usize>> {
        let length = match length_bytes {
            1 => usize::from(self.chunk::<1>().map(u8::from_be_bytes)?),
            2 => usize::try_from(self.chunk().map(i16::from_be_bytes)?).ok()?,
            _ => usize::try_from(self.chunk().map(i32::from_be_bytes)?).ok()?,
        };
        let start = self.at;
        self.skip(length)?;
        Some(start..self.at)
    }
}

#[cfg(test)]
mod tests;
