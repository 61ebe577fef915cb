//! The tables and side outputs of a processor, whatever they hold.

use super::living::{LivingTable, Now, Part};
use crate::codec::{Data, Key, StateValue, decode_key, encode_key};
use crate::processor::Push;
use crate::record::Record;
use crate::stage::Context;
use crate::state::{Entry, TaskState, TimerKind, ValueTable, decode_stored_used};
use crate::time::Progress;
use onceflow_storage::{KeyRange, Order, ReadStore};
use onceflow_types::{Error, Result, Timestamp};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

/// A table of a type that its handle knows.
pub(crate) trait Table: Any + Send {
    /// A call of the processor is over.
    fn settle(&mut self, state: &mut TaskState) -> Result<()>;
    /// By which time its values live, if they do not live for ever.
    fn lives_by(&self) -> Option<TimerKind>;
    /// Removes what is too old, when all timers up to `fired` have fired, unless the epoch is full before.
    fn remove_due(&mut self, fired: Timestamp, cx: &mut Context<'_>) -> Result<()>;
    fn seal(&mut self, state: &mut TaskState) -> Result<()>;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A list for each key: where it begins and ends, and each item under its number. Items are added and taken at its ends
/// without touching the others.
pub(crate) struct ListTable<K, V> {
    bounds: LivingTable<K, (u64, u64)>,
    items: ValueTable<(K, u64), V>,
}

impl<K: Key, V: StateValue> ListTable<K, V> {
    fn bounds(&mut self, key: &K, now: Now, state: &mut TaskState) -> Result<Entry<'_, K, (u64, u64)>> {
        let items = &mut self.items;
        self.bounds.entry(key, now, state, |bounds, state| remove_items(items, key, bounds, state))
    }
}

/// Removes the items of a list that has ended.
fn remove_items<K: Key, V: StateValue>(
    items: &mut ValueTable<(K, u64), V>,
    key: &K,
    (first, next): (u64, u64),
    state: &mut TaskState,
) -> Result<()> {
    (first..next).try_for_each(|at| {
        items.entry(&(key.clone(), at), state)?.remove();
        Ok(())
    })
}

impl<K: Key, V: StateValue> Table for ListTable<K, V> {
    fn settle(&mut self, state: &mut TaskState) -> Result<()> {
        self.bounds.settle(state)
    }

    fn lives_by(&self) -> Option<TimerKind> {
        self.bounds.lives_by()
    }

    fn remove_due(&mut self, fired: Timestamp, cx: &mut Context<'_>) -> Result<()> {
        let items = &mut self.items;
        self.bounds.remove_due_and(fired, cx, |key, bounds, state| remove_items(items, key, bounds, state))
    }

    fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.bounds.seal(state)?;
        self.items.seal(state)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// All tables of one processor.
#[derive(Default)]
pub(crate) struct Tables {
    all: Vec<Box<dyn Table>>,
    /// The places of those whose values have a time to live.
    living: Vec<usize>,
}

impl Tables {
    pub(crate) fn value<K: Key, V: StateValue>(&mut self, of: Part<'_>, state: &mut TaskState) -> Result<usize> {
        let table = LivingTable::<K, V>::opened(of, state)?;
        table.values.show(Some(of.given_name()), of.time_to_live, state)?;
        Ok(self.add(Box::new(table)))
    }

    pub(crate) fn list<K: Key, V: StateValue>(
        &mut self,
        of: Part<'_>,
        items: &str,
        state: &mut TaskState,
    ) -> Result<usize> {
        let bounds = LivingTable::opened(of, state)?;
        let mut items_of = ValueTable::with_cache(of.operator.clone(), of.cache_entries);
        items_of.open_part(items, state)?;
        let items = items_of;
        Ok(self.add(Box::new(ListTable::<K, V> { bounds, items })))
    }

    fn add(&mut self, table: Box<dyn Table>) -> usize {
        let at = self.all.len();
        if table.lives_by().is_some() {
            self.living.push(at);
        }
        self.all.push(table);
        at
    }

    fn each_living(&mut self, mut act: impl FnMut(&mut dyn Table) -> Result<()>) -> Result<()> {
        self.living.iter().try_for_each(|at| self.all.get_mut(*at).map_or(Ok(()), |table| act(&mut **table)))
    }

