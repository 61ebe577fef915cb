//! Rows from the lines of a file.

use super::{Load, too_many};
use crate::codec::{Data, Decode, Key};
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read: 1 GiB.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(super) struct FileRows<C> {
    path: PathBuf,
    codec: C,
}

impl<C> FileRows<C> {
    pub(super) fn new(path: &Path, codec: C) -> Self {
        FileRows { path: path.to_owned(), codec }
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        let read = File::open(&self.path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|e| Error::retry(format!("file cannot be read: file={}", self.path.display())).with_source(e))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Error::invalid(format!("file is too long: file={} max={FILE_BYTES_MAX}", self.path.display())));
        }
        Ok(bytes)
    }
}

impl<K: Key, V: Data, C: Decode<(K, V)>> Load<K, V> for FileRows<C> {
    fn load(&self, rows_max: usize) -> Result<Option<BTreeMap<K, V>>> {
        let (bytes, mut rows) = (self.bytes()?, BTreeMap::new());
        let lines = (1..).zip(bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let (key, value) = self.codec.decode(line).map_err(|e| {
                Error::invalid(format!("line is no row: file={} line={number}", self.path.display())).with_source(e)
            })?;
            rows.insert(key, value);
            if rows.len() > rows_max {
                return Err(too_many(rows_max));
            }
        }
        Ok(Some(rows))
    }
}
