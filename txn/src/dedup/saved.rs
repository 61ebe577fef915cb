//! The reader's state as entries of a store: one per queue that is read whole, one per channel.
//!
//! ```text
//!  key                  value
//!  0 · partition        empty                              the queue was read from its first message, without a hole
//!  1 · channel key      version u8 = 1 · next count · begin: u8 0 whole, or 1 · since i64 · mark: u8 0, or 1 · count
//!                       last seen i64 · gap since i64 · held count, then sequence count · item bytes
//! ```

use super::position::{Begin, Position};
use super::{ChannelKey, DedupReader};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Partition, Result, Sequence, Timestamp, decode_partition, encode_partition};

const POSITION_VERSION: u8 = 1;
const QUEUE: u8 = 0;
const CHANNEL: u8 = 1;
/// Longest held item, in bytes: no message of a log is larger.
const ITEM_BYTES_MAX: usize = 64 << 20;

impl<T> DedupReader<T> {
    /// Writes the entries that changed since the last call (or since the reader was made): `write` gets a key and its
    /// value, or `None` for an entry to remove; `item` appends the bytes of a held message.
    ///
    /// The entries belong into the epoch whose messages they account for, in the same atomic write.
    pub fn changes(&mut self, mut item: impl FnMut(&T, &mut Vec<u8>), mut write: impl FnMut(&[u8], Option<&[u8]>)) {
        let (mut key, mut value, mut bytes) = (vec![], vec![], vec![]);
        for target in std::mem::take(&mut self.changed_queues) {
            queue_key(&target, &mut key);
            write(&key, self.whole.contains(&target).then_some(&[]));
        }
        for channel in std::mem::take(&mut self.changed) {
            key.clear();
            key.put_u8(CHANNEL);
            channel.encode(&mut key);
            let Some(position) = self.positions.get_mut(&channel) else {
                write(&key, None);
                continue;
            };
            position.clear_changed();
            value.clear();
            encode_position(position, &mut value, |held, to| {
                bytes.clear();
                item(held, &mut bytes);
                to.put_bytes(&bytes);
            });
            write(&key, Some(&value));
        }
    }

    /// Takes back an entry that [`changes`](Self::changes) wrote, before the first message is accepted. `item` reads what
    /// its namesake there appended.
    ///
    /// # Errors
    /// `Invalid` for a newer version, `Corrupt` for anything else that was not written by `changes`, and what `item`
    /// returns.
    pub fn restore(&mut self, key: &[u8], value: &[u8], item: impl FnMut(&[u8]) -> Result<T>) -> Result<()> {
        let mut from = Decoder::new(key);
        match from.u8()? {
            QUEUE if value.is_empty() => {
                self.whole.insert(decode_partition(&mut from)?);
            }
            CHANNEL => {
                let channel = ChannelKey::decode(&mut from)?;
                let position = decode_position(value, item)?;
                self.held += position.held();
                if let Some(before) = self.positions.insert(channel, position) {
                    self.held -= before.held();
                }
            }
            kind => return Err(Error::corrupt(format!("unknown entry of a dedup reader: kind={kind}"))),
        }
        from.finish()
    }
}

fn queue_key(target: &Partition, key: &mut Vec<u8>) {
    key.clear();
    key.put_u8(QUEUE);
    encode_partition(target, key);
}

fn encode_position<T>(position: &Position<T>, to: &mut Vec<u8>, mut item: impl FnMut(&T, &mut Vec<u8>)) {
    to.put_u8(POSITION_VERSION);
    to.put_count(position.next.get());
    match position.begin {
        Begin::Whole => to.put_u8(0),
        Begin::Middle { since, mark } => {
            to.put_u8(1);
            to.put_i64(since.as_millis());
            to.put_u8(u8::from(mark.is_some()));
            if let Some(mark) = mark {
                to.put_count(mark.get());
            }
        }
    }
    to.put_i64(position.last_seen.as_millis());
    to.put_i64(position.gap_since.as_millis());
    to.put_count(position.held.len() as u64);
    for (sequence, held) in &position.held {
        to.put_count(sequence.get());
        item(held, to);
    }
}

fn decode_position<T>(value: &[u8], mut item: impl FnMut(&[u8]) -> Result<T>) -> Result<Position<T>> {
    let mut from = Decoder::new(value);
    match from.u8()? {
        POSITION_VERSION => {}
        version if version > POSITION_VERSION => {
            return Err(Error::invalid(format!(
                "dedup state of a newer format, upgrade onceflow: version={version} known={POSITION_VERSION}"
            )));
        }
        version => return Err(Error::corrupt(format!("unknown version of dedup state: version={version}"))),
    }
    let mut position = Position::new(Sequence::new(from.count()?), true, Timestamp::MIN);
    if flag(&mut from)? {
        position.begin = Begin::Middle {
            since: Timestamp::from_millis(from.i64()?),
            mark: if flag(&mut from)? { Some(Sequence::new(from.count()?)) } else { None },
        };
    }
    position.last_seen = Timestamp::from_millis(from.i64()?);
    position.gap_since = Timestamp::from_millis(from.i64()?);
    let mut last = position.next;
    for _ in 0..from.list_len(2)? {
        let sequence = Sequence::new(from.count()?);
        if sequence <= last || sequence > crate::SEQUENCE_MAX {
            return Err(Error::corrupt(format!("held messages out of order: sequence={sequence} after={last}")));
        }
        last = sequence;
        position.held.insert(sequence, item(from.bytes(ITEM_BYTES_MAX)?)?);
    }
    from.finish()?;
    Ok(position)
}

fn flag(from: &mut Decoder<'_>) -> Result<bool> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corrupt(format!("bad flag: given={other}"))),
    }
}
