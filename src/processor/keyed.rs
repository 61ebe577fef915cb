//! A running value per key.

use super::aged::Aged;
use super::{Guard, Push};
use crate::codec::{Data, Key, StateValue};
use crate::record::Record;
use crate::stage::Context;
use crate::state::{CACHE_ENTRIES_DEFAULT, Entry, Migration, TaskState, TimeToLive, ValueTable};
use crate::time::Progress;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use onceflow_types::{Error, Name, Result, Timestamp};
use std::any::Any;
use std::hash::BuildHasher;
use std::sync::Arc;

/// When a running value is put out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Emit {
    /// With every record.
    #[default]
    EveryUpdate,
    /// Once for each key that changed in an epoch, with its last value and the latest event time, when the epoch ends.
    /// Keys come in the order in which they first changed.
    PerEpoch,
}

/// What the user chose for a keyed operator.
#[derive(Clone, Debug)]
pub(crate) struct PerKeyOptions {
    pub(crate) table: Name,
    pub(crate) emit: Emit,
    pub(crate) cache_entries: usize,
    pub(crate) time_to_live: Option<TimeToLive>,
    /// A [`Migration`] of the operator's type of state.
    pub(crate) migration: Option<Arc<dyn Any + Send + Sync>>,
}

impl PerKeyOptions {
    pub(crate) fn new(table: Name) -> Self {
        let (emit, cache_entries) = (Emit::default(), CACHE_ENTRIES_DEFAULT);
        PerKeyOptions { table, emit, cache_entries, time_to_live: None, migration: None }
    }

    fn table<K: Key, A: StateValue>(&self) -> Result<ValueTable<K, A>> {
        let migration = self.migration.as_ref().map(|migration| {
            migration.downcast_ref::<Migration<A>>().cloned().ok_or_else(|| {
                let (name, state) = (&self.table, std::any::type_name::<A>());
                Error::invalid(format!("migration is to another type than the state's: operator={name} state={state}"))
            })
        });
        Ok(ValueTable::with_cache(self.table.clone(), self.cache_entries).with_migration(migration.transpose()?))
    }
}

/// Changes one value of state per record, by a function that changes nothing when it fails.
pub(crate) struct PerKey<K, A, O, F> {
    table: ValueTable<K, A>,
    aged: Option<Aged>,
    step: Arc<F>,
    guard: Guard,
    pending: Option<Pending<K, O>>,
    /// How far the inputs have come, while there is something pending that is older.
    held: Vec<Progress>,
    out: Vec<Record<(K, O)>>,
    next: Box<dyn Push<(K, O)>>,
}

impl<K: Key, A: StateValue, O: Data, F> PerKey<K, A, O, F> {
    pub(crate) fn new(
        options: &PerKeyOptions,
        step: Arc<F>,
        aged: Option<Aged>,
        guard: Guard,
        next: Box<dyn Push<(K, O)>>,
    ) -> Result<Self> {
        Ok(PerKey {
            table: options.table()?,
            aged,
            step,
            guard,
            pending: (options.emit == Emit::PerEpoch).then(Pending::new),
            held: Vec::new(),
            out: Vec::new(),
            next,
        })
    }
}

