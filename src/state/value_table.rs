//! One value per key.

use super::cache::{CACHE_BYTES_MAX, CACHE_ENTRIES_DEFAULT, Cache, Slot};
use super::form::{self, NO_TIME};
use super::{Migration, TableId, TaskState, TimeToLive, part_name};
use crate::codec::{Key, StateValue, decode_key, encode_key};
use onceflow_storage::{KEY_BYTES_MAX, Order, VALUE_BYTES_MAX};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::fmt;

/// Most bytes of a table that are loaded when it is opened; of a larger one, entries are loaded as they are asked for.
const LOAD_BYTES_MAX: usize = CACHE_BYTES_MAX / 8;

/// A table of one value per key, with the entries in use kept decoded: a hot key costs no decoding or encoding per
/// record.
///
/// Changes go to the cache, and from there into the overlay at [`seal`](Self::seal), or earlier when the cache is full.
///
/// | bytes | stored |
/// | --- | --- |
/// | key | table number (`u16`, big-endian), then the key by Postcard |
/// | value | `01`, then the value by Postcard; or `02` and a longer head, where it has a version or a time |
///
/// ```
/// use onceflow::state::{TaskState, ValueTable};
/// use onceflow::storage::{MemoryStore, Overlay};
/// use onceflow::types::Name;
///
/// let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default())))?;
/// let mut totals: ValueTable<String, u64> = ValueTable::new(Name::new("totals")?);
/// totals.open(&mut state)?;
///
/// let card = "card-7".to_owned();
/// totals.entry(&card, &mut state)?.set(100);
/// assert_eq!(totals.entry(&card, &mut state)?.get(), Some(&100));
/// totals.seal(&mut state)?; // now in the overlay
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct ValueTable<K, V> {
    name: Name,
    id: Option<TableId>,
    cache: Cache<K, V>,
    /// How many entries the state has that are not in the cache, where that is known: 0 means that a key which is not in
    /// the cache has no value, and nobody has to look.
    outside: Option<u64>,
    migration: Option<Migration<V>>,
    key_bytes: Vec<u8>,
    value_bytes: Vec<u8>,
}

/// One key's place in a [`ValueTable`], to read and change it.
pub struct Entry<'t, K, V> {
    slot: &'t mut Slot<K, V>,
    at: u32,
    changed: &'t mut Vec<u32>,
    /// Whether the value was changed through this place.
    wrote: bool,
    /// The time of use that a change gives the value.
    stamp: Timestamp,
}

impl<K: Key, V: StateValue> ValueTable<K, V> {
    /// A table that is not bound to a state yet, with room for [`CACHE_ENTRIES_DEFAULT`] decoded entries.
    pub fn new(name: Name) -> Self {
        ValueTable::with_cache(name, CACHE_ENTRIES_DEFAULT)
    }

    /// A table with room for `entries_max` decoded entries, at least one.
    pub fn with_cache(name: Name, entries_max: usize) -> Self {
        ValueTable::with_bounds(name, entries_max, CACHE_BYTES_MAX)
    }

    fn with_bounds(name: Name, entries_max: usize, bytes_max: usize) -> Self {
        ValueTable {
            name,
            id: None,
            cache: Cache::new(entries_max, bytes_max),
            outside: None,
            migration: None,
            key_bytes: vec![],
            value_bytes: vec![],
        }
    }

    /// The same table, for values that may have been written by earlier programs.
    #[must_use]
    pub fn with_migration(self, migration: impl Into<Option<Migration<V>>>) -> Self {
        ValueTable { migration: migration.into(), ..self }
    }

    /// Binds the table to a task's state.
    ///
    /// # Errors
    /// `Invalid` when the state has no room for another table, or an entry is of a newer format or of a version that nobody
    /// knows; `Corrupt` when one cannot be read.
    pub fn open(&mut self, state: &mut TaskState) -> Result<()> {
        let id = state.table(&self.name)?;
        self.bind(id, state)
    }

    /// Binds the table to a part of the state of the operator that has the table's name.
    pub(crate) fn open_part(&mut self, part: &str, state: &mut TaskState) -> Result<()> {
        let id = state.part_of_table(&self.name, part)?;
        self.bind(id, state)
    }

