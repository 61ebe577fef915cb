//! What a clean close leaves: by it the next opening knows that nothing is missing at the end.
//!
//! After a crash a journal that breaks off is normal, and the log ends there. After a close it is damage. `CLOSED` is there
//! from the end of a close to the beginning of the next opening's first write. It holds, [sealed](super::sealed) under its own
//! name: `u32` CRC32C over id and next offset of each queue in the order of ids, and the next place of a half.
//!
//! # Crash story
//! The data are synced before the file is written, and it is removed, durably, before anything else is: whenever it is
//! there, the data are what it speaks of.

use super::directory::create_file;
use super::journal::sync_directory;
use super::sealed;
use super::store::Tail;
use super::writer::Shared;
use fjall::PersistMode;
use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{Error, Result};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const CLOSED_FILE: &str = "CLOSED";
const CLOSED_FILE_NEW: &str = "CLOSED.new";

/// What a close has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Closed(u32);

impl Closed {
    pub(super) fn of(tails: &[Tail], place_next: u64) -> Closed {
        let mut ends: Vec<(u32, u64)> = tails.iter().map(|tail| (tail.queue.id, tail.next.get())).collect();
        ends.sort_unstable();
        let mut bytes = vec![];
        for (id, next) in ends {
            bytes.put_u32(id);
            bytes.put_u64(next);
        }
        bytes.put_u64(place_next);
        Closed(checksum(&bytes))
    }

    /// What the last close left; `None` after a stop that was no close. A file that cannot be read as one counts as none.
    pub(super) fn read(directory: &Path) -> io::Result<Option<Closed>> {
        let bytes = match fs::read(directory.join(CLOSED_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let held = sealed::open(CLOSED_FILE.as_bytes(), &bytes);
        Ok(held.and_then(|held| Decoder::new(held).u32()).ok().map(Closed))
    }

    fn write(self, directory: &Path) -> io::Result<()> {
        let mut bytes = sealed::unsealed(4);
        bytes.put_u32(self.0);
        sealed::seal(CLOSED_FILE.as_bytes(), &mut bytes);
        let new = directory.join(CLOSED_FILE_NEW);
        let mut file = create_file(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, directory.join(CLOSED_FILE))?;
        sync_directory(directory)
    }

    /// Whether what is there is what was closed.
    ///
    /// # Errors
    /// `DataLoss` when it is not.
    pub(super) fn check(self, found: Closed, directory: &Path) -> Result<()> {
        if self == found {
            return Ok(());
        }
        Err(Error::data_loss(format!(
            "log does not end where it was closed, bring it back from a backup: path={}",
            directory.display()
        )))
    }
}

/// Closes the log when it is dropped, which is after the last write and before the directory is unlocked.
pub(super) struct Closing {
    pub(super) shared: Arc<Shared>,
    pub(super) directory: PathBuf,
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Without the file the next opening looks more closely; nothing else depends on it.
        if let Err(error) = self.close() {
            tracing::warn!(?error, "log was not closed cleanly");
        }
    }
}

impl Closing {
    fn close(&self) -> Result<()> {
        let store = &self.shared.store;
        if self.shared.failed.load(Ordering::Acquire) {
            return Err(super::fault::failed_before());
        }
        store.database.persist(PersistMode::SyncAll).map_err(super::fault::writing)?;
        let closed = Closed::of(&store.queues(&self.shared.options.broker)?, store.place_next()?);
        closed.write(&self.directory).map_err(|e| Error::invalid("log cannot be closed").with_source(e))
    }
}
