//! Text and bytes.

use super::{Decode, Encode};
use onceflow_types::{Error, Result};

/// Bodies of UTF-8 text, decoded to `String`. Encodes everything that is text.
///
/// ```
/// use onceflow::codec::{Decode, Encode, Utf8};
///
/// let line: String = Utf8.decode("grün".as_bytes())?;
/// assert_eq!(line, "grün");
/// assert!(Utf8.decode(b"\xff").is_err());
/// let mut body = Vec::new();
/// Utf8.encode(&"red", &mut body)?;
/// assert_eq!(body, b"red");
/// # Ok::<(), onceflow::types::Error>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Utf8;

impl Decode<String> for Utf8 {
    fn decode(&self, bytes: &[u8]) -> Result<String> {
        let text = std::str::from_utf8(bytes).map_err(|e| Error::record("body is not utf-8").with_source(e))?;
        Ok(text.to_owned())
    }
}

impl<T: AsRef<str>> Encode<T> for Utf8 {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        to.extend_from_slice(value.as_ref().as_bytes());
        Ok(())
    }
}

/// Bodies as they are, decoded to `Vec<u8>`. Encodes everything that is bytes.
///
/// ```
/// use onceflow::codec::{Bytes, Decode, Encode};
///
/// assert_eq!(Bytes.decode(b"\xff\x00")?, [0xff, 0]);
/// let mut body = Vec::new();
/// Bytes.encode(&[1u8, 2], &mut body)?;
/// assert_eq!(body, [1, 2]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Bytes;

impl Decode<Vec<u8>> for Bytes {
    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

impl<T: AsRef<[u8]>> Encode<T> for Bytes {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        to.extend_from_slice(value.as_ref());
        Ok(())
    }
}
