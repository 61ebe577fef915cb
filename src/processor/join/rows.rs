//! The rows of a join that lie in the state by key, in the order of key and time: those that [memory](super::interval) has no
//! room for.
//!
//! | key, behind the number of the table `name#left` or `name#right` | value |
//! | --- | --- |
//! | key by Postcard; time (`i64`, big-endian, top bit flipped); sequence (`u64`, big-endian) | `00`, or `01` once it has had a partner; then the value, stored as in a table |
//!
//! No key's bytes are the beginning of another one's, as Postcard needs no end to read a value back. So the rows of a key lie
//! side by side.

use super::{Side, Sided};
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

/// When a row is closed. In the order in which rows are closed; no two are equal, as their sequences differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment {
    pub(super) close: i64,
    pub(super) side: Side,
    pub(super) place: Place,
}

/// A row that was read.
pub(super) struct Row<L, R> {
    pub(super) place: Place,
    pub(super) matched: bool,
    pub(super) value: Sided<L, R>,
}

/// Rows of a key that are read part by part, in order.
pub(super) struct Range {
    /// Where the next part begins; `None` behind the last.
    pub(super) from: Option<Place>,
    pub(super) through: i64,
}

impl Range {
    /// The rows whose time is from `first` to `through`, both included.
    pub(super) fn new(first: i64, through: i64) -> Self {
        Range { from: (first <= through).then_some(Place { time: first, sequence: 0 }), through }
    }
}

/// Appends the stored form of a row's value.
///
/// # Errors
/// `Record` when it is too long.
pub(super) fn encode_value<L: StateValue, R: StateValue>(value: &Sided<L, R>, to: &mut Vec<u8>) -> Result<()> {
    let before = to.len();
    match value {
        Sided::Left(left) => encode_stored(left, to)?,
        Sided::Right(right) => encode_stored(right, to)?,
    }
    let bytes = to.len() - before;
    if bytes >= VALUE_BYTES_MAX {
        return Err(Error::record(format!("row is too long: bytes={bytes} max={VALUE_BYTES_MAX}")));
    }
    Ok(())
}

pub(super) fn decode_value<L: StateValue, R: StateValue>(side: Side, bytes: &[u8]) -> Result<Sided<L, R>> {
    Ok(match side {
        Side::Left => Sided::Left(decode_stored(bytes)?),
        Side::Right => Sided::Right(decode_stored(bytes)?),
    })
}

/// Whether a row of a key so long can be kept. Who changes anything else for a record looks before.
///
/// # Errors
/// `Record` when it is longer than the store allows.
pub(super) fn check_key(bytes: usize) -> Result<()> {
    if bytes + BESIDE_BYTES + TIMER_BYTES + 8 > KEY_BYTES_MAX {
        return Err(Error::record(format!("key is too long: bytes={bytes} max={KEY_BYTES_MAX}")));
    }
    Ok(())
}

/// The rows of both sides.
pub(super) struct Rows<L, R> {
    name: Name,
    tables: Option<[TableId; 2]>,
    key: Vec<u8>,
    value: Vec<u8>,
    values: PhantomData<fn() -> (L, R)>,
}

impl<L: StateValue, R: StateValue> Rows<L, R> {
    pub(super) fn new(name: Name) -> Self {
        Rows { name, tables: None, key: vec![], value: vec![], values: PhantomData }
    }

    pub(super) fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.tables = Some([state.part_of_table(&self.name, "left")?, state.part_of_table(&self.name, "right")?]);
        Ok(())
    }

    fn table(&self, side: Side) -> Result<TableId> {
        let [left, right] = self.tables.ok_or_else(|| Error::bug("rows are used before they are opened"))?;
        Ok(if side == Side::Left { left } else { right })
    }

    fn row_key(&mut self, key: &[u8], side: Side, place: Place) -> Result<()> {
        let table = self.table(side)?;
        self.key.clear();
        self.key.extend_from_slice(&table.prefix());
        self.key.extend_from_slice(key);
        self.key.extend_from_slice(&place.to_bytes());
        Ok(())
    }

    /// Keeps a row.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        place: Place,
        matched: bool,
        value: &Sided<L, R>,
        state: &mut TaskState,
    ) -> Result<()> {
        self.row_key(key, value.side(), place)?;
        self.value.clear();
        self.value.push(if matched { MATCHED } else { ALONE });
        encode_value(value, &mut self.value)?;
        state.put(&self.key, &self.value);
        Ok(())
    }

    /// A row has found its first partner.
    pub(super) fn mark(&mut self, key: &[u8], side: Side, place: Place, state: &mut TaskState) -> Result<()> {
        self.row_key(key, side, place)?;
        if !state.get(&self.key, &mut self.value)? {
            return Err(damaged());
        }
        *self.value.first_mut().ok_or_else(damaged)? = MATCHED;
        state.put(&self.key, &self.value);
        Ok(())
    }

    /// Takes a row out.
    pub(super) fn take(
        &mut self,
        key: &[u8],
        side: Side,
        place: Place,
        state: &mut TaskState,
    ) -> Result<Option<(bool, Sided<L, R>)>> {
        self.row_key(key, side, place)?;
        if !state.get(&self.key, &mut self.value)? {
            return Ok(None);
        }
        state.delete(&self.key);
        decode(side, &self.value).map(Some)
    }

    /// Takes a row out that is known.
    pub(super) fn remove(&mut self, key: &[u8], side: Side, place: Place, state: &mut TaskState) -> Result<()> {
        self.row_key(key, side, place)?;
        state.delete(&self.key);
        Ok(())
    }

    /// Reads the next rows of a range instead of those in `rows`; says whether the range was not yet at its end.
    pub(super) fn read(
        &mut self,
        key: &[u8],
        side: Side,
        range: &mut Range,
        rows: &mut Vec<Row<L, R>>,
        state: &TaskState,
    ) -> Result<bool> {
        rows.clear();
        let Some(from) = range.from else { return Ok(false) };
        self.row_key(key, side, Place { time: range.through, sequence: u64::MAX })?;
        let mut end = self.key.clone();
        end.push(0);
        self.row_key(key, side, from)?;
        let head = self.key.len() - PLACE_BYTES;
        let mut cursor = state.overlay().scan(KeyRange::new(&self.key, &end), Order::Ascending)?;
        while rows.len() < READ_MAX
            && let Some((key, value)) = cursor.next()?
        {
            let place = Place::from_bytes(key.get(head..).ok_or_else(damaged)?)?;
            let (matched, value) = decode(side, value)?;
            rows.push(Row { place, matched, value });
        }
        // Fewer than could be read at once are the last.
        let last = rows.last().filter(|_| rows.len() == READ_MAX);
        range.from = last.map(|row| Place { sequence: row.place.sequence.saturating_add(1), ..row.place });
        Ok(true)
    }

    /// How many rows of a side there are. Reads all of them.
    pub(super) fn count(&self, side: Side, state: &TaskState) -> Result<u64> {
        let mut cursor = state.scan(self.table(side)?, Order::Ascending)?;
        let mut count = 0;
        while cursor.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

fn decode<L: StateValue, R: StateValue>(side: Side, bytes: &[u8]) -> Result<(bool, Sided<L, R>)> {
    match bytes.split_first() {
        Some((&ALONE, value)) => Ok((false, decode_value(side, value)?)),
        Some((&MATCHED, value)) => Ok((true, decode_value(side, value)?)),
        _ => Err(damaged()),
    }
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("row of a join is damaged")
}
