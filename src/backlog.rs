//! How much decided output waits to be published, over all tasks of a process: each of them keeps it in memory.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all tasks' decided messages that are not yet published and proven.
#[derive(Default, Debug)]
pub(crate) struct Backlog(AtomicUsize);

impl Backlog {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One task's part of them; gone with the task.
#[derive(Debug)]
pub(crate) struct Share {
    backlog: Arc<Backlog>,
    bytes: Cell<usize>,
}

impl Share {
    pub(crate) fn of(backlog: Arc<Backlog>) -> Share {
        Share { backlog, bytes: Cell::new(0) }
    }

    /// Says how many bytes they are now.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        // Only this share's own bytes are ever taken off.
        self.backlog.0.fetch_add(bytes, Ordering::Relaxed);
        self.backlog.0.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_counts_until_it_is_gone() {
        let backlog = Arc::new(Backlog::default());
        let [one, other] = [0; 2].map(|_| Share::of(backlog.clone()));
        one.set(7);
        other.set(5);
        one.set(3);
        assert_eq!(backlog.bytes(), 8);
        drop(one);
        assert_eq!(backlog.bytes(), 5);
    }
}
