//! Rows in memory, by key.

use super::super::rows::{Moment, Place};
use super::super::{Side, Sided};
use super::numbers::Numbers;
use super::segments::At;
use super::slab::Slab;
use crate::state::SmallBytes;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use onceflow_types::{Error, Result};
use std::hash::BuildHasher;

/// How far the search for a key that nobody has used goes.
const EVICTION_STEPS_MAX: usize = 32;

/// A row in memory.
pub(super) struct Row<L, R> {
    pub(super) place: Place,
    /// When it is closed.
    pub(super) close: i64,
    pub(super) home: Home,
    /// Its key's place in memory.
    pub(super) slot: u32,
    /// Whether it has had a partner, where that is asked for.
    pub(super) matched: bool,
    pub(super) value: Sided<L, R>,
}

impl<L, R> Row<L, R> {
    pub(super) fn moment(&self) -> Moment {
        Moment { close: self.close, side: self.value.side(), place: self.place }
    }
}

/// Where a row that is in memory lies in the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// The parts of an [`At`], which would take more room as a whole.
    Segment { segment: u64, row: u32 },
    /// In the table of its side, with a timer.
    ByKey,
}

impl Home {
    pub(super) fn segment(At { segment, row }: At) -> Home {
        Home::Segment { segment, row }
    }

    pub(super) fn at(self) -> Option<At> {
        match self {
            Home::Segment { segment, row } => Some(At { segment, row }),
            Home::ByKey => None,
        }
    }
}

/// What is known of the rows of a key on one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// All of them are in memory.
    Whole,
    /// All of them lie in the state by key, and nobody has asked for them.
    Unread,
    /// The same, and they are too many for memory.
    Large,
}

/// The rows of a key on one side.
pub(super) struct Half {
    /// Their numbers, in the order of their places.
    pub(super) rows: Numbers,
    pub(super) known: Known,
}

impl Half {
    const EMPTY: Half = Half { rows: Numbers::EMPTY, known: Known::Unread };
}

/// A key in memory.
pub(super) struct Slot {
    pub(super) key: SmallBytes,
    left: Half,
    right: Half,
    used: bool,
}

impl Slot {
    pub(super) fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    fn is_empty(&self) -> bool {
        self.left.rows.len() + self.right.rows.len() == 0
    }
}

/// Keys with their rows. Room is found as a clock does: keys that were used since the hand last passed are left.
///
/// Rows lie side by side under numbers, not with their keys: keys come in no order and have few rows each, so that what is
/// touched for a record should be little and lie close together.
pub(super) struct Memory<L, R> {
    pub(super) rows: Slab<Row<L, R>>,
    hasher: FixedState,
    index: HashTable<u32>,
    slots: Slab<Slot>,
    hand: u32,
}

impl<L, R> Memory<L, R> {
    pub(super) fn new() -> Self {
        // Fixed: nothing visible depends on it, and a run can be repeated exactly.
        let hasher = FixedState::with_seed(0x6f6e_6365_666c_6f77);
        Memory { rows: Slab::new(), hasher, index: HashTable::new(), slots: Slab::new(), hand: 0 }
    }

    pub(super) fn keys(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn find(&mut self, key: &[u8]) -> Option<u32> {
        let (hash, slots) = (self.hasher.hash_one(key), &mut self.slots);
        let found = *self.index.find(hash, |at| slots.get(*at).is_some_and(|slot| *slot.key == *key))?;
        if let Some(slot) = slots.get_mut(found) {
            slot.used = true;
        }
        Some(found)
    }

    /// Makes a place for a key that has none, whose rows nobody has asked for.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<u32> {
        let hash = self.hasher.hash_one(key);
        let slot = Slot { key: SmallBytes::from(key), left: Half::EMPTY, right: Half::EMPTY, used: true };
        let at = self.slots.insert(slot)?;
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(hash, at, |at| slots.get(*at).map_or(0, |slot| hasher.hash_one(&*slot.key)));
        Ok(at)
    }

