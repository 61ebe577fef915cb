//! What a broker answers: frames of RocketMQ's remoting protocol, drawn in `rocketmq/frame.rs`.
//!
//! Replies are parsed strictly: a header that does not have this shape, a missing field or a number that does not fit is
//! an error, never a default.

use bytes::{Bytes, BytesMut};
use onceflow_types::{Error, Offset, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest header that is read, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// `flag` bit: this frame answers another.
const FLAG_REPLY: i32 = 1;
/// `flag` bit: nobody waits for an answer.
const FLAG_ONE_WAY: i32 = 2;

/// Counters of things that must not go unseen. They only grow.
#[derive(Default, Debug)]
pub struct RocketCounters {
    pub(crate) bad_frames: AtomicU64,
    pub(crate) bad_replies: AtomicU64,
    pub(crate) late_replies: AtomicU64,
    pub(crate) unasked_frames: AtomicU64,
    pub(crate) connections_opened: AtomicU64,
    pub(crate) check_backs_dropped: AtomicU64,
    pub(crate) check_backs_bad: AtomicU64,
    pub(crate) member_looks_failed: AtomicU64,
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> u64 {
            self.$name.load(Ordering::Relaxed)
        }
    )*};
}

impl RocketCounters {
    readers!(
        /// Frames with impossible lengths or an unreadable header; each closed its connection.
        bad_frames,
        /// Replies with a missing field, or a number that is none or does not fit; each failed its call only.
        bad_replies,
        /// Replies that nobody waited for any more.
        late_replies,
        /// Requests of a broker on a connection on which it has nothing to ask; skipped.
        unasked_frames,
        /// TCP connections opened for reads, appends, prepares and ends.
        connections_opened,
        /// Check-backs dropped because too many waited; the broker asks again.
        check_backs_dropped,
        /// Check-backs of another group, without UNIQ_KEY or with impossible places; dropped.
        check_backs_bad,
        /// Looks at a group's members that a broker did not answer; what it said last counts on.
        member_looks_failed
    );

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplyHeader {
    code: i32,
    opaque: i32,
    #[serde(default)]
    flag: i32,
    #[serde(default)]
    remark: Option<String>,
    #[serde(default)]
    ext_fields: Option<BTreeMap<String, Option<String>>>,
}

/// One frame from a broker.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: i32,
    pub(crate) opaque: i32,
    flag: i32,
    pub(crate) remark: String,
    fields: BTreeMap<String, Option<String>>,
    pub(crate) body: Bytes,
    pub(crate) counters: Arc<RocketCounters>,
}

impl Reply {
    /// Reads header and body of a frame (without the four bytes of its length).
    pub(crate) fn parse(frame: &Bytes, counters: &Arc<RocketCounters>) -> Result<Reply> {
        let bad = |what: &str| Error::retry(format!("malformed frame: {what}: bytes={}", frame.len()));
        let (word, rest) = frame.split_first_chunk::<4>().ok_or_else(|| bad("too short"))?;
        let word = u32::from_be_bytes(*word);
        let header_len = (word & 0x00ff_ffff) as usize;
        if word >> 24 != 0 {
            return Err(bad("header is not JSON"));
        }
        if header_len > HEADER_BYTES_MAX {
            return Err(bad("header is too long"));
        }
        let header = rest.get(..header_len).ok_or_else(|| bad("header is longer than the frame"))?;
        let header: ReplyHeader = serde_json::from_slice(header).map_err(|error| bad("header").with_source(error))?;
        Ok(Reply {
            code: header.code,
            opaque: header.opaque,
            flag: header.flag,
            remark: header.remark.unwrap_or_default(),
            fields: header.ext_fields.unwrap_or_default(),
            body: frame.slice(4 + header_len..),
            counters: counters.clone(),
        })
    }

    /// Whether this answers a request.
    pub(crate) fn is_reply(&self) -> bool {
        self.flag & FLAG_REPLY != 0 && self.flag & FLAG_ONE_WAY == 0
    }

    /// A field that must be there.
    pub(crate) fn text(&self, name: &'static str) -> Result<&str> {
        let value = self.fields.get(name).and_then(Option::as_deref);
        value.ok_or_else(|| self.malformed(name, "missing"))
    }

