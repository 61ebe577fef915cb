//! Messages on their way in: RocketMQ's own batch encoding, built once and passed on as bytes.
//!
//! One message (`MessageDecoder.encodeMessage`, big-endian), written one after the other:
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | total length of this message, this field included |
//! | 4 | magic code, 0 |
//! | 4 | body CRC, 0 |
//! | 4 | flag: a signed number of the producer's, 0 unless it says otherwise |
//! | 4 + n | body length, body |
//! | 2 + m | properties length, properties |
//!
//! Properties are `name \x01 value \x02`, one after the other (`MessageDecoder.messageProperties2String`).

use onceflow_types::{Error, Result};

/// Bytes of a message around its body and properties.
pub const MESSAGE_OVERHEAD_BYTES: usize = 22;
/// Longest encoded properties of one message, in bytes (a signed 16-bit length on the wire).
pub const PROPERTIES_BYTES_MAX: usize = 32_767;

/// Encoded properties of a message.
///
/// ```
/// use onceflow_log::Properties;
///
/// let mut properties = Properties::default();
/// properties.push("KEYS", "order-7")?;
/// assert!(properties.push("bad", "a\u{1}b").is_err());
/// assert_eq!(properties.as_bytes(), b"KEYS\x01order-7\x02");
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Properties(Vec<u8>);

impl Properties {
    /// Adds a property. Names are not checked for repetition: RocketMQ keeps the last one.
    ///
    /// # Errors
    /// `Record` when name or value contain RocketMQ's separators (bytes 1 and 2) or the whole becomes longer than
    /// [`PROPERTIES_BYTES_MAX`]; nothing was added.
    pub fn push(&mut self, name: &str, value: &str) -> Result<()> {
        let forged = |text: &str| text.bytes().any(|byte| byte == 1 || byte == 2);
        if name.is_empty() || forged(name) || forged(value) {
            return Err(Error::record(format!("property must not contain bytes 1 or 2: name={name:?}")));
        }
        if self.0.len() + name.len() + value.len() + 2 > PROPERTIES_BYTES_MAX {
            return Err(Error::record(format!("properties are too long: name={name:?} max={PROPERTIES_BYTES_MAX}")));
        }
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(1);
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(2);
        Ok(())
    }

    /// The encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all, keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Finds a property in an encoding; the last of that name.
pub fn find_property<'p>(properties: &'p [u8], name: &str) -> Option<&'p [u8]> {
    properties.rsplit(|byte| *byte == 2).find_map(|property| {
        let value = property.strip_prefix(name.as_bytes())?;
        value.strip_prefix(&[1])
    })
}

/// Messages for one partition, encoded. Reuse it: [`clear`](Self::clear) keeps its memory.
///
/// ```
/// use onceflow_log::MessageBatch;
///
/// let mut batch = MessageBatch::default();
/// batch.push(b"KEYS\x01order-7\x02", b"{}")?;
/// batch.push_with_flag(-3, b"", b"second")?;
/// assert_eq!((batch.len(), batch.largest_bytes()), (2, 15));
/// assert_eq!(batch.iter().map(|message| message.flag).collect::<Vec<_>>(), [0, -3]);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MessageBatch {
    bytes: Vec<u8>,
    len: usize,
    largest_bytes: usize,
}

impl MessageBatch {
    /// Adds a message whose flag is 0.
    ///
    /// # Errors
    /// `Record` when the body is longer than a 31-bit length can say, or the properties than [`PROPERTIES_BYTES_MAX`].
    pub fn push(&mut self, properties: &[u8], body: &[u8]) -> Result<()> {
        self.push_with_flag(0, properties, body)
    }

    /// Adds a message with a flag. RocketMQ stores it and hands it on; what it means is its producer's affair.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_with_flag(&mut self, flag: i32, properties: &[u8], body: &[u8]) -> Result<()> {
        let total = MESSAGE_OVERHEAD_BYTES + properties.len() + body.len();
        let (Ok(total), Ok(body_len)) = (i32::try_from(total), i32::try_from(body.len())) else {
            return Err(Error::record(format!("message is too large: bytes={total}")));
        };
        let Ok(properties_len) = i16::try_from(properties.len()) else {
            return Err(Error::record(format!("properties are too long: bytes={}", properties.len())));
        };
        self.bytes.extend_from_slice(&total.to_be_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(&flag.to_be_bytes());
        self.bytes.extend_from_slice(&body_len.to_be_bytes());
        self.bytes.extend_from_slice(body);
        self.bytes.extend_from_slice(&properties_len.to_be_bytes());
        self.bytes.extend_from_slice(properties);
        self.len += 1;
        self.largest_bytes = self.largest_bytes.max(properties.len() + body.len());
        Ok(())
    }

