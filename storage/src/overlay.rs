//! Uncommitted changes over committed state.

use crate::delta::Changes;
use crate::{Cursor, Delta, KeyRange, Order, ReadStore, StateStore};
use onceflow_types::{CommitPoint, Result};
use std::collections::VecDeque;
use std::fmt;
use std::iter::{Peekable, once};

/// The uncommitted changes of a task over the store of its committed state. What the processors of a task read and
/// write. Between two commits only the overlay changes, so an abort is [`discard`](Self::discard), and no store needs
/// rollback.
///
/// The next epoch may open while the one before is on its way to the journal: [`seal`](Self::seal) closes the open
/// changes and starts new ones above them. Reading sees all layers, the newest first; [`commit`](Self::commit)
/// applies the oldest.
///
/// ```
/// use onceflow_storage::{MemoryStore, Overlay, ReadStore};
///
/// let mut state = Overlay::new(Box::new(MemoryStore::default()));
/// state.put(b"card-7", b"100");
/// let mut value = Vec::new();
/// assert!(state.get(b"card-7", &mut value)?);
/// state.discard();
/// assert!(!state.get(b"card-7", &mut value)?);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
pub struct Overlay {
    base: Box<dyn StateStore>,
    /// Closed and not committed, the oldest first.
    sealed: VecDeque<Delta>,
    open: Delta,
    /// A committed delta, kept for its buffers.
    spare: Delta,
}

impl Overlay {
    /// An overlay without changes.
    pub fn new(base: Box<dyn StateStore>) -> Self {
        Overlay { base, sealed: VecDeque::new(), open: Delta::default(), spare: Delta::default() }
    }

    /// Sets the value of a key in the open epoch.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.open.put(key, value);
    }

    /// Deletes a key in the open epoch.
    pub fn delete(&mut self, key: &[u8]) {
        self.open.delete(key);
    }

    /// The changes of the open epoch.
    pub fn delta(&self) -> &Delta {
        &self.open
    }

    /// Closes the open changes as the newest sealed layer, starts new ones, and returns the closed ones.
    pub fn seal(&mut self) -> &Delta {
        let next = std::mem::take(&mut self.spare);
        self.sealed.push_back(std::mem::replace(&mut self.open, next));
        self.sealed.back().unwrap_or(&self.open)
    }

    /// The sealed layers, the oldest first.
    pub fn sealed(&self) -> impl ExactSizeIterator<Item = &Delta> {
        self.sealed.iter()
    }

    /// Takes the changes of the open epoch out; the overlay no longer shows them.
    pub fn take_delta(&mut self) -> Delta {
        std::mem::take(&mut self.open)
    }

    /// Commits the oldest sealed layer, or the open changes when none is sealed, together with `point`.
    ///
    /// # Errors
    /// Those of [`StateStore::commit`]. The changes stay in the overlay; after `Corrupt` the task is dropped with it.
    pub fn commit(&mut self, point: &CommitPoint) -> Result<()> {
        self.base.commit(self.sealed.front().unwrap_or(&self.open), point)?;
        match self.sealed.pop_front() {
            Some(mut done) => {
                done.clear();
                self.spare = done;
            }
            None => self.open.clear(),
        }
        Ok(())
    }

    /// Drops every change that is not committed, sealed layers included.
    pub fn discard(&mut self) {
        self.sealed.clear();
        self.open.clear();
    }

    /// The store of the committed state.
    pub fn base(&self) -> &dyn StateStore {
        &*self.base
    }

    /// The store, to load or to commit past the overlay. Layers in the overlay still hide what is below.
    pub fn base_mut(&mut self) -> &mut dyn StateStore {
        &mut *self.base
    }

    /// Drops the changes and returns the store.
    pub fn into_base(self) -> Box<dyn StateStore> {
        self.base
    }

    /// The newest first.
    fn layers(&self) -> impl Iterator<Item = &Delta> {
        once(&self.open).chain(self.sealed.iter().rev())
    }
}

impl ReadStore for Overlay {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        for layer in self.layers() {
            if let Some(change) = layer.get(key) {
                value.clear();
                value.extend_from_slice(change.unwrap_or_default());
                return Ok(change.is_some());
            }
        }
        self.base.get(key, value)
    }

    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>> {
        let layers: Vec<_> = self
            .layers()
            .map(|layer| Ordered { changes: layer.range(&range), order }.peekable())
            .filter_map(|mut layer| layer.peek().is_some().then_some(layer))
            .collect();
        let base = self.base.scan(range, order)?;
        if layers.is_empty() {
            return Ok(base);
        }
        Ok(Box::new(Merged { layers, base, head: Head::Unread, key: Vec::new(), value: Vec::new(), order }))
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("backend", &self.base.backend())
            .field("sealed", &self.sealed)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

/// The changes of one layer in the order of the scan.
struct Ordered<'s> {
    changes: Changes<'s>,
    order: Order,
}

impl<'s> Iterator for Ordered<'s> {
    type Item = (&'s [u8], Option<&'s [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        match self.order {
            Order::Ascending => self.changes.next(),
            Order::Descending => self.changes.next_back(),
        }
    }
}

/// What is known about the base's next entry.
#[derive(PartialEq)]
enum Head {
    Unread,
    /// It lies in `Merged::key` and `Merged::value`.
    Entry,
    End,
}

/// Merges the layers over the base. The base's next entry is copied, as it must be compared before it is lent; the
/// buffers are reused, so an entry allocates nothing.
struct Merged<'s> {
    /// The newest first.
    layers: Vec<Peekable<Ordered<'s>>>,
    base: Box<dyn Cursor + 's>,
    head: Head,
    key: Vec<u8>,
    value: Vec<u8>,
    order: Order,
}

