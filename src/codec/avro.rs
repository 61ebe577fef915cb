//! Avro, by `apache-avro`.

#[cfg(test)]
mod tests;
mod walk;
mod written;

use super::{Decode, Encode};
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::schema::ResolvedSchema;
use apache_avro::schema_compatibility::SchemaCompatibility;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{AvroResult, from_value};
use onceflow_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use written::Written;

/// Most values that a body is made of, unless told otherwise: a number, a text, a null, a list or a record is one.
pub const AVRO_VALUES_MAX: usize = 1 << 18;
/// What a body in single-object encoding begins with, before the fingerprint of its writer's schema.
const MAGIC: [u8; 2] = [0xC3, 0x01];

/// Avro bodies: one value each, in [single-object encoding](https://avro.apache.org/docs/1.12.0/specification/#single-object-encoding), which
/// says by a fingerprint with which schema it was written; or [bare](Self::bare). Types are serde's, as `apache-avro` maps them.
///
/// A schema that changes: values are written with the codec's own schema, and read from any that [`reads`](Self::reads) names. Avro's rules
/// apply: a field that the body lacks has its default, one that the codec's schema lacks is left out, numbers are widened.
///
/// Every body is checked before it is decoded: what is cut off, too long, nested deeper than 24 levels of arrays, maps, unions and records, of more
/// than [`AVRO_VALUES_MAX`] values or of an unknown schema is a record error, and nothing is allocated for it.
///
/// ```
/// use onceflow::codec::{Avro, Decode, Encode};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Payment { card: String, cents: i64, currency: String }
///
/// const FIRST: &str = r#"{"type": "record", "name": "Payment", "fields": [
///     {"name": "card", "type": "string"}, {"name": "cents", "type": "int"}]}"#;
/// const SECOND: &str = r#"{"type": "record", "name": "Payment", "fields": [
///     {"name": "card", "type": "string"}, {"name": "cents", "type": "long"},
///     {"name": "currency", "type": "string", "default": "EUR"}]}"#;
///
/// #[derive(serde::Serialize)]
/// struct FirstPayment { card: String, cents: i32 }
///
/// let mut body = Vec::new();
/// Avro::new(FIRST)?.encode(&FirstPayment { card: "c7".into(), cents: 250 }, &mut body)?;
/// let codec = Avro::<Payment>::new(SECOND)?.reads(FIRST)?;
/// let payment = codec.decode(&body)?;
/// assert_eq!((payment.cents, payment.currency.as_str()), (250, "EUR"));
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct Avro<T> {
    own: Arc<Written>,
    older: Vec<Arc<Written>>,
    is_bare: bool,
    values_max: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Avro<T> {
    /// The codec of `T` with a schema, as JSON.
    ///
    /// # Errors
    /// `Invalid` when it is no schema, or has the logical type `big-decimal`.
    pub fn new(schema: &str) -> Result<Self> {
        let own = Written::parsed(schema)?;
        Ok(Avro { own, older: vec![], is_bare: false, values_max: AVRO_VALUES_MAX, of: PhantomData })
    }

    /// The same for bodies without a head: nothing in them says with which schema they were written.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn bare(schema: &str) -> Result<Self> {
        Ok(Avro { is_bare: true, ..Avro::new(schema)? })
    }

    /// Also reads bodies that were written with another schema. All [bare](Self::bare) bodies are taken for written with the
    /// one that was named last.
    ///
    /// # Errors
    /// `Invalid` as [`new`](Self::new); when no value of that schema can become one of the codec's own; when their
    /// fingerprints are the same, as that says nothing of documentation, defaults and logical types; when the codec's own schema
    /// holds itself, or more than 8 unions in each other, as the time to read a body doubles with each.
    pub fn reads(mut self, writer: &str) -> Result<Self> {
        let writer = Written::parsed(writer)?;
        self.own.check_resolves()?;
        SchemaCompatibility::can_read(&writer.schema, &self.own.schema).map_err(|e| {
            Error::invalid("values of this avro schema cannot be read as the codec's own").with_source(e)
        })?;
        if self.all().any(|known| known.fingerprint == writer.fingerprint) && !self.is_bare {
            return Err(Error::invalid("avro schemas have the same fingerprint, so their bodies cannot be told apart"));
        }
        self.older.push(writer);
        Ok(self)
    }

    /// Bounds the values that a body is made of [[`AVRO_VALUES_MAX`]], and so the memory that decoding it takes: about 100 bytes each,
    /// and the bytes of the body.
    #[must_use]
    pub fn values_max(self, values_max: usize) -> Self {
        Avro { values_max, ..self }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Written>> {
        std::iter::once(&self.own).chain(&self.older)
    }

    /// With which schema a body was written, and what lies behind its head.
    fn writer<'b>(&self, body: &'b [u8]) -> Result<(&Arc<Written>, &'b [u8])> {
        if self.is_bare {
            return Ok((self.older.last().unwrap_or(&self.own), body));
        }
        let head = body.strip_prefix(&MAGIC).and_then(|rest| rest.split_at_checked(size_of::<u64>()));
        let (fingerprint, datum) = head.ok_or_else(|| refused("no single-object head", 0))?;
        let writer = self.all().find(|known| known.fingerprint == fingerprint);
        Ok((writer.ok_or_else(|| refused("written with an unknown schema", MAGIC.len()))?, datum))
    }

    fn value(&self, writer: &Arc<Written>, datum: &[u8]) -> Result<Value> {
        let names = ResolvedSchema::new(&writer.schema).map_err(|e| not_expected(&e))?;
        walk::check(&writer.schema, names.get_names(), datum, self.values_max)
            .map_err(|walk::Refused { cause, at }| refused(cause, at))?;
        let reader = (!Arc::ptr_eq(writer, &self.own)).then_some(&self.own.schema);
        let read = || -> AvroResult<Value> {
            let reader =
                GenericDatumReader::builder(&writer.schema).resolved_writer_schemata(names).maybe_reader_schema(reader);
            reader.human_readable(false).build()?.read_value(&mut &*datum)
        };
        read().map_err(|e| not_expected(&e))
    }
}

