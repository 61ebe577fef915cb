//! Which keys are missing: those that are, or hold, `None`. As in SQL, nothing equals what is not there.

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use std::fmt;

/// Whether a key is missing, so that it matches no other, not even an equal one.
#[inline]
pub(crate) fn is_missing<K: Serialize>(key: &K) -> bool {
    matches!(key.serialize(Look), Err(Stop::Missing))
}

/// Looks through a key without writing anything; a `None` ends it.
struct Look;

/// Why the look ended early.
#[derive(Debug)]
enum Stop {
    Missing,
    /// The key cannot be written at all. Whoever writes it says so.
    Other,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("key was looked at")
    }
}

impl std::error::Error for Stop {}

impl Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Stop::Other
    }
}

macro_rules! plain {
    ($($method:ident: $type:ty,)*) => {$(
        #[inline]
        fn $method(self, _: $type) -> Result<(), Stop> {
            Ok(())
        }
    )*};
}

impl Serializer for Look {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Look;
    type SerializeTuple = Look;
    type SerializeTupleStruct = Look;
    type SerializeTupleVariant = Look;
    type SerializeMap = Look;
    type SerializeStruct = Look;
    type SerializeStructVariant = Look;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_f32: f32, serialize_f64: f64, serialize_char: char, serialize_str: &str,
        serialize_bytes: &[u8], serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<(), Stop> {
        Err(Stop::Missing)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Look, Stop> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Look, Stop> {
        Ok(self)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Stop> {
        Ok(())
    }

    fn is_human_readable(&self) -> bool {
        // As Postcard, which writes keys.
        false
    }
}

macro_rules! parts {
    ($($of:ident: $method:ident $($name:ident)?,)*) => {$(
        impl $of for Look {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), Stop> {
                $(let _ = $name;)?
                value.serialize(Look)
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
    SerializeStruct: serialize_field name,
    SerializeStructVariant: serialize_field name,
}

impl SerializeMap for Look {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stop> {
        key.serialize(Look)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        value.serialize(Look)
    }

    fn end(self) -> Result<(), Stop> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Account {
        bank: u8,
        number: Option<String>,
    }

    #[derive(Serialize, Deserialize)]
    enum Kind {
        Card(Option<u8>),
        Cash,
    }

    #[test]
    fn a_key_is_missing_when_it_is_or_holds_none() {
        assert!(is_missing(&None::<u8>));
        assert!(is_missing(&(7, None::<u8>)));
        assert!(is_missing(&Account { bank: 1, number: None }));
        assert!(is_missing(&Kind::Card(None)));
        assert!(is_missing(&Some(None::<u8>)));
        assert!(!is_missing(&Some(0u8)));
        assert!(!is_missing(&Account { bank: 1, number: Some(String::new()) }));
        assert!(!is_missing(&Kind::Cash));
        assert!(!is_missing(&Kind::Card(Some(1))));
        assert!(!is_missing(&()), "there is one such key, and it is there");
        assert!(!is_missing(&("", 0, false)));
    }
}
