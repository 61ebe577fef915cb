//! The changes of one epoch.

use crate::KeyRange;
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{Error, Result};
use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::Bound;

/// Longest key, in bytes. One below the limit of fjall (65,535), as the disk backends put one byte before each key.
pub const KEY_BYTES_MAX: usize = 65_534;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Version of the encoding.
pub const DELTA_VERSION: u8 = 1;

/// What one entry costs beside its key and value, in bytes: what [`Delta::bytes`] counts for it.
const ENTRY_BYTES: usize = 80;
/// Keys up to this length live inside the tree; longer ones are allocated one by one.
const KEY_INLINE_BYTES: usize = 30;
/// The shortest encoded change: a flag and an empty key.
const CHANGE_BYTES_MIN: usize = 2;
const FLAG_DELETE: u8 = 0;
const FLAG_PUT: u8 = 1;

/// The changes of one epoch: an ordered set of puts and deletes in which the last change of a key wins.
///
/// Values lie one behind the other in one buffer, and a value that fits into the place of its predecessor overwrites
/// it; keys up to 30 bytes lie inside the tree. So a put allocates only when the tree or the buffer grows, or for a
/// long key that is new.
///
/// # Format
/// ```text
/// version  u8     1
/// changes  count
/// each:    flag   u8     0 = delete, 1 = put
///          key    bytes  at most KEY_BYTES_MAX, strictly above the one before
///          value  bytes  puts only, at most VALUE_BYTES_MAX
/// ```
///
/// ```
/// use onceflow_storage::Delta;
///
/// let mut delta = Delta::default();
/// delta.put(b"card-7", b"100");
/// delta.put(b"card-7", b"250");
/// delta.delete(b"card-9");
/// assert_eq!(delta.get(b"card-7"), Some(Some(&b"250"[..])));
/// assert_eq!(delta.get(b"card-9"), Some(None), "known to be deleted");
/// assert_eq!(delta.get(b"card-1"), None, "not changed here");
///
/// let mut bytes = Vec::new();
/// delta.encode(&mut bytes);
/// assert_eq!(Delta::decode(&bytes)?, delta);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Delta {
    entries: BTreeMap<Key, Slot>,
    values: Vec<u8>,
    key_bytes: usize,
    // The longest ever put; cleared with the delta. So the check of the caps is one comparison.
    key_longest: usize,
    value_longest: usize,
}

/// Where a value lies in the buffer. A deleted key keeps its place there.
#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    len: usize,
    room: usize,
    present: bool,
}

