//! What flows between operators.

use onceflow_types::Timestamp;

/// One record on its way through a task.
///
/// ```
/// use onceflow::record::{Origin, Record};
/// use onceflow::types::Timestamp;
///
/// let time = Timestamp::from_millis(5);
/// let record = Record { value: "7", timestamp: time, watermark: Timestamp::MIN, origin: Origin::new(0) };
/// let longer = record.map(str::len);
/// assert_eq!((longer.value, longer.origin.index()), (1, Some(0)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<T> {
    /// What the program works on.
    pub value: T,
    /// Its event time.
    pub timestamp: Timestamp,
    /// The watermark of its input before it: no record that comes from here on and is older is on time.
    /// [`Timestamp::MIN`] says nothing new.
    pub watermark: Timestamp,
    /// The source record that it stems from.
    pub origin: Origin,
}

/// The index of a source record in the batch that is being processed.
///
/// It lets a late stage find the original bytes for a dead letter, and an output message name its source offset, without
/// carrying either along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(u32);

impl Origin {
    /// No source record: made when an epoch was sealed, or by a timer.
    pub const NONE: Origin = Origin(u32::MAX);

    /// The origin of the record at `index` of a batch; [`NONE`](Self::NONE) beyond the range of 32 bits, which no batch
    /// reaches.
    pub fn new(index: usize) -> Self {
        Origin(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The index in the batch; `None` for [`NONE`](Self::NONE).
    pub fn index(self) -> Option<usize> {
        (self != Origin::NONE).then_some(self.0 as usize)
    }
}

impl<T> Record<T> {
    /// The same record with another value.
    pub fn with<U>(&self, value: U) -> Record<U> {
        Record { value, timestamp: self.timestamp, watermark: self.watermark, origin: self.origin }
    }

    /// Replaces the value by what `change` makes of it.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Record<U> {
        Record { value: change(self.value), timestamp: self.timestamp, watermark: self.watermark, origin: self.origin }
    }

    /// A record that an operator makes out of turn, at a seal or by a timer.
    pub(crate) fn made(value: T, timestamp: Timestamp) -> Self {
        Record { value, timestamp, watermark: Timestamp::MIN, origin: Origin::NONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_origin_has_no_index() {
        assert_eq!(Origin::NONE.index(), None);
        assert_eq!(Origin::new(7).index(), Some(7));
        assert_eq!(Origin::new(usize::MAX), Origin::NONE);
    }
}
