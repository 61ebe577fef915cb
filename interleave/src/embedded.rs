//! The embedded log's group commit, around a writer that remembers what was done to it.

/// Checks of `log/src/embedded/committer.rs`.
pub mod commits;

#[allow(dead_code, reason = "only the thread of the group commit meets others")]
#[path = "../../log/src/embedded/committer.rs"]
mod committer;
#[allow(dead_code, reason = "not all errors can come from the writer here")]
#[path = "../../log/src/embedded/fault.rs"]
mod fault;

mod writer {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    /// What became of the changes, in the order in which they were made.
    #[derive(Default, Debug)]
    pub(crate) struct Disk {
        pub(crate) written: Vec<u32>,
        /// How many of them a crash leaves.
        pub(crate) synced: usize,
        /// How many of them readers see.
        pub(crate) published: usize,
        pub(crate) syncs: usize,
    }

    /// Everybody's view of the disk. No step of the schedule lies inside a look at it.
    #[derive(Clone, Default)]
    pub(crate) struct Shared(Arc<Mutex<Disk>>);

    impl Shared {
        pub(crate) fn look(&self) -> MutexGuard<'_, Disk> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// In the place of the log's writer.
    pub(crate) struct Writer {
        disk: Shared,
        /// The sync that fails, and all after it: 0 is the first.
        fails_from: Option<usize>,
    }

    impl Writer {
        pub(crate) fn new(disk: &Shared, fails_from: Option<usize>) -> Self {
            Writer { disk: disk.clone(), fails_from }
        }

        pub(crate) fn write(&mut self, change: u32) {
            self.disk.look().written.push(change);
        }

        pub(crate) fn sync(&mut self) -> fjall::Result<()> {
            let mut disk = self.disk.look();
            let number = disk.syncs;
            disk.syncs += 1;
            if self.fails_from.is_some_and(|from| number >= from) {
                return Err(fjall::Error::Poisoned);
            }
            disk.synced = disk.written.len();
            Ok(())
        }

        pub(crate) fn publish(&mut self) {
            let mut disk = self.disk.look();
            disk.published = disk.written.len();
        }
    }
}
