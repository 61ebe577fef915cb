//! A walk over a body before it is decoded.
//!
//! `apache-avro` allocates what lengths and counts say, up to 512 MiB for each of them, follows a recursive schema as deep as the
//! body goes, and takes a body that is cut off in some places for one with nulls. So every body is walked first, without
//! allocation, no deeper than [`DEPTH_MAX`], and to its end.

use apache_avro::Schema;
use apache_avro::schema::{DecimalSchema, FixedSchema, InnerDecimalSchema, NamesRef, NamespaceRef, UuidSchema};

/// Most levels of arrays, maps, unions and records in each other. Without optimisation the crate takes 43 KB of stack for each, and a
/// thread has 2 MiB.
pub(super) const DEPTH_MAX: usize = 24;
/// Most bytes of a number: 7 bits in each.
const NUMBER_BYTES_MAX: usize = 10;

/// Why a body is none, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refused {
    pub(super) cause: &'static str,
    /// Bytes of the body before it.
    pub(super) at: usize,
}

type Step<T = ()> = Result<T, &'static str>;

/// Checks that `body` is one value of `schema`, which is made of at most `values_max` values. Texts may still be no UTF-8, and
/// numbers out of the range of an `int`.
pub(super) fn check(schema: &Schema, names: &NamesRef<'_>, body: &[u8], values_max: usize) -> Result<(), Refused> {
    let mut walk = Walk { names, rest: body, values_left: values_max };
    walk.whole(schema).map_err(|cause| Refused { cause, at: body.len() - walk.rest.len() })
}

struct Walk<'w> {
    names: &'w NamesRef<'w>,
    rest: &'w [u8],
    values_left: usize,
}

impl Walk<'_> {
    fn whole(&mut self, schema: &Schema) -> Step {
        self.value(schema, None, 0)?;
        if self.rest.is_empty() { Ok(()) } else { Err("bytes behind the value") }
    }

    fn value(&mut self, schema: &Schema, namespace: NamespaceRef<'_>, depth: usize) -> Step {
        self.values_left = self.values_left.checked_sub(1).ok_or("too many values")?;
        match schema {
            Schema::Null => Ok(()),
            Schema::Boolean => self.skip(1),
            Schema::Float => self.skip(4),
            Schema::Double => self.skip(8),
            Schema::Fixed(FixedSchema { size, .. })
            | Schema::Duration(FixedSchema { size, .. })
            | Schema::Uuid(UuidSchema::Fixed(FixedSchema { size, .. }))
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Fixed(FixedSchema { size, .. }), .. }) => {
                self.skip(*size)
            }
            Schema::Bytes
            | Schema::String
            | Schema::BigDecimal
            | Schema::Uuid(UuidSchema::String | UuidSchema::Bytes)
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Bytes, .. }) => self.bytes(),
            Schema::Int
            | Schema::Long
            | Schema::Enum(_)
            | Schema::Date
            | Schema::TimeMillis
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => self.number().map(drop),
            Schema::Ref { name } => {
                let name = name.fully_qualified_name(namespace);
                let named = self.names.get(&name).copied().ok_or("a name that is not defined")?;
                self.value(named, name.namespace(), depth)
            }
            _ if depth == DEPTH_MAX => Err("nested too deep"),
            Schema::Array(array) => self.blocks(|walk| walk.value(&array.items, namespace, depth + 1)),
            Schema::Map(map) => self.blocks(|walk| {
                walk.value(&Schema::String, None, depth + 1)?;
                walk.value(&map.types, namespace, depth + 1)
            }),
            Schema::Union(union) => {
                let branch = usize::try_from(self.number()?).ok().and_then(|at| union.variants().get(at));
                self.value(branch.ok_or("no such branch of a union")?, namespace, depth + 1)
            }
            Schema::Record(record) => {
                let name = record.name.fully_qualified_name(namespace);
                record.fields.iter().try_for_each(|field| self.value(&field.schema, name.namespace(), depth + 1))
            }
        }
    }

    /// Blocks of items, each with their number before it, up to an empty one.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Step) -> Step {
        loop {
            let items = self.number()?;
            if items == 0 {
                return Ok(());
            }
            if items < 0 {
                // So many, and then their bytes, which nobody needs to know here.
                self.number()?;
            }
            let items = usize::try_from(items.unsigned_abs()).unwrap_or(usize::MAX);
            if items > self.values_left {
                return Err("too many values");
            }
            (0..items).try_for_each(|_| item(self))?;
        }
    }

    fn bytes(&mut self) -> Step {
        let bytes = usize::try_from(self.number()?).map_err(|_| "negative length")?;
        self.skip(bytes)
    }

    fn skip(&mut self, bytes: usize) -> Step {
        self.rest = self.rest.get(bytes..).ok_or("cut off")?;
        Ok(())
    }

    /// A zigzag number of 64 bits.
    fn number(&mut self) -> Step<i64> {
        let mut bits = 0u64;
        for at in 0..NUMBER_BYTES_MAX {
            let (byte, rest) = self.rest.split_first().ok_or("cut off")?;
            self.rest = rest;
            bits |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed());
            }
        }
        Err("number of more than 64 bits")
    }
}
