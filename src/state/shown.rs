//! State that others may look at while its task works: committed values, by the name of the operator.

use super::{Migration, TableId, TaskState, TimeToLive, TimerKind, form};
use crate::codec::{Key, StateValue, encode_state_value};
use onceflow_storage::{KeyRange, Order};
use onceflow_types::{Error, Result, Timestamp};
use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;

/// The tables of a task's state that may be looked at, by name.
#[derive(Default, Debug)]
pub(super) struct ShownTables(BTreeMap<Box<str>, Shown>);

/// A table of one value per key.
struct Shown {
    id: TableId,
    types: Types,
    time_to_live: Option<TimeToLive>,
    /// Takes a value out of its stored form: its bytes by Postcard, and when it was used last.
    read: Box<Read>,
}

type Read = dyn Fn(&[u8]) -> Result<(Vec<u8>, Timestamp)> + Send;

/// The types of a table's keys and values, by name: in one program equal names are equal types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Types {
    key: &'static str,
    value: &'static str,
}

impl Types {
    pub(crate) fn of<K, V>() -> Self {
        Types { key: type_name::<K>(), value: type_name::<V>() }
    }
}

/// What a look found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The value by Postcard.
    Value(Vec<u8>),
    Nothing,
}

impl TaskState {
    /// Lets others look at a table of one value per key, whose values end with `time_to_live`.
    pub(crate) fn show<K: Key, V: StateValue>(
        &mut self,
        name: &str,
        id: TableId,
        time_to_live: Option<TimeToLive>,
        migration: Option<Migration<V>>,
    ) {
        let read = Box::new(move |stored: &[u8]| {
            let (value, used) = form::decode(stored, migration.as_ref())?;
            let mut bytes = vec![];
            encode_state_value::<V>(&value, &mut bytes)?;
            Ok((bytes, used))
        });
        self.shown.0.insert(name.into(), Shown { id, types: Types::of::<K, V>(), time_to_live, read });
    }

    /// The value of a key as of the last committed epoch; `now` is processing time. What is too old by now is not there.
    ///
    /// # Errors
    /// `Invalid` when there is no such table, or one of other types; `Corrupt` when the value cannot be read.
    pub(crate) fn look(&self, table: &str, types: Types, key: &[u8], now: Timestamp) -> Result<Found> {
        let shown = self.shown(table, types)?;
        let (mut place, mut stored) = (shown.id.prefix().to_vec(), vec![]);
        place.extend_from_slice(key);
        if !self.overlay.base().get(&place, &mut stored)? {
            return Ok(Found::Nothing);
        }
        Ok(shown.alive(&stored, now)?.map_or(Found::Nothing, Found::Value))
    }

    /// All keys and values of a table, as [`look`](Self::look) finds them, in the order of the keys' bytes.
    pub(crate) fn look_at_all(&self, table: &str, types: Types, now: Timestamp) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let shown = self.shown(table, types)?;
        let prefix = shown.id.prefix();
        let mut entries = self.overlay.base().scan(KeyRange::prefix(&prefix), Order::Ascending)?;
        let mut found = vec![];
        while let Some((key, stored)) = entries.next()? {
            if let Some(value) = shown.alive(stored, now)? {
                found.push((key.get(prefix.len()..).unwrap_or_default().to_vec(), value));
            }
        }
        Ok(found)
    }

    fn shown(&self, table: &str, types: Types) -> Result<&Shown> {
        let shown = self.shown.0.get(table).ok_or_else(|| {
            let known: Vec<&str> = self.shown.0.keys().map(|name| &**name).collect();
            Error::invalid(format!("no table with one value per key has this name: name={table} known={known:?}"))
        })?;
        if shown.types != types {
            let has = shown.types;
            return Err(Error::invalid(format!("table has other types: name={table} has={has:?} wanted={types:?}")));
        }
        Ok(shown)
    }
}

impl Shown {
    fn alive(&self, stored: &[u8], now: Timestamp) -> Result<Option<Vec<u8>>> {
        let (value, used) = (self.read)(stored)?;
        Ok((!self.is_over(used, now)).then_some(value))
    }

    /// Event time is that of the committed epoch, whose timers have removed what was over by then; processing time goes on.
    fn is_over(&self, used: Timestamp, now: Timestamp) -> bool {
        let by_clock = self.time_to_live.filter(|time_to_live| time_to_live.kind() == TimerKind::Processing);
        used != form::NO_TIME && by_clock.is_some_and(|time_to_live| time_to_live.is_over(used, now))
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("id", &self.id).field("types", &self.types).finish_non_exhaustive()
    }
}
