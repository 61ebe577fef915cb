//! The largest records of each key.

use super::keyed_stream::KeyedStream;
use super::placement::{Placement, Together};
use super::running::Running;
use crate::codec::{Data, Key, StateValue};
use crate::processor::ErrorPolicy;
use crate::state::{Entry, Migration};
use onceflow_types::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// Most records that [`KeyedStream::top_n`] keeps for a key: they are one entry of the state.
pub const TOP_N_MAX: usize = 10_000;

/// A change of what belongs to a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change<T> {
    /// It belongs to it from now on.
    Added(T),
    /// It belongs to it no more.
    Removed(T),
}

impl<K: Key, T: Data + StateValue, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// The `n` records of each key that are largest by what `by` takes from them, as changes: a record that comes in, and
    /// before it the one that it drives out. Whoever carries the changes out in order has the `n` largest so far. Of equal
    /// records the earlier counts as larger, so that an equal one drives nothing out.
    ///
    /// Each record counts for itself: the stream is one of records, not of new values for old ones. `n` is 1 to
    /// [`TOP_N_MAX`].
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("in", Json::<(String, i64)>::new()).key_by(|(shop, _)| shop.clone());
    /// payments.top_n("largest", 2, |(_, cents)| *cents).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for record in [r#"["s",5]"#, r#"["s",9]"#, r#"["s",4]"#, r#"["s",7]"#] {
    ///     driver.send("in", record.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// let changes = [
    ///     br#"{"added":["s",5]}"#.as_slice(),
    ///     br#"{"added":["s",9]}"#,
    ///     br#"{"removed":["s",5]}"#,
    ///     br#"{"added":["s",7]}"#,
    /// ];
    /// assert_eq!(driver.bodies("out"), changes);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn top_n<B: Ord>(&self, name: &str, n: usize, by: impl Fn(&T) -> B + Send + Sync + 'static) -> TopN<K, T> {
        if n == 0 || n > TOP_N_MAX {
            let error = Error::invalid(format!("top_n needs 1 to {TOP_N_MAX} records: operator={name} n={n}"));
            self.stream.graph().borrow_mut().errors.push(error);
        }
        let changed = self.per_key_some(name, "top-n", move |entry: &mut Entry<'_, K, Vec<T>>, value: &T| {
            let largest = entry.get().map_or(&[][..], Vec::as_slice);
            let wanted = by(value);
            let place = largest.partition_point(|other| by(other) >= wanted);
            if place >= n {
                return Ok(None);
            }
            let largest = entry.get_or_insert_with(Vec::new);
            let driven_out = if largest.len() >= n { largest.pop() } else { None };
            largest.insert(place, value.clone());
            Ok(Some((driven_out, value.clone())))
        });
        let changes = changed.pairs().flat_map(|(key, (driven_out, value))| {
            let removed = driven_out.map(|value| (key.clone(), Change::Removed(value)));
            removed.into_iter().chain([(key, Change::Added(value))])
        });
        TopN { changed, changes: KeyedStream::new(changes) }
    }
}

/// The stream of the changes that [`KeyedStream::top_n`] makes.
pub struct TopN<K, T> {
    changed: Running<K, (Option<T>, T)>,
    changes: KeyedStream<K, Change<T>, Together>,
}

impl<K: Key, T: Data + StateValue> TopN<K, T> {
    /// As [`Running::on_error`].
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        TopN { changed: self.changed.on_error(policy), ..self }
    }

    /// As [`Running::cache_entries`].
    pub fn cache_entries(self, entries_max: usize) -> Self {
        TopN { changed: self.changed.cache_entries(entries_max), ..self }
    }

    /// As [`Running::migration`]; the state of a key is the list of its records, the largest first.
    pub fn migration(self, migration: Migration<Vec<T>>) -> Self {
        TopN { changed: self.changed.migration(migration), ..self }
    }
}

impl<K, T> Deref for TopN<K, T> {
    type Target = KeyedStream<K, Change<T>, Together>;

    fn deref(&self) -> &Self::Target {
        &self.changes
    }
}

impl<K, T> fmt::Debug for TopN<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopN").field(&self.changes).finish()
    }
}
