//! Records on their way out: one shared buffer for a whole read, and a view for each record.

use crate::find_property;
use bytes::Bytes;
use onceflow_types::{Offset, Partition, Timestamp};
use std::ops::Range;

/// The records of one read, in offset order without gaps.
#[derive(Clone, Debug)]
pub struct RecordBatch {
    partition: Partition,
    /// The bytes as read, and the bodies that had to be inflated.
    buffers: [Bytes; 2],
    entries: Vec<Entry>,
    remaining: u64,
}

/// Where one record lies in a batch's buffers.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its offset.
    pub offset: Offset,
    /// When its producer made it.
    pub born: Timestamp,
    /// When the log stored it.
    pub stored: Timestamp,
    /// Where its body lies.
    pub body: Body,
    /// Where its properties lie in the first buffer.
    pub properties: Range<u32>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let body = match &self.body {
            Body::Plain(range) | Body::Inflated(range) => range.len(),
            Body::Undecodable(_) => 0,
        };
        body + self.properties.len()
    }
}

/// The body of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the bytes as read.
    Plain(Range<u32>),
    /// In the second buffer.
    Inflated(Range<u32>),
    /// The record is there, but its body cannot be had; the text says why. It is the stage's error policy's to decide.
    Undecodable(&'static str),
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'b> {
    batch: &'b RecordBatch,
    entry: &'b Entry,
}

impl RecordBatch {
    /// A batch without records.
    pub fn empty(partition: Partition) -> Self {
        RecordBatch { partition, buffers: [Bytes::new(), Bytes::new()], entries: vec![], remaining: 0 }
    }

    /// A batch over `raw` bytes and `inflated` bodies. Ranges outside the buffers read as empty; logs build them from
    /// checked lengths.
    pub fn new(partition: Partition, raw: Bytes, inflated: Bytes, entries: Vec<Entry>) -> Self {
        RecordBatch { partition, buffers: [raw, inflated], entries, remaining: 0 }
    }

    /// The same batch, which says that the partition ended at `end` when it was read.
    #[must_use]
    pub fn with_end(mut self, end: Offset) -> Self {
        self.remaining = self.next_offset().and_then(|next| end.distance_from(next)).unwrap_or(0);
        self
    }

    /// How many records the partition had behind these when they were read; 0 when the log did not say.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The partition they were read from.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The records in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RecordRef<'_>> + ExactSizeIterator {
        self.entries.iter().map(|entry| RecordRef { batch: self, entry })
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The offset after the last record; `None` when there is no record.
    pub fn next_offset(&self) -> Option<Offset> {
        self.entries.last().map(|last| last.offset.next())
    }

    /// Bytes of bodies and properties, roughly what the batch holds in memory.
    pub fn bytes(&self) -> usize {
        self.buffers[0].len() + self.buffers[1].len()
    }

    /// To be taken piece by piece.
    pub fn into_pieces(self) -> Pieces {
        let RecordBatch { partition, buffers, entries, remaining } = self;
        Pieces { partition, buffers, taken: false, entries: entries.into_iter(), remaining }
    }

    fn share(&self, buffer: usize, part: &[u8]) -> Bytes {
        match self.buffers.get(buffer) {
            // An empty part may lie anywhere.
            Some(bytes) if !part.is_empty() => bytes.slice_ref(part),
            _ => Bytes::new(),
        }
    }

    fn slice(&self, buffer: usize, range: &Range<u32>) -> &[u8] {
        let bytes = self.buffers.get(buffer).map_or(&[][..], |bytes| bytes);
        bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

/// The rest of a batch, of which pieces are taken from the front. They share its bytes.
#[derive(Debug)]
pub struct Pieces {
    partition: Partition,
    buffers: [Bytes; 2],
    entries: std::vec::IntoIter<Entry>,
    taken: bool,
    remaining: u64,
}

impl Pieces {
    /// The next records: at most `records_max` and about `bytes_max` bytes of bodies and properties, but one at least. A
    /// batch without records is one piece.
    pub fn take(&mut self, records_max: usize, bytes_max: usize) -> Option<RecordBatch> {
        if std::mem::replace(&mut self.taken, true) && self.entries.as_slice().is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let fits = bytes < bytes_max;
            bytes += entry.bytes();
            fits
        };
        let count = self.entries.as_slice().iter().take(records_max).take_while(fits).count().max(1);
        let entries = self.entries.by_ref().take(count).collect();
        let remaining = self.remaining.saturating_add(self.entries.len() as u64);
        Some(RecordBatch { partition: self.partition.clone(), buffers: self.buffers.clone(), entries, remaining })
    }
}

impl<'b> RecordRef<'b> {
    /// The record's offset.
    pub fn offset(&self) -> Offset {
        self.entry.offset
    }

