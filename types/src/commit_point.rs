//! What a store knows about the journal: the whole fold state, written in the same atomic write as the state itself.

use crate::wire::{Decoder, Encode};
use crate::{
    Channel, Epoch, Error, Generation, Incarnation, Name, Nonce, Offset, Offsets, Partition, Result, Sequence,
    Timestamp,
};
use crate::{NAME_BYTES_MAX, TOPIC_BYTES_MAX};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the encoding below.
pub const COMMIT_POINT_VERSION: u8 = 1;
/// Longest broker name, in bytes.
pub const BROKER_BYTES_MAX: usize = 255;

/// Where an epoch that may still have to be published lies in the journal.
///
/// The place of the valid Commit is kept exactly: a copy of another generation between the two offsets is never taken
/// for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unpublished {
    /// The epoch.
    pub epoch: Epoch,
    /// The journal offset from which to read: its first Delta, or the Commit itself.
    pub body_from: Offset,
    /// The journal offset of its valid Commit.
    pub commit_offset: Offset,
}

/// The fold of a task's journal up to [`journal_next`](Self::journal_next), as of its last valid Commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitPoint {
    /// The life of the journal that this belongs to.
    pub incarnation: Incarnation,
    /// The generation that was current.
    pub generation: Generation,
    /// The nonce of that generation's Claim.
    pub nonce: Nonce,
    /// The last committed epoch.
    pub epoch: Epoch,
    /// The next offset to read, per input partition.
    pub offsets: Offsets,
    /// Event time up to which each input is complete.
    pub watermarks: BTreeMap<Partition, Timestamp>,
    /// The processing time of the epoch.
    pub clock: Timestamp,
    /// The next sequence, per channel.
    pub channels: BTreeMap<Channel, Sequence>,
    /// Lower bounds of the target queues' positions: a scan for the output of unpublished epochs starts there.
    pub tails: Offsets,
    /// Every epoch up to this one is published and proven.
    pub published_through: Epoch,
    /// The journal offset of the last valid Commit.
    pub commit_offset: Offset,
    /// The checksum of that Commit's record: another record at the same offset means lost data.
    pub commit_checksum: u32,
    /// The epochs after `published_through`, in order, for their handles.
    pub unpublished: Vec<Unpublished>,
    /// The next journal offset to fold.
    pub journal_next: Offset,
}

impl CommitPoint {
    /// The journal offset at which an opening starts to read: the oldest body that may still have to be published, or
    /// the first record that is not folded yet.
    pub fn read_from(&self) -> Offset {
        self.unpublished.first().map_or(self.journal_next, |oldest| oldest.body_from.min(self.journal_next))
    }

    /// Appends the point: version byte, then the fields in the order of the struct. Lists are a count and their items;
    /// partitions and channels are texts and numbers.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.put_u8(COMMIT_POINT_VERSION);
        to.put_u128(self.incarnation.get());
        to.put_count(self.generation.get());
        to.put_u128(self.nonce.get());
        to.put_count(self.epoch.get());
        encode_offsets(&self.offsets, to);
        encode_watermarks(&self.watermarks, to);
        to.put_i64(self.clock.as_millis());
        encode_channels(&self.channels, to);
        encode_offsets(&self.tails, to);
        to.put_count(self.published_through.get());
        to.put_count(self.commit_offset.get());
        to.put_u32(self.commit_checksum);
        to.put_count(self.unpublished.len() as u64);
        for unpublished in &self.unpublished {
            to.put_count(unpublished.epoch.get());
            to.put_count(unpublished.body_from.get());
            to.put_count(unpublished.commit_offset.get());
        }
        to.put_count(self.journal_next.get());
    }

    /// Reads what [`encode`](Self::encode) wrote, to the last byte.
    ///
    /// # Errors
    /// `Invalid` for a newer version, `Corrupt` for anything else.
    pub fn decode(bytes: &[u8]) -> Result<CommitPoint> {
        let mut from = Decoder::new(bytes);
        match from.u8()? {
            COMMIT_POINT_VERSION => {}
            newer if newer > COMMIT_POINT_VERSION => {
                return Err(Error::invalid(format!(
                    "commit point of a newer format, upgrade onceflow: version={newer} known={COMMIT_POINT_VERSION}"
                )));
            }
            version => return Err(Error::corrupt(format!("commit point of an unknown format: version={version}"))),
        }
        let point = CommitPoint {
            incarnation: Incarnation::new(from.u128()?),
            generation: Generation::new(from.count()?),
            nonce: Nonce::new(from.u128()?),
            epoch: Epoch::new(from.count()?),
            offsets: decode_offsets(&mut from)?,
            watermarks: decode_watermarks(&mut from)?,
            clock: Timestamp::from_millis(from.i64()?),
            channels: decode_channels(&mut from)?,
            tails: decode_offsets(&mut from)?,
            published_through: Epoch::new(from.count()?),
            commit_offset: Offset::new(from.count()?),
            commit_checksum: from.u32()?,
            unpublished: decode_unpublished(&mut from)?,
            journal_next: Offset::new(from.count()?),
        };
        from.finish()?;
        Ok(point)
    }
}

fn decode_unpublished(from: &mut Decoder<'_>) -> Result<Vec<Unpublished>> {
    let len = from.list_len(3)?;
    (0..len)
        .map(|_| {
            Ok(Unpublished {
                epoch: Epoch::new(from.count()?),
                body_from: Offset::new(from.count()?),
                commit_offset: Offset::new(from.count()?),
            })
        })
        .collect()
}

/// Appends a partition: topic text, broker text, queue count.
pub fn encode_partition(partition: &Partition, to: &mut Vec<u8>) {
    to.put_str(&partition.topic);
    to.put_str(&partition.broker);
    to.put_count(u64::from(partition.queue));
}