#[cold]
fn refused(cause: &'static str, at: usize) -> Error {
    Error::record(format!("body is not the expected avro: cause={cause:?} at={at}"))
}

/// The crate's errors quote values, and errors are logged: so the whole of it is logged at `DEBUG` only.
#[cold]
fn not_expected(error: &apache_avro::Error) -> Error {
    tracing::debug!(%error, "body is not the expected avro");
    Error::record("body is not the expected avro: cause=\"another type or value\"")
}

impl<T: DeserializeOwned> Decode<T> for Avro<T> {
    fn decode(&self, bytes: &[u8]) -> Result<T> {
        let (writer, datum) = self.writer(bytes)?;
        from_value(&self.value(writer, datum)?).map_err(|e| not_expected(&e))
    }
}

impl<T: Serialize> Encode<T> for Avro<T> {
    fn encode(&self, value: &T, to: &mut Vec<u8>) -> Result<()> {
        if !self.is_bare {
            to.extend_from_slice(&MAGIC);
            to.extend_from_slice(&self.own.fingerprint);
        }
        let mut write = || -> AvroResult<usize> {
            GenericDatumWriter::builder(&self.own.schema).human_readable(false).build()?.write_ser(to, value)
        };
        write().map(drop).map_err(|error| {
            tracing::debug!(%error, "value is none of the avro schema");
            Error::record("value is none of the avro schema")
        })
    }
}

impl<T> Clone for Avro<T> {
    fn clone(&self) -> Self {
        let Avro { own, older, is_bare, values_max, of } = self;
        Avro { own: own.clone(), older: older.clone(), is_bare: *is_bare, values_max: *values_max, of: *of }
    }
}

impl<T> fmt::Debug for Avro<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_bare { "Avro(bare)" } else { "Avro" })
    }
}
