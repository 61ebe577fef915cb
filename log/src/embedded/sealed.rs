//! Values with a checksum over themselves and their key, so that neither a flipped bit nor a value under the wrong key
//! is taken for data.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | CRC32C of the key and of all that follows, little-endian |
//! | 1 | version, 1 |
//! | n | what the value holds |

use onceflow_types::wire::{checksum, checksum_append};
use onceflow_types::{Error, Result};

/// Bytes in front of what a value holds.
pub(super) const SEAL_BYTES: usize = 5;
const VERSION: u8 = 1;

/// A value with room for the seal, to be filled.
pub(super) fn unsealed(capacity: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(SEAL_BYTES + capacity);
    value.extend_from_slice(&[0, 0, 0, 0, VERSION]);
    value
}

/// Fills the seal in.
pub(super) fn seal(key: &[u8], value: &mut [u8]) {
    if let Some((sum, rest)) = value.split_first_chunk_mut() {
        *sum = checksum_append(checksum(key), rest).to_le_bytes();
    }
}

/// What a value holds, after a check of its seal.
///
/// # Errors
/// `Corrupt` when the seal does not fit, `Invalid` when a newer version wrote it.
pub(super) fn open<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v [u8]> {
    let Some((sum, rest)) = value.split_first_chunk() else {
        return Err(Error::corrupt(format!("value is too short: bytes={}", value.len())));
    };
    if *sum != checksum_append(checksum(key), rest).to_le_bytes() {
        return Err(Error::corrupt("checksum does not match"));
    }
    match rest.split_first() {
        Some((&VERSION, held)) => Ok(held),
        Some((version, _)) => Err(Error::invalid(format!("value has another version: version={version}"))),
        None => Err(Error::corrupt("value is too short")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut value = unsealed(8);
        value.extend_from_slice(b"held");
        seal(b"key", &mut value);
        assert_eq!(open(b"key", &value).unwrap(), b"held");
        assert!(open(b"kez", &value).is_err());
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(b"key", &flipped).is_err(), "bit {bit}");
        }
        for cut in 0..value.len() {
            assert!(open(b"key", &value[..cut]).is_err(), "cut at {cut}");
        }
    }
}
