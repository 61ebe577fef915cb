//! What can be seen of a running job.

use crate::stage::Counters;
use onceflow_types::{Epoch, Generation, Offsets, TaskId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Standing {
    /// Not opened yet, or waiting to be opened again.
    #[default]
    Waiting,
    /// Reading its journal and applying it to its store.
    Restoring,
    /// Processing.
    Running,
    /// Handed over by a Release.
    Released,
    /// Stopped by an error.
    Failed,
}

/// What the protocol did for a task. Counts only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ProtocolCounters {
    /// Epochs decided by this process.
    pub epochs: u64,
    /// Epochs that were applied from the journal at an opening.
    pub epochs_replayed: u64,
    /// Journal bytes appended.
    pub journal_bytes: u64,
    /// Openings of the task.
    pub openings: u64,
    /// Openings that ended because someone newer owns the task.
    pub fenced: u64,
    /// Tries of a journal append after the first.
    pub append_retries: u64,
    /// Half messages acknowledged.
    pub halves: u64,
    /// Tries of a half message after the first; each may have left an orphan.
    pub half_retries: u64,
    /// Half messages rolled back because their epoch was dropped.
    pub halves_rolled_back: u64,
    /// ENDs acknowledged.
    pub ends: u64,
    /// Plain sends acknowledged.
    pub sends: u64,
    /// ENDs and plain sends without a reply.
    pub publish_unknown: u64,
    /// Scans of target queues for output whose fate was unknown.
    pub scans: u64,
    /// Output messages that a scan found, so that they were not repeated.
    pub scan_found: u64,
    /// Journal records that were void when folded.
    pub void_records: u64,
    /// Journal messages that were not ours, or damaged.
    pub foreign_records: u64,
    /// Messages of upstream jobs or tasks that came again and were dropped by their sequence.
    pub duplicates_dropped: u64,
    /// Messages held back until one before them arrived.
    pub messages_held: u64,
    /// Gaps that the dedup reader passed because what was missing lies before its start or was removed.
    pub gaps_passed: u64,
    /// Messages on internal topics that are not this job's.
    pub foreign_messages: u64,
    /// Reads of a source that failed and were tried again.
    pub read_retries: u64,
}

/// A task as it was when it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TaskStatus {
    /// Where it stands.
    pub state: Standing,
    /// The generation that owns it, if it is owned here.
    pub generation: Option<Generation>,
    /// The last decided epoch.
    pub epoch: Epoch,
    /// Every epoch up to this one is published and proven.
    pub published_through: Epoch,
    /// The next offset to read, per source partition, as of the last decided epoch.
    pub offsets: Offsets,
    /// Journal records read and still to be read while restoring.
    pub restore: RestoreProgress,
    /// What its stages did.
    pub stages: Counters,
    /// What the protocol did.
    pub protocol: ProtocolCounters,
}

/// How far a task is in reading its journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreProgress {
    /// The next journal offset to read.
    pub at: u64,
    /// The end of the journal when the opening began.
    pub end: u64,
}

/// All tasks of a process.
pub(crate) type Board = BTreeMap<TaskId, Line>;

/// One task's line on the board; clones write to the same one.
#[derive(Clone, Default, Debug)]
pub(crate) struct Line(Arc<Mutex<TaskStatus>>);

impl Line {
    pub(crate) fn status(&self) -> TaskStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut TaskStatus)) {
        // A poisoned line is still whole: each update is a few assignments.
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ProtocolCounters)) {
        self.update(|status| change(&mut status.protocol));
    }
}