    /// Loads a table that is small, so that all of it is known.
    fn bind(&mut self, id: TableId, state: &TaskState) -> Result<()> {
        self.id = Some(id);
        self.outside = None;
        if !self.is_small(id, state)? {
            return Ok(());
        }
        let mut outside = 0;
        let mut cursor = state.scan(id, Order::Ascending)?;
        while let Some((key, value)) = cursor.next()? {
            let stored_bytes = key.len() + value.len();
            let key = key.get(id.prefix().len()..).unwrap_or_default();
            let key: K = decode_key(key).map_err(|e| e.context(&self.name))?;
            let (value, time) = self.decode(value)?;
            let hash = self.cache.hash(&key);
            outside += self.cache.insert((hash, key), (Some(value), time), stored_bytes, |_| Ok(0))?.1;
        }
        self.outside = Some(outside);
        Ok(())
    }

    /// Looked at first: to decode a part of a large table would be in vain.
    fn is_small(&self, id: TableId, state: &TaskState) -> Result<bool> {
        let (mut entries, mut bytes) = (0, 0);
        let mut cursor = state.scan(id, Order::Ascending)?;
        while let Some((key, value)) = cursor.next()? {
            entries += 1;
            bytes += key.len() + value.len();
            if entries > self.cache.entries_max() || bytes > LOAD_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets others look at its committed values while the task works, which end with `time_to_live`.
    pub(crate) fn show(
        &self,
        part: Option<&str>,
        time_to_live: Option<TimeToLive>,
        state: &mut TaskState,
    ) -> Result<()> {
        let name = part.map_or_else(|| self.name.to_string(), |part| part_name(&self.name, part));
        state.show::<K, V>(&name, self.id()?, time_to_live, self.migration.clone());
        Ok(())
    }

    /// The table's number.
    pub(crate) fn id(&self) -> Result<TableId> {
        bound(self.id, &self.name)
    }

    /// The place of `key`, loaded when it is not in the cache. Only a lookup of a new key allocates, for its copy.
    ///
    /// # Errors
    /// `Record` when the key cannot be a key (longer than the store allows), `Corrupt` when the stored entry cannot be
    /// read, `Bug` before [`open`](Self::open).
    #[inline]
    pub fn entry(&mut self, key: &K, state: &mut TaskState) -> Result<Entry<'_, K, V>> {
        let hash = self.cache.hash(key);
        let at = match self.cache.find(hash, key) {
            Some(at) => at,
            None => self.load(hash, key, state)?,
        };
        let (slot, changed) = self.cache.slot(at)?;
        Ok(Entry { slot, at, changed, wrote: false, stamp: NO_TIME })
    }

    fn decode(&self, stored: &[u8]) -> Result<(V, Timestamp)> {
        form::decode(stored, self.migration.as_ref()).map_err(|e| e.context(&self.name))
    }

    fn load(&mut self, hash: u64, key: &K, state: &mut TaskState) -> Result<u32> {
        let id = bound(self.id, &self.name)?;
        encode_table_key(id, key, &mut self.key_bytes)?;
        let stored = self.outside != Some(0) && state.get(&self.key_bytes, &mut self.value_bytes)?;
        let (value, time) = if stored {
            let (value, time) = self.decode(&self.value_bytes)?;
            (Some(value), time)
        } else {
            (None, NO_TIME)
        };
        let stored_bytes = self.key_bytes.len() + if stored { self.value_bytes.len() } else { 0 };
        let place = Place { name: &self.name, id, version: self.migration.as_ref().map_or(0, Migration::version) };
        let (key_bytes, value_bytes) = (&mut self.key_bytes, &mut self.value_bytes);
        let write = |slot: &Slot<K, V>| write(&place, slot, key_bytes, value_bytes, state);
        let (at, left) = self.cache.insert((hash, key.clone()), (value, time), stored_bytes, write)?;
        // At most all entries of the state leave, and none comes that was not outside.
        self.outside = self.outside.map(|outside| outside + left - u64::from(stored));
        Ok(at)
    }

    /// Writes every change of the open epoch into the overlay. The entries stay in the cache.
    ///
    /// # Errors
    /// `Invalid` when a value cannot be encoded or is longer than the store allows, `Bug` before [`open`](Self::open).
    pub fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        let id = bound(self.id, &self.name)?;
        let place = Place { name: &self.name, id, version: self.migration.as_ref().map_or(0, Migration::version) };
        let (key_bytes, value_bytes) = (&mut self.key_bytes, &mut self.value_bytes);
        self.cache.write_back(|slot| write(&place, slot, key_bytes, value_bytes, state))?;
        let left = self.cache.shed()?;
        self.outside = self.outside.map(|outside| outside + left);
        Ok(())
    }
}

