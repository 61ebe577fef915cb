//! The stored form of a value: what lies before its bytes.
//!
//! | head | then |
//! | --- | --- |
//! | `01` | the value by Postcard: of version 0, without a time |
//! | `02`, flags | for flag `01`: version (`u16`, big-endian); for flag `02`: time (`i64`, big-endian, top bit flipped); then the value by Postcard |
//!
//! A value of version 0 without a time is always written with the short head.

use super::{Migration, decode_time, encode_time};
use crate::codec::{StateValue, decode_state_value, encode_state_value};
use onceflow_types::{Error, Result, Timestamp};

const SHORT: u8 = 1;
const LONG: u8 = 2;
const WITH_VERSION: u8 = 1;
const WITH_TIME: u8 = 2;

/// The time of a value that has none.
pub(super) const NO_TIME: Timestamp = Timestamp::MIN;

/// Appends the form of a value.
pub(super) fn encode<V: StateValue>(value: &V, version: u16, time: Timestamp, to: &mut Vec<u8>) -> Result<()> {
    if version == 0 && time == NO_TIME {
        to.push(SHORT);
        return encode_state_value(value, to);
    }
    let with_version = if version == 0 { 0 } else { WITH_VERSION };
    let with_time = if time == NO_TIME { 0 } else { WITH_TIME };
    to.extend_from_slice(&[LONG, with_version | with_time]);
    if with_version != 0 {
        to.extend_from_slice(&version.to_be_bytes());
    }
    if with_time != 0 {
        to.extend_from_slice(&encode_time(time));
    }
    encode_state_value(value, to)
}

/// Reads a value, and its time, which is [`NO_TIME`] when it has none.
pub(super) fn decode<V: StateValue>(bytes: &[u8], migration: Option<&Migration<V>>) -> Result<(V, Timestamp)> {
    let (version, time, value) = head(bytes)?;
    let value = match migration {
        Some(migration) => migration.read(version, value)?,
        None if version == 0 => decode_state_value(value)?,
        None => {
            return Err(Error::invalid(format!(
                "state value has a version, and the operator knows no migration: version={version}"
            )));
        }
    };
    Ok((value, time))
}

/// Appends a value of a table without versions and times.
pub(crate) fn encode_stored<V: StateValue>(value: &V, to: &mut Vec<u8>) -> Result<()> {
    encode(value, 0, NO_TIME, to)
}

/// Reads a value of a table without a migration.
pub(crate) fn decode_stored<V: StateValue>(bytes: &[u8]) -> Result<V> {
    decode(bytes, None).map(|(value, _)| value)
}

/// The same, and when it was last used, where it has that.
pub(crate) fn decode_stored_used<V: StateValue>(bytes: &[u8]) -> Result<(V, Option<Timestamp>)> {
    decode(bytes, None).map(|(value, time)| (value, Some(time).filter(|time| *time != NO_TIME)))
}

fn head(bytes: &[u8]) -> Result<(u16, Timestamp, &[u8])> {
    match bytes {
        [SHORT, value @ ..] => Ok((0, NO_TIME, value)),
        [LONG, flags, rest @ ..] if flags & !(WITH_VERSION | WITH_TIME) == 0 => long(*flags, rest),
        [LONG, flags, ..] => {
            Err(Error::invalid(format!("state value of a newer format, upgrade onceflow: flags={flags}")))
        }
        [version, ..] if *version > LONG => Err(Error::invalid(format!(
            "state value of a newer format, upgrade onceflow: version={version} known={LONG}"
        ))),
        _ => Err(Error::corrupt(format!("state value without a known head: bytes={}", bytes.len()))),
    }
}

fn long(flags: u8, mut rest: &[u8]) -> Result<(u16, Timestamp, &[u8])> {
    let cut = || Error::corrupt("state value is cut off");
    let (mut version, mut time) = (0, NO_TIME);
    if flags & WITH_VERSION != 0 {
        let (bytes, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        (version, rest) = (u16::from_be_bytes(*bytes), behind);
    }
    if flags & WITH_TIME != 0 {
        let (bytes, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        (time, rest) = (decode_time(*bytes), behind);
    }
    Ok((version, time, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    #[test]
    fn every_form_is_read_back_and_cut_off_is_corrupt() {
        let migration = Migration::<u32>::to(7);
        for (version, time) in [(0, None), (0, Some(-5)), (7, None), (7, Some(i64::MAX))] {
            let time = time.map_or(NO_TIME, Timestamp::from_millis);
            let known = (version != 0).then_some(&migration);
            let mut bytes = vec![];
            encode(&300u32, version, time, &mut bytes).unwrap();
            assert_eq!(decode::<u32>(&bytes, known).unwrap(), (300, time));
            for len in 0..bytes.len() {
                assert_eq!(decode::<u32>(&bytes[..len], known).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {len}");
            }
        }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = |version, time| {
            let mut bytes = vec![];
            encode(&5u8, version, time, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(0, NO_TIME), [1, 5]);
        assert_eq!(bytes(258, NO_TIME), [2, 1, 1, 2, 5]);
        assert_eq!(bytes(0, Timestamp::from_millis(3)), [2, 2, 0x80, 0, 0, 0, 0, 0, 0, 3, 5]);
        assert_eq!(bytes(1, Timestamp::from_millis(3)), [2, 3, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 3, 5]);
    }

    #[test]
    fn what_a_newer_program_wrote_is_refused() {
        for bytes in [&[3, 0][..], &[2, 4, 0]] {
            assert_eq!(decode::<u8>(bytes, None).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
