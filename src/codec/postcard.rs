//! Postcard: the form of keys, state and internal topics. No type names, no field names.

use super::{Decode, Encode, Key, StateValue};
use ::postcard::ser_flavors::Flavor;
use onceflow_types::wire::{Decoder, Encode as _};
use onceflow_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// The first byte of everything that is written in this form, keys excepted.
pub const POSTCARD_VERSION: u8 = 1;

/// Version byte `01`, then the value in [Postcard](https://postcard.jamesmunns.com/wire-format): small and quick, for
/// topics between Onceflow jobs. Fields have no names: appending, removing or reordering fields of a type changes the
/// form.
///
/// ```
/// use onceflow::codec::{Decode, Encode, Postcard};
///
/// let mut body = Vec::new();
/// Postcard::new().encode(&("c7".to_owned(), 250u64), &mut body)?;
/// assert_eq!(body, [1, 2, b'c', b'7', 0xfa, 0x01]);
/// let pair: (String, u64) = Postcard::new().decode(&body)?;
/// assert_eq!(pair.1, 250);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct Postcard<T>(PhantomData<fn() -> T>);

impl<T> Postcard<T> {
    /// The codec of `T`.
    pub const fn new() -> Self {
        Postcard(PhantomData)
    }
}

impl<T: DeserializeOwned> Decode<T> for Postcard<T> {
    fn decode(&self, bytes: &[u8]) -> Result<T> {
        match bytes.split_first() {
            Some((&POSTCARD_VERSION, rest)) => {
                from_all(rest).map_err(|e| Error::record("body is not the expected postcard value").with_source(e))
            }
            Some((version, _)) => Err(Error::record(format!("body of an unknown format: version={version}"))),
            None => Err(Error::record("body is empty")),
        }
    }
}

impl<T: Serialize> Encode<T> for Postcard<T> {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        to.push(POSTCARD_VERSION);
        append(value, to).map_err(|e| Error::record("value has no postcard form").with_source(e))
    }
}

/// The body of a repartition topic: version byte `01`, key as bytes (count, then Postcard), value by a codec to the end.
pub(crate) struct Keyed<K, C> {
    pub(crate) value: C,
    key: PhantomData<fn() -> K>,
}

impl<K: Key, C> Keyed<K, C> {
    pub(crate) fn new(value: C) -> Self {
        Keyed { value, key: PhantomData }
    }

    /// Appends the body of a key whose bytes are known already: its queue depends on them.
    #[inline]
    pub(crate) fn encode_parts<T>(&self, key: &[u8], value: &T, to: &mut Vec<u8>) -> Result<()>
    where
        C: Encode<T>,
    {
        to.push(POSTCARD_VERSION);
        to.put_bytes(key);
        self.value.encode(value, to)
    }
}

impl<K: Key, T, C: Decode<T>> Decode<(K, T)> for Keyed<K, C> {
    fn decode(&self, bytes: &[u8]) -> Result<(K, T)> {
        let damaged = |e: Error| Error::record("repartitioned record is damaged").with_source(e);
        let mut from = Decoder::new(bytes);
        let version = from.u8().map_err(damaged)?;
        if version != POSTCARD_VERSION {
            return Err(Error::record(format!("repartitioned record of an unknown format: version={version}")));
        }
        let key = from.bytes(bytes.len()).map_err(damaged)?;
        let key = from_all(key).map_err(|e| Error::record("repartitioned record has a damaged key").with_source(e))?;
        Ok((key, self.value.decode(from.rest())?))
    }
}

/// Appends the bytes of a key: Postcard without a version, as they also decide the queue and must never change.
#[inline]
pub(crate) fn encode_key<K: Key>(key: &K, to: &mut Vec<u8>) -> Result<()> {
    append(key, to).map_err(|e| Error::record("key has no postcard form").with_source(e))
}

/// Reads the bytes of a key back.
pub(crate) fn decode_key<K: Key>(bytes: &[u8]) -> Result<K> {
    from_all(bytes).map_err(|e| Error::corrupt("key in the state is damaged or of another type").with_source(e))
}

/// Appends a value of state, without what lies before it (`state/form.rs`).
pub(crate) fn encode_state_value<V: StateValue>(value: &V, to: &mut Vec<u8>) -> Result<()> {
    append(value, to).map_err(|e| Error::invalid("state value has no postcard form").with_source(e))
}

/// Reads a value of state, without what lies before it.
pub(crate) fn decode_state_value<V: StateValue>(bytes: &[u8]) -> Result<V> {
    from_all(bytes).map_err(|e| Error::corrupt("state value is damaged or of another type").with_source(e))
}

fn append<T: Serialize>(value: &T, to: &mut Vec<u8>) -> ::postcard::Result<()> {
    ::postcard::serialize_with_flavor(value, Append(to))
}

/// What is left over would be lost: the whole slice must be the value.
fn from_all<T: DeserializeOwned>(bytes: &[u8]) -> ::postcard::Result<T> {
    let (value, rest) = ::postcard::take_from_bytes(bytes)?;
    if rest.is_empty() { Ok(value) } else { Err(::postcard::Error::DeserializeBadEncoding) }
}

/// Writes straight into the caller's buffer.
struct Append<'b>(&'b mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> ::postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> ::postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> ::postcard::Result<()> {
        Ok(())
    }
}

impl<T> Default for Postcard<T> {
    fn default() -> Self {
        Postcard::new()
    }
}

impl<T> Clone for Postcard<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Postcard<T> {}

impl<T> fmt::Debug for Postcard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Postcard")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    #[test]
    fn damaged_bodies_are_record_errors() {
        let codec = Postcard::<(String, u64)>::new();
        let mut body = vec![];
        codec.encode(&("abc".into(), 7), &mut body).unwrap();
        assert_eq!(codec.decode(&body).unwrap(), ("abc".into(), 7));
        for len in 0..body.len() {
            assert_eq!(codec.decode(&body[..len]).unwrap_err().kind(), ErrorKind::Record, "cut at {len}");
        }
        body.push(0);
        assert_eq!(codec.decode(&body).unwrap_err().kind(), ErrorKind::Record);
        assert_eq!(codec.decode(&[2, 0, 0]).unwrap_err().kind(), ErrorKind::Record);
        // A length of nearly 2^64: nothing is allocated for it.
        let lying = [&[1][..], &[0xff; 9], &[0x01]].concat();
        assert_eq!(codec.decode(&lying).unwrap_err().kind(), ErrorKind::Record);
    }

    #[test]
    fn repartitioned_records_survive_and_damage_is_a_record_error() {
        let codec = Keyed::<u32, _>::new(Postcard::<String>::new());
        let (mut key, mut body) = (vec![], vec![]);
        encode_key(&300u32, &mut key).unwrap();
        codec.encode_parts(&key, &"value".to_owned(), &mut body).unwrap();
        assert_eq!(codec.decode(&body).unwrap(), (300, "value".to_owned()));
        for len in 0..body.len() {
            assert_eq!(codec.decode(&body[..len]).unwrap_err().kind(), ErrorKind::Record, "cut at {len}");
        }
    }

    #[test]
    fn a_fixed_size_key_has_exactly_its_bytes() {
        let mut bytes = vec![];
        encode_key(&[7u8; 16], &mut bytes).unwrap();
        assert_eq!(bytes, [7; 16]);
    }
}
