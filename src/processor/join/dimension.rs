//! The join with a dimension: each record with the row of its key at the moment.

use super::is_missing;
use crate::codec::{Data, Key};
use crate::dimension::{Dimension, Rows};
use crate::processor::{Push, pass_time};
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use onceflow_types::Result;
use std::sync::Arc;

/// A join with a dimension. `F` takes the key of a record, `G` makes a result; `None` for no key, or no result.
pub(crate) struct DimensionJoin<K, V, O, F, G> {
    pub(crate) dimension: Dimension<K, V>,
    /// `None` before it is opened.
    pub(crate) rows: Option<Rows<K, V>>,
    pub(crate) key: Arc<F>,
    pub(crate) result: Arc<G>,
    pub(crate) out: Vec<Record<O>>,
    pub(crate) next: Box<dyn Push<O>>,
}

impl<T, K, V, O, F, G> Push<T> for DimensionJoin<K, V, O, F, G>
where
    T: Data,
    K: Key + Sync,
    V: Data + Sync,
    O: Data,
    F: Fn(&T) -> Option<K> + Send + Sync,
    G: Fn(&T, Option<&V>) -> Option<O> + Send + Sync,
{
    pass_time!();

    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.rows = Some(self.dimension.open()?);
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Err(unopened()) };
        self.dimension.renew(rows, cx.now());
        for record in records.drain(..) {
            let key = (self.key)(&record.value).filter(|key| !is_missing(key));
            if key.is_none() {
                cx.counters.missing_keys += 1;
                metrics::counter!("onceflow_missing_keys_total", "stage" => self.dimension.name().to_string())
                    .increment(1);
            }
            let row = key.and_then(|key| rows.get(&key));
            if let Some(result) = (self.result)(&record.value, row) {
                self.out.push(record.with(result));
            }
        }
        self.next.push(&mut self.out, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.next.seal(cx)
    }
}

#[cold]
fn unopened() -> onceflow_types::Error {
    onceflow_types::Error::bug("a join is used before it is opened")
}