    /// Whether a record must have a time that event time can be.
    pub(crate) fn live_by_event_time(&mut self) -> Result<bool> {
        let mut any = false;
        self.each_living(|table| {
            any |= table.lives_by() == Some(TimerKind::Event);
            Ok(())
        })?;
        Ok(any)
    }

    /// A call of the processor is over, well or not.
    pub(crate) fn settle(&mut self, state: &mut TaskState) -> Result<()> {
        self.each_living(|table| table.settle(state))
    }

    /// Removes what is too old, when all timers up to `fired` have fired.
    pub(crate) fn remove_due(&mut self, fired: Timestamp, cx: &mut Context<'_>) -> Result<()> {
        self.each_living(|table| table.remove_due(fired, cx))
    }

    pub(crate) fn get<T: 'static>(&mut self, at: usize) -> Result<&mut T> {
        let table = self.all.get_mut(at).and_then(|table| table.as_any_mut().downcast_mut());
        table.ok_or_else(|| Error::bug("state of a processor is used before it is named, or by another one"))
    }

    pub(crate) fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        self.all.iter_mut().try_for_each(|table| table.seal(state))
    }
}

/// The list of one key.
pub struct ListEntry<'t, K, V> {
    pub(crate) table: &'t mut ListTable<K, V>,
    pub(crate) now: Now,
    pub(crate) state: &'t mut TaskState,
    pub(crate) key: &'t K,
}

impl<K: Key, V: StateValue + Data> ListEntry<'_, K, V> {
    fn bounds(&mut self) -> Result<(u64, u64)> {
        Ok(self.table.bounds(self.key, self.now, self.state)?.get().copied().unwrap_or((0, 0)))
    }

    fn set_bounds(&mut self, (first, next): (u64, u64)) -> Result<()> {
        let mut entry = self.table.bounds(self.key, self.now, self.state)?;
        if first < next {
            entry.set((first, next));
        } else {
            entry.remove();
        }
        Ok(())
    }

    fn take(&mut self, at: u64) -> Result<Option<V>> {
        let mut entry = self.table.items.entry(&(self.key.clone(), at), self.state)?;
        let value = entry.get().cloned();
        entry.remove();
        Ok(value)
    }

    /// How many items there are.
    pub fn len(&mut self) -> Result<u64> {
        self.bounds().map(|(first, next)| next - first)
    }

    /// Whether there is none.
    pub fn is_empty(&mut self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Adds an item behind the others.
    ///
    /// # Errors
    /// `Record` when the key cannot be a key, `Corrupt` from the store.
    pub fn push(&mut self, value: V) -> Result<()> {
        let (first, next) = self.bounds()?;
        self.table.items.entry(&(self.key.clone(), next), self.state)?.set(value);
        self.set_bounds((first, next + 1))
    }

    /// The first item; `None` when there is none.
    ///
    /// # Errors
    /// `Corrupt` from the store.
    pub fn first(&mut self) -> Result<Option<V>> {
        let (first, next) = self.bounds()?;
        if first == next {
            return Ok(None);
        }
        Ok(self.table.items.entry(&(self.key.clone(), first), self.state)?.get().cloned())
    }

    /// Takes the first item out.
    ///
    /// # Errors
    /// `Corrupt` from the store.
    pub fn pop_first(&mut self) -> Result<Option<V>> {
        let (first, next) = self.bounds()?;
        if first == next {
            return Ok(None);
        }
        let value = self.take(first)?;
        self.set_bounds((first + 1, next))?;
        Ok(value)
    }

    /// All items in order. The whole list comes into memory.
    ///
    /// # Errors
    /// `Corrupt` from the store.
    pub fn all(&mut self) -> Result<Vec<V>> {
        let (first, next) = self.bounds()?;
        let mut all = vec![];
        for at in first..next {
            all.extend(self.table.items.entry(&(self.key.clone(), at), self.state)?.get().cloned());
        }
        Ok(all)
    }

    /// Removes all items.
    ///
    /// # Errors
    /// `Corrupt` from the store.
    pub fn clear(&mut self) -> Result<()> {
        let (first, next) = self.bounds()?;
        (first..next).try_for_each(|at| self.take(at).map(drop))?;
        self.set_bounds((0, 0))
    }
}

