//! Entries gathered for loading: one sorted run of engine keys, in one buffer.
//!
//! A snapshot comes in ascending order of its keys, in pieces of about a megabyte. Each piece alone would cost an engine a
//! table of its own, or the way through log, memtable and flush. So [`DiskStore`](crate::disk::DiskStore) gathers pieces
//! into a run and hands it to the engine when it is [large](RUN_BYTES_MAX), when a piece does not continue it, or when the
//! first commit comes.

use crate::Delta;

/// A run is handed over when it is at least this large.
pub(crate) const RUN_BYTES_MAX: usize = 16 << 20;
/// What an entry costs beside its bytes.
const ENTRY_BYTES: usize = size_of::<Entry>();

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    key: usize,
    /// `None`: deleted.
    value: Option<usize>,
}

/// Engine keys in strictly ascending order, with what they are set to.
#[derive(Default)]
pub(crate) struct Run {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Run {
    /// Whether `delta` goes on behind what is here.
    pub(crate) fn is_continued_by(&self, delta: &Delta) -> bool {
        match (self.last_key().and_then(<[u8]>::split_first), delta.iter().next()) {
            (Some((_, last)), Some((first, _))) => last < first,
            _ => true,
        }
    }

    /// Adds changes, each key behind `tag`. They must [continue](Self::is_continued_by) the run.
    pub(crate) fn add(&mut self, tag: u8, delta: &Delta) {
        for (key, value) in delta {
            let start = self.bytes.len();
            self.bytes.push(tag);
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.entries.push(Entry { start, key: key.len() + 1, value: value.map(<[u8]>::len) });
        }
    }

    fn last_key(&self) -> Option<&[u8]> {
        let entry = self.entries.last()?;
        self.bytes.get(entry.start..entry.start + entry.key)
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries in order: engine key and value, `None` for a deletion.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let slice = |start: usize, len: usize| self.bytes.get(start..start + len).unwrap_or_default();
        self.entries.iter().map(move |entry| {
            let value = entry.value.map(|len| slice(entry.start + entry.key, len));
            (slice(entry.start, entry.key), value)
        })
    }

    /// Forgets everything, and gives the memory back: there is one load in the life of a store.
    pub(crate) fn clear(&mut self) {
        *self = Run::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts(keys: &[&[u8]]) -> Delta {
        let mut delta = Delta::default();
        for key in keys {
            delta.put(key, &[key, &b"+"[..]].concat());
        }
        delta
    }

    #[test]
    fn a_run_gives_back_what_was_added_in_order() {
        let mut run = Run::default();
        assert!(run.is_empty() && run.is_continued_by(&puts(&[b""])));
        run.add(7, &puts(&[b"", b"a"]));
        let mut more = puts(&[b"b"]);
        more.delete(b"c");
        assert!(run.is_continued_by(&more) && run.is_continued_by(&Delta::default()));
        run.add(7, &more);
        let expected: [(&[u8], Option<&[u8]>); 4] =
            [(b"\x07", Some(b"+")), (b"\x07a", Some(b"a+")), (b"\x07b", Some(b"b+")), (b"\x07c", None)];
        assert!(run.iter().eq(expected));
    }

    #[test]
    fn a_key_that_is_there_or_lies_before_does_not_continue_a_run() {
        let mut run = Run::default();
        run.add(7, &puts(&[b"a", b"b"]));
        assert!(!run.is_continued_by(&puts(&[b"b"])) && !run.is_continued_by(&puts(&[b"", b"z"])));
        run.clear();
        assert!(run.is_empty() && run.is_continued_by(&puts(&[b""])));
    }
}