impl Delta {
    /// Sets the value of a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.key_longest = self.key_longest.max(key.len());
        self.value_longest = self.value_longest.max(value.len());
        if let Some(slot) = self.entries.get_mut(key) {
            match self.values.get_mut(slot.start..slot.start + slot.room).and_then(|room| room.get_mut(..value.len())) {
                Some(place) => {
                    place.copy_from_slice(value);
                    slot.len = value.len();
                    slot.present = true;
                }
                None => *slot = append(&mut self.values, value),
            }
            return;
        }
        let slot = append(&mut self.values, value);
        self.insert(key, slot);
    }

    /// Deletes a key. Kept even when the key is not known here, as the store below may hold it.
    pub fn delete(&mut self, key: &[u8]) {
        self.key_longest = self.key_longest.max(key.len());
        match self.entries.get_mut(key) {
            Some(slot) => slot.present = false,
            None => self.insert(key, Slot { start: self.values.len(), len: 0, room: 0, present: false }),
        }
    }

    fn insert(&mut self, key: &[u8], slot: Slot) {
        self.key_bytes += key.len();
        self.entries.insert(Key::new(key), slot);
    }

    /// What this delta says about a key: `None` nothing, `Some(None)` deleted, `Some(Some(value))` put.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.entries.get(key).map(|slot| self.value(*slot))
    }

    fn value(&self, slot: Slot) -> Option<&[u8]> {
        // The slot was made by `append` on this buffer, which only `clear` shortens, together with the entries.
        slot.present.then(|| self.values.get(slot.start..slot.start + slot.len).unwrap_or_default())
    }

    /// All changes in ascending order of the keys: key and new value, `None` for a deletion.
    pub fn iter(&self) -> Changes<'_> {
        self.range(&KeyRange::all())
    }

    /// The changes within `range`; descending by [`rev`](Iterator::rev).
    ///
    /// ```
    /// use onceflow_storage::{Delta, KeyRange};
    ///
    /// let mut delta = Delta::default();
    /// delta.put(b"a-1", b"1");
    /// delta.put(b"b-1", b"2");
    /// let keys: Vec<_> = delta.range(&KeyRange::prefix(b"a")).map(|(key, _)| key).collect();
    /// assert_eq!(keys, [b"a-1"]);
    /// ```
    pub fn range(&self, range: &KeyRange<'_>) -> Changes<'_> {
        // A tree panics on a range whose end lies before its start: ask for one that is empty instead.
        let bounds = if range.is_empty() {
            (Bound::Included(&[][..]), Bound::Excluded(&[][..]))
        } else {
            (range.start, range.end.as_ref().map(Vec::as_slice))
        };
        Changes { delta: self, entries: self.entries.range::<[u8], _>(bounds) }
    }

    /// How many keys are changed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// About how much memory the delta takes, in bytes, places of overwritten values included. At least the length of
    /// its encoding, so a bound on this bounds the body of an epoch, too.
    pub fn bytes(&self) -> usize {
        self.values.len() + self.key_bytes + self.entries.len() * ENTRY_BYTES
    }

    /// Forgets all changes; the buffer stays allocated for the next epoch.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.values.clear();
        (self.key_bytes, self.key_longest, self.value_longest) = (0, 0, 0);
    }

    /// Adds the changes of a later epoch: where both change a key, `later` wins.
    pub fn merge(&mut self, later: Delta) {
        if self.is_empty() {
            *self = later;
            return;
        }
        for (key, value) in &later {
            match value {
                Some(value) => self.put(key, value),
                None => self.delete(key),
            }
        }
    }

    /// Checks the caps on keys and values. Stores call it before they change anything.
    ///
    /// # Errors
    /// `Invalid` when a key or value that was put is longer than [`KEY_BYTES_MAX`] or [`VALUE_BYTES_MAX`].
    pub fn check(&self) -> Result<()> {
        if self.key_longest > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "state key is too long: bytes={} max={KEY_BYTES_MAX}",
                self.key_longest
            )));
        }
        if self.value_longest > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "state value is too long, split it over several keys: bytes={} max={VALUE_BYTES_MAX}",
                self.value_longest
            )));
        }
        Ok(())
    }

    /// Appends the delta in the format above.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.reserve(self.values.len() + self.key_bytes + self.len() * 4 + 8);
        to.put_u8(DELTA_VERSION);
        to.put_count(self.len() as u64);
        for (key, value) in self {
            to.put_u8(if value.is_some() { FLAG_PUT } else { FLAG_DELETE });
            to.put_bytes(key);
            if let Some(value) = value {
                to.put_bytes(value);
            }
        }
    }

    /// Reads what [`encode`](Self::encode) wrote, to the last byte.
    ///
    /// # Errors
    /// `Invalid` for a newer version, `Corrupt` for anything else: an unknown flag, an item over its cap, keys out of
    /// order, bytes missing or left over.
    pub fn decode(bytes: &[u8]) -> Result<Delta> {
        let mut from = Decoder::new(bytes);
        match from.u8()? {
            DELTA_VERSION => {}
            newer if newer > DELTA_VERSION => {
                return Err(Error::invalid(format!(
                    "state changes of a newer format, upgrade onceflow: version={newer} known={DELTA_VERSION}"
                )));
            }
            version => return Err(Error::corrupt(format!("state changes of an unknown format: version={version}"))),
        }
        let mut delta = Delta::default();
        // In order already: a tree that is made of a sorted list at once takes no search for each key.
        let mut entries: Vec<(Key, Slot)> = vec![];
        let mut last: Option<&[u8]> = None;
        for _ in 0..from.list_len(CHANGE_BYTES_MIN)? {
            let put = match from.u8()? {
                FLAG_PUT => true,
                FLAG_DELETE => false,
                flag => return Err(Error::corrupt(format!("unknown kind of state change: flag={flag}"))),
            };
            let key = from.bytes(KEY_BYTES_MAX)?;
            if last.is_some_and(|last| last >= key) {
                return Err(Error::corrupt("state changes are not in ascending order of the keys"));
            }
            last = Some(key);
            let value = if put { from.bytes(VALUE_BYTES_MAX)? } else { &[] };
            let slot = append(&mut delta.values, value);
            entries.push((Key::new(key), Slot { present: put, ..slot }));
            delta.key_bytes += key.len();
            delta.key_longest = delta.key_longest.max(key.len());
            delta.value_longest = delta.value_longest.max(value.len());
        }
        from.finish()?;
        delta.entries = entries.into_iter().collect();
        Ok(delta)
    }
}

fn append(values: &mut Vec<u8>, value: &[u8]) -> Slot {
    let start = values.len();
    values.extend_from_slice(value);
    Slot { start, len: value.len(), room: value.len(), present: true }
}

impl PartialEq for Delta {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Delta {}

/// Sizes only: the changes are users' data and do not belong into logs.
impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delta").field("changes", &self.len()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl<'d> IntoIterator for &'d Delta {
    type Item = (&'d [u8], Option<&'d [u8]>);
    type IntoIter = Changes<'d>;

    fn into_iter(self) -> Changes<'d> {
        self.iter()
    }
}

/// The changes of a [`Delta`] in order of the keys, from either end. Made by [`Delta::iter`] and [`Delta::range`].
#[derive(Clone)]
pub struct Changes<'d> {
    delta: &'d Delta,
    entries: btree_map::Range<'d, Key, Slot>,
}

