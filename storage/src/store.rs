//! The contract of a state store.

use crate::{Delta, KeyRange};
use onceflow_types::{CommitPoint, Result};

/// The order in which a scan visits keys. Keys are ordered bytewise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// From the smallest key up.
    Ascending,
    /// From the largest key down.
    Descending,
}

/// Visits the entries of a range. Lends one entry at a time, so a scan allocates nothing per entry.
pub trait Cursor {
    /// The next entry, or `None` behind the last one; after that always `None`.
    ///
    /// # Errors
    /// `Corrupt` when the store cannot read on. The scan has then **not** reached its end, and each further call
    /// returns the error again.
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;
}

/// Reading, shared by stores and overlays.
pub trait ReadStore {
    /// Replaces `value` by the value of `key` and returns true; returns false and clears `value` when there is none.
    /// The buffer is the caller's, so a lookup allocates nothing once it has grown.
    ///
    /// # Errors
    /// `Corrupt` when the entry cannot be read.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Visits the entries of `range` in `order`, as of this call.
    ///
    /// # Errors
    /// `Corrupt` when the scan cannot start.
    fn scan<'s>(&'s self, range: KeyRange<'_>, order: Order) -> Result<Box<dyn Cursor + 's>>;
}

/// The committed state of one task: one ordered space of byte keys, and the [`CommitPoint`] that says which journal
/// prefix it stands for. Synchronous; owned by one task and called on its thread.
///
/// # Contract
/// The suite in `contract` (feature `contract`) quotes these numbers.
///
/// 1. **Atomic.** After a crash at any moment the store equals the state before a `commit` or after it, point included.
/// 2. **Point and state are one.** `commit_point` returns the point of the last `commit` that is in the store.
/// 3. **No gaps.** The first `commit` of an empty store may carry any epoch from 1; after that `point.epoch` is the
///    stored epoch + 1, under the same incarnation; or, without changes, the stored epoch of the same Commit again with a
///    `journal_next` that is no smaller: the journal has gone on without an epoch. Anything else is `Bug`, and nothing
///    changed.
/// 4. **A failed commit ends the handle.** When `commit` fails in the backend, the outcome is unknown: every later call
///    that could change or report the state returns `Corrupt`, until the store is opened again.
/// 5. **Read your commits.** After `commit` returns, `get` and `scan` show its changes, and no others.
/// 6. **Order and bounds.** Scans visit keys in bytewise order within the range, each once, with no foreign key, before
///    and after flushes and compactions.
/// 7. **A scan never ends early.** An entry that cannot be read is an error, not the end.
/// 8. **One owner.** A second open of a directory that is open, in this process or another, is `Fenced`; opening it
///    after the first handle was dropped succeeds.
/// 9. **Foreign directories are refused** untouched: another job, task or backend, a newer format, or files that are
///    not a store at all are `Invalid`.
/// 10. **Damage is typed.** A truncated, missing or changed file gives `Corrupt`, at open or at the read that meets it,
///     or the right data: never other data, never an empty store, never a panic.
/// 11. **Durability is the journal's.** `commit` need not survive power loss. A store that is not crash-consistent
///     (may break rule 1 when the machine loses power) says so by [`crash_consistent`](Self::crash_consistent), and its
///     opening after an unclean stop is `Corrupt`, so that it is destroyed and rebuilt from the journal.
/// 12. **Loading.** Before the first `commit`, `load` adds entries without a point, to restore a snapshot in pieces; the
///     first `commit` makes them valid, and visible. Pieces come in ascending order as a rule, and may come in any. A store that is opened with entries and no point is emptied. `load` after the
///     first commit is `Bug`.
/// 13. **Empty keys and values** are keys and values like others.
pub trait StateStore: ReadStore + Send {
    /// The point of the last commit; `None` for a store that has none.
    ///
    /// # Errors
    /// `Corrupt` after a failed commit (rule 4).
    fn commit_point(&self) -> Result<Option<&CommitPoint>>;

    /// Applies `delta` and sets the point, in one atomic write. The only way in which committed state changes.
    ///
    /// # Errors
    /// `Bug` for an epoch out of order (rule 3), `Corrupt` when the backend failed (rule 4), `Invalid` when it failed because
    /// the disk is full or may not be written: nothing is damaged, and the store opens again when there is space.
    fn commit(&mut self, delta: &Delta, point: &CommitPoint) -> Result<()>;

    /// Adds entries before the first commit (rule 12).
    ///
    /// # Errors
    /// `Bug` after the first commit, `Corrupt` when the backend failed.
    fn load(&mut self, delta: &Delta) -> Result<()>;

    /// Whether rule 1 also holds across loss of power.
    fn crash_consistent(&self) -> bool;

    /// The backend's name, for messages and metrics.
    fn backend(&self) -> &'static str;
}
