//! The rules of the contract that every backend checks in the same way.

use crate::Delta;
use onceflow_types::{CommitPoint, Error, Result};

/// Rule 3: whether `delta` and `next` may follow the stored point. For use in backends, before anything is changed.
///
/// # Errors
/// `Bug` when the epoch does not follow the stored one, is 0, or belongs to another incarnation; when the stored epoch
/// comes again with changes, of another Commit, or with a journal that goes back.
pub fn check_commit(stored: Option<&CommitPoint>, delta: &Delta, next: &CommitPoint) -> Result<()> {
    let Some(stored) = stored else {
        return match next.epoch.get() {
            0 => Err(Error::bug("epoch 0 cannot be committed")),
            _ => Ok(()),
        };
    };
    if stored.incarnation != next.incarnation {
        return Err(Error::bug(format!(
            "commit of another incarnation: stored={} given={}",
            stored.incarnation, next.incarnation
        )));
    }
    match next.epoch.distance_from(stored.epoch) {
        Some(1) => Ok(()),
        Some(0) => check_same_epoch(stored, delta, next),
        _ => Err(Error::bug(format!("epoch gap: stored={} given={}", stored.epoch, next.epoch))),
    }
}

fn check_same_epoch(stored: &CommitPoint, delta: &Delta, next: &CommitPoint) -> Result<()> {
    let commit = |point: &CommitPoint| (point.commit_offset, point.commit_checksum);
    if delta.is_empty() && commit(stored) == commit(next) && stored.journal_next <= next.journal_next {
        return Ok(());
    }
    Err(Error::bug(format!(
        "an epoch again with other content: epoch={} stored_journal_next={} given_journal_next={}",
        next.epoch, stored.journal_next, next.journal_next
    )))
}

/// Rule 12: whether `load` is still allowed. For use in backends.
///
/// # Errors
/// `Bug` when there is a point already.
pub fn check_load(stored: Option<&CommitPoint>) -> Result<()> {
    match stored {
        None => Ok(()),
        Some(stored) => Err(Error::bug(format!("load after the first commit: stored={}", stored.epoch))),
    }
}