impl<'d> Iterator for Changes<'d> {
    type Item = (&'d [u8], Option<&'d [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|(key, slot)| (key.bytes(), self.delta.value(*slot)))
    }
}

impl DoubleEndedIterator for Changes<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back().map(|(key, slot)| (key.bytes(), self.delta.value(*slot)))
    }
}

impl fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

/// A key, inside the node of the tree when it is short. Compared as its bytes.
#[derive(Clone)]
enum Key {
    Inline { len: u8, bytes: [u8; KEY_INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl Key {
    fn new(key: &[u8]) -> Key {
        let mut bytes = [0; KEY_INLINE_BYTES];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(key);
                Key::Inline { len, bytes }
            }
            _ => Key::Heap(key.into()),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Key::Heap(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;
    use proptest::collection::vec;
    use proptest::prelude::*;

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
        let key = prop_oneof![vec(0u8..3, 0..4), vec(0u8..2, 29..33)];
        vec((key, proptest::option::of(vec(any::<u8>(), 0..40))), 0..60)
    }

    fn build(changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> (Delta, Model) {
        let (mut delta, mut model) = (Delta::default(), Model::new());
        for (key, value) in changes {
            match value {
                Some(value) => delta.put(key, value),
                None => delta.delete(key),
            }
            model.insert(key.clone(), value.clone());
        }
        (delta, model)
    }

    fn same(delta: &Delta, model: &Model) -> bool {
        delta.iter().eq(model.iter().map(|(key, value)| (&key[..], value.as_deref())))
    }

    proptest! {
        #[test]
        fn the_last_change_of_a_key_wins_and_survives_encoding(list in changes()) {
            let (delta, model) = build(&list);
            prop_assert!(same(&delta, &model));
            prop_assert_eq!(delta.len(), model.len());
            let mut bytes = vec![];
            delta.encode(&mut bytes);
            prop_assert!(bytes.len() <= delta.bytes() + 11);
            prop_assert_eq!(Delta::decode(&bytes).unwrap(), delta);
        }

        #[test]
        fn a_range_is_the_part_of_the_whole_in_both_orders(list in changes(), a in vec(0u8..3, 0..3), b in vec(0u8..3, 0..3)) {
            let (delta, _) = build(&list);
            for range in [KeyRange::new(&a, &b), KeyRange::prefix(&a), KeyRange::all()] {
                let want: Vec<_> = delta.iter().filter(|(key, _)| range.contains(key)).collect();
                prop_assert_eq!(delta.range(&range).collect::<Vec<_>>(), want.clone());
                prop_assert_eq!(delta.range(&range).rev().collect::<Vec<_>>(), want.into_iter().rev().collect::<Vec<_>>());
            }
        }

        #[test]
        fn merging_equals_making_the_changes_in_turn(first in changes(), second in changes()) {
            let (mut delta, _) = build(&first);
            delta.merge(build(&second).0);
            let both: Vec<_> = first.into_iter().chain(second).collect();
            prop_assert!(same(&delta, &build(&both).1));
        }

        #[test]
        fn bytes_that_decode_are_the_only_encoding(bytes in vec(0u8..4, 0..24)) {
            if let Ok(delta) = Delta::decode(&bytes) {
                let mut again = vec![];
                delta.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_refused() {
        let mut delta = Delta::default();
        delta.put(b"a", b"1");
        delta.delete(b"b");
        delta.put(b"", b"");
        let mut bytes = vec![];
        delta.encode(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Delta::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
        bytes.push(0);
        assert_eq!(Delta::decode(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Delta::decode(&[DELTA_VERSION + 1, 0]).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Delta::decode(&[1, 2, 0, 1, b'b', 0, 1, b'a']).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Delta::decode(&[1, 1, 2, 0, 0]).unwrap_err().kind(), ErrorKind::Corrupt, "unknown flag");
    }

    #[test]
    fn a_hot_key_does_not_grow_the_delta() {
        let mut delta = Delta::default();
        delta.put(b"hot", &[7; 16]);
        let bytes = delta.bytes();
        for round in 0..100 {
            delta.put(b"hot", &[round; 16]);
            delta.delete(b"hot");
            delta.put(b"hot", &[round; 9]);
        }
        assert_eq!(delta.bytes(), bytes);
        assert_eq!(delta.get(b"hot"), Some(Some(&[99; 9][..])));
    }

    #[test]
    fn items_over_their_cap_are_named_before_they_are_stored() {
        let mut delta = Delta::default();
        delta.put(&vec![0; KEY_BYTES_MAX], b"");
        delta.check().unwrap();
        delta.delete(&vec![0; KEY_BYTES_MAX + 1]);
        assert_eq!(delta.check().unwrap_err().kind(), ErrorKind::Invalid);
        delta.clear();
        delta.check().unwrap();
    }

    #[test]
    fn a_short_key_and_its_slot_take_64_bytes() {
        assert_eq!(size_of::<(Key, Slot)>(), 64);
    }
}
