//! Reading: chunks are found by their keys, checked, and copied into one buffer.

use super::chunk::{self, Chunk, Key};
use super::fault;
use super::queues::Queue;
use super::store::Store;
use crate::{Body, Entry, MESSAGE_OVERHEAD_BYTES, MessageIter, ReadLimit, RecordBatch};
use bytes::Bytes;
use fjall::{UserKey, UserValue};
use onceflow_types::{Error, Offset, Result, Timestamp};
use std::ops::RangeInclusive;

/// Most bytes of one read, whatever is asked for.
const READ_BYTES_MAX: usize = 64 << 20;

/// Checks that reading can start at `from` and says whether there is something to read.
///
/// # Errors
/// `DataLoss` when it cannot (rule 4).
pub(super) fn readable(queue: &Queue, from: Offset) -> Result<bool> {
    let (first, next) = (queue.first(), queue.next());
    if from < first || from > next {
        let partition = &queue.partition;
        return Err(Error::data_loss(format!(
            "offset cannot be read: partition={partition} given={from} first={first} next={next}"
        )));
    }
    Ok(from < next)
}

/// Reads from `from` on, which must be [readable].
pub(super) fn read(store: &Store, queue: &Queue, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
    let end = queue.next();
    let mut reading = Reading::new(from, end, limit);
    let mut expected = None;
    for stored in chunks_from(store, queue, from, end)? {
        let (key, value) = stored?;
        let chunk = Chunk::open(&key, &value)?;
        if expected.is_some_and(|expected| expected != chunk.base) || chunk.base > reading.next {
            return Err(hole(queue, reading.next));
        }
        if chunk.base >= end || !reading.take(&chunk)? {
            break;
        }
        expected = Some(chunk.next());
    }
    if reading.entries.is_empty() {
        // Retention may have passed `from` since it was checked.
        readable(queue, from)?;
        return Err(hole(queue, from));
    }
    let records = RecordBatch::new(queue.partition.clone(), Bytes::from(reading.bytes), Bytes::new(), reading.entries);
    Ok(records.with_end(end))
}

/// The first offset stored at or after `time`. Times do not go back within a queue, so it is found by halving.
pub(super) fn offset_at(store: &Store, queue: &Queue, time: Timestamp) -> Result<Offset> {
    let (mut low, mut high) = (queue.first(), queue.next());
    while low < high {
        let middle = Offset::new(low.get() + (high.get() - low.get()) / 2);
        let stored = chunks_from(store, queue, middle, high)?.next();
        let (key, value) = stored.ok_or_else(|| hole(queue, middle))??;
        let chunk = Chunk::open(&key, &value)?;
        if chunk.stored >= time {
            high = chunk.base.max(low);
        } else {
            low = chunk.next();
        }
    }
    Ok(low)
}

type Stored = Result<(UserKey, UserValue)>;

/// The chunks from the one that holds `from` on.
fn chunks_from(store: &Store, queue: &Queue, from: Offset, end: Offset) -> Result<impl Iterator<Item = Stored>> {
    let range = |from: Key| -> RangeInclusive<Key> { from..=chunk::key(queue.id, end) };
    let exact = chunk::key(queue.id, from);
    // Most reads go on where a chunk begins; only the others look for the chunk that began before.
    let begins_there = store.chunks.contains_key(exact).map_err(fault::reading)?;
    let start = if begins_there { exact } else { chunk_before(store, queue, &exact)?.unwrap_or(exact) };
    Ok(store.chunks.range(range(start)).map(|entry| entry.into_inner().map_err(fault::reading)))
}

fn chunk_before(store: &Store, queue: &Queue, key: &Key) -> Result<Option<Key>> {
    let range = chunk::key(queue.id, Offset::ZERO)..=*key;
    let Some(entry) = store.chunks.range(range).next_back() else { return Ok(None) };
    let found = entry.key().map_err(fault::reading)?;
    Ok(Key::try_from(&*found).ok())
}

