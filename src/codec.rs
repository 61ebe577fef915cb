//! Between bytes and values: what sources decode with and sinks encode with, and the form of keys and state.
//!
//! | codec | body |
//! | --- | --- |
//! | [`Json`] | JSON, by serde |
//! | [`Utf8`] | text, checked |
//! | [`Bytes`] | bytes as they are |
//! | [`Postcard`] | a version byte, then [Postcard](https://postcard.jamesmunns.com/wire-format); for topics between Onceflow jobs |
//! | `Avro` (feature `avro`) | Avro, by schemas that may change |
//! | `Protobuf` (feature `protobuf`) | Protobuf, for types that `prost` made |
//! | your own | implement [`Decode`] and [`Encode`] |
//!
//! A codec is for bodies of topics only: keys and state are always written by Postcard, and what becomes of state whose type
//! changes says a [`Migration`](crate::state::Migration).
//!
//! A codec of your own, for a source with dead letters and a sink:
//!
//! ```
//! use onceflow::codec::{Decode, Encode};
//! use onceflow::testing::TestDriver;
//! use onceflow::types::{Error, Result};
//! use onceflow::{ErrorPolicy, StreamBuilder};
//!
//! #[derive(Clone)]
//! struct Payment {
//!     card: String,
//!     cents: i64,
//! }
//!
//! /// `card;cents`
//! struct Line;
//!
//! impl Decode<Payment> for Line {
//!     fn decode(&self, bytes: &[u8]) -> Result<Payment> {
//!         let parts = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once(';'));
//!         let (card, cents) = parts.ok_or_else(|| Error::record("body is no line"))?;
//!         let cents = cents.parse().map_err(|_| Error::record("cents are no number"))?;
//!         Ok(Payment { card: card.to_owned(), cents })
//!     }
//! }
//!
//! impl Encode<Payment> for Line {
//!     fn encode(&self, payment: &Payment, to: &mut Vec<u8>) -> Result<()> {
//!         to.extend_from_slice(format!("{};{}", payment.card, payment.cents).as_bytes());
//!         Ok(())
//!     }
//! }
//!
//! let builder = StreamBuilder::new("job")?;
//! let payments = builder.source("in", Line).on_error(ErrorPolicy::dead_letter("bad"));
//! payments.filter(|payment| payment.cents >= 100).sink("large", "large", Line);
//! let mut driver = TestDriver::new(&builder.build()?)?;
//! for body in [&b"c7;250"[..], b"c8;99", b"c9;?", b"\xff"] {
//!     driver.send("in", body)?;
//! }
//! driver.commit()?;
//! assert_eq!(driver.bodies("large"), [b"c7;250"]);
//! assert_eq!(driver.bodies("bad"), [&b"c9;?"[..], b"\xff"]);
//! # Ok::<(), Error>(())
//! ```

#[cfg(feature = "avro")]
mod avro;
mod json;
mod plain;
mod postcard;
#[cfg(feature = "protobuf")]
mod protobuf;

use onceflow_types::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hash::Hash;

#[cfg(feature = "avro")]
pub use avro::{AVRO_VALUES_MAX, Avro};
pub use json::Json;
pub use plain::{Bytes, Utf8};
pub(crate) use postcard::{Keyed, decode_key, decode_state_value, encode_key, encode_state_value};
pub use postcard::{POSTCARD_VERSION, Postcard};
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;

/// Turns the body of a message into a value.
///
/// ```
/// use onceflow::codec::Decode;
/// use onceflow::types::{Error, Result};
///
/// /// A price in cents, as 8 bytes.
/// struct Cents;
///
/// impl Decode<u64> for Cents {
///     fn decode(&self, bytes: &[u8]) -> Result<u64> {
///         let bytes = bytes.try_into().map_err(|_| Error::record(format!("price must be 8 bytes: given={}", bytes.len())))?;
///         Ok(u64::from_le_bytes(bytes))
///     }
/// }
/// assert_eq!(Cents.decode(&[5, 0, 0, 0, 0, 0, 0, 0])?, 5);
/// assert!(Cents.decode(b"five").is_err());
/// # Ok::<(), Error>(())
/// ```
pub trait Decode<T>: Send + Sync {
    /// Decodes a whole body. Bodies come from anywhere: the method must not panic, and must bound depth and memory.
    ///
    /// # Errors
    /// `Record` when the bytes are none of a `T`; the stage's error policy decides what happens then.
    fn decode(&self, bytes: &[u8]) -> Result<T>;
}

/// Turns a value into the body of a message.
///
/// ```
/// use onceflow::codec::Encode;
/// use onceflow::types::Result;
///
/// struct Cents;
///
/// impl Encode<u64> for Cents {
///     fn encode(&self, value: &u64, to: &mut Vec<u8>) -> Result<()> {
///         to.extend_from_slice(&value.to_le_bytes());
///         Ok(())
///     }
/// }
/// let mut body = Vec::new();
/// Cents.encode(&5, &mut body)?;
/// assert_eq!(body.len(), 8);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub trait Encode<T>: Send + Sync {
    /// Appends the body of `value` to `to`. What was appended before an error is removed by the caller.
    ///
    /// # Errors
    /// `Record` when the value cannot be encoded.
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()>;
}

/// What flows through a stream. Implemented for every type that fits.
pub trait Data: Clone + Send + 'static {}
impl<T: Clone + Send + 'static> Data for T {}

/// What records are keyed by. Implemented for every type that fits.
///
/// Equal keys must have equal bytes, so a key is made of numbers, texts, and structs and tuples of them; not of maps
/// with a random order, nor of floats.
pub trait Key: Data + Eq + Ord + Hash + Serialize + DeserializeOwned {}
impl<T: Data + Eq + Ord + Hash + Serialize + DeserializeOwned> Key for T {}

/// What operators keep in their state. Implemented for every type that fits.
pub trait StateValue: Send + Serialize + DeserializeOwned + 'static {}
impl<T: Send + Serialize + DeserializeOwned + 'static> StateValue for T {}

/// What can travel through a repartition topic. Implemented for every type that fits.
pub trait Wire: Data + Serialize + DeserializeOwned {}
impl<T: Data + Serialize + DeserializeOwned> Wire for T {}