impl<K, V> Entry<'_, K, V> {
    /// The value; `None` when the key has none.
    #[inline]
    pub fn get(&self) -> Option<&V> {
        self.slot.value.as_ref()
    }

    /// The value to change in place; `None` when the key has none.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut V> {
        if self.slot.value.is_some() {
            self.mark();
        }
        self.slot.value.as_mut()
    }

    /// Sets the value.
    #[inline]
    pub fn set(&mut self, value: V) {
        self.mark();
        self.slot.value = Some(value);
    }

    /// Removes the value.
    pub fn remove(&mut self) {
        self.mark();
        (self.slot.value, self.slot.time) = (None, NO_TIME);
    }

    /// The value to change in place; made by `init` when the key has none.
    #[inline]
    pub fn get_or_insert_with(&mut self, init: impl FnOnce() -> V) -> &mut V {
        self.mark();
        self.slot.value.get_or_insert_with(init)
    }

    /// When the value was last used; `None` when nobody asked for it.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        Some(self.slot.time).filter(|time| *time != NO_TIME)
    }

    /// Notes when the value was last used; no effect when there is none.
    pub(crate) fn set_time(&mut self, time: Timestamp) {
        if self.slot.value.is_some() && self.slot.time != time {
            self.slot.time = time;
            self.mark_slot();
        }
    }

    /// Changes of the value through this place are uses at `time`.
    pub(crate) fn set_stamp(&mut self, time: Timestamp) {
        self.stamp = time;
    }

    /// Whether the value was changed since the place was looked up.
    pub(crate) fn wrote(&self) -> bool {
        self.wrote
    }

    /// Removes a value whose time is over: not a change of the program's. Returns it, with its time of last use.
    pub(crate) fn expire(&mut self) -> Option<(V, Timestamp)> {
        self.mark_slot();
        let time = std::mem::replace(&mut self.slot.time, NO_TIME);
        self.slot.value.take().map(|value| (value, time))
    }

    /// Takes [`expire`](Self::expire) back.
    pub(crate) fn put_back(&mut self, expired: Option<(V, Timestamp)>) {
        if let Some((value, time)) = expired {
            (self.slot.value, self.slot.time) = (Some(value), time);
        }
    }

    #[inline]
    fn mark(&mut self) {
        self.wrote = true;
        self.slot.time = self.slot.time.max(self.stamp);
        self.mark_slot();
    }

    #[inline]
    fn mark_slot(&mut self) {
        if !self.slot.dirty {
            self.slot.dirty = true;
            self.changed.push(self.at);
        }
    }
}

fn bound(id: Option<TableId>, name: &Name) -> Result<TableId> {
    id.ok_or_else(|| Error::bug(format!("table is used before it is opened: name={name}")))
}

fn encode_table_key<K: Key>(id: TableId, key: &K, to: &mut Vec<u8>) -> Result<()> {
    to.clear();
    to.extend_from_slice(&id.prefix());
    encode_key(key, to)?;
    if to.len() > KEY_BYTES_MAX {
        return Err(Error::record(format!("key is too long: bytes={} max={KEY_BYTES_MAX}", to.len())));
    }
    Ok(())
}

/// Where and how entries are written.
struct Place<'t> {
    name: &'t Name,
    id: TableId,
    version: u16,
}