#[cold]
fn hole(queue: &Queue, at: Offset) -> Error {
    Error::data_loss(format!("records are missing: partition={} offset={at}", queue.partition))
}

/// What a read has gathered.
struct Reading {
    next: Offset,
    records_left: usize,
    bytes_max: usize,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Reading {
    fn new(from: Offset, end: Offset, limit: ReadLimit) -> Reading {
        let there = usize::try_from(end.distance_from(from).unwrap_or(0)).unwrap_or(usize::MAX);
        let (records_left, bytes_max) = (limit.records_max.min(there), limit.bytes_max.min(READ_BYTES_MAX));
        Reading { next: from, records_left, bytes_max, bytes: vec![], entries: vec![] }
    }

    /// Room for all that is wanted if the messages are as long as those of the first chunk, so that it is not copied while it
    /// grows.
    fn make_room(&mut self, first: &Chunk<'_>) {
        let of_each = (first.messages.len() / (first.count as usize).max(1)).max(MESSAGE_OVERHEAD_BYTES);
        let records = self.records_left.min(self.bytes_max / of_each);
        self.entries.reserve(records);
        self.bytes.reserve(records * of_each);
    }

    /// Takes the messages of a chunk from `next` on, as far as the limits allow, and says whether there is room for more.
    fn take(&mut self, chunk: &Chunk<'_>) -> Result<bool> {
        let damage = |what: &str| Error::data_loss(format!("chunk is damaged: {what}: offset={}", chunk.base));
        let skip = self.next.distance_from(chunk.base).ok_or_else(|| damage("base"))?;
        let mut messages = MessageIter::new(chunk.messages);
        for _ in 0..skip {
            messages.next().ok_or_else(|| damage("count"))??;
        }
        let wanted = usize::try_from(u64::from(chunk.count).saturating_sub(skip)).unwrap_or(usize::MAX);
        let taken = wanted.min(self.records_left);
        if self.entries.is_empty() {
            self.make_room(chunk);
        }
        self.entries.reserve(taken);
        let start = chunk.messages.len() - messages.rest().len();
        // Where the messages of this chunk will lie in the buffer.
        let offset_in_buffer = self.bytes.len();
        let mut at = offset_in_buffer;
        for _ in 0..taken {
            let message = messages.next().ok_or_else(|| damage("count"))??;
            let length = MESSAGE_OVERHEAD_BYTES + message.body.len() + message.properties.len();
            if at + length > self.bytes_max && !self.entries.is_empty() {
                self.copy(chunk, start, at - offset_in_buffer);
                return Ok(false);
            }
            self.entries.push(entry(chunk, self.next, at, message.body.len(), length)?);
            at += length;
            self.next = self.next.next();
        }
        self.records_left -= taken;
        self.copy(chunk, start, at - offset_in_buffer);
        Ok(self.records_left > 0 && at < self.bytes_max)
    }

    fn copy(&mut self, chunk: &Chunk<'_>, start: usize, length: usize) {
        let bytes = chunk.messages.get(start..start + length).unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
    }
}

/// Where the record of a message of `length` bytes at `at` lies: body from byte 20 on, properties at the end.
fn entry(chunk: &Chunk<'_>, offset: Offset, at: usize, body_length: usize, length: usize) -> Result<Entry> {
    const BODY_AT: usize = 20;
    const PROPERTIES_AFTER_BODY: usize = MESSAGE_OVERHEAD_BYTES - BODY_AT;
    let place = |at: usize| u32::try_from(at).map_err(|_| Error::bug("read buffer is beyond 4 GiB"));
    let body = place(at + BODY_AT)?..place(at + BODY_AT + body_length)?;
    let properties = place(at + BODY_AT + body_length + PROPERTIES_AFTER_BODY)?..place(at + length)?;
    Ok(Entry { offset, born: chunk.born, stored: chunk.stored, body: Body::Plain(body), properties })
}
