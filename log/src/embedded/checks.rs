//! Which half message is asked about next.

use super::half::Checked;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// The halves that nobody ended, by their first place.
#[derive(Debug, Default)]
pub(super) struct Checks {
    waiting: BTreeMap<u64, Waiting>,
    /// By group, in the order in which they are due.
    due: BTreeMap<Arc<str>, BTreeSet<(Instant, u64)>>,
}

/// A half that waits for its end.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) group: Arc<str>,
    pub(super) due: Instant,
    pub(super) checked: Checked,
}

impl Checks {
    /// Adds a half, or moves it.
    pub(super) fn set(&mut self, first: u64, waiting: Waiting) {
        self.remove(first);
        self.due.entry(waiting.group.clone()).or_default().insert((waiting.due, first));
        self.waiting.insert(first, waiting);
    }

    /// Forgets a half; nothing happens when it is not there.
    pub(super) fn remove(&mut self, first: u64) {
        let Some(waiting) = self.waiting.remove(&first) else { return };
        if let Some(due) = self.due.get_mut(&waiting.group) {
            due.remove(&(waiting.due, first));
            if due.is_empty() {
                self.due.remove(&waiting.group);
            }
        }
    }

    pub(super) fn get(&self, first: u64) -> Option<&Waiting> {
        self.waiting.get(&first)
    }

    /// Which half of this group is asked about next, and when.
    pub(super) fn next(&self, group: &str) -> Option<(Instant, u64)> {
        self.due.get(group)?.first().copied()
    }
}
