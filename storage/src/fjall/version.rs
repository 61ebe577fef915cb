//! fjall's own record of what belongs to a keyspace, checked before fjall believes it.
//!
//! Each keyspace has a file `current` (number of a version `u64`, its checksum XXH3-128 `u128`, `u8` 0, little-endian) and a
//! file `v` and the number, with the tables of that version. fjall writes the checksum and does not compare it. From a
//! damaged version it would take other tables or sequence numbers, or panic in a way that ends the process.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

const CURRENT_FILE: &str = "current";
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// The first keyspace, below the folder of all, whose version is not what was written; `None` when all are.
pub(super) fn damaged(keyspaces: &Path) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(keyspaces) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !is_whole(&path)? {
            return Ok(Some(path.display().to_string()));
        }
    }
    Ok(None)
}

/// A keyspace without `current` was never finished, and fjall removes it.
fn is_whole(keyspace: &Path) -> io::Result<bool> {
    let Some(current) = read(&keyspace.join(CURRENT_FILE))? else { return Ok(true) };
    let (Some(number), Some(sum)) = (current.first_chunk::<8>(), current.get(8..24)) else { return Ok(false) };
    let version = read(&keyspace.join(format!("v{}", u64::from_le_bytes(*number))))?;
    let matches = version.is_some_and(|version| xxh3_128(&version).to_le_bytes() == sum);
    Ok(matches && current.len() == CURRENT_BYTES)
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_version_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let database = ::fjall::Database::builder(&path).open().unwrap();
        let keyspace = database.keyspace("k", ::fjall::KeyspaceCreateOptions::default).unwrap();
        keyspace.insert("key", "value").unwrap();
        keyspace.rotate_memtable_and_wait().unwrap();
        drop((keyspace, database));
        let keyspaces = path.join("keyspaces");
        assert_eq!(damaged(&keyspaces).unwrap(), None);
        let mut files = 0;
        for keyspace in fs::read_dir(&keyspaces).unwrap().map(|entry| entry.unwrap().path()) {
            let current = fs::read(keyspace.join(CURRENT_FILE)).unwrap();
            let version = format!("v{}", u64::from_le_bytes(*current.first_chunk().unwrap()));
            for name in [CURRENT_FILE, &*version] {
                let file = keyspace.join(name);
                files += 1;
                let whole = fs::read(&file).unwrap();
                for at in 0..whole.len() {
                    let mut changed = whole.clone();
                    changed[at] ^= 1;
                    fs::write(&file, &changed).unwrap();
                    // The last byte of `current` names the kind of checksum, and fjall does not read it.
                    let known = name == CURRENT_FILE && at == CURRENT_BYTES - 1;
                    assert!(known || damaged(&keyspaces).unwrap().is_some(), "{} byte {at}", file.display());
                }
                fs::write(&file, &whole).unwrap();
            }
        }
        assert!(files >= 4, "two keyspaces at least, each with two files: {files}");
    }
}
