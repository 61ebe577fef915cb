//! The body of an epoch: its state changes, the handles of its half messages and its outbox, as one unit.
//!
//! ```text
//!  version u8 = 1 · flag u8: 0 plain, 1 lz4 · [raw length count, when lz4] · content
//!
//!  content:  channels  count, then sink text · partition      each channel once, in order of first use
//!            changes   bytes                                  a storage delta's encoding, opaque here
//!            halves    count, then channel index count · sequence count · half handle
//!            outbox    count, then channel index count · first sequence count · messages count · bytes
//! ```
//!
//! A body carries no checksum of its own: the Commit that holds it, or that holds the checksum of its parts, does.

use crate::lz4::{compress_if_smaller, inflate};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{
    Channel, Error, HalfHandle, NAME_BYTES_MAX, Name, Result, Sequence, decode_partition, encode_partition,
};
use std::collections::BTreeMap;

/// The largest encoded body that travels inside the Commit: one append for a small epoch instead of two.
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// The largest body before compression. An epoch is sealed long before it.
pub const BODY_BYTES_MAX: usize = 64 << 20;

const BODY_VERSION: u8 = 1;
const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// Everything of an epoch that is not in the Commit's own fields.
///
/// ```
/// use onceflow_txn::EpochBody;
///
/// let body = EpochBody { changes: vec![7; 4096], ..EpochBody::default() };
/// let bytes = body.encode()?;
/// assert!(bytes.len() < 100);
/// assert_eq!(EpochBody::decode(&bytes)?, body);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct EpochBody {
    /// The state changes, as a storage delta encodes them.
    pub changes: Vec<u8>,
    /// The half messages that the decision makes visible.
    pub halves: Vec<ListedHalf>,
    /// The messages that are sent after the decision.
    pub outbox: Vec<OutboxBatch>,
}

/// A half message that belongs to a decided epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedHalf {
    /// Its channel; the target is the handle's.
    pub channel: Channel,
    /// Its sequence in the channel.
    pub sequence: Sequence,
    /// By which it is ended.
    pub handle: HalfHandle,
}

/// Messages of one channel that are sent as one batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboxBatch {
    /// Their channel.
    pub channel: Channel,
    /// The sequence of the first one.
    pub first: Sequence,
    /// How many sequences they cover, 1 or more.
    pub count: u32,
    /// The exact bytes to send, in RocketMQ's batch encoding; opaque here.
    pub messages: Vec<u8>,
}

impl EpochBody {
    /// The body as bytes, compressed when that makes it smaller.
    ///
    /// # Errors
    /// `Invalid` when it is larger than [`BODY_BYTES_MAX`] before compression: the epoch must be cut smaller. Nothing
    /// that could not be read again is ever decided.
    ///
    /// # Panics
    /// When a half's handle has another target than its channel.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let content = self.content();
        if content.len() > BODY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "epoch is too large, seal smaller ones: bytes={} max={BODY_BYTES_MAX}",
                content.len()
            )));
        }
        let mut bytes = Vec::with_capacity(content.len() / 2 + 16);
        bytes.put_u8(BODY_VERSION);
        bytes.put_u8(LZ4);
        bytes.put_count(content.len() as u64);
        if !compress_if_smaller(&content, &mut bytes) {
            bytes.truncate(1);
            bytes.put_u8(PLAIN);
            bytes.extend_from_slice(&content);
        }
        Ok(bytes)
    }

    fn content(&self) -> Vec<u8> {
        let table = ChannelTable::of(self);
        let outbox_bytes: usize = self.outbox.iter().map(|batch| batch.messages.len() + 24).sum();
        let mut to = Vec::with_capacity(self.changes.len() + self.halves.len() * 48 + outbox_bytes + 256);
        table.encode(&mut to);
        to.put_bytes(&self.changes);
        to.put_count(self.halves.len() as u64);
        for half in &self.halves {
            assert_eq!(half.channel.target, half.handle.target, "a half lies in the queue of its channel");
            to.put_count(table.index(&half.channel));
            to.put_count(half.sequence.get());
            half.handle.encode(&mut to);
        }
        to.put_count(self.outbox.len() as u64);
        for batch in &self.outbox {
            to.put_count(table.index(&batch.channel));
            to.put_count(batch.first.get());
            to.put_count(batch.count.into());
            to.put_bytes(&batch.messages);
        }
        to
    }

    /// Reads what [`encode`](Self::encode) wrote, to the last byte.
    ///
    /// # Errors
    /// `Invalid` for a newer version. `DataLoss` for anything else: the bytes passed the journal's checksum, so
    /// neither another read nor another store would help.
    pub fn decode(bytes: &[u8]) -> Result<EpochBody> {
        let mut from = Decoder::new(bytes);
        match from.u8() {
            Ok(version) if version > BODY_VERSION => Err(Error::invalid(format!(
                "epoch body of a newer format, upgrade onceflow: version={version} known={BODY_VERSION}"
            ))),
            _ => EpochBody::decode_known(bytes)
                .map_err(|e| Error::data_loss("the body of a decided epoch cannot be decoded").with_source(e)),
        }
    }

    fn decode_known(bytes: &[u8]) -> Result<EpochBody> {
        let mut from = Decoder::new(bytes);
        if from.u8()? != BODY_VERSION {
            return Err(Error::corrupt("unknown version of an epoch body"));
        }
        match from.u8()? {
            PLAIN if from.rest().len() <= BODY_BYTES_MAX => EpochBody::decode_content(from.rest()),
            LZ4 => {
                let raw_len = usize::try_from(from.count()?).unwrap_or(usize::MAX);
                if raw_len > BODY_BYTES_MAX {
                    return Err(Error::corrupt(format!("epoch body is too large: bytes={raw_len}")));
                }
                let mut content = Vec::new();
                inflate(from.rest(), raw_len, &mut content)?;
                EpochBody::decode_content(&content)
            }
            flag => Err(Error::corrupt(format!("bad flag or length of an epoch body: flag={flag}"))),
        }
    }

    fn decode_content(content: &[u8]) -> Result<EpochBody> {
        let mut from = Decoder::new(content);
        let channels = decode_table(&mut from)?;
        let changes = from.bytes(BODY_BYTES_MAX)?.to_vec();
        let len = from.list_len(5)?;
        let halves = (0..len).map(|_| decode_half(&channels, &mut from)).collect::<Result<Vec<_>>>()?;
        let len = from.list_len(4)?;
        let outbox = (0..len).map(|_| decode_batch(&channels, &mut from)).collect::<Result<Vec<_>>>()?;
        from.finish()?;
        Ok(EpochBody { changes, halves, outbox })
    }
}

