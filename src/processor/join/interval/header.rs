//! What a join knows of its rows as a whole.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | version `01` |
//! | 8, 8 | how many rows lie by key at most, of the left and the right side (`u64`) |
//! | 1 | `01` when a row of a segment has been closed, else `00` and the end |
//! | 8, 1, 8, 8 | the last one that was: when it was closed (`i64`), side (`00` left, `01` right), time (`i64`), sequence (`u64`) |
//!
//! Numbers are little-endian. State without a header is from before there were segments.

use super::super::Side;
use super::super::rows::{Moment, Place};

use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Result};

const VERSION: u8 = 1;

/// What a join knows of its rows as a whole.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// How many rows lie by key, at most.
    pub(super) left: u64,
    pub(super) right: u64,
    /// The last row of a segment that was closed in its turn. All that are to be closed before it are gone.
    pub(super) through: Option<Moment>,
}

impl Header {
    pub(super) fn by_key(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.put_u64(self.left);
        bytes.put_u64(self.right);
        bytes.put_u8(u8::from(self.through.is_some()));
        if let Some(Moment { close, side, place }) = self.through {
            bytes.put_i64(close);
            bytes.put_u8(u8::from(side == Side::Right));
            bytes.put_i64(place.time);
            bytes.put_u64(place.sequence);
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Header> {
        let mut decoder = Decoder::new(bytes);
        let version = decoder.u8()?;
        if version != VERSION {
            return Err(Error::invalid(format!("join of a newer format, upgrade onceflow: version={version}")));
        }
        let (left, right) = (decoder.u64()?, decoder.u64()?);
        let through = if decoder.u8()? == 0 { None } else { Some(decode_moment(&mut decoder)?) };
        decoder.finish()?;
        Ok(Header { left, right, through })
    }
}

fn decode_moment(decoder: &mut Decoder<'_>) -> Result<Moment> {
    let close = decoder.i64()?;
    let side = if decoder.u8()? == 0 { Side::Left } else { Side::Right };
    Ok(Moment { close, side, place: Place { time: decoder.i64()?, sequence: decoder.u64()? } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_a_newer_one_is_refused() {
        let place = Place { time: -5, sequence: 9 };
        for through in [None, Some(Moment { close: i64::MIN, side: Side::Right, place })] {
            let header = Header { left: 3, right: u64::MAX, through };
            let mut bytes = header.encode();
            assert_eq!(Header::decode(&bytes).unwrap(), header);
            assert!(Header::decode(bytes.get(..bytes.len() - 1).unwrap()).is_err());
            *bytes.first_mut().unwrap() = 2;
            assert!(Header::decode(&bytes).is_err());
        }
    }
}
