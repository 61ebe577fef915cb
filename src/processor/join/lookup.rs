//! The join of a stream with a table: each record with what the table holds when it comes.

use super::{JoinKind, JoinOptions, Side, Sided, is_missing};
use crate::codec::{Data, Key, StateValue};
use crate::processor::{Guard, Push};
use crate::record::Record;
use crate::stage::Context;
use crate::state::{TaskState, ValueTable};
use crate::time::Progress;
use onceflow_types::Result;
use std::sync::Arc;

/// A join with a table. Right values are changes of it: `None` removes. The table's event time is nobody's: those behind
/// the join do not listen to it.
pub(crate) struct TableJoin<K, R, O, F> {
    kind: JoinKind,
    function: Arc<F>,
    table: ValueTable<K, R>,
    guard: Guard,
    out: Vec<Record<(K, O)>>,
    next: Box<dyn Push<(K, O)>>,
}

impl<K: Key, R: StateValue, O: Data, F> TableJoin<K, R, O, F> {
    pub(crate) fn new(options: &JoinOptions, function: Arc<F>, guard: Guard, next: Box<dyn Push<(K, O)>>) -> Self {
        let table = ValueTable::with_cache(options.table.clone(), options.cache_entries);
        TableJoin { kind: options.kind, function, table, guard, out: vec![], next }
    }

    fn add<L: Data>(&mut self, record: Record<(K, Sided<L, Option<R>>)>, cx: &mut Context<'_>) -> Result<()>
    where
        F: Fn(Option<&L>, Option<&R>) -> Option<O>,
    {
        let Record { value: (key, value), timestamp, watermark, origin } = record;
        let result = match value {
            Sided::Right(change) => {
                let mut entry = self.table.entry(&key, cx.state)?;
                match change {
                    Some(value) => entry.set(value),
                    None => entry.remove(),
                }
                return Ok(());
            }
            Sided::Left(left) if is_missing(&key) => (self.function)(Some(&left), None),
            Sided::Left(left) => match self.table.entry(&key, cx.state)?.get() {
                None if !self.kind.keeps(Side::Left) => return Ok(()),
                right => (self.function)(Some(&left), right),
            },
        };
        self.out.extend(result.map(|result| Record { value: (key, result), timestamp, watermark, origin }));
        Ok(())
    }
}

impl<K, L, R, O, F> Push<(K, Sided<L, Option<R>>)> for TableJoin<K, R, O, F>
where
    K: Key,
    L: Data,
    R: StateValue + Data,
    O: Data,
    F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync,
{
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)?;
        self.table.show(None, None, state)?;
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, Sided<L, Option<R>>)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            let (origin, timestamp) = (record.origin, record.timestamp);
            if let Err(error) = self.add(record, cx) {
                self.guard.reject(error, origin, timestamp, cx)?;
            }
        }
        self.next.push(&mut self.out, cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.table.seal(cx.state)?;
        self.next.seal(cx)
    }
}
