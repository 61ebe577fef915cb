//! A bounded cache of decoded entries, written back when the epoch is sealed.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use onceflow_types::{Error, Result, Timestamp};
use std::hash::{BuildHasher, Hash};

/// How many entries an operator keeps decoded, unless it is told otherwise; fewer where they are large, see
/// [`CACHE_BYTES_MAX`].
pub const CACHE_ENTRIES_DEFAULT: usize = 262_144;
/// Most bytes of the entries that a table keeps decoded, for each operator of each task. An entry counts what it takes in the
/// cache, and its bytes as they were last written or read, which stand for what it holds elsewhere in memory. One entry stays,
/// however large it is.
pub const CACHE_BYTES_MAX: usize = 32 << 20;

/// How far the search for a clean entry goes before a changed one is written out early.
const EVICTION_STEPS_MAX: usize = 32;

/// Decoded entries by key. Room is found as a clock does: entries used since the hand last passed are left, clean ones
/// go before changed ones.
pub(super) struct Cache<K, V> {
    hasher: FixedState,
    index: HashTable<u32>,
    slots: Vec<Slot<K, V>>,
    entries_max: usize,
    bytes_max: usize,
    /// Of all entries, as far as known.
    bytes: usize,
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
    /// Its bytes as they were last written or read.
    stored_bytes: u32,
    pub(super) dirty: bool,
    used: bool,
    is_free: bool,
}

impl<K, V> Slot<K, V> {
    /// What it counts.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.stored_bytes as usize
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Cache {
            // Fixed: the order of nothing visible depends on it, and a run can be repeated exactly.
            hasher: FixedState::with_seed(0x6f6e_6365_666c_6f77),
            index: HashTable::new(),
            slots: Vec::new(),
            entries_max: entries_max.clamp(1, u32::MAX as usize),
            bytes_max,
            bytes: 0,
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

    /// Adds an entry that is not there, clean, as it is stored in so many bytes. When there is no room, the entries that leave
    /// are handed to `write` first if they are changed; the second result says how many of them had a value.
    pub(super) fn insert(
        &mut self,
        (hash, key): (u64, K),
        (value, time): (Option<V>, Timestamp),
        stored_bytes: usize,
        mut write: impl FnMut(&Slot<K, V>) -> Result<usize>,
    ) -> Result<(u32, u64)> {
        let mut left = 0;
        while self.is_full(stored_bytes) {
            left += u64::from(self.evict(&mut write)?);
        }
        let stored_bytes = u32::try_from(stored_bytes).unwrap_or(u32::MAX);
        let slot = Slot { key, value, time, hash, stored_bytes, dirty: false, used: true, is_free: false };
        self.bytes += slot.bytes();
        let at = if let Some(at) = self.free.pop() {
            *self.slots.get_mut(at as usize).ok_or_else(lost)? = slot;
            at
        } else {
            self.slots.push(slot);
            // `entries_max` is at most `u32::MAX`.
            u32::try_from(self.slots.len() - 1).map_err(|_| lost())?
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |slot| slots.get(*slot as usize).map_or(0, |slot| slot.hash));
        Ok((at, left))
    }

    /// Whether an entry has to leave before one that is stored in so many bytes has room.
    #[inline]
    fn is_full(&self, stored_bytes: usize) -> bool {
        let entries = self.slots.len() - self.free.len();
        let bytes = self.bytes + stored_bytes + size_of::<Slot<K, V>>();
        entries > 0 && (entries >= self.entries_max || bytes > self.bytes_max)
    }

    /// Takes an entry out; says whether it had a value.
    fn evict(&mut self, write: &mut impl FnMut(&Slot<K, V>) -> Result<usize>) -> Result<bool> {
        let at = self.choose();
        let slot = self.slots.get_mut(at).ok_or_else(lost)?;
        if slot.dirty {
            write(slot)?;
            slot.dirty = false;
        }
        let had_value = slot.value.take().is_some();
        self.release(u32::try_from(at).map_err(|_| lost())?)?;
        Ok(had_value)
    }

    /// A slot holds nothing any more.
    fn release(&mut self, at: u32) -> Result<()> {
        let slot = self.slots.get_mut(at as usize).ok_or_else(lost)?;
        slot.is_free = true;
        self.bytes = self.bytes.saturating_sub(slot.bytes());
        unlist(&mut self.index, slot.hash, at);
        self.free.push(at);
        Ok(())
    }

    /// The entry that is to leave; there is one at least.
    fn choose(&mut self) -> usize {
        let (mut steps, mut changed) = (0, None);
        loop {
            let at = self.advance();
            let Some(slot) = self.slots.get_mut(at) else { return at };
            if slot.is_free {
                continue;
            }
            steps += 1;
            match (slot.used, slot.dirty) {
                (true, _) => slot.used = false,
                (false, true) => changed = changed.or(Some(at)),
                (false, false) => return at,
            }
            if steps >= EVICTION_STEPS_MAX {
                return changed.unwrap_or(at);
            }
        }
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

    /// Hands every changed entry to `write`, which says in how many bytes it is stored now, in the order of the first changes,
    /// and counts them as clean. Those that were removed leave.
    pub(super) fn write_back(&mut self, mut write: impl FnMut(&Slot<K, V>) -> Result<usize>) -> Result<()> {
        let mut changed = std::mem::take(&mut self.changed);
        for at in changed.drain(..) {
            let slot = self.slots.get_mut(at as usize).ok_or_else(lost)?;
            if !slot.dirty {
                continue;
            }
            let before = slot.bytes();
            slot.stored_bytes = u32::try_from(write(slot)?).unwrap_or(u32::MAX);
            slot.dirty = false;
            self.bytes = self.bytes.saturating_sub(before) + slot.bytes();
            if slot.value.is_none() {
                self.release(at)?;
            }
        }
        self.changed = changed;
        Ok(())
    }

    /// Lets clean entries go while there are more bytes than there may be, as values have grown; says how many of them had a
    /// value. For right after a [`write_back`](Self::write_back).
    pub(super) fn shed(&mut self) -> Result<u64> {
        let mut left = 0;
        while self.is_over() {
            left += u64::from(self.evict(&mut |_| Err(lost()))?);
        }
        Ok(left)
    }

    fn is_over(&self) -> bool {
        self.bytes > self.bytes_max && self.slots.len() - self.free.len() > 1
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[cfg(test)]
    pub(super) fn is_within_bounds(&self) -> bool {
        self.len() <= self.entries_max && !self.is_over()
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