/// Says how many bytes were written.
fn write<K: Key, V: StateValue>(
    place: &Place<'_>,
    slot: &Slot<K, V>,
    key_bytes: &mut Vec<u8>,
    value_bytes: &mut Vec<u8>,
    state: &mut TaskState,
) -> Result<usize> {
    encode_table_key(place.id, &slot.key, key_bytes)?;
    let Some(value) = &slot.value else {
        state.delete(key_bytes);
        return Ok(key_bytes.len());
    };
    value_bytes.clear();
    form::encode(value, place.version, slot.time, value_bytes).map_err(|e| e.context(place.name))?;
    if value_bytes.len() > VALUE_BYTES_MAX {
        let (name, bytes) = (place.name, value_bytes.len());
        return Err(Error::invalid(format!(
            "state value is too long: table={name} bytes={bytes} max={VALUE_BYTES_MAX}"
        )));
    }
    state.put(key_bytes, value_bytes);
    Ok(key_bytes.len() + value_bytes.len())
}

impl<K, V> fmt::Debug for ValueTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueTable").field("name", &self.name).field("id", &self.id).finish_non_exhaustive()
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("value", &self.slot.value).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::commit_point;
    use onceflow_storage::{MemoryStore, Overlay};
    use onceflow_types::ErrorKind;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Table = ValueTable<u8, String>;

    fn open(overlay: Overlay, cache: usize) -> (TaskState, Table) {
        open_bounded(overlay, cache, CACHE_BYTES_MAX)
    }

    fn open_bounded(overlay: Overlay, cache: usize, bytes: usize) -> (TaskState, Table) {
        let mut state = TaskState::open(overlay).unwrap();
        let mut table = Table::with_bounds(Name::new("t").unwrap(), cache, bytes);
        table.open(&mut state).unwrap();
        (state, table)
    }

    fn empty(cache: usize) -> (TaskState, Table) {
        open(Overlay::new(Box::new(MemoryStore::default())), cache)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u8, u8),
        Remove(u8),
        Read(u8),
        Commit,
        Abort,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (0u8..12, any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
            2 => (0u8..12).prop_map(Step::Remove),
            4 => (0u8..12).prop_map(Step::Read),
            1 => Just(Step::Commit),
            1 => Just(Step::Abort),
        ];
        vec(step, 0..120)
    }

    proptest! {
        // Aim: a table with a cache of any size shows what a plain map shows, and after a commit the store holds the
        // same. Method: one map for the committed, one for the present values; an abort drops state and table whole.
        #[test]
        fn a_table_equals_a_map_at_every_cache_size(
            steps in steps(), cache in 1usize..14, bytes in prop_oneof![0usize..2_000, Just(CACHE_BYTES_MAX)],
        ) {
            let (mut state, mut table) = open_bounded(Overlay::new(Box::new(MemoryStore::default())), cache, bytes);
            let (mut committed, mut present) = (BTreeMap::new(), BTreeMap::new());
            let mut epoch = 0;
            for step in steps {
                match step {
                    Step::Set(key, value) => {
                        table.entry(&key, &mut state).unwrap().set(value.to_string());
                        present.insert(key, value.to_string());
                    }
                    Step::Remove(key) => {
                        table.entry(&key, &mut state).unwrap().remove();
                        present.remove(&key);
                    }
                    Step::Read(key) => {
                        prop_assert_eq!(table.entry(&key, &mut state).unwrap().get().cloned(), present.get(&key).cloned());
                    }
                    Step::Commit => {
                        epoch += 1;
                        table.seal(&mut state).unwrap();
                        state.overlay_mut().commit(&commit_point(epoch)).unwrap();
                        committed = present.clone();
                        let stored = stored(&state, &table);
                        prop_assert_eq!(&stored, &committed);
                    }
                    Step::Abort => {
                        state.overlay_mut().discard();
                        (state, table) = open_bounded(state.into_overlay(), cache, bytes);
                        present = committed.clone();
                    }
                }
                prop_assert!(table.cache.is_within_bounds());
            }
            for key in 0..12 {
                prop_assert_eq!(table.entry(&key, &mut state).unwrap().get().cloned(), present.get(&key).cloned());
            }
        }
    }

    fn stored(state: &TaskState, table: &Table) -> BTreeMap<u8, String> {
        let mut cursor = state.scan(table.id.unwrap(), Order::Ascending).unwrap();
        let mut entries = BTreeMap::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            entries.insert(key[2], form::decode(value, None).unwrap().0);
        }
        entries
    }

    #[test]
    fn changes_reach_the_overlay_at_the_seal_and_not_before() {
        let (mut state, mut table) = empty(8);
        let changes = state.overlay().delta().len();
        table.entry(&1, &mut state).unwrap().set("a".into());
        assert_eq!(state.overlay().delta().len(), changes);
        table.seal(&mut state).unwrap();
        assert_eq!(state.overlay().delta().len(), changes + 1);
        // A read changes nothing, and what was written is not written again.
        state.overlay_mut().commit(&commit_point(1)).unwrap();
        table.entry(&1, &mut state).unwrap();
        table.entry(&2, &mut state).unwrap();
        table.seal(&mut state).unwrap();
        assert!(state.overlay().delta().is_empty());
    }

    #[test]
    fn clean_entries_leave_before_changed_ones() {
        let (mut state, mut table) = empty(4);
        table.entry(&0, &mut state).unwrap().set("kept".into());
        let changes = state.overlay().delta().len();
        for key in 1..50 {
            table.entry(&key, &mut state).unwrap();
        }
        assert_eq!(state.overlay().delta().len(), changes, "nothing was written early");
        for key in 50..60 {
            table.entry(&key, &mut state).unwrap().set("many".into());
        }
        assert!(state.overlay().delta().len() > changes, "there was no room for all changes");
    }

    #[test]
    fn state_of_a_newer_format_or_damaged_state_is_a_typed_error() {
        for (bytes, kind) in
            [(&[][..], ErrorKind::Corrupt), (&[9, 0], ErrorKind::Invalid), (&[1, 5], ErrorKind::Corrupt)]
        {
            let (mut state, mut table) = empty(1);
            table.entry(&1, &mut state).unwrap().set("good".into());
            table.seal(&mut state).unwrap();
            let key = [&table.id.unwrap().prefix()[..], &[7]].concat();
            state.put(&key, bytes);
            let open = |cache| Table::with_cache(Name::new("t").unwrap(), cache);
            let error = open(4).open(&mut state).unwrap_err();
            assert_eq!(error.kind(), kind, "a small table is read at once: {bytes:?}");
            let mut large = open(1);
            large.open(&mut state).unwrap();
            assert_eq!(large.entry(&1, &mut state).unwrap().get().map(String::as_str), Some("good"));
            assert_eq!(large.entry(&7, &mut state).unwrap_err().kind(), kind, "{bytes:?}");
        }
    }

    // Aim: a key that cannot have a value costs no look into the store. Method: one is put there behind the table's back.
    #[test]
    fn nobody_looks_for_what_cannot_be_there() {
        let (mut state, mut table) = empty(4);
        let is_seen = |table: &mut Table, state: &mut TaskState, key: u8| {
            state.put(&[&table.id.unwrap().prefix()[..], &[key]].concat(), &[1, 1, b'x']);
            table.entry(&key, state).unwrap().get().is_some()
        };
        assert!((0..20).all(|key| !is_seen(&mut table, &mut state, key)), "what is absent leaves unnoticed");
        for key in 20..25 {
            table.entry(&key, &mut state).unwrap().set("a".into());
        }
        assert!(is_seen(&mut table, &mut state, 30), "one of them had to leave, so anything may be outside");
    }

    #[test]
    fn a_key_beyond_the_stores_limit_is_a_record_error() {
        let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap();
        let mut table: ValueTable<String, u8> = ValueTable::new(Name::new("t").unwrap());
        assert_eq!(table.entry(&"k".into(), &mut state).unwrap_err().kind(), ErrorKind::Bug);
        table.open(&mut state).unwrap();
        let long = "k".repeat(KEY_BYTES_MAX);
        assert_eq!(table.entry(&long, &mut state).unwrap_err().kind(), ErrorKind::Record);
    }
}
