//! Short pieces of bytes, of which there are many.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// Bytes up to this length lie inside; longer ones are allocated one by one.
const INLINE_BYTES: usize = 38;

/// Bytes that are mostly few: what a timer is for, the key of a row. In the order of the bytes.
#[derive(Clone)]
pub(crate) struct SmallBytes(Form);

#[derive(Clone)]
enum Form {
    Short(u8, [u8; INLINE_BYTES]),
    Long(Box<[u8]>),
}

impl SmallBytes {
    pub(crate) const EMPTY: SmallBytes = SmallBytes(Form::Short(0, [0; INLINE_BYTES]));

    /// How many bytes are allocated.
    pub(crate) fn allocated(&self) -> usize {
        match &self.0 {
            Form::Short(..) => 0,
            Form::Long(bytes) => bytes.len(),
        }
    }
}

impl From<&[u8]> for SmallBytes {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        match (u8::try_from(bytes.len()), inline.get_mut(..bytes.len())) {
            (Ok(len), Some(place)) => {
                place.copy_from_slice(bytes);
                SmallBytes(Form::Short(len, inline))
            }
            _ => SmallBytes(Form::Long(bytes.into())),
        }
    }
}

impl Deref for SmallBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Form::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SmallBytes {}

impl PartialOrd for SmallBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SmallBytes {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for SmallBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_ones_are_in_the_order_of_their_bytes() {
        let long = [7; 200];
        for (one, other) in [(3, 5), (38, 39), (39, 200), (38, 38), (0, 1), (100, 2)] {
            let (one, other) = (&long[..one], &long[..other]);
            let (a, b) = (SmallBytes::from(one), SmallBytes::from(other));
            assert_eq!((&*a, &*b), (one, other));
            assert_eq!(a.cmp(&b), one.cmp(other));
            assert_eq!(a == b, one == other);
            assert_eq!(a.allocated(), if one.len() > INLINE_BYTES { one.len() } else { 0 });
        }
    }
}