fn decode_half(channels: &[Channel], from: &mut Decoder<'_>) -> Result<ListedHalf> {
    let channel = decode_channel(channels, from)?;
    let sequence = Sequence::new(from.count()?);
    let handle = HalfHandle::decode(channel.target.clone(), from)?;
    Ok(ListedHalf { channel, sequence, handle })
}

fn decode_batch(channels: &[Channel], from: &mut Decoder<'_>) -> Result<OutboxBatch> {
    let channel = decode_channel(channels, from)?;
    let first = Sequence::new(from.count()?);
    let count = u32::try_from(from.count()?).map_err(|_| Error::corrupt("outbox count is too large"))?;
    Ok(OutboxBatch { channel, first, count, messages: from.bytes(BODY_BYTES_MAX)?.to_vec() })
}

fn decode_channel(channels: &[Channel], from: &mut Decoder<'_>) -> Result<Channel> {
    let index = usize::try_from(from.count()?).ok();
    index.and_then(|index| channels.get(index)).cloned().ok_or_else(|| Error::corrupt("channel index beyond the table"))
}

/// The channels of a body, each once, in the order in which halves and outbox first use them.
struct ChannelTable<'b> {
    order: Vec<&'b Channel>,
    indices: BTreeMap<&'b Channel, u64>,
}

impl<'b> ChannelTable<'b> {
    fn of(body: &'b EpochBody) -> Self {
        let mut table = ChannelTable { order: vec![], indices: BTreeMap::new() };
        let halves = body.halves.iter().map(|half| &half.channel);
        for channel in halves.chain(body.outbox.iter().map(|batch| &batch.channel)) {
            let next = table.order.len() as u64;
            if *table.indices.entry(channel).or_insert(next) == next {
                table.order.push(channel);
            }
        }
        table
    }

    fn index(&self, channel: &Channel) -> u64 {
        *self.indices.get(channel).expect("the table was made from this body")
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.put_count(self.order.len() as u64);
        for channel in &self.order {
            to.put_str(channel.sink.as_str());
            encode_partition(&channel.target, to);
        }
    }
}

fn decode_table(from: &mut Decoder<'_>) -> Result<Vec<Channel>> {
    let len = from.list_len(4)?;
    let channel = |from: &mut Decoder<'_>| {
        let sink = Name::new(from.str(NAME_BYTES_MAX)?).map_err(|e| Error::corrupt("bad sink name").with_source(e))?;
        Ok(Channel { sink, target: decode_partition(from)? })
    };
    (0..len).map(|_| channel(from)).collect()
}

/// Cuts an encoded body into the pieces that travel in Deltas, each of at most `part_bytes_max` bytes, in order.
///
/// # Panics
/// When `part_bytes_max` is zero.
pub fn split(bytes: &[u8], part_bytes_max: usize) -> Vec<&[u8]> {
    assert!(part_bytes_max > 0, "a part holds at least one byte");
    bytes.chunks(part_bytes_max).collect()
}