/// The map of one key.
pub struct MapEntry<'t, K, M, V> {
    pub(crate) table: &'t mut LivingTable<(K, M), V>,
    pub(crate) now: Now,
    pub(crate) state: &'t mut TaskState,
    pub(crate) key: &'t K,
}

impl<K: Key, M: Key, V: StateValue + Data> MapEntry<'_, K, M, V> {
    /// The place of one of its keys.
    ///
    /// # Errors
    /// `Record` when the keys cannot be a key, `Corrupt` from the store.
    pub fn entry(&mut self, of: &M) -> Result<Entry<'_, (K, M), V>> {
        self.table.entry(&(self.key.clone(), of.clone()), self.now, self.state, |_, _| Ok(()))
    }

    /// Everything in it, in the order of the stored keys. The whole map comes into memory. For a time to live it is no access.
    ///
    /// # Errors
    /// `Corrupt` from the store.
    pub fn all(&mut self) -> Result<Vec<(M, V)>> {
        // What is in the cache is not in the state yet.
        self.table.values.seal(self.state)?;
        let mut prefix = self.table.values.id()?.prefix().to_vec();
        let start = prefix.len();
        encode_key(self.key, &mut prefix)?;
        let mut cursor = self.state.overlay().scan(KeyRange::prefix(&prefix), Order::Ascending)?;
        let mut all = vec![];
        while let Some((key, value)) = cursor.next()? {
            let (_, of): (K, M) = decode_key(key.get(start..).unwrap_or_default())?;
            let (value, used) = decode_stored_used(value)?;
            if !self.table.is_over(used, self.now) {
                all.push((of, value));
            }
        }
        Ok(all)
    }
}

impl<K, V> fmt::Debug for ListEntry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListEntry").finish_non_exhaustive()
    }
}

impl<K, M, V> fmt::Debug for MapEntry<'_, K, M, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapEntry").finish_non_exhaustive()
    }
}

/// An output of a type that its handle knows, with what takes it.
pub(crate) trait Side: Send {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn len(&self) -> usize;
    fn truncate(&mut self, len: usize);
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()>;
    fn open(&mut self, state: &mut TaskState) -> Result<()>;
    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()>;
    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()>;
}

pub(crate) struct SideBuffer<K, U> {
    records: Vec<Record<(K, U)>>,
    next: Box<dyn Push<(K, U)>>,
}

impl<K: Key, U: Data> SideBuffer<K, U> {
    pub(crate) fn boxed(next: Box<dyn Push<(K, U)>>) -> Box<dyn Side> {
        Box::new(SideBuffer { records: vec![], next })
    }
}

impl<K: Key, U: Data> Side for SideBuffer<K, U> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn len(&self) -> usize {
        self.records.len()
    }

    fn truncate(&mut self, len: usize) {
        self.records.truncate(len);
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Result<()> {
        if self.records.is_empty() { Ok(()) } else { self.next.push(&mut self.records, cx) }
    }

    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.next.open(state)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.next.seal(cx)
    }
}

/// The side outputs of one processor that somebody takes.
#[derive(Default)]
pub(crate) struct Sides(BTreeMap<u32, Box<dyn Side>>);

impl Sides {
    pub(crate) fn add(&mut self, port: u32, side: Box<dyn Side>) {
        self.0.insert(port, side);
    }

    pub(crate) fn push<K: Key, U: Data>(&mut self, port: u32, record: Record<(K, U)>) -> Result<()> {
        // Nobody takes it: as at the end of a stream.
        let Some(side) = self.0.get_mut(&port) else { return Ok(()) };
        match side.as_any_mut().downcast_mut::<SideBuffer<K, U>>() {
            Some(side) => {
                side.records.push(record);
                Ok(())
            }
            None => Err(Error::bug(format!("a side output has two types: number={port}"))),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|side| side.len()).sum()
    }

    /// How long each is, to go back to.
    pub(crate) fn lengths(&self, to: &mut Vec<usize>) {
        to.clear();
        to.extend(self.0.values().map(|side| side.len()));
    }

    pub(crate) fn truncate(&mut self, lengths: &[usize]) {
        self.0.values_mut().zip(lengths).for_each(|(side, len)| side.truncate(*len));
    }

    pub(crate) fn each(&mut self, mut act: impl FnMut(&mut dyn Side) -> Result<()>) -> Result<()> {
        self.0.values_mut().try_for_each(|side| act(&mut **side))
    }
}