impl<'s> Merged<'s> {
    fn read_head(&mut self) -> Result<()> {
        self.head = match self.base.next()? {
            Some((key, value)) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.value.clear();
                self.value.extend_from_slice(value);
                Head::Entry
            }
            None => Head::End,
        };
        Ok(())
    }

    fn before(&self, one: &[u8], other: &[u8]) -> bool {
        match self.order {
            Order::Ascending => one < other,
            Order::Descending => one > other,
        }
    }

    /// The first key that some layer changes.
    fn first_changed(&mut self) -> Option<&'s [u8]> {
        let order = self.order;
        let keys = self.layers.iter_mut().filter_map(|layer| layer.peek().map(|(key, _)| *key));
        match order {
            Order::Ascending => keys.min(),
            Order::Descending => keys.max(),
        }
    }

    /// Moves every layer past `key` and returns what the newest of them says.
    fn take_change(&mut self, key: &[u8]) -> Option<&'s [u8]> {
        let mut newest = None;
        for layer in &mut self.layers {
            if let Some((_, change)) = layer.next_if(|(own, _)| *own == key) {
                newest.get_or_insert(change);
            }
        }
        newest.flatten()
    }
}

impl Cursor for Merged<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            if self.head == Head::Unread {
                self.read_head()?;
            }
            let base_next = self.head == Head::Entry;
            let change = self.first_changed();
            match change {
                None if !base_next => return Ok(None),
                Some(key) if !base_next || !self.before(&self.key, key) => {
                    if base_next && self.key == key {
                        self.head = Head::Unread;
                    }
                    if let Some(value) = self.take_change(key) {
                        return Ok(Some((key, value)));
                    }
                }
                _ => {
                    self.head = Head::Unread;
                    return Ok(Some((&self.key, &self.value)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::contract::{entries, point};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Put(Vec<u8>, u8),
        Delete(Vec<u8>),
        Seal,
        Commit,
        Discard,
    }

    type Layer = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = || vec(0u8..4, 0..3);
        let step = prop_oneof![
            6 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            3 => key().prop_map(Step::Delete),
            2 => Just(Step::Seal),
            2 => Just(Step::Commit),
            1 => Just(Step::Discard),
        ];
        vec(step, 0..60)
    }

    proptest! {
        // Aim: an overlay of any number of layers shows what a plain map would. Method: one map for the committed
        // state, one for each layer, compared with scans of several ranges in both orders after each step.
        #[test]
        fn an_overlay_equals_its_layers_applied_in_turn(steps in steps(), a in vec(0u8..4, 0..3), b in vec(0u8..4, 0..3)) {
            let mut overlay = Overlay::new(Box::new(MemoryStore::default()));
            let mut committed = BTreeMap::new();
            let mut layers: VecDeque<Layer> = [vec![]].into();
            let mut epoch = 0;
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        overlay.put(&key, &[value]);
                        layers.back_mut().unwrap().push((key, Some(vec![value])));
                    }
                    Step::Delete(key) => {
                        overlay.delete(&key);
                        layers.back_mut().unwrap().push((key, None));
                    }
                    Step::Seal => {
                        overlay.seal();
                        layers.push_back(vec![]);
                    }
                    Step::Commit => {
                        epoch += 1;
                        overlay.commit(&point(epoch)).unwrap();
                        apply(&mut committed, &layers.pop_front().unwrap());
                        if layers.is_empty() {
                            layers.push_back(vec![]);
                        }
                    }
                    Step::Discard => {
                        overlay.discard();
                        layers = [vec![]].into();
                    }
                }
                let mut want = committed.clone();
                for layer in &layers {
                    apply(&mut want, layer);
                }
                for range in [KeyRange::all(), KeyRange::new(&a, &b), KeyRange::prefix(&a)] {
                    let part: Vec<_> = want.iter().filter(|(key, _)| range.contains(key))
                        .map(|(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone())).collect();
                    prop_assert_eq!(&entries(&overlay, range.clone(), Order::Ascending).unwrap(), &part);
                    let back: Vec<_> = part.into_iter().rev().collect();
                    prop_assert_eq!(&entries(&overlay, range, Order::Descending).unwrap(), &back);
                }
                let mut value = vec![];
                prop_assert_eq!(overlay.get(&a, &mut value).unwrap().then_some(&value), want.get(&a));
            }
        }
    }

    fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, layer: &Layer) {
        for (key, value) in layer {
            match value {
                Some(value) => map.insert(key.clone(), value.clone()),
                None => map.remove(key),
            };
        }
    }

    #[test]
    fn a_failed_commit_keeps_the_changes() {
        let mut overlay = Overlay::new(Box::new(MemoryStore::default()));
        overlay.put(b"a", b"1");
        overlay.commit(&point(1)).unwrap();
        overlay.put(b"a", b"2");
        assert!(overlay.commit(&point(3)).is_err(), "an epoch is missing");
        assert_eq!(overlay.delta().len(), 1);
        overlay.commit(&point(2)).unwrap();
        assert!(overlay.delta().is_empty());
    }

    #[test]
    fn an_error_of_the_base_is_not_the_end_of_a_merged_scan() {
        struct Broken;
        impl Cursor for Broken {
            fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
                Err(onceflow_types::Error::corrupt("damaged"))
            }
        }
        let mut delta = Delta::default();
        delta.put(b"a", b"1");
        let layer = Ordered { changes: delta.iter(), order: Order::Ascending }.peekable();
        let mut merged = Merged {
            layers: vec![layer],
            base: Box::new(Broken),
            head: Head::Unread,
            key: vec![],
            value: vec![],
            order: Order::Ascending,
        };
        assert!(merged.next().is_err());
        assert!(merged.next().is_err(), "again");
    }
}