    pub(super) fn slot(&mut self, at: u32) -> Result<&mut Slot> {
        self.slots.get_mut(at).ok_or_else(lost)
    }

    pub(super) fn half(&mut self, at: u32, side: Side) -> Result<&mut Half> {
        Ok(self.slot(at)?.half(side))
    }

    /// What is known of a key's rows of one side, and all rows.
    pub(super) fn half_and_rows(&mut self, at: u32, side: Side) -> Result<(&mut Half, &mut Slab<Row<L, R>>)> {
        let slot = self.slots.get_mut(at).ok_or_else(lost)?;
        Ok((slot.half(side), &mut self.rows))
    }

    /// The places of all keys, and the rows.
    pub(super) fn all(&mut self) -> (impl Iterator<Item = &mut Slot>, &mut Slab<Row<L, R>>) {
        (self.slots.iter_mut(), &mut self.rows)
    }

    /// The places of keys.
    pub(super) fn taken(&self) -> Vec<u32> {
        self.slots.numbers().collect()
    }

    /// Adds a row to its key; returns its number.
    pub(super) fn add(&mut self, row: Row<L, R>) -> Result<u32> {
        let (side, place, slot) = (row.value.side(), row.place, row.slot);
        let number = self.rows.insert(row)?;
        let half = self.slots.get_mut(slot).ok_or_else(lost)?.half(side);
        let is_before = |number: u32| self.rows.get(number).is_some_and(|row| row.place < place);
        let numbers = half.rows.as_slice();
        let at = match numbers.last() {
            Some(last) if !is_before(*last) => numbers.partition_point(|number| is_before(*number)),
            _ => numbers.len(),
        };
        half.rows.insert(at, number);
        Ok(number)
    }

    /// The number of a key's row.
    pub(super) fn row(&mut self, at: u32, side: Side, place: Place) -> Result<Option<u32>> {
        let slot = self.slots.get_mut(at).ok_or_else(lost)?;
        let (numbers, rows) = (slot.half(side).rows.as_slice(), &self.rows);
        let found = numbers.partition_point(|number| rows.get(*number).is_some_and(|row| row.place < place));
        let found = numbers.get(found).copied();
        Ok(found.filter(|number| rows.get(*number).is_some_and(|row| row.place == place)))
    }

    /// Takes a row out.
    pub(super) fn take(&mut self, number: u32) -> Result<Row<L, R>> {
        let row = self.rows.take(number).ok_or_else(lost)?;
        let is_known = self.half(row.slot, row.value.side())?.rows.remove(number);
        if is_known { Ok(row) } else { Err(lost()) }
    }

    /// Forgets a key without rows in memory.
    pub(super) fn release(&mut self, at: u32) -> Result<()> {
        let slot = self.slots.take(at).ok_or_else(lost)?;
        debug_assert!(slot.is_empty(), "rows are lost");
        let hash = self.hasher.hash_one(&*slot.key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        Ok(())
    }

    /// Forgets a key that has no rows at all.
    pub(super) fn release_empty(&mut self, at: u32) -> Result<()> {
        if self.slot(at)?.is_empty() { self.release(at) } else { Ok(()) }
    }

    /// A key that has not been used for long.
    pub(super) fn choose(&mut self) -> Option<u32> {
        let (mut fallback, mut steps) = (None, 0);
        let numbers = self.slots.numbers_end();
        for _ in 0..u64::from(numbers) * 2 {
            let at = self.hand;
            self.hand = if at + 1 < numbers { at + 1 } else { 0 };
            let Some(slot) = self.slots.get_mut(at) else { continue };
            if !std::mem::take(&mut slot.used) {
                return Some(at);
            }
            fallback = fallback.or(Some(at));
            steps += 1;
            if steps == EVICTION_STEPS_MAX {
                break;
            }
        }
        fallback
    }
}

#[cold]
fn lost() -> Error {
    Error::bug("a key of a join is gone")
}