    /// Takes over bytes that [`as_bytes`](Self::as_bytes) gave, after checking them.
    ///
    /// # Errors
    /// `Corrupt` when they are not whole messages.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<MessageBatch> {
        let (mut len, mut largest_bytes) = (0, 0);
        for message in MessageIter::new(&bytes) {
            let message = message?;
            len += 1;
            largest_bytes = largest_bytes.max(message.properties.len() + message.body.len());
        }
        Ok(MessageBatch { bytes, len, largest_bytes })
    }

    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        MessageIter::new(&self.bytes).map_while(Result::ok)
    }

    /// The encoding of all messages.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the encoding away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Body and properties of the largest message, in bytes: what [`Log::message_bytes_max`](crate::Log) bounds.
    pub fn largest_bytes(&self) -> usize {
        self.largest_bytes
    }

    /// Removes all messages, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
        self.largest_bytes = 0;
    }
}

/// One message of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'b> {
    /// A signed number of its producer's, 0 unless it says otherwise.
    pub flag: i32,
    /// Its body.
    pub body: &'b [u8],
    /// Its properties, encoded.
    pub properties: &'b [u8],
}

/// Reads messages in the batch encoding, strictly.
#[derive(Clone, Debug)]
pub struct MessageIter<'b> {
    rest: &'b [u8],
}

impl<'b> MessageIter<'b> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        MessageIter { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'b [u8] {
        self.rest
    }

    fn decode(&mut self) -> Option<Message<'b>> {
        let rest = self.rest;
        let (total, _) = rest.split_first_chunk::<4>()?;
        let total = usize::try_from(i32::from_be_bytes(*total)).ok()?;
        let (message, rest) = rest.split_at_checked(total)?;
        let (_, message) = message.split_at_checked(12)?;
        let (flag, message) = message.split_first_chunk::<4>()?;
        let (body_len, message) = message.split_first_chunk::<4>()?;
        let (body, message) = message.split_at_checked(usize::try_from(i32::from_be_bytes(*body_len)).ok()?)?;
        let (properties_len, properties) = message.split_first_chunk::<2>()?;
        if properties.len() != usize::try_from(i16::from_be_bytes(*properties_len)).ok()? {
            return None;
        }
        self.rest = rest;
        Some(Message { flag: i32::from_be_bytes(*flag), body, properties })
    }
}

impl<'b> Iterator for MessageIter<'b> {
    type Item = Result<Message<'b>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let decoded = self.decode();
        if decoded.is_none() {
            self.rest = &[];
        }
        Some(decoded.ok_or_else(|| Error::corrupt("message batch is cut off or lies about a length")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_survives_and_every_cut_is_refused() {
        let mut batch = MessageBatch::default();
        batch.push(b"KEYS\x01a\x02", b"body").unwrap();
        batch.push_with_flag(i32::MIN, b"", b"").unwrap();
        assert_eq!(MessageBatch::from_bytes(batch.as_bytes().to_vec()).unwrap(), batch);
        assert_eq!(batch.iter().map(|m| m.body).collect::<Vec<_>>(), [b"body".as_slice(), b""]);
        assert_eq!(batch.iter().map(|m| m.flag).collect::<Vec<_>>(), [0, i32::MIN]);
        let first = batch.as_bytes().len() - MESSAGE_OVERHEAD_BYTES;
        for cut in (1..batch.as_bytes().len()).filter(|cut| *cut != first) {
            assert!(MessageBatch::from_bytes(batch.as_bytes()[..cut].to_vec()).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn the_last_property_of_a_name_counts_and_prefixes_do_not() {
        let properties = b"A\x011\x02AB\x012\x02A\x013\x02";
        assert_eq!(find_property(properties, "A"), Some(b"3".as_slice()));
        assert_eq!(find_property(properties, "AB"), Some(b"2".as_slice()));
        assert_eq!(find_property(properties, "B"), None);
    }
}
