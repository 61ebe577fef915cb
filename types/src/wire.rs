//! The alphabet of every stored and sent format: fixed-width little-endian numbers, variable-length counts, bytes and
//! text with a length in front. Decoding is strict: what is cut off, too long or left over is an error.
//!
//! | item | bytes |
//! | --- | --- |
//! | `u8`, `u16`, `u32`, `u64`, `i64`, `u128` | 1, 2, 4, 8, 8, 16, little-endian |
//! | count | 1 to 10: LEB128 (seven bits a byte, lowest first, high bit = more), shortest form only |
//! | bytes, text | count, then that many bytes; text is UTF-8 |

use crate::{Error, Result};

/// Appends items to a buffer. Cannot fail.
pub trait Encode {
    /// Appends one byte.
    fn put_u8(&mut self, number: u8);
    /// Appends 2 bytes.
    fn put_u16(&mut self, number: u16);
    /// Appends 4 bytes.
    fn put_u32(&mut self, number: u32);
    /// Appends 8 bytes.
    fn put_u64(&mut self, number: u64);
    /// Appends 8 bytes.
    fn put_i64(&mut self, number: i64);
    /// Appends 16 bytes.
    fn put_u128(&mut self, number: u128);
    /// Appends a count in its shortest form.
    fn put_count(&mut self, count: u64);
    /// Appends a length and the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Appends a length and the text.
    fn put_str(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }
}

impl Encode for Vec<u8> {
    fn put_u8(&mut self, number: u8) {
        self.push(number);
    }

    fn put_u16(&mut self, number: u16) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_i64(&mut self, number: i64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u128(&mut self, number: u128) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_count(&mut self, count: u64) {
        let mut rest = count;
        while rest >= 0x80 {
            self.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.push((rest & 0x7f) as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Takes items from the front of a byte slice.
///
/// ```
/// use onceflow_types::wire::{Decoder, Encode};
///
/// let mut bytes = Vec::new();
/// bytes.put_u32(7);
/// bytes.put_str("payments");
/// let mut decoder = Decoder::new(&bytes);
/// assert_eq!(decoder.u32()?, 7);
/// assert_eq!(decoder.str(64)?, "payments");
/// decoder.finish()?;
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder<'b> {
    rest: &'b [u8],
}

macro_rules! fixed {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Takes one `", stringify!($type), "`.")]
        #[inline]
        pub fn $name(&mut self) -> Result<$type> {
            match self.rest.split_first_chunk() {
                Some((bytes, rest)) => {
                    self.rest = rest;
                    Ok(<$type>::from_le_bytes(*bytes))
                }
                None => Err(cut_off(stringify!($type), self.rest.len())),
            }
        }
    )*};
}

impl<'b> Decoder<'b> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Decoder { rest: bytes }
    }

    fixed!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, u128: u128);

    /// Takes a count.
    ///
    /// # Errors
    /// `Corrupt` when it is cut off, above `u64::MAX` or not in its shortest form.
    #[inline]
    pub fn count(&mut self) -> Result<u64> {
        let mut count = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            count |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(count);
            }
        }
        Err(Error::corrupt("count is too large or not in its shortest form"))
    }

    /// Takes the length of a list whose items need at least `item_bytes_min` each, so that a lying length cannot make
    /// the caller allocate.
    ///
    /// # Errors
    /// `Corrupt` when the rest cannot hold that many.
    pub fn list_len(&mut self, item_bytes_min: usize) -> Result<usize> {
        let count = self.count()?;
        let fits = self.rest.len() / item_bytes_min.max(1);
        usize::try_from(count).ok().filter(|len| *len <= fits).ok_or_else(|| {
            Error::corrupt(format!("list is longer than what follows: items={count} bytes={}", self.rest.len()))
        })
    }

    /// Takes bytes of at most `len_max`.
    ///
    /// # Errors
    /// `Corrupt` when they are longer or cut off.
    #[inline]
    pub fn bytes(&mut self, len_max: usize) -> Result<&'b [u8]> {
        let len = self.count()?;
        match usize::try_from(len).ok().filter(|len| *len <= len_max) {
            Some(len) => self.take(len),
            None => Err(Error::corrupt(format!("item is too long: bytes={len} max={len_max}"))),
        }
    }

    /// Takes text of at most `len_max` bytes.
    ///
    /// # Errors
    /// `Corrupt` when it is longer, cut off or not UTF-8.
    pub fn str(&mut self, len_max: usize) -> Result<&'b str> {
        std::str::from_utf8(self.bytes(len_max)?).map_err(|e| Error::corrupt("text is not utf-8").with_source(e))
    }

    /// Takes `len` bytes without a length in front.
    ///
    /// # Errors
    /// `Corrupt` when fewer follow.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'b [u8]> {
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(cut_off("bytes", self.rest.len())),
        }
    }

    /// What has not been taken.
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// Ends the decoding.
    ///
    /// # Errors
    /// `Corrupt` when something is left.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("bytes left over: count={}", self.rest.len())))
    }
}

#[cold]
fn cut_off(what: &str, left: usize) -> Error {
    Error::corrupt(format!("cut off in {what}: bytes_left={left}"))
}

/// The checksum of every format: CRC32C (Castagnoli).
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Continues a [`checksum`] with more bytes.
pub fn checksum_append(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_survive_and_have_one_form(count: u64) {
            let mut bytes = vec![];
            bytes.put_count(count);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(decoder.count().unwrap(), count);
            decoder.finish().unwrap();
        }

        #[test]
        fn any_bytes_that_decode_as_a_count_are_its_only_form(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut decoder = Decoder::new(&bytes);
            if let Ok(count) = decoder.count() {
                let mut again = vec![];
                again.put_count(count);
                prop_assert_eq!(&bytes[..bytes.len() - decoder.rest().len()], &again[..]);
            }
        }
    }

    #[test]
    fn lying_lengths_do_not_allocate() {
        let mut bytes = vec![];
        bytes.put_count(u64::MAX);
        assert!(Decoder::new(&bytes).list_len(1).is_err());
        assert!(Decoder::new(&bytes).bytes(usize::MAX).is_err());
    }
}
