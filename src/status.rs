//! What can be seen of a running job.

use crate::stage::Counters;
use onceflow_log::MemberId;
use onceflow_types::{Epoch, Generation, Offsets, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Standing {
    /// To be worked on here: not opened yet, or waiting to be opened again.
    #[default]
    Waiting,
    /// Another member of the job works on it, or is about to; nothing of it is open here.
    Standby,
    /// Reading its journal and applying it to its store, and waiting until the member that works on it hands it over.
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
    /// Its consumer lag: how many messages its sources had behind those that it processed last, when those were read. A
    /// frame of records is one message. 0 while it does not work here, and until its first read.
    pub lag: u64,
    /// Whether windows or timers were due that no epoch had room for yet; until the last of them is decided.
    pub time_behind: bool,
    /// How much of its snapshot and journal is read, and how much there is, since it was opened last.
    pub restore: RestoreProgress,
    /// What its stages did.
    pub stages: Counters,
    /// What the protocol did.
    pub protocol: ProtocolCounters,
}

/// How far an opening is: first in reading a snapshot, if it uses one, then in reading the journal behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RestoreProgress {
    /// What is loaded of a snapshot.
    pub snapshot: SnapshotProgress,
    /// The next journal offset to read.
    pub at: u64,
    /// The end of the journal when the opening began.
    pub end: u64,
}

/// How far an opening is in loading a snapshot; all zero when it uses none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotProgress {
    /// Chunks read, of
    pub chunks_read: u32,
    /// ... this many. A chunk has at most 1 MiB.
    pub chunks: u32,
    /// Entries of the state that were loaded.
    pub entries: u64,
    /// Their bytes as they lie in the snapshot.
    pub bytes: u64,
}

/// How the processes of a job share its tasks, as one of them sees it. Counts only grow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MembershipStatus {
    /// The name of this process in the group.
    pub member: MemberId,
    /// The members as they were seen last, this one among them.
    pub members: BTreeSet<MemberId>,
    /// How often other members were seen than before.
    pub changes: u64,
    /// Looks at the members, or at the owners of tasks, that failed; what was seen last went on to count.
    pub looks_failed: u64,
    /// Tasks that began to be worked on here, those of the start included.
    pub tasks_taken: u64,
    /// Tasks that were given to other members.
    pub tasks_given: u64,
    /// Tasks that came with new queues while the job was running.
    pub tasks_found: u64,
}

/// All tasks of the job, as this process sees them.
#[derive(Default, Debug)]
pub(crate) struct Board(Mutex<BTreeMap<TaskId, Line>>);

impl Board {
    /// The line of a task; made when there is none.
    pub(crate) fn line(&self, task: &TaskId) -> Line {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(task.clone()).or_default().clone()
    }

    pub(crate) fn status(&self) -> BTreeMap<TaskId, TaskStatus> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(task, line)| (task.clone(), line.status())).collect()
    }
}

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
