//! Schemas, and what is asked of them before a body comes.

use apache_avro::Schema;
use apache_avro::rabin::Rabin;
use apache_avro::schema::{Name, NamesRef, NamespaceRef, ResolvedSchema};
use onceflow_types::{Error, Result};
use std::sync::Arc;

/// Most unions in each other below a schema that values of others are made into: for each of them the crate tries a value's
/// branches before it takes one, so that time doubles.
pub(super) const UNION_LEVELS_MAX: usize = 8;

/// A schema that bodies are written with.
pub(super) struct Written {
    pub(super) schema: Schema,
    pub(super) fingerprint: Vec<u8>,
}

impl Written {
    pub(super) fn parsed(text: &str) -> Result<Arc<Written>> {
        let schema = Schema::parse_str(text).map_err(none)?;
        ResolvedSchema::new(&schema).map_err(none)?;
        if holds_big_decimal(&schema) {
            // A body says how many digits its text has, up to 2^63.
            return Err(Error::invalid("avro's logical type big-decimal is not supported: take bytes, or decimal"));
        }
        let fingerprint = schema.fingerprint::<Rabin>().bytes;
        Ok(Arc::new(Written { schema, fingerprint }))
    }

    /// Whether values of other schemas can be made into its own in bounded time.
    pub(super) fn check_resolves(&self) -> Result<()> {
        let names = ResolvedSchema::new(&self.schema).map_err(none)?;
        match union_levels(&self.schema, names.get_names(), None, &mut vec![]) {
            Some(levels) if levels <= UNION_LEVELS_MAX => Ok(()),
            levels => Err(Error::invalid(format!(
                "avro schema has too many unions in each other to read values of others: levels={levels:?} \
                 max={UNION_LEVELS_MAX}"
            ))),
        }
    }
}

fn none(error: apache_avro::Error) -> Error {
    Error::invalid("not an avro schema").with_source(error)
}

fn holds_big_decimal(schema: &Schema) -> bool {
    match schema {
        Schema::BigDecimal => true,
        Schema::Array(array) => holds_big_decimal(&array.items),
        Schema::Map(map) => holds_big_decimal(&map.types),
        Schema::Union(union) => union.variants().iter().any(holds_big_decimal),
        Schema::Record(record) => record.fields.iter().any(|field| holds_big_decimal(&field.schema)),
        _ => false,
    }
}

/// The most unions in each other below a schema; `None` when there is no most, as a record holds itself. `open` are the records
/// around it.
fn union_levels(
    schema: &Schema,
    names: &NamesRef<'_>,
    namespace: NamespaceRef<'_>,
    open: &mut Vec<Name>,
) -> Option<usize> {
    match schema {
        Schema::Array(array) => union_levels(&array.items, names, namespace, open),
        Schema::Map(map) => union_levels(&map.types, names, namespace, open),
        Schema::Union(union) => {
            let branches = union.variants().iter().map(|branch| union_levels(branch, names, namespace, open));
            branches.collect::<Option<Vec<_>>>()?.into_iter().max().map(|levels| levels + 1)
        }
        Schema::Record(record) => {
            let name = record.name.fully_qualified_name(namespace).into_owned();
            if open.contains(&name) {
                return None;
            }
            open.push(name.clone());
            let fields = record.fields.iter().map(|field| union_levels(&field.schema, names, name.namespace(), open));
            let fields = fields.collect::<Option<Vec<_>>>();
            open.pop();
            Some(fields?.into_iter().max().unwrap_or(0))
        }
        Schema::Ref { name } => {
            let name = name.fully_qualified_name(namespace);
            names.get(&name).map_or(Some(0), |named| union_levels(named, names, name.namespace(), open))
        }
        _ => Some(0),
    }
}
