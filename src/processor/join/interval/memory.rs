//! Rows in memory, by key.

use super::super::rows::Place;
use super::super::{Side, Sided};
use super::segments::At;
use crate::state::SmallBytes;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use onceflow_types::{Error, Result};
use std::collections::VecDeque;
use std::hash::BuildHasher;

/// How far the search for a key that nobody has used goes.
const EVICTION_STEPS_MAX: usize = 32;
/// How many rows a place for a key may be made for when another one gets it.
const ROOM_KEPT_MAX: usize = 64;

/// A row in memory.
pub(super) struct Row<L, R> {
    pub(super) place: Place,
    /// When it is closed.
    pub(super) close: i64,
    /// Whether it has had a partner, where that is asked for.
    pub(super) matched: bool,
    pub(super) home: Home,
    pub(super) value: Sided<L, R>,
}

/// Where a row that is in memory lies in the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    Segment(At),
    /// In the table of its side, with a timer.
    ByKey,
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

/// The rows of a key on one side, in the order of their places.
pub(super) struct Half<L, R> {
    pub(super) known: Known,
    pub(super) rows: VecDeque<Row<L, R>>,
}

impl<L, R> Half<L, R> {
    pub(super) fn insert(&mut self, row: Row<L, R>) {
        let at = match self.rows.back() {
            Some(last) if last.place > row.place => self.rows.partition_point(|other| other.place < row.place),
            _ => self.rows.len(),
        };
        self.rows.insert(at, row);
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<Row<L, R>> {
        let at = self.rows.binary_search_by_key(&place, |row| row.place).ok()?;
        self.rows.remove(at)
    }
}

/// A key in memory.
pub(super) struct Slot<L, R> {
    pub(super) key: SmallBytes,
    hash: u64,
    is_taken: bool,
    used: bool,
    left: Half<L, R>,
    right: Half<L, R>,
}

impl<L, R> Slot<L, R> {
    pub(super) fn half(&mut self, side: Side) -> &mut Half<L, R> {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    fn rows(&self) -> usize {
        self.left.rows.len() + self.right.rows.len()
    }
}

/// Keys with their rows. Room is found as a clock does: keys that were used since the hand last passed are left.
pub(super) struct Memory<L, R> {
    hasher: FixedState,
    index: HashTable<u32>,
    slots: Vec<Slot<L, R>>,
    free: Vec<u32>,
    hand: usize,
}

impl<L, R> Memory<L, R> {
    pub(super) fn new() -> Self {
        // Fixed: nothing visible depends on it, and a run can be repeated exactly.
        let hasher = FixedState::with_seed(0x6f6e_6365_666c_6f77);
        Memory { hasher, index: HashTable::new(), slots: vec![], free: vec![], hand: 0 }
    }

    pub(super) fn keys(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn find(&mut self, key: &[u8]) -> Option<u32> {
        let (hash, slots) = (self.hasher.hash_one(key), &mut self.slots);
        let found = *self.index.find(hash, |at| slots.get(*at as usize).is_some_and(|slot| *slot.key == *key))?;
        if let Some(slot) = slots.get_mut(found as usize) {
            slot.used = true;
        }
        Some(found)
    }

    /// Makes a place for a key that has none, whose rows nobody has asked for.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<u32> {
        let (hash, key) = (self.hasher.hash_one(key), SmallBytes::from(key));
        let at = match self.free.pop() {
            Some(at) => {
                let slot = self.slots.get_mut(at as usize).ok_or_else(lost)?;
                (slot.key, slot.hash, slot.is_taken, slot.used) = (key, hash, true, true);
                at
            }
            None => {
                let half = || Half { known: Known::Unread, rows: VecDeque::new() };
                self.slots.push(Slot { key, hash, is_taken: true, used: true, left: half(), right: half() });
                u32::try_from(self.slots.len() - 1).map_err(|_| lost())?
            }
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots.get(*at as usize).map_or(0, |slot| slot.hash));
        Ok(at)
    }

    pub(super) fn slot(&mut self, at: u32) -> Result<&mut Slot<L, R>> {
        self.slots.get_mut(at as usize).filter(|slot| slot.is_taken).ok_or_else(lost)
    }

    /// The places of all keys.
    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot<L, R>> {
        self.slots.iter_mut().filter(|slot| slot.is_taken)
    }

    /// Forgets a key without rows in memory.
    pub(super) fn release(&mut self, at: u32) -> Result<()> {
        let slot = self.slot(at)?;
        debug_assert_eq!(slot.rows(), 0, "rows are lost");
        slot.is_taken = false;
        for side in [Side::Left, Side::Right] {
            let half = slot.half(side);
            half.known = Known::Unread;
            half.rows.shrink_to(ROOM_KEPT_MAX);
        }
        let hash = slot.hash;
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
        Ok(())
    }

    /// Forgets a key that has no rows at all.
    pub(super) fn release_empty(&mut self, at: u32) -> Result<()> {
        if self.slot(at)?.rows() == 0 { self.release(at) } else { Ok(()) }
    }

    /// A key that has not been used for long.
    pub(super) fn choose(&mut self) -> Option<u32> {
        let (mut fallback, mut steps) = (None, 0);
        for _ in 0..self.slots.len().saturating_mul(2) {
            let at = self.hand;
            self.hand = if at + 1 < self.slots.len() { at + 1 } else { 0 };
            let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.is_taken) else { continue };
            let at = u32::try_from(at).ok();
            if !std::mem::take(&mut slot.used) {
                return at;
            }
            fallback = fallback.or(at);
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
