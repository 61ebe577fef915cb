//! The newest data of the log after a stop that was no close.
//!
//! fjall writes each batch to a journal file first, and reads the newest journal again at its opening. There it stops at
//! what is no entry, but calls a batch of which only some pages reached the disk an error, and does not open. Such a batch
//! is what loss of power leaves, and nobody had an acknowledgement for it: so we cut it off before fjall sees it.
//!
//! What is kept is written again and synced. After a failed sync the pages in memory are those that were written, and those
//! on disk may not be, and a later sync does not write them (fsyncgate). What this opening reads and builds upon must not
//! be lost under it at the next loss of power.
//!
//! # The journal's format, version 3 of fjall, numbers little-endian
//!
//! | entry | holds |
//! | --- | --- |
//! | start | `u8` 1, `u32` how many of the next two there are, `u64` sequence number |
//! | item | `u8` 2, `u8` kind, `u8` compression, `u64` keyspace, `u16` key bytes, `u32` value bytes, `u32` stored bytes, key, stored value |
//! | clear | `u8` 4, `u64` keyspace |
//! | end | `u8` 3, `u64` XXH3-64 of the items and clears as they lie there, `FJL` and 3 |
//!
//! An unknown entry ends the part that is kept, as in fjall; only the newest file is looked at, since a journal is synced
//! before the next is begun.

use onceflow_types::wire::Decoder;
use onceflow_types::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];

/// Cuts off what is no whole batch at the end of the newest journal, and makes the rest durable. Nothing to do when there
/// is no journal.
pub(super) fn mend(data: &Path) -> io::Result<()> {
    let Some(path) = newest(data)? else { return Ok(()) };
    let bytes = fs::read(&path)?;
    let (kept, rest) = bytes.split_at(whole_batches(&bytes));
    // Behind the last batch lie the zeros that fjall has laid out.
    if rest.first().is_some_and(|byte| *byte != 0) {
        tracing::warn!(journal = %path.display(), kept = kept.len(), "the log's last writes were torn and are cut off");
    }
    let mut journal = OpenOptions::new().write(true).open(&path)?;
    // In place and with the same bytes: whatever of it reaches the disk, nothing gets worse.
    journal.write_all(kept)?;
    journal.set_len(kept.len() as u64)?;
    journal.sync_all()?;
    sync_directory(data)
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    // Windows cannot open a directory as a file, and needs no sync of one.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn newest(data: &Path) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest = None;
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        newest = newest.max(number.map(|number| (number, path)));
    }
    Ok(newest.map(|(_, path)| path))
}

/// How many bytes from the start are whole batches.
fn whole_batches(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(length) = bytes.get(whole..).and_then(|rest| batch_bytes(rest).ok()) {
        whole += length;
    }
    whole
}

/// The length of the batch at the start.
fn batch_bytes(bytes: &[u8]) -> Result<usize> {
    let mut from = Decoder::new(bytes);
    expect(from.u8()?, START)?;
    let count = from.u32()?;
    from.u64()?;
    let items = from.rest();
    for _ in 0..count {
        skip_item(&mut from)?;
    }
    let items = items.split_at(items.len() - from.rest().len()).0;
    expect(from.u8()?, END)?;
    if from.u64()? != xxh3_64(items) || from.take(TRAILER.len())? != TRAILER {
        return Err(Error::corrupt("batch has a bad checksum"));
    }
    Ok(bytes.len() - from.rest().len())
}

fn skip_item(from: &mut Decoder<'_>) -> Result<()> {
    match from.u8()? {
        ITEM => {
            from.take(2 + 8)?;
            let key = u16::from_le_bytes(from.take(2)?.try_into().unwrap_or_default());
            from.u32()?;
            let stored = from.u32()?;
            from.take(usize::from(key))?;
            from.take(stored as usize).map(drop)
        }
        kind => expect(kind, CLEAR).and_then(|()| from.u64().map(drop)),
    }
}

fn expect(found: u8, wanted: u8) -> Result<()> {
    if found == wanted { Ok(()) } else { Err(Error::corrupt("no such entry")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal as fjall writes it, and where its batches end.
    fn journal() -> (Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let database = fjall::Database::builder(&path).open().unwrap();
        let keyspace = database.keyspace("k", fjall::KeyspaceCreateOptions::default).unwrap();
        let mut ends = vec![];
        for number in 0..5_u8 {
            let mut batch = database.batch();
            batch.insert(&keyspace, [number], vec![number; 10_000]);
            batch.insert(&keyspace, b"key", vec![number; usize::from(number)]);
            batch.remove(&keyspace, b"other");
            batch.commit().unwrap();
            database.persist(fjall::PersistMode::Buffer).unwrap();
            ends.push(whole_batches(&fs::read(path.join("0.jnl")).unwrap()));
        }
        (fs::read(path.join("0.jnl")).unwrap(), ends)
    }

    #[test]
    fn a_batch_that_is_not_whole_is_cut_off_with_what_follows_it() {
        let (mut whole, ends) = journal();
        assert!(ends.is_sorted_by(|a, b| a + 100 < *b), "each batch is found: {ends:?}");
        whole.truncate(ends[4] + 100);
        for at in (0..ends[4]).step_by(7) {
            let kept = ends.iter().rfind(|end| **end <= at).copied().unwrap_or(0);
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            // fjall's kind byte and the sequence number are not covered by its checksum.
            let found = whole_batches(&damaged);
            assert!(found == kept || found == ends[4], "byte {at}: kept {found} of {ends:?}");
            assert_eq!(whole_batches(&whole[..at]), kept, "cut at {at}");
        }
    }

    #[test]
    fn only_the_newest_journal_is_cut_and_it_keeps_its_whole_batches() {
        let (bytes, ends) = journal();
        let folder = tempfile::tempdir().unwrap();
        mend(&folder.path().join("nothing")).unwrap();
        fs::write(folder.path().join("9.jnl"), b"older").unwrap();
        fs::write(folder.path().join("10.jnl"), &bytes[..ends[3] + 50]).unwrap();
        mend(folder.path()).unwrap();
        assert_eq!(fs::read(folder.path().join("10.jnl")).unwrap(), &bytes[..ends[3]]);
        assert_eq!(fs::read(folder.path().join("9.jnl")).unwrap(), b"older");
    }
}
