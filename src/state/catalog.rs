//! The names and numbers of a task's tables, kept in the state itself.
//!
//! | key | value |
//! | --- | --- |
//! | `00 00` | version `01`, the next number to give (`u16`, big-endian) |
//! | `00 00` name | version `01`, the table's number (`u16`, big-endian) |
//!
//! A number belongs to a name for ever: moving, adding or renaming operators never makes one operator read another's
//! entries.

use super::TableId;
use onceflow_storage::{KeyRange, Order, Overlay, ReadStore};
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;

const CATALOG: [u8; 2] = [0, 0];
const VERSION: u8 = 1;
/// Table 0 is the catalog.
const FIRST: u16 = 1;

#[derive(Debug)]
pub(super) struct Catalog {
    tables: BTreeMap<Box<str>, u16>,
    next: u16,
}

impl Catalog {
    pub(super) fn read(overlay: &Overlay) -> Result<Catalog> {
        let mut catalog = Catalog { tables: BTreeMap::new(), next: FIRST };
        let mut entries = overlay.scan(KeyRange::prefix(&CATALOG), Order::Ascending)?;
        while let Some((key, value)) = entries.next()? {
            let number = decode(value)?;
            match key.get(CATALOG.len()..) {
                None | Some([]) => catalog.next = number,
                Some(name) => catalog.add(name, number)?,
            }
        }
        drop(entries);
        catalog.check()?;
        Ok(catalog)
    }

    fn add(&mut self, name: &[u8], number: u16) -> Result<()> {
        let name = std::str::from_utf8(name).map_err(|e| Error::corrupt("table name is not utf-8").with_source(e))?;
        self.tables.insert(name.into(), number);
        Ok(())
    }

    /// Two names with one number, or a number that may be given again, would mix the entries of two tables.
    fn check(&self) -> Result<()> {
        let mut numbers: Vec<_> = self.tables.values().copied().collect();
        numbers.sort_unstable();
        let repeated = numbers.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
        let in_range = numbers.iter().all(|number| (FIRST..self.next).contains(number));
        if repeated || !in_range {
            return Err(Error::corrupt(format!("table catalog contradicts itself: {self:?}")));
        }
        Ok(())
    }

    pub(super) fn table(&mut self, name: &str, overlay: &mut Overlay) -> Result<TableId> {
        if let Some(number) = self.tables.get(name) {
            return Ok(TableId(*number));
        }
        let number = self.next;
        let Some(next) = number.checked_add(1) else {
            return Err(Error::invalid(format!("task state has no room for another table: name={name}")));
        };
        let mut key = CATALOG.to_vec();
        overlay.put(&key, &encode(next));
        key.extend_from_slice(name.as_bytes());
        overlay.put(&key, &encode(number));
        self.tables.insert(name.into(), number);
        self.next = next;
        Ok(TableId(number))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(|name| &**name)
    }
}

fn encode(number: u16) -> [u8; 3] {
    let [high, low] = number.to_be_bytes();
    [VERSION, high, low]
}

fn decode(bytes: &[u8]) -> Result<u16> {
    match bytes {
        [VERSION, high, low] => Ok(u16::from_be_bytes([*high, *low])),
        [version, ..] if *version > VERSION => Err(Error::invalid(format!(
            "table catalog of a newer format, upgrade onceflow: version={version} known={VERSION}"
        ))),
        _ => Err(Error::corrupt(format!("table catalog entry is damaged: bytes={bytes:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TaskState;
    use crate::testing::commit_point;
    use onceflow_storage::MemoryStore;
    use onceflow_types::{ErrorKind, Name};

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn empty() -> TaskState {
        TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap()
    }

    #[test]
    fn numbers_survive_a_commit_and_are_never_given_again() {
        let mut state = empty();
        let (a, b) = (state.table(&name("a")).unwrap(), state.table(&name("b")).unwrap());
        state.overlay_mut().commit(&commit_point(1)).unwrap();
        let mut again = TaskState::open(state.into_overlay()).unwrap();
        // Opened in another order, with a new one between.
        let c = again.table(&name("c")).unwrap();
        assert_eq!((again.table(&name("b")).unwrap(), again.table(&name("a")).unwrap()), (b, a));
        assert!(c > b && b > a);
        assert_eq!(again.tables_unknown_to(&[name("a"), name("c"), name("d")]), ["b"]);
    }

    #[test]
    fn a_discarded_table_is_forgotten_when_the_state_is_opened_again() {
        let mut state = empty();
        state.table(&name("a")).unwrap();
        state.overlay_mut().discard();
        let again = TaskState::open(state.into_overlay()).unwrap();
        assert_eq!(again.tables().count(), 0);
    }

    #[test]
    fn a_damaged_catalog_is_refused() {
        let cases: [(&[u8], &[u8], ErrorKind); 5] = [
            (b"\0\0x", &[1, 0], ErrorKind::Corrupt),
            (b"\0\0x", &[2, 0, 1], ErrorKind::Invalid),
            (b"\0\0x", &[1, 0, 9], ErrorKind::Corrupt),
            (b"\0\0x", &[1, 0, 1], ErrorKind::Corrupt),
            (b"\0\0\xff", &[1, 0, 2], ErrorKind::Corrupt),
        ];
        for (key, value, kind) in cases {
            let mut state = empty();
            state.table(&name("a")).unwrap();
            state.put(key, value);
            let error = TaskState::open(state.into_overlay()).unwrap_err();
            assert_eq!(error.kind(), kind, "{key:?} {value:?}");
        }
    }

    #[test]
    fn running_out_of_numbers_is_a_typed_error() {
        let mut state = empty();
        state.put(&CATALOG, &encode(u16::MAX));
        let mut state = TaskState::open(state.into_overlay()).unwrap();
        assert_eq!(state.table(&name("a")).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
