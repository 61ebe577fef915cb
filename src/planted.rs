//! Wrong engines, so that the simulation can show that it finds them (goal G1c of the reliability goals).
//!
//! Only with the feature `planted`, which is for that alone: without it every question here is answered with no, at
//! compile time. A bug is planted for one thread.

/// One wrong engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bug {
    /// Publishes half messages before the epoch is decided.
    EndsBeforeDecided,
    /// Takes a journal append without an answer for done.
    UnansweredAppendIsDone,
    /// Commits the offsets of the epoch before.
    OffsetsOneEpochBehind,
    /// Counts channels from 0 again after an opening.
    SequencesStartAgain,
    /// Does not keep the dedup reader's positions.
    PositionsNotKept,
    /// Takes repeated messages for new ones.
    NoDedup,
    /// Keeps only the highest sequence, and so drops what is late.
    MaximumOnly,
    /// Hands a task over before its output is out.
    ReleasesUnpublished,
    /// Takes a batch for visible when its first message is.
    FirstOfBatchIsEnough,
    /// Forgets what earlier owners decided and did not publish.
    ForgetsUnpublished,
    /// Writes that an epoch is published as soon as it is decided.
    PublishedWhenDecided,
    /// Does not write changed entries of the cache into the epoch.
    CacheNotSealed,
}

#[cfg(feature = "planted")]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug for this thread, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.with(|planted| planted.set(bug));
}

/// Whether this bug is planted here.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.with(|planted| planted.get() == Some(bug))
}

/// Without the feature there is none.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