    /// A field that must be there and be a number that fits.
    pub(crate) fn number<N: FromStr>(&self, name: &'static str) -> Result<N> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.malformed(name, text))
    }

    /// A field that must be there and be an offset.
    pub(crate) fn offset(&self, name: &'static str) -> Result<Offset> {
        // RocketMQ's offsets are signed; above i64::MAX there is none.
        let number: i64 = self.number(name)?;
        let number = u64::try_from(number).map_err(|_| self.malformed(name, "negative"))?;
        Ok(Offset::new(number))
    }

    /// The error for a field that does not hold what it must. What the broker did is unknown, hence `Retry`.
    pub(crate) fn malformed(&self, field: &str, value: &str) -> Error {
        RocketCounters::add(&self.counters.bad_replies);
        let value: String = value.chars().take(64).collect();
        Error::retry(format!("malformed reply: code={} field={field} value={value:?}", self.code))
    }
}

/// Takes one whole frame, without its length, off the front of `buffer`; or says how many bytes it needs to hold one.
pub(crate) fn split_frame(buffer: &mut BytesMut, frame_bytes_max: usize) -> Result<Result<Bytes, usize>> {
    let Some(length) = buffer.first_chunk::<4>() else {
        return Ok(Err(4));
    };
    let length = i32::from_be_bytes(*length);
    let checked = usize::try_from(length).ok().filter(|length| (4..=frame_bytes_max).contains(length));
    let Some(length) = checked else {
        return Err(Error::retry(format!("malformed frame: length={length} max={frame_bytes_max}")));
    };
    if buffer.len() < 4 + length {
        return Ok(Err(4 + length));
    }
    let mut frame = buffer.split_to(4 + length);
    Ok(Ok(frame.split_off(4).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;
    use proptest::prelude::*;

    fn frame(header: &[u8], body: &[u8]) -> Bytes {
        let mut frame = u32::try_from(header.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(header);
        frame.extend_from_slice(body);
        frame.into()
    }

    fn parse(header: &str) -> Result<Reply> {
        Reply::parse(&frame(header.as_bytes(), b"body"), &Arc::default())
    }

    #[test]
    fn fields_are_parsed_strictly() {
        let reply =
            parse(r#"{"code":0,"opaque":1,"flag":1,"extFields":{"a":"abc","b":"2147483648","c":"-1","d":null}}"#);
        let reply = reply.unwrap();
        assert!(reply.is_reply());
        assert!(reply.number::<i32>("a").unwrap_err().to_string().contains("abc"));
        assert!(reply.number::<i32>("b").is_err());
        assert_eq!(reply.number::<i64>("b").unwrap(), 2_147_483_648);
        assert!(reply.offset("c").is_err());
        assert!(reply.text("d").is_err());
        assert_eq!(reply.text("none").unwrap_err().kind(), ErrorKind::Retry);
        assert_eq!(reply.counters.bad_replies(), 5);
    }

    #[test]
    fn hostile_headers_are_errors() {
        for header in ["", "\"", "{", "null", "[]", r#"{"code":0}"#, r#"{"code":"0","opaque":1}"#] {
            assert!(parse(header).is_err(), "{header}");
        }
        assert!(parse(r#"{"code":2147483648,"opaque":1}"#).is_err());
        assert!(parse(r#"{"code":0,"opaque":1,"extFields":{"a":1}}"#).is_err());
        assert!(parse(&format!(r#"{{"code":0,"opaque":1,"x":{}"#, "[".repeat(100_000))).is_err());
        assert!(Reply::parse(&Bytes::from_static(&[0, 0, 0, 9, b'{']), &Arc::default()).is_err());
        assert!(Reply::parse(&Bytes::from_static(&[1, 0, 0, 0]), &Arc::default()).is_err());
        assert!(Reply::parse(&Bytes::from_static(&[0, 0]), &Arc::default()).is_err());
    }

    #[test]
    fn lying_lengths_are_errors_before_anything_is_allocated() {
        for length in [0, 3, -1, i32::MIN, i32::MAX, 1025] {
            let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(split_frame(&mut buffer, 1024).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Reply::parse(&Bytes::from(bytes.clone()), &Arc::default());
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Ok(_)) = split_frame(&mut buffer, 1 << 16) {}
        }
    }
}
