//! Half messages on disk.
//!
//! A half's key is its place, 8 bytes big-endian; places count up, and stand for RocketMQ's commit-log and half-queue
//! offsets both. As in a broker, each check-back gives the half a further place, and it can be ended by any of them.
//! Values are [sealed](super::sealed); they hold, in the alphabet of [`wire`](onceflow_types::wire):
//!
//! | value | holds |
//! | --- | --- |
//! | half | `u8` 1, `i64` time stored, `u32` id of the target queue, text group, text UNIQ_KEY, the message to the end |
//! | further place | `u8` 2, `i64` time stored, `u64` first place |
//! | waiting for its end (under the first place, in a keyspace of its own) | `u32` checks so far, `u64` present place |

use super::fault::damaged;
use super::sealed;
use crate::{Message, MessageBatch, MessageIter};
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Result, TOPIC_BYTES_MAX, Timestamp, UNIQUE_KEY_BYTES_MAX};

/// The property by which a message is known before and after its commit.
pub(super) const UNIQUE_KEY: &str = "UNIQ_KEY";
/// Properties that make a message a half; what becomes visible has none of them.
const OF_HALVES: [&str; 4] = ["TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID"];

const KIND_HALF: u8 = 1;
const KIND_PLACE: u8 = 2;

/// A half as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Half {
    pub(super) stored: Timestamp,
    /// The id of the queue in which it would become visible.
    pub(super) target: u32,
    pub(super) group: String,
    pub(super) unique_key: String,
    /// One message in batch encoding.
    pub(super) message: Vec<u8>,
}

/// What lies at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum At {
    Half(Half),
    /// A further place of the half that was first stored at `first`.
    Further {
        stored: Timestamp,
        first: u64,
    },
}

impl At {
    pub(super) fn stored(&self) -> Timestamp {
        match self {
            At::Half(half) => half.stored,
            At::Further { stored, .. } => *stored,
        }
    }

    pub(super) fn encode(&self, place: u64) -> Vec<u8> {
        let mut value = sealed::unsealed(64);
        match self {
            At::Half(half) => {
                value.put_u8(KIND_HALF);
                value.put_i64(half.stored.as_millis());
                value.put_u32(half.target);
                value.put_str(&half.group);
                value.put_str(&half.unique_key);
                value.extend_from_slice(&half.message);
            }
            At::Further { stored, first } => {
                value.put_u8(KIND_PLACE);
                value.put_i64(stored.as_millis());
                value.put_u64(*first);
            }
        }
        sealed::seal(&place.to_be_bytes(), &mut value);
        value
    }

    pub(super) fn decode(place: u64, value: &[u8]) -> Result<At> {
        damaged("half message", At::decode_held(place, value)).map_err(|e| e.context(format!("place={place}")))
    }

    fn decode_held(place: u64, value: &[u8]) -> Result<At> {
        let mut held = Decoder::new(sealed::open(&place.to_be_bytes(), value)?);
        let kind = held.u8()?;
        let stored = Timestamp::from_millis(held.i64()?);
        match kind {
            KIND_HALF => Ok(At::Half(Half {
                stored,
                target: held.u32()?,
                group: held.str(TOPIC_BYTES_MAX)?.to_owned(),
                unique_key: held.str(UNIQUE_KEY_BYTES_MAX)?.to_owned(),
                message: held.rest().to_vec(),
            })),
            KIND_PLACE => Ok(At::Further { stored, first: held.u64()? }),
            _ => Err(Error::corrupt(format!("unknown kind: kind={kind}"))),
        }
    }
}

impl Half {
    /// The message as prepared.
    pub(super) fn message(&self) -> Result<Message<'_>> {
        match MessageIter::new(&self.message).next() {
            Some(message) => damaged("half message", message),
            None => Err(Error::data_loss("half message is empty")),
        }
    }

    /// The message as it becomes visible.
    pub(super) fn visible(&self) -> Result<MessageBatch> {
        let message = self.message()?;
        let mut batch = MessageBatch::default();
        batch.push_with_flag(message.flag, &without_those_of_halves(message.properties), message.body)?;
        Ok(batch)
    }
}

fn without_those_of_halves(properties: &[u8]) -> Vec<u8> {
    let name = |property: &[u8]| property.split(|byte| *byte == 1).next().unwrap_or_default().to_vec();
    let kept = properties.split_inclusive(|byte| *byte == 2);
    kept.filter(|property| !OF_HALVES.iter().any(|of_halves| of_halves.as_bytes() == name(property)))
        .flatten()
        .copied()
        .collect()
}

/// How far the checking of a half has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) checks: u32,
    pub(super) present: u64,
}

impl Checked {
    pub(super) fn encode(self, first: u64) -> Vec<u8> {
        let mut value = sealed::unsealed(12);
        value.put_u32(self.checks);
        value.put_u64(self.present);
        sealed::seal(&first.to_be_bytes(), &mut value);
        value
    }

    pub(super) fn decode(first: u64, value: &[u8]) -> Result<Checked> {
        damaged("check of a half message", Checked::decode_held(first, value))
    }

    fn decode_held(first: u64, value: &[u8]) -> Result<Checked> {
        let mut held = Decoder::new(sealed::open(&first.to_be_bytes(), value)?);
        let checked = Checked { checks: held.u32()?, present: held.u64()? };
        held.finish()?;
        Ok(checked)
    }
}

/// The place in a key.
pub(super) fn place(key: &[u8]) -> Result<u64> {
    let place = key.try_into().map_err(|_| Error::data_loss("key of a half message is damaged"))?;
    Ok(u64::from_be_bytes(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_visible_lacks_the_properties_of_halves_and_keeps_the_rest() {
        let mut message = MessageBatch::default();
        let properties = b"TRAN_MSG\x01true\x02UNIQ_KEY\x01k\x02PGROUP\x01g\x02PGROUPS\x01x\x02";
        message.push_with_flag(7, properties, b"body").unwrap();
        let half = Half {
            stored: Timestamp::from_millis(1),
            target: 3,
            group: "g".into(),
            unique_key: "k".into(),
            message: message.as_bytes().to_vec(),
        };
        let visible = half.visible().unwrap();
        let expected = Message { flag: 7, body: b"body", properties: b"UNIQ_KEY\x01k\x02PGROUPS\x01x\x02" };
        assert_eq!(visible.iter().collect::<Vec<_>>(), [expected]);
        let at = At::Half(half);
        assert_eq!(At::decode(9, &at.encode(9)).unwrap(), at);
        assert!(At::decode(8, &at.encode(9)).is_err());
    }
}
