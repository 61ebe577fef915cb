//! Ranges of keys.

use std::ops::Bound;

/// A range of keys, ordered bytewise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange<'k> {
    /// Where the range begins.
    pub start: Bound<&'k [u8]>,
    /// Where it ends; owned, as the end of a prefix is computed.
    pub end: Bound<Vec<u8>>,
}

impl<'k> KeyRange<'k> {
    /// All keys.
    pub fn all() -> Self {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The keys from `start` up to, not including, `end`.
    pub fn new(start: &'k [u8], end: &[u8]) -> Self {
        KeyRange { start: Bound::Included(start), end: Bound::Excluded(end.to_vec()) }
    }

    /// The keys that begin with `prefix`.
    ///
    /// ```
    /// use onceflow_storage::KeyRange;
    ///
    /// let range = KeyRange::prefix(b"g");
    /// assert!(range.contains(b"g-1"));
    /// assert!(!range.contains(b"h"));
    /// ```
    pub fn prefix(prefix: &'k [u8]) -> Self {
        // The smallest key above every key with the prefix: drop trailing 0xff, add one to the last byte left.
        let keep = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
        let mut end = prefix.get(..keep).unwrap_or_default().to_vec();
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        KeyRange { start: Bound::Included(prefix), end }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_start = match self.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        let before_end = match &self.end {
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        };
        after_start && before_end
    }

    /// Whether no key can lie in the range (its end is not after its start).
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) => *start > end.as_slice(),
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end)) => *start >= end.as_slice(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_ff_bytes_has_no_end() {
        assert!(KeyRange::prefix(&[0xff, 0xff]).contains(&[0xff, 0xff, 0xff]));
        assert!(!KeyRange::prefix(&[0x01, 0xff]).contains(&[0x02]));
        assert!(KeyRange::prefix(&[]).contains(&[]));
    }
}