impl<K, T, A, O, F> Push<(K, T)> for PerKey<K, A, O, F>
where
    K: Key,
    T: Data,
    A: StateValue,
    O: Data,
    F: Fn(&mut Entry<'_, K, A>, &T) -> Result<Option<O>> + Send + Sync,
{
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table.open(state)?;
        self.table.show(None, self.aged.as_ref().map(Aged::time_to_live), state)?;
        if let Some(aged) = &mut self.aged {
            aged.open(state)?;
        }
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<(K, T)>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            let (table, step) = (&mut self.table, &*self.step);
            if let Some(aged) = &mut self.aged {
                aged.hear_record(&record, table, cx)?;
            }
            let Record { value: (key, value), timestamp, watermark, origin } = record;
            let result = match &mut self.aged {
                None => self.guard.attempt(cx, |cx| step(&mut table.entry(&key, cx.state)?, &value)),
                Some(aged) => self
                    .guard
                    .attempt(cx, |cx| aged.step(&key, timestamp, table, cx.state, |entry| step(entry, &value))),
            };
            match (result, &mut self.pending) {
                (Ok(None), _) => {}
                (Ok(Some(output)), None) => {
                    self.out.push(Record { value: (key, output), timestamp, watermark, origin });
                }
                (Ok(Some(output)), Some(pending)) => pending.set(key, output, timestamp),
                (Err(error), _) => self.guard.reject(error, origin, timestamp, cx)?,
            }
        }
        self.next.push(&mut self.out, cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        if let Some(aged) = &mut self.aged {
            aged.advance(progress, &mut self.table, cx)?;
        }
        if self.pending.as_ref().is_none_or(Pending::is_empty) {
            return self.next.advance(progress, cx);
        }
        self.held.retain(|held| held.input != progress.input);
        self.held.push(progress);
        Ok(())
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if let Some(pending) = &mut self.pending {
            pending.drain_into(&mut self.out);
            self.next.push(&mut self.out, cx)?;
            self.held.drain(..).try_for_each(|progress| self.next.advance(progress, cx))?;
        }
        self.table.seal(cx.state)?;
        if let Some(aged) = &mut self.aged {
            aged.seal(cx.state)?;
        }
        self.next.seal(cx)
    }
}

/// The last output of each key that changed in the open epoch, in the order of the first changes.
struct Pending<K, O> {
    hasher: FixedState,
    index: HashTable<usize>,
    items: Vec<(u64, Record<(K, O)>)>,
}

impl<K: Key, O: Data> Pending<K, O> {
    fn new() -> Self {
        Pending { hasher: FixedState::with_seed(0), index: HashTable::new(), items: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn set(&mut self, key: K, output: O, timestamp: Timestamp) {
        let hash = self.hasher.hash_one(&key);
        let items = &mut self.items;
        let found = self.index.find(hash, |at| items.get(*at).is_some_and(|(_, record)| record.value.0 == key));
        if let Some((_, record)) = found.and_then(|at| items.get_mut(*at)) {
            record.value.1 = output;
            record.timestamp = record.timestamp.max(timestamp);
            return;
        }
        items.push((hash, Record::made((key, output), timestamp)));
        let items = &*items;
        self.index.insert_unique(hash, items.len() - 1, |at| items.get(*at).map_or(0, |(hash, _)| *hash));
    }

    fn drain_into(&mut self, out: &mut Vec<Record<(K, O)>>) {
        self.index.clear();
        out.extend(self.items.drain(..).map(|(_, record)| record));
    }
}

/// A number that can be summed without wrapping.
///
/// ```
/// use onceflow::Number;
///
/// assert_eq!(2i64.add(3)?, 5);
/// assert!(i64::MAX.add(1).is_err());
/// assert!(1e308.add(1e308).is_err());
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub trait Number: Data + StateValue + Copy {
    /// The sum of nothing.
    const ZERO: Self;

    /// The sum of two.
    ///
    /// # Errors
    /// `Record` when it is out of range; for floats also when it is not a finite number.
    fn add(self, other: Self) -> Result<Self>;

    /// This number divided by a count, as near as a float comes.
    fn ratio(self, count: u64) -> f64;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const ZERO: Self = 0;

            #[inline]
            fn add(self, other: Self) -> Result<Self> {
                self.checked_add(other).ok_or_else(|| overflow(self, other))
            }

            #[allow(clippy::cast_lossless, clippy::cast_precision_loss)]
            fn ratio(self, count: u64) -> f64 {
                self as f64 / count as f64
            }
        }
    )*};
}
integers!(u16 u32 u64 u128 i16 i32 i64 i128);

impl Number for f64 {
    const ZERO: Self = 0.0;

    #[inline]
    fn add(self, other: Self) -> Result<Self> {
        let sum = self + other;
        if sum.is_finite() { Ok(sum) } else { Err(overflow(self, other)) }
    }

    #[expect(clippy::cast_precision_loss, reason = "an average is rounded")]
    fn ratio(self, count: u64) -> f64 {
        self / count as f64
    }
}

#[cold]
fn overflow(sum: impl std::fmt::Display, value: impl std::fmt::Display) -> Error {
    Error::record(format!("sum is out of range: sum={sum} value={value}"))
}
