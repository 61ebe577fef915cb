//! The numbers of a join's rows.

use crate::state::{TableId, TaskState};
use onceflow_types::{Error, Name, Result};

/// The first byte of the entry. A program that knows version 1 alone does not know [segments](super::segments).
const VERSION: u8 = 2;
/// Written before there were segments.
const VERSION_BY_KEY: u8 = 1;

/// Numbers the rows of a join, so that two of one key and time stay two. Kept in the table `name`, whose only entry has an
/// empty key: version `02`, the next number (`u64`, big-endian).
pub(super) struct Sequence {
    name: Name,
    table: Option<TableId>,
    next: u64,
    saved: u64,
}

impl Sequence {
    pub(super) fn new(name: Name) -> Self {
        Sequence { name, table: None, next: 0, saved: 0 }
    }

    pub(super) fn open(&mut self, state: &mut TaskState) -> Result<()> {
        let table = state.table(&self.name)?;
        self.table = Some(table);
        let mut value = vec![];
        if state.get(&table.prefix(), &mut value)? {
            self.next = match value.split_first() {
                Some((&VERSION | &VERSION_BY_KEY, number)) => {
                    number.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?
                }
                Some((&version, _)) if version > VERSION => {
                    return Err(Error::invalid(format!("join of a newer format, upgrade onceflow: version={version}")));
                }
                _ => return Err(damaged()),
            };
        }
        self.saved = self.next;
        Ok(())
    }

    pub(super) fn draw(&mut self) -> Result<u64> {
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| Error::bug("a join has no numbers left"))?;
        Ok(number)
    }

    pub(super) fn seal(&mut self, state: &mut TaskState) -> Result<()> {
        if self.next > self.saved {
            let table = self.table.ok_or_else(|| Error::bug("a join's sequence is used before it is opened"))?;
            let mut value = vec![VERSION];
            value.extend_from_slice(&self.next.to_be_bytes());
            state.put(&table.prefix(), &value);
            self.saved = self.next;
        }
        Ok(())
    }
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("sequence of a join is damaged")
}
