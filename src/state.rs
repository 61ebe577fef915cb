//! The state of one task: named tables over one overlay.
//!
//! Every key in the store begins with its table's number, 2 bytes, big-endian; the rest is the table's own key. Table 0
//! is the [catalog](catalog), which says what number each name has.

mod aging;
mod cache;
mod catalog;
mod form;
mod migration;
mod shown;
mod small_bytes;
mod timers;
mod value_table;

use crate::time::Times;
use catalog::Catalog;
use onceflow_storage::{Cursor, KeyRange, Order, Overlay, ReadStore};
use onceflow_types::{Name, Result, Timestamp};
use std::fmt;

pub(crate) use aging::Aging;
pub use aging::TimeToLive;
pub use cache::{CACHE_BYTES_MAX, CACHE_ENTRIES_DEFAULT};
pub(crate) use form::{decode_stored, decode_stored_used, encode_stored};
pub use migration::Migration;
pub(crate) use shown::{Found, Types};
pub(crate) use small_bytes::SmallBytes;
pub(crate) use timers::{Due, TimerKind, Timers, decode_time, encode_time};
pub use value_table::{Entry, ValueTable};

/// Stands between an operator's name and a part of its state.
const PART: char = '#';

/// The name of a part of an operator's state; no operator can have it.
fn part_name(operator: &Name, part: &str) -> String {
    format!("{operator}{PART}{part}")
}

/// The operator that a table, or a part of one, belongs to.
pub(crate) fn operator_of(table: &str) -> &str {
    table.split(PART).next().unwrap_or(table)
}

/// The number of a table in a task's state. Given once, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TableId(u16);

/// The state of one task: an [`Overlay`] and the catalog of its tables.
///
/// ```
/// use onceflow::state::TaskState;
/// use onceflow::storage::{MemoryStore, Overlay};
/// use onceflow::types::Name;
///
/// let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default())))?;
/// let totals = state.table(&Name::new("totals")?)?;
/// assert_eq!(state.table(&Name::new("totals")?)?, totals, "the same name, the same table");
/// assert_eq!(state.tables_unknown_to(&[]), ["totals"]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct TaskState {
    overlay: Overlay,
    catalog: Catalog,
    times: Times,
    shown: shown::ShownTables,
}

impl TaskState {
    /// Reads the catalog of the state below `overlay`. After [`Overlay::discard`] the state is opened again, as the
    /// catalog may hold tables that were discarded.
    ///
    /// # Errors
    /// `Corrupt` when the catalog cannot be read, `Invalid` when its format is newer.
    pub fn open(overlay: Overlay) -> Result<TaskState> {
        let catalog = Catalog::read(&overlay)?;
        Ok(TaskState { overlay, catalog, times: Times::default(), shown: shown::ShownTables::default() })
    }

    /// Sets how far each source has come, in order, before a stage is opened.
    pub(crate) fn restore_times(&mut self, watermarks: Vec<Timestamp>) {
        self.times = Times::restored(watermarks);
    }

    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    pub(crate) fn times_mut(&mut self) -> &mut Times {
        &mut self.times
    }

    /// The number of a table; a new name gets the next one, which becomes part of the open epoch.
    ///
    /// # Errors
    /// `Invalid` when all numbers are given.
    pub fn table(&mut self, name: &Name) -> Result<TableId> {
        self.catalog.table(name.as_str(), &mut self.overlay)
    }

    /// The number of another table of the operator `name`.
    pub(crate) fn part_of_table(&mut self, name: &Name, part: &str) -> Result<TableId> {
        self.catalog.table(&part_name(name, part), &mut self.overlay)
    }

    /// The names of all tables in this state.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.catalog.names()
    }

    /// The tables in this state that `known` does not name: a topology that dropped an operator must not forget its
    /// state unasked.
    pub fn tables_unknown_to(&self, known: &[Name]) -> Vec<String> {
        let is_known = |table: &&str| known.iter().any(|name| name.as_str() == *table);
        let owners = self.tables().map(operator_of);
        let mut unknown: Vec<String> = owners.filter(|table| !is_known(table)).map(str::to_owned).collect();
        unknown.dedup();
        unknown
    }

    /// The changes and the store below.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The changes and the store below, to seal and commit them.
    pub fn overlay_mut(&mut self) -> &mut Overlay {
        &mut self.overlay
    }

    /// Gives the overlay back.
    pub fn into_overlay(self) -> Overlay {
        self.overlay
    }

    pub(crate) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.overlay.get(key, value)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.overlay.put(key, value);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.overlay.delete(key);
    }

    /// Visits the raw entries of a table in order of their keys; each key still begins with the table's number.
    /// Changes that sit in an operator's cache are not seen before the epoch is sealed.
    ///
    /// # Errors
    /// `Corrupt` when the scan cannot start.
    pub fn scan(&self, table: TableId, order: Order) -> Result<Box<dyn Cursor + '_>> {
        self.overlay.scan(KeyRange::prefix(&table.prefix()), order)
    }
}

impl TableId {
    #[cfg(test)]
    pub(crate) const fn of(number: u16) -> TableId {
        TableId(number)
    }

    /// The first two bytes of every key of the table.
    pub const fn prefix(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskState")
            .field("tables", &self.catalog)
            .field("overlay", &self.overlay)
            .finish_non_exhaustive()
    }
}
