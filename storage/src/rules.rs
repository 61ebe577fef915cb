//! The rules of the contract that every backend checks in the same way.

use onceflow_types::{CommitPoint, Error, Result};

/// Rule 3: whether `next` may follow the stored point. For use in backends, before anything is changed.
///
/// # Errors
/// `Bug` when the epoch does not follow the stored one, is 0, or belongs to another incarnation.
pub fn check_next_point(stored: Option<&CommitPoint>, next: &CommitPoint) -> Result<()> {
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
    if next.epoch.distance_from(stored.epoch) != Some(1) {
        return Err(Error::bug(format!("epoch gap: stored={} given={}", stored.epoch, next.epoch)));
    }
    Ok(())
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