    /// When its producer made it.
    pub fn born(&self) -> Timestamp {
        self.entry.born
    }

    /// When the log stored it.
    pub fn stored(&self) -> Timestamp {
        self.entry.stored
    }

    /// The body, or why there is none.
    #[allow(clippy::missing_errors_doc)]
    pub fn body(&self) -> Result<&'b [u8], &'static str> {
        match &self.entry.body {
            Body::Plain(range) => Ok(self.batch.slice(0, range)),
            Body::Inflated(range) => Ok(self.batch.slice(1, range)),
            Body::Undecodable(reason) => Err(reason),
        }
    }

    /// The properties, encoded.
    pub fn properties(&self) -> &'b [u8] {
        self.batch.slice(0, &self.entry.properties)
    }

    /// The body as a share of the batch's buffer, to keep it without a copy; or why there is none.
    #[allow(clippy::missing_errors_doc)]
    pub fn body_shared(&self) -> Result<Bytes, &'static str> {
        let body = self.body()?;
        let inflated = matches!(self.entry.body, Body::Inflated(_));
        Ok(self.batch.share(usize::from(inflated), body))
    }

    /// The properties as a share of the batch's buffer.
    pub fn properties_shared(&self) -> Bytes {
        self.batch.share(0, self.properties())
    }

    /// One property.
    pub fn property(&self, name: &str) -> Option<&'b [u8]> {
        find_property(self.properties(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bodies: &[u32]) -> RecordBatch {
        let mut end = 0;
        let entry = |(offset, bytes): (usize, &u32)| {
            let body = Body::Plain(end..end + bytes);
            end += bytes;
            let (born, stored) = (Timestamp::MIN, Timestamp::MIN);
            Entry { offset: Offset::new(offset as u64), born, stored, body, properties: 0..0 }
        };
        let entries = bodies.iter().enumerate().map(entry).collect();
        RecordBatch::new(Partition::new("t", "b", 0), vec![7; end as usize].into(), Bytes::new(), entries)
    }

    fn taken(batch: RecordBatch, records_max: usize, bytes_max: usize) -> Vec<RecordBatch> {
        let mut pieces = batch.into_pieces();
        std::iter::from_fn(|| pieces.take(records_max, bytes_max)).collect()
    }

    #[test]
    fn pieces_are_bounded_and_together_the_whole() {
        let bodies = [10, 10, 10, 500, 10, 0, 0, 90, 20, 1];
        for (records_max, bytes_max, wanted) in
            [(100, 1 << 20, vec![10]), (4, 1 << 20, vec![4, 4, 2]), (100, 100, vec![4, 4, 2]), (1, 0, vec![1; 10])]
        {
            let pieces: Vec<RecordBatch> = taken(batch(&bodies).with_end(Offset::new(17)), records_max, bytes_max);
            assert_eq!(pieces.iter().map(RecordBatch::len).collect::<Vec<_>>(), wanted, "{records_max} {bytes_max}");
            let offsets: Vec<_> =
                pieces.iter().flat_map(RecordBatch::iter).map(|record| record.offset().get()).collect();
            assert_eq!(offsets, (0..10).collect::<Vec<_>>());
            let lens: Vec<_> =
                pieces.iter().flat_map(RecordBatch::iter).map(|record| record.body().unwrap().len()).collect();
            assert_eq!(lens, bodies.map(|bytes| bytes as usize));
            let behind: Vec<u64> =
                pieces.iter().map(|piece| piece.next_offset().unwrap().get() + piece.remaining()).collect();
            assert_eq!(behind, vec![17; wanted.len()], "each says where the partition ended");
        }
    }

    #[test]
    fn an_end_before_the_records_says_nothing() {
        assert_eq!(batch(&[1, 1]).with_end(Offset::new(1)).remaining(), 0);
        assert_eq!(batch(&[]).with_end(Offset::new(5)).remaining(), 0);
    }

    #[test]
    fn a_batch_without_records_is_one_piece() {
        let pieces: Vec<RecordBatch> = taken(batch(&[]), 1, 1);
        assert!(pieces.len() == 1 && pieces[0].is_empty());
    }
}
