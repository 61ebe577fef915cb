//! Newtypes for every number with a meaning.

use crate::{Error, Result};
use std::fmt;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The smallest value, 0.
            pub const ZERO: $name = $name(0);

            /// Wraps a number.
            pub const fn new(number: u64) -> Self {
                $name(number)
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The value after this one.
            ///
            /// # Panics
            /// At `u64::MAX`, which no log or clock reaches; input is checked where it is decoded.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// This value moved on by `count`.
            ///
            /// # Panics
            /// When the sum is beyond `u64::MAX`; see [`Self::next`].
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                match self.0.checked_add(count) {
                    Some(number) => $name(number),
                    None => panic!(concat!(stringify!($name), " overflow")),
                }
            }

            /// How far `self` is ahead of `earlier`; `None` when it is behind.
            pub const fn distance_from(self, earlier: Self) -> Option<u64> {
                self.0.checked_sub(earlier.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

counter! {
    /// A committed unit of a task: 1, 2, 3, … without gaps. 0 means that nothing is committed yet.
    Epoch
}
counter! {
    /// One ownership of a task: the journal offset at which its Claim landed. Only ever grows.
    Generation
}
counter! {
    /// A place in a partition: the next offset to read, unless a name says otherwise (`offset_last`).
    Offset
}
counter! {
    /// The place of an output message in its channel: 0, 1, 2, … without gaps.
    Sequence
}

impl Offset {
    /// From a broker's signed number.
    ///
    /// # Errors
    /// `Retry` when it is negative: brokers answer so while they start.
    pub fn from_signed(number: i64) -> Result<Offset> {
        u64::try_from(number).map(Offset).map_err(|_| Error::retry(format!("negative offset: given={number}")))
    }

    /// As a broker's signed number.
    ///
    /// # Errors
    /// `Invalid` above `i64::MAX`.
    pub fn to_signed(self) -> Result<i64> {
        i64::try_from(self.0).map_err(|_| Error::invalid(format!("offset beyond the broker's range: given={self}")))
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// Wraps a number drawn at random.
            pub const fn new(number: u128) -> Self {
                $name(number)
            }

            /// The number.
            pub const fn get(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

random_id! {
    /// Tells a writer which Claim in the journal is its own. Drawn at random for each opening.
    Nonce
}
random_id! {
    /// One life of a task's journal: the nonce of its first valid Claim. A reset or a recreated topic starts another.
    Incarnation
}

impl From<Nonce> for Incarnation {
    fn from(nonce: Nonce) -> Self {
        Incarnation(nonce.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_checked() {
        assert_eq!(Offset::new(7).distance_from(Offset::new(4)), Some(3));
        assert_eq!(Offset::new(4).distance_from(Offset::new(7)), None);
        assert_eq!(Epoch::ZERO.next(), Epoch::new(1));
    }

    #[test]
    fn signed_offsets_are_checked_both_ways() {
        assert_eq!(Offset::from_signed(5).unwrap(), Offset::new(5));
        assert!(Offset::from_signed(-1).is_err());
        assert!(Offset::new(u64::MAX).to_signed().is_err());
    }
}
