//! The bytes of a file, as pages, so that the many states of one file share what is equal.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

pub const PAGE: u64 = 4096;
/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;

type Page = Rc<[u8]>;

/// A page that is not there is zeros.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pages: BTreeMap<u64, Page>,
    length: u64,
}

/// One change of a file's bytes.
#[derive(Clone, Debug)]
pub enum Change {
    Write {
        offset: u64,
        data: Rc<[u8]>,
    },
    Length(u64),
    /// Zeros from `offset` on; the length stays.
    Zero {
        offset: u64,
        length: u64,
    },
}

impl Change {
    /// The pages whose bytes may differ afterwards.
    pub fn pages(&self, length_before: u64) -> Range<u64> {
        let (start, end) = match self {
            Change::Write { offset, data } => (*offset, offset + data.len() as u64),
            Change::Length(length) => (*length.min(&length_before), length_before),
            Change::Zero { offset, length } => (*offset, offset + length),
        };
        start / PAGE..end.div_ceil(PAGE)
    }
}

impl Content {
    pub fn read(path: &Path) -> Content {
        let bytes = std::fs::read(path).unwrap();
        let mut content = Content { pages: BTreeMap::new(), length: bytes.len() as u64 };
        for (number, page) in bytes.chunks(PAGE as usize).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                content.write(number as u64 * PAGE, page);
            }
        }
        content
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn page(&self, number: u64) -> Page {
        self.pages.get(&number).cloned().unwrap_or_else(|| Rc::from([0; PAGE as usize]))
    }

    pub fn set_page(&mut self, number: u64, page: Page) {
        self.pages.insert(number, page);
    }

    /// Takes a page over, and that it is not there.
    pub fn copy_page(&mut self, from: &Content, number: u64) {
        match from.pages.get(&number) {
            Some(page) => self.pages.insert(number, page.clone()),
            None => self.pages.remove(&number),
        };
    }

    /// Those of some pages that are there.
    pub fn held(&self, numbers: Range<u64>) -> impl Iterator<Item = u64> {
        self.pages.range(numbers).map(|(number, _)| *number)
    }

    /// Sets the length; what lies behind it is gone, and zeros when the file grows again.
    pub fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
            self.pages.split_off(&length.div_ceil(PAGE));
        }
        self.length = length;
    }

    /// Sets the length whatever pages were set: none is left behind it.
    pub fn cut(&mut self, length: u64) {
        self.length = u64::MAX;
        self.set_length(length);
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => {
                self.write(*offset, data);
                self.length = self.length.max(offset + data.len() as u64);
            }
            Change::Length(length) => self.set_length(*length),
            Change::Zero { offset, length } => self.zero(*offset, *length),
        }
    }

    fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = offset;
        while !data.is_empty() {
            let (number, start) = (at / PAGE, (at % PAGE) as usize);
            let count = data.len().min(PAGE as usize - start);
            let mut page = self.page(number).to_vec();
            page[start..start + count].copy_from_slice(&data[..count]);
            self.pages.insert(number, page.into());
            data = &data[count..];
            at += count as u64;
        }
    }

    fn zero(&mut self, offset: u64, length: u64) {
        let numbers: Vec<u64> =
            self.pages.range(offset / PAGE..=(offset + length) / PAGE).map(|(number, _)| *number).collect();
        for number in numbers {
            let mut page = self.page(number).to_vec();
            let start = offset.saturating_sub(number * PAGE).min(PAGE) as usize;
            let end = (offset + length).saturating_sub(number * PAGE).min(PAGE) as usize;
            page[start.min(end)..end].fill(0);
            self.pages.insert(number, page.into());
        }
    }

    /// Writes the file, with holes where there is nothing.
    pub fn store(&self, path: &Path) {
        let file = File::create(path).unwrap();
        for (number, page) in &self.pages {
            let left = self.length.saturating_sub(number * PAGE).min(PAGE) as usize;
            file.write_all_at(&page[..left], number * PAGE).unwrap();
        }
        file.set_len(self.length).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_leave_what_they_leave_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (model, real) = (folder.path().join("model"), folder.path().join("real"));
        let file = File::create(&real).unwrap();
        let mut content = Content::default();
        let mut dice = crate::dice::Dice::new(7);
        for _ in 0..300 {
            let offset = dice.below(20_000);
            let change = match dice.below(4) {
                0 => Change::Length(offset),
                _ => Change::Write { offset, data: vec![dice.below(255) as u8 + 1; dice.below(9_000) as usize].into() },
            };
            match &change {
                Change::Write { offset, data } => file.write_all_at(data, *offset).unwrap(),
                Change::Length(length) => file.set_len(*length).unwrap(),
                Change::Zero { .. } => unreachable!("not drawn"),
            }
            content.apply(&change);
            content.store(&model);
            assert!(std::fs::read(&model).unwrap() == std::fs::read(&real).unwrap(), "{change:?}");
        }
        assert_eq!(Content::read(&real).length(), content.length());
    }
}