/// Reads a partition.
///
/// # Errors
/// `Corrupt` when it is not one.
pub fn decode_partition(from: &mut Decoder<'_>) -> Result<Partition> {
    let topic: Arc<str> = from.str(TOPIC_BYTES_MAX)?.into();
    let broker: Arc<str> = from.str(BROKER_BYTES_MAX)?.into();
    let queue = u32::try_from(from.count()?).map_err(|_| Error::corrupt("queue number is too large"))?;
    Ok(Partition { topic, broker, queue })
}

/// Appends offsets: count, then partition and next offset (count) each, in order of the partitions.
pub fn encode_offsets(offsets: &Offsets, to: &mut Vec<u8>) {
    to.put_count(offsets.len() as u64);
    for (partition, next) in offsets.iter() {
        encode_partition(partition, to);
        to.put_count(next.get());
    }
}

/// Reads offsets.
///
/// # Errors
/// `Corrupt` when they are none, or not in strictly ascending order.
pub fn decode_offsets(from: &mut Decoder<'_>) -> Result<Offsets> {
    let items = decode_ascending(from, |from| Ok((decode_partition(from)?, Offset::new(from.count()?))))?;
    Ok(items.into_iter().collect())
}

/// Appends watermarks: count, then partition and `i64` each, in order of the partitions.
pub fn encode_watermarks(watermarks: &BTreeMap<Partition, Timestamp>, to: &mut Vec<u8>) {
    to.put_count(watermarks.len() as u64);
    for (partition, watermark) in watermarks {
        encode_partition(partition, to);
        to.put_i64(watermark.as_millis());
    }
}

/// Reads watermarks.
///
/// # Errors
/// `Corrupt` when they are none, or not in strictly ascending order.
pub fn decode_watermarks(from: &mut Decoder<'_>) -> Result<BTreeMap<Partition, Timestamp>> {
    let items = decode_ascending(from, |from| Ok((decode_partition(from)?, Timestamp::from_millis(from.i64()?))))?;
    Ok(items.into_iter().collect())
}

/// Appends channels: count, then sink text, partition and next sequence (count) each, in order.
pub fn encode_channels(channels: &BTreeMap<Channel, Sequence>, to: &mut Vec<u8>) {
    to.put_count(channels.len() as u64);
    for (channel, next) in channels {
        to.put_str(channel.sink.as_str());
        encode_partition(&channel.target, to);
        to.put_count(next.get());
    }
}

/// Reads channels.
///
/// # Errors
/// `Corrupt` when they are none, or not in strictly ascending order.
pub fn decode_channels(from: &mut Decoder<'_>) -> Result<BTreeMap<Channel, Sequence>> {
    let items = decode_ascending(from, |from| {
        let sink = Name::new(from.str(NAME_BYTES_MAX)?).map_err(|e| Error::corrupt("bad sink name").with_source(e))?;
        let target = decode_partition(from)?;
        Ok((Channel { sink, target }, Sequence::new(from.count()?)))
    })?;
    Ok(items.into_iter().collect())
}

fn decode_ascending<K: Ord, V>(
    from: &mut Decoder<'_>,
    mut item: impl FnMut(&mut Decoder<'_>) -> Result<(K, V)>,
) -> Result<Vec<(K, V)>> {
    let len = from.list_len(4)?;
    let mut items: Vec<(K, V)> = Vec::with_capacity(len);
    for _ in 0..len {
        let next = item(from)?;
        if items.last().is_some_and(|last| last.0 >= next.0) {
            return Err(Error::corrupt("list is not in ascending order"));
        }
        items.push(next);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> CommitPoint {
        let queue = |topic: &str, number| Partition::new(topic, "broker-a", number);
        CommitPoint {
            incarnation: Incarnation::new(7),
            generation: Generation::new(12),
            nonce: Nonce::new(9),
            epoch: Epoch::new(3),
            offsets: [(queue("in", 0), Offset::new(60)), (queue("in", 1), Offset::new(2))].into_iter().collect(),
            watermarks: [(queue("in", 0), Timestamp::from_millis(-5))].into_iter().collect(),
            clock: Timestamp::from_millis(1_700_000_000_000),
            channels: [(Channel { sink: Name::new("out").unwrap(), target: queue("alerts", 1) }, Sequence::new(40))]
                .into_iter()
                .collect(),
            tails: [(queue("alerts", 1), Offset::new(39))].into_iter().collect(),
            published_through: Epoch::new(2),
            commit_offset: Offset::new(17),
            commit_checksum: 0xdead_beef,
            unpublished: vec![Unpublished {
                epoch: Epoch::new(3),
                body_from: Offset::new(15),
                commit_offset: Offset::new(17),
            }],
            journal_next: Offset::new(18),
        }
    }

    #[test]
    fn a_point_survives_and_every_cut_or_extra_byte_is_refused() {
        let point = example();
        let mut bytes = vec![];
        point.encode(&mut bytes);
        assert_eq!(CommitPoint::decode(&bytes).unwrap(), point);
        for len in 0..bytes.len() {
            assert!(CommitPoint::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        bytes.push(0);
        assert!(CommitPoint::decode(&bytes).is_err());
    }

    #[test]
    fn a_newer_version_says_so() {
        let error = CommitPoint::decode(&[COMMIT_POINT_VERSION + 1]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    }

    #[test]
    fn reading_starts_at_the_oldest_unpublished_body() {
        let mut point = example();
        assert_eq!(point.read_from(), Offset::new(15));
        point.unpublished.clear();
        assert_eq!(point.read_from(), Offset::new(18));
    }
}
