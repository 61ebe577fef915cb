//! JSON by serde.

use super::{Decode, Encode};
use onceflow_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// JSON bodies. Decoding takes exactly one value: what follows it, a byte order mark, `NaN`, a number beyond the range of
/// its type and a nesting of more than 128 levels (of what the type looks at) are record errors. Encoding writes a float
/// that is not finite as `null`, as serde does.
///
/// ```
/// use onceflow::codec::{Decode, Encode, Json};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Payment { card: String, cents: u64 }
///
/// let payment: Payment = Json::new().decode(br#"{"card":"c7","cents":250}"#)?;
/// assert_eq!(payment.cents, 250);
/// let mut body = Vec::new();
/// Json::new().encode(&payment, &mut body)?;
/// assert_eq!(body, br#"{"card":"c7","cents":250}"#);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T> Json<T> {
    /// The codec of `T`.
    pub const fn new() -> Self {
        Json(PhantomData)
    }
}

impl<T: DeserializeOwned> Decode<T> for Json<T> {
    fn decode(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|e| not_expected(&e))
    }
}

/// Says where, and not what: serde quotes the value that it did not expect, and errors are logged. The whole of it is
/// logged at `DEBUG`.
#[cold]
fn not_expected(error: &serde_json::Error) -> Error {
    tracing::debug!(%error, "body is not the expected json");
    let (line, column) = (error.line(), error.column());
    let cause = match error.classify() {
        serde_json::error::Category::Data => "another type or value",
        serde_json::error::Category::Eof => "cut off",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "not json",
    };
    Error::record(format!("body is not the expected json: cause={cause:?} line={line} column={column}"))
}

impl<T: Serialize> Encode<T> for Json<T> {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        serde_json::to_writer(to, value).map_err(|e| Error::record("value has no json form").with_source(e))
    }
}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Json::new()
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Json<T> {}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;
    use serde_json::Value;

    fn refused<T: DeserializeOwned + fmt::Debug>(bytes: &[u8]) {
        let error = Json::<T>::new().decode(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record, "{error:?}");
    }

    #[test]
    fn what_is_not_json_is_a_record_error() {
        for bytes in [&b""[..], b"{", b"\xef\xbb\xbf{}", b"NaN", b"[NaN]", b"1e400", b"{} {}", b"\xff", b"\"\xff\""] {
            refused::<Value>(bytes);
        }
        refused::<f64>(b"1e400");
        refused::<u8>(b"256");
        refused::<u64>(b"-1");
    }

    #[test]
    fn an_error_does_not_quote_the_body() {
        for body in [r#""4111-1111""#, r#"{"4111-1111":1}"#, r#"["4111-1111""#, "4111-1111"] {
            let error = Json::<u32>::new().decode(body.as_bytes()).unwrap_err();
            assert!(!format!("{error:?} {}", error.report()).contains("4111"), "{}", error.report());
            assert!(error.report().contains("line=1"), "{}", error.report());
        }
    }

    #[test]
    fn depth_is_bounded_whatever_the_type() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = open.repeat(100_000) + "1" + &close.repeat(100_000);
            refused::<Value>(deep.as_bytes());
            // What the type does not look at is skipped without recursion.
            assert!(Json::<serde::de::IgnoredAny>::new().decode(deep.as_bytes()).is_ok());
            refused::<Value>(open.repeat(100_000).as_bytes());
        }
    }

    #[test]
    fn a_value_without_json_form_is_a_record_error() {
        let pairs = std::collections::BTreeMap::from([((1, 2), 3)]);
        let error = Json::new().encode(&pairs, &mut vec![]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record);
    }
}
