//! A bounded cache of decoded entries, written back when the epoch is sealed.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use onceflow_types::{Error, Result, Timestamp};
use std::hash::{BuildHasher, Hash};

/// How many entries an operator keeps decoded, unless it is told otherwise. Memory is this times the size of an entry, for
/// each operator of each task.
pub const CACHE_ENTRIES_DEFAULT: usize = 32_768;

/// How far the search for a clean entry goes before a changed one is written out early.
const EVICTION_STEPS_MAX: usize = 32;

/// Decoded entries by key. Room is found as a clock does: entries used since the hand last passed are left, clean ones
/// go before changed ones.
pub(super) struct Cache<K, V> {
    hasher: FixedState,
    index: HashTable<u32>,
    slots: Vec<Slot<K, V>>,
    entries_max: usize,
    hand: usize,
    /// Slots that hold nothing and are in no index: what was removed leaves when it is written back.
    free: Vec<u32>,
    /// Slots that were changed, in the order of their first change; a slot written out early may still be listed.
    changed: Vec<u32>,
}

pub(super) struct Slot<K, V> {
    pub(super) key: K,
    /// `None`: known to be absent, or removed.
    pub(super) value: Option<V>,
    /// When it was last used, where that is asked for.
    pub(super) time: Timestamp,
    hash: u64,
    pub(super) dirty: bool,
    used: bool,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Cache {
            // Fixed: the order of nothing visible depends on it, and a run can be repeated exactly.
            hasher: FixedState::with_seed(0x6f6e_6365_666c_6f77),
            index: HashTable::new(),
            slots: Vec::new(),
            entries_max: entries_max.clamp(1, u32::MAX as usize),
            hand: 0,
            free: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// How many entries there is room for.
    pub(super) fn entries_max(&self) -> usize {
        self.entries_max
    }

    #[inline]
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline]
    pub(super) fn find(&mut self, hash: u64, key: &K) -> Option<u32> {
        let slots = &mut self.slots;
        let found = *self.index.find(hash, |slot| slots.get(*slot as usize).is_some_and(|slot| slot.key == *key))?;
        if let Some(slot) = slots.get_mut(found as usize) {
            slot.used = true;
        }
        Some(found)
    }

    /// Adds an entry that is not there, clean. When there is no room, the entry that leaves is handed to `write` first
    /// if it is changed; the second result says whether it had a value.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: K,
        value: Option<V>,
        time: Timestamp,
        write: impl FnOnce(&Slot<K, V>) -> Result<()>,
    ) -> Result<(u32, bool)> {
        let slot = Slot { key, value, time, hash, dirty: false, used: true };
        let (at, left) = if let Some(at) = self.free.pop() {
            *self.slots.get_mut(at as usize).ok_or_else(lost)? = slot;
            (at, false)
        } else if self.slots.len() < self.entries_max {
            self.slots.push(slot);
            // `entries_max` is at most `u32::MAX`.
            (u32::try_from(self.slots.len() - 1).map_err(|_| lost())?, false)
        } else {
            self.replace(slot, write)?
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |slot| slots.get(*slot as usize).map_or(0, |slot| slot.hash));
        Ok((at, left))
    }

    /// Puts a slot in the place of another one; says where, and whether the other one had a value.
    fn replace(&mut self, slot: Slot<K, V>, write: impl FnOnce(&Slot<K, V>) -> Result<()>) -> Result<(u32, bool)> {
        let at = self.choose();
        let place = self.slots.get_mut(at).ok_or_else(lost)?;
        if place.dirty {
            write(place)?;
        }
        let old = std::mem::replace(place, slot);
        let at = u32::try_from(at).map_err(|_| lost())?;
        unlist(&mut self.index, old.hash, at);
        Ok((at, old.value.is_some()))
    }

    fn choose(&mut self) -> usize {
        let mut fallback = None;
        for _ in 0..EVICTION_STEPS_MAX {
            let at = self.advance();
            match self.slots.get_mut(at) {
                Some(slot) if slot.used => slot.used = false,
                Some(slot) if slot.dirty => fallback = fallback.or(Some(at)),
                _ => return at,
            }
        }
        fallback.unwrap_or(self.hand)
    }

    fn advance(&mut self) -> usize {
        let at = self.hand;
        self.hand = if at + 1 < self.slots.len() { at + 1 } else { 0 };
        at
    }

    #[inline]
    pub(super) fn slot(&mut self, at: u32) -> Result<(&mut Slot<K, V>, &mut Vec<u32>)> {
        Ok((self.slots.get_mut(at as usize).ok_or_else(lost)?, &mut self.changed))
    }

    /// Hands every changed entry to `write`, in the order of the first changes, and counts them as clean. Those that were
    /// removed leave.
    pub(super) fn write_back(&mut self, mut write: impl FnMut(&Slot<K, V>) -> Result<()>) -> Result<()> {
        for at in self.changed.drain(..) {
            let slot = self.slots.get_mut(at as usize).ok_or_else(lost)?;
            if slot.dirty {
                write(slot)?;
                slot.dirty = false;
                if slot.value.is_none() {
                    unlist(&mut self.index, slot.hash, at);
                    self.free.push(at);
                }
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// Takes a slot out of the index.
fn unlist(index: &mut HashTable<u32>, hash: u64, at: u32) {
    if let Ok(entry) = index.find_entry(hash, |other| *other == at) {
        entry.remove();
    }
}

#[cold]
fn lost() -> Error {
    Error::bug("cache slot is gone")
}
