//! The rows of one side of a join, in the order of key and time.
//!
//! | key, behind the number of the table `name#left` or `name#right` | value |
//! | --- | --- |
//! | key by Postcard; time (`i64`, big-endian, top bit flipped); sequence (`u64`, big-endian) | `00`, or `01` once it has had a partner; then the value, stored as in a table |
//!
//! No key's bytes are the beginning of another one's, as Postcard needs no end to read a value back. So the rows of a key lie
//! side by side.

use crate::codec::StateValue;
use crate::state::{TableId, TaskState, decode_stored, decode_time, encode_stored, encode_time};
use onceflow_storage::{KEY_BYTES_MAX, KeyRange, Order, ReadStore, VALUE_BYTES_MAX};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::marker::PhantomData;

/// How many rows are read before they are worked on.
const READ_MAX: usize = 256;
/// Bytes of a row's key beside the key itself: table, time, sequence. A timer has as many, and two more.
const BESIDE_BYTES: usize = 2 + PLACE_BYTES;
const PLACE_BYTES: usize = 16;
const TIMER_BYTES: usize = 2;
const ALONE: u8 = 0;
const MATCHED: u8 = 1;

/// Where a row lies among those of its key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) time: i64,
    /// The order in which the join took the rows of both sides.
    pub(super) sequence: u64,
}

impl Place {
    pub(super) fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let (time, sequence) = bytes.split_at_mut(PLACE_BYTES / 2);
        time.copy_from_slice(&encode_time(Timestamp::from_millis(self.time)));
        sequence.copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (time, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let sequence = rest.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
        Ok(Place { time: decode_time(*time).as_millis(), sequence })
    }
}

/// A row that was read.
pub(super) struct Row<V> {
    pub(super) place: Place,
    pub(super) matched: bool,
    pub(super) value: V,
}

/// Rows of a key that are read part by part, in order.
pub(super) struct Range {
    /// Where the next part begins; `None` behind the last.
    from: Option<Place>,
    through: i64,
}

impl Range {
    /// The rows whose time is from `first` to `through`, both included.
    pub(super) fn new(first: i64, through: i64) -> Self {
        Range { from: (first <= through).then_some(Place { time: first, sequence: 0 }), through }
    }
}

/// The rows of one side.
pub(super) struct Rows<V> {
    name: Name,
    part: &'static str,
    table: Option<TableId>,
    key: Vec<u8>,
    value: Vec<u8>,
    values: PhantomData<fn() -> V>,
}

impl<V: StateValue> Rows<V> {
    pub(super) fn new(name: Name, part: &'static str) -> Self {
        Rows { name, part, table: None, key: vec![], value: vec![], values: PhantomData }
    }

    pub(super) fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.table = Some(state.part_of_table(&self.name, self.part)?);
        Ok(())
    }

    fn key(&mut self, key: &[u8]) -> Result<()> {
        let table = self.table.ok_or_else(|| Error::bug("rows are used before they are opened"))?;
        self.key.clear();
        self.key.extend_from_slice(&table.prefix());
        self.key.extend_from_slice(key);
        Ok(())
    }

    fn row_key(&mut self, key: &[u8], place: Place) -> Result<()> {
        self.key(key)?;
        self.key.extend_from_slice(&place.to_bytes());
        Ok(())
    }

    /// Makes the bytes of a row that is to be [`put`](Self::put). What cannot be kept fails here, before anything changes.
    ///
    /// # Errors
    /// `Record` when key or value are too long.
    pub(super) fn encode(&mut self, key: &[u8], value: &V) -> Result<()> {
        if key.len() + BESIDE_BYTES + TIMER_BYTES + 8 > KEY_BYTES_MAX {
            return Err(Error::record(format!("key is too long: bytes={} max={KEY_BYTES_MAX}", key.len())));
        }
        self.value.clear();
        self.value.push(ALONE);
        encode_stored(value, &mut self.value)?;
        if self.value.len() > VALUE_BYTES_MAX {
            let bytes = self.value.len();
            return Err(Error::record(format!("row is too long: bytes={bytes} max={VALUE_BYTES_MAX}")));
        }
        Ok(())
    }

    /// Keeps the row that was encoded last.
    pub(super) fn put(&mut self, key: &[u8], place: Place, matched: bool, state: &mut TaskState) -> Result<()> {
        self.row_key(key, place)?;
        if let Some(first) = self.value.first_mut() {
            *first = if matched { MATCHED } else { ALONE };
        }
        state.put(&self.key, &self.value);
        Ok(())
    }

    /// A row has found its first partner.
    pub(super) fn mark(&mut self, key: &[u8], place: Place, state: &mut TaskState) -> Result<()> {
        self.row_key(key, place)?;
        let mut value = vec![];
        if !state.get(&self.key, &mut value)? {
            return Err(damaged());
        }
        *value.first_mut().ok_or_else(damaged)? = MATCHED;
        state.put(&self.key, &value);
        Ok(())
    }

    /// Takes a row out.
    pub(super) fn take(&mut self, key: &[u8], place: Place, state: &mut TaskState) -> Result<Option<(bool, V)>> {
        self.row_key(key, place)?;
        let mut value = vec![];
        if !state.get(&self.key, &mut value)? {
            return Ok(None);
        }
        state.delete(&self.key);
        decode(&value).map(Some)
    }

    /// Takes a row out that nobody wants to see.
    pub(super) fn remove(&mut self, key: &[u8], place: Place, state: &mut TaskState) -> Result<()> {
        self.row_key(key, place)?;
        state.delete(&self.key);
        Ok(())
    }

    /// Reads the next rows of a range instead of those in `rows`; says whether the range was not yet at its end.
    pub(super) fn read(
        &mut self,
        key: &[u8],
        range: &mut Range,
        rows: &mut Vec<Row<V>>,
        state: &TaskState,
    ) -> Result<bool> {
        rows.clear();
        let Some(from) = range.from else { return Ok(false) };
        self.row_key(key, Place { time: range.through, sequence: u64::MAX })?;
        let mut end = self.key.clone();
        end.push(0);
        self.row_key(key, from)?;
        let head = self.key.len() - PLACE_BYTES;
        let mut cursor = state.overlay().scan(KeyRange::new(&self.key, &end), Order::Ascending)?;
        while rows.len() < READ_MAX
            && let Some((key, value)) = cursor.next()?
        {
            let place = Place::from_bytes(key.get(head..).ok_or_else(damaged)?)?;
            let (matched, value) = decode(value)?;
            rows.push(Row { place, matched, value });
        }
        // Fewer than could be read at once are the last.
        let last = rows.last().filter(|_| rows.len() == READ_MAX);
        range.from = last.map(|row| Place { sequence: row.place.sequence.saturating_add(1), ..row.place });
        Ok(true)
    }
}

fn decode<V: StateValue>(bytes: &[u8]) -> Result<(bool, V)> {
    match bytes.split_first() {
        Some((&ALONE, value)) => Ok((false, decode_stored(value)?)),
        Some((&MATCHED, value)) => Ok((true, decode_stored(value)?)),
        _ => Err(damaged()),
    }
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("row of a join is damaged")
}
