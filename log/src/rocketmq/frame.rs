//! Requests in frames of RocketMQ's remoting protocol.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | length of all that follows |
//! | 1 | how the header is written: 0 is JSON |
//! | 3 | header length |
//! | n | header |
//! | rest | body |
//!
//! The JSON header has `code`, `language`, `version`, `opaque` (tells which reply belongs to which request), `flag`
//! (bit 0: this is a reply; bit 1: no reply wanted), `remark` and `extFields`, a map of strings. Integers are big-endian.
//! This module writes requests; [`Reply`](crate::remoting::Reply) reads what comes back.

use super::code::Request;
use super::options::Credentials;
use onceflow_types::{Error, Result};
use rocketmq_client_rust::AclSigner;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Fields of a request, in the order of their names (signatures need it).
#[derive(Default, Debug)]
pub(super) struct Fields<'f>(Vec<(&'static str, Cow<'f, str>)>);

impl<'f> Fields<'f> {
    /// Adds a text.
    pub(super) fn text(mut self, name: &'static str, value: impl Into<Cow<'f, str>>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    /// Adds a number or a boolean.
    #[expect(clippy::needless_pass_by_value, reason = "numbers and booleans")]
    pub(super) fn value(self, name: &'static str, value: impl ToString) -> Self {
        self.text(name, value.to_string())
    }

    /// Adds access key and signature: HMAC-SHA1 over the values in the order of their names, then the body
    /// (`AclUtils.combineRequestContent`).
    fn sign(&mut self, credentials: &'f Credentials, body: &[u8]) -> Result<()> {
        self.0.push(("AccessKey", Cow::Borrowed(&credentials.access_key)));
        self.0.sort_unstable_by_key(|(name, _)| *name);
        let mut content = Vec::with_capacity(body.len() + 256);
        for (_, value) in &self.0 {
            content.extend_from_slice(value.as_bytes());
        }
        content.extend_from_slice(body);
        // The signer's error may name the key, so it is not kept as source.
        let signature = AclSigner::cal_signature(&content, &credentials.secret_key)
            .map_err(|_| Error::invalid("request cannot be signed with these credentials"))?;
        self.0.push(("Signature", signature.into()));
        Ok(())
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestHeader<'f> {
    code: i32,
    language: &'static str,
    version: i32,
    opaque: i32,
    flag: i32,
    ext_fields: Fields<'f>,
    #[serde(rename = "serializeTypeCurrentRPC")]
    serialize_type: &'static str,
}

/// Writes one request.
pub(super) fn encode<'f>(
    request: Request,
    opaque: i32,
    mut fields: Fields<'f>,
    body: &[u8],
    credentials: Option<&'f Credentials>,
) -> Result<Vec<u8>> {
    if let Some(credentials) = credentials {
        fields.sign(credentials, body)?;
    }
    encode_signed(request, opaque, fields, body)
}

fn encode_signed(request: Request, opaque: i32, ext_fields: Fields<'_>, body: &[u8]) -> Result<Vec<u8>> {
    let header = RequestHeader {
        code: request as i32,
        language: "RUST",
        version: rocketmq_model::version::CURRENT_VERSION as i32,
        opaque,
        flag: 0,
        ext_fields,
        serialize_type: "JSON",
    };
    let mut frame = Vec::with_capacity(body.len() + 768);
    frame.extend_from_slice(&[0; 8]);
    serde_json::to_writer(&mut frame, &header).map_err(|error| Error::bug("header has no JSON").with_source(error))?;
    let header_len = frame.len() - 8;
    frame.extend_from_slice(body);
    let too_large = |_| Error::invalid(format!("request is too large: bytes={}", body.len()));
    let total = i32::try_from(frame.len() - 4).map_err(too_large)?;
    let header_len = u32::try_from(header_len).ok().filter(|len| *len < 1 << 24);
    let header_len = header_len.ok_or_else(|| Error::invalid("request header is too large"))?;
    let lengths: [u8; 8] = ((u64::from(total.cast_unsigned()) << 32) | u64::from(header_len)).to_be_bytes();
    if let Some(start) = frame.first_chunk_mut::<8>() {
        *start = lengths;
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::{Reply, split_frame};
    use bytes::{Bytes, BytesMut};
    use std::sync::Arc;

    #[test]
    fn a_request_can_be_read_back() {
        let fields = Fields::default().text("topic", "a\u{1}b\u{2}\"").value("queueId", 7);
        let written = encode(Request::Pull, 5, fields, b"body", None).unwrap();
        let mut buffer = BytesMut::from(&written[..]);
        buffer.extend_from_slice(&written[..3]);
        let reply = Reply::parse(&split_frame(&mut buffer, 1 << 20).unwrap().unwrap(), &Arc::default()).unwrap();
        assert_eq!((reply.code, reply.opaque, &reply.body[..]), (11, 5, &b"body"[..]));
        assert_eq!(reply.text("topic").unwrap(), "a\u{1}b\u{2}\"");
        assert_eq!(reply.number::<u32>("queueId").unwrap(), 7);
        assert_eq!(split_frame(&mut buffer, 1 << 20).unwrap().unwrap_err(), 4);
    }

    #[test]
    fn a_signature_covers_fields_in_order_and_the_body() {
        let credentials = Credentials::new("key", "secret");
        let signature = |topic: &'static str, body: &[u8]| {
            let fields = Fields::default().text("z", "1").text("topic", topic);
            let written = encode(Request::Pull, 1, fields, body, Some(&credentials)).unwrap();
            let reply = Reply::parse(&Bytes::from(written).slice(4..), &Arc::default()).unwrap();
            assert_eq!(reply.text("AccessKey").unwrap(), "key");
            reply.text("Signature").unwrap().to_owned()
        };
        assert_eq!(signature("t", b"b"), AclSigner::cal_signature(b"keyt1b", "secret").unwrap());
        assert_ne!(signature("t", b"b"), signature("u", b"b"));
        assert_ne!(signature("t", b"b"), signature("t", b"c"));
    }
}
