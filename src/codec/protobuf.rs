//! Protobuf, by `prost`.

use super::{Decode, Encode};
use onceflow_types::{Error, Result};
use prost::Message;
use std::fmt;
use std::marker::PhantomData;

/// Protobuf bodies, one message each, of types that `prost` made. What the type does not know is skipped, as Protobuf has it; bytes that
/// are no message, a text that is no UTF-8 and a nesting of more than 100 levels are record errors. Lengths are checked against the body, so
/// memory is bounded by its length: an item of a list of messages takes two bytes at least.
///
/// State and repartitions are written by serde, so a type that is kept in state or goes through a repartition
/// derives serde's traits as well (`prost-build` has `type_attribute` for it).
///
/// ```
/// use onceflow::codec::{Decode, Encode, Protobuf};
///
/// #[derive(Clone, PartialEq, prost::Message)]
/// struct Payment {
///     #[prost(string, tag = "1")]
///     card: String,
///     #[prost(int64, tag = "2")]
///     cents: i64,
/// }
///
/// let payment = Payment { card: "c7".into(), cents: 250 };
/// let mut body = Vec::new();
/// Protobuf::new().encode(&payment, &mut body)?;
/// assert_eq!(body, b"\x0a\x02c7\x10\xfa\x01");
/// assert_eq!(Protobuf::<Payment>::new().decode(&body)?, payment);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct Protobuf<T>(PhantomData<fn() -> T>);

impl<T> Protobuf<T> {
    /// The codec of `T`.
    pub const fn new() -> Self {
        Protobuf(PhantomData)
    }
}

impl<T: Message + Default> Decode<T> for Protobuf<T> {
    fn decode(&self, bytes: &[u8]) -> Result<T> {
        T::decode(bytes).map_err(|error| {
            // It may quote a number of the body, and errors are logged.
            tracing::debug!(%error, "body is not the expected protobuf message");
            Error::record("body is not the expected protobuf message")
        })
    }
}

impl<T: Message> Encode<T> for Protobuf<T> {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        value.encode(to).map_err(|e| Error::record("value has no protobuf form").with_source(e))
    }
}

impl<T> Default for Protobuf<T> {
    fn default() -> Self {
        Protobuf::new()
    }
}

impl<T> Clone for Protobuf<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Protobuf<T> {}

impl<T> fmt::Debug for Protobuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protobuf")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::ErrorPolicy;
    use crate::testing::TestDriver;
    use crate::topology::StreamBuilder;
    use onceflow_types::ErrorKind;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Clone, PartialEq, Message)]
    struct Event {
        #[prost(int64, tag = "1")]
        number: i64,
        #[prost(string, tag = "2")]
        text: String,
        #[prost(bytes = "vec", tag = "3")]
        bytes: Vec<u8>,
        #[prost(sint32, repeated, tag = "4")]
        list: Vec<i32>,
        #[prost(string, optional, tag = "5")]
        maybe: Option<String>,
        #[prost(message, optional, boxed, tag = "6")]
        next: Option<Box<Event>>,
    }

    fn event() -> impl Strategy<Value = Event> {
        let leaf = (any::<i64>(), ".*", vec(any::<u8>(), 0..20), vec(any::<i32>(), 0..5), proptest::option::of(".*"))
            .prop_map(|(number, text, bytes, list, maybe)| Event { number, text, bytes, list, maybe, next: None });
        (leaf.clone(), proptest::option::of(leaf)).prop_map(|(event, next)| Event { next: next.map(Box::new), ..event })
    }

    fn encoded(event: &Event) -> Vec<u8> {
        let mut body = vec![];
        Protobuf::new().encode(event, &mut body).unwrap();
        body
    }

    fn refused(body: &[u8]) {
        let error = Protobuf::<Event>::new().decode(body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record);
        assert_eq!(error.report(), "body is not the expected protobuf message");
    }

    proptest! {
        #[test]
        fn values_come_back(event in event()) {
            prop_assert_eq!(Protobuf::<Event>::new().decode(&encoded(&event)).unwrap(), event);
        }

        #[test]
        fn random_and_damaged_bytes_are_messages_or_record_errors(
            event in event(), place: prop::sample::Index, byte: u8, random in vec(any::<u8>(), 0..200),
        ) {
            let mut body = encoded(&event);
            if !body.is_empty() {
                let place = place.index(body.len());
                body[place] = byte;
            }
            for body in [body, random] {
                match Protobuf::<Event>::new().decode(&body) {
                    Ok(event) => prop_assert_eq!(Protobuf::<Event>::new().decode(&encoded(&event)).unwrap(), event),
                    Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Record),
                }
            }
        }
    }

    #[test]
    fn depth_and_lengths_are_bounded() {
        let nested = |levels: usize| {
            (0..levels).fold(Event::default(), |next, _| Event { next: Some(Box::new(next)), ..Event::default() })
        };
        assert!(Protobuf::<Event>::new().decode(&encoded(&nested(90))).is_ok());
        refused(&encoded(&nested(200)));
        // A group that the type does not know, 1,000,000 levels deep; a length of nearly 2^64 bytes; a cut-off number; no UTF-8.
        for body in [
            &b"\x4b".repeat(1_000_000)[..],
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff",
            b"\x12\x01\xff",
        ] {
            refused(body);
        }
    }

    /// A bad body is a dead letter with its bytes, and the stream goes on.
    #[test]
    fn bodies_that_are_none_meet_the_error_policy() {
        let builder = StreamBuilder::new("job").unwrap();
        let events = builder.source("in", Protobuf::<Event>::new()).on_error(ErrorPolicy::dead_letter("bad"));
        events.sink("out", "out", Protobuf::new());
        let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
        let good = encoded(&Event { number: 7, ..Event::default() });
        for body in [&good[..], b"\xff", b"\x0a", &good] {
            driver.send("in", body).unwrap();
        }
        driver.commit().unwrap();
        assert_eq!(driver.bodies("out"), [good.clone(), good]);
        assert_eq!(driver.bodies("bad"), [b"\xff", b"\x0a"]);
    }
}
