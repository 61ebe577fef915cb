//! Values of state that changed their type.

use crate::codec::{StateValue, decode_state_value};
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// How values of state that an earlier program wrote become values of the present type `V`.
///
/// Postcard writes neither field names nor types, so a changed type is a new version, and each older version that may still
/// be stored says how it is read. What was written before there was a migration has version 0. A value is migrated
/// when it is read, and written in the new form when it is changed next; so older versions stay listed until no value can
/// have them any more.
///
/// ```
/// use onceflow::{Config, StreamBuilder, Topology, codec::Json, testing::TestDriver};
/// use onceflow::state::Migration;
/// use serde::{Deserialize, Serialize};
///
/// fn first() -> onceflow::types::Result<Topology> {
///     let builder = StreamBuilder::new("job")?;
///     let cents = builder.source("in", Json::<u64>::new()).key_by(|_| 0u8).partitioned_by_key();
///     cents.aggregate("spent", || 0u64, |sum, cents| *sum += cents).values().sink("out", "out", Json::new());
///     builder.build()
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Spent {
///     cents: u64,
///     /// Not known for what came before.
///     records: Option<u64>,
/// }
///
/// fn second() -> onceflow::types::Result<Topology> {
///     let builder = StreamBuilder::new("job")?;
///     let cents = builder.source("in", Json::<u64>::new()).key_by(|_| 0u8).partitioned_by_key();
///     let init = || Spent { cents: 0, records: Some(0) };
///     let spent = cents.aggregate("spent", init, |spent, cents| {
///         spent.cents += cents;
///         spent.records = spent.records.map(|records| records + 1);
///     });
///     let migration = Migration::to(1).from(0, |cents: u64| Spent { cents, records: None });
///     spent.migration(migration).values().sink("out", "out", Json::new());
///     builder.build()
/// }
///
/// let mut driver = TestDriver::new(&first()?)?;
/// driver.send("in", b"5")?;
/// driver.commit()?;
/// driver.restart_with(&second()?, Config { allow_upgrade: true, ..Config::default() })?;
/// driver.send("in", b"2")?;
/// driver.commit()?;
/// assert_eq!(driver.bodies("out"), [b"5".as_slice(), br#"{"cents":7,"records":null}"#]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct Migration<V> {
    version: u16,
    older: BTreeMap<u16, Arc<Reader<V>>>,
}

type Reader<V> = dyn Fn(&[u8]) -> Result<V> + Send + Sync;

impl<V: StateValue> Migration<V> {
    /// The present type is version `version`; values are written with it.
    pub fn to(version: u16) -> Self {
        Migration { version, older: BTreeMap::new() }
    }

    /// A value of version `version` was an `O`; `migrate` makes it a value of the present type. Said twice for a version,
    /// the last counts. For the present version itself it has no effect.
    #[must_use]
    pub fn from<O: StateValue>(self, version: u16, migrate: impl Fn(O) -> V + Send + Sync + 'static) -> Self {
        self.try_from(version, move |old| Ok(migrate(old)))
    }

    /// As [`from`](Self::from), by a function that may fail. Its error stops the task, as damaged state does: nothing is
    /// lost, and the next program may know better.
    #[must_use]
    pub fn try_from<O: StateValue>(
        mut self,
        version: u16,
        migrate: impl Fn(O) -> Result<V> + Send + Sync + 'static,
    ) -> Self {
        self.older.insert(version, Arc::new(move |bytes: &[u8]| migrate(decode_state_value(bytes)?)));
        self
    }

    pub(super) fn version(&self) -> u16 {
        self.version
    }

    pub(super) fn read(&self, version: u16, bytes: &[u8]) -> Result<V> {
        if version == self.version {
            return decode_state_value(bytes);
        }
        match self.older.get(&version) {
            // A record error would let the stage's policy leave records out because of what lies in the state.
            Some(read) => read(bytes).map_err(|e| {
                Error::invalid(format!("state value cannot be migrated: from={version} to={}", self.version))
                    .with_source(e)
            }),
            None => Err(Error::invalid(format!(
                "state value of a version that the migration does not name: version={version} present={}",
                self.version
            ))),
        }
    }
}

impl<V> Clone for Migration<V> {
    fn clone(&self) -> Self {
        Migration { version: self.version, older: self.older.clone() }
    }
}

impl<V> fmt::Debug for Migration<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let older: Vec<_> = self.older.keys().collect();
        f.debug_struct("Migration").field("version", &self.version).field("older", &older).finish()
    }
}
