//! What a check-back is answered: Rollback or Unknown, from the fold alone.
//!
//! Rollback iff the half's incarnation is another, or its generation is older than the current one, or its epoch is
//! decided and either the half is not listed or the epoch is at or below `published_through`. Unknown otherwise, and
//! always for a task the instance knows nothing about.
//!
//! A rollback is housekeeping: publishing is the owner's END by the recorded handle, which works after a rollback, too.
//! An answer Commit would publish twice without any fault, and out of order; there is no value for it.

use crate::{Fold, Identity};
use onceflow_types::{Epoch, Generation, Incarnation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The answer to a check-back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The half will never be needed as a half.
    Rollback,
    /// Ask again later.
    Unknown,
}

/// What one instance knows about one task, for answering check-backs. Cheap to clone: another thread holds a copy.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct CheckBackView {
    owner: Option<(Incarnation, Generation)>,
    epoch: Epoch,
    published_through: Epoch,
    /// The UNIQ_KEYs of the listed halves, per decided epoch after `published_through`.
    listed: BTreeMap<Epoch, Arc<BTreeSet<Arc<str>>>>,
}

impl CheckBackView {
    /// What `fold` knows; no epoch is [listed](Self::list) yet.
    pub fn of(fold: &Fold) -> Self {
        let mut view = CheckBackView::default();
        view.advance(fold);
        view
    }

    /// Takes over what `fold` knows now, and forgets the lists of epochs that are published.
    pub fn advance(&mut self, fold: &Fold) {
        self.owner = fold.incarnation().zip(fold.generation());
        self.epoch = fold.epoch();
        self.published_through = fold.published_through();
        self.listed.retain(|epoch, _| *epoch > fold.published_through() && *epoch <= fold.epoch());
    }

    /// Says which halves a decided epoch lists: all of them, by UNIQ_KEY. Until then its halves are Unknown.
    pub fn list(&mut self, epoch: Epoch, unique_keys: impl IntoIterator<Item = Arc<str>>) {
        if epoch > self.published_through {
            self.listed.insert(epoch, Arc::new(unique_keys.into_iter().collect()));
        }
    }

    fn is_decided(&self, epoch: Epoch) -> bool {
        epoch <= self.epoch
    }

    /// Whether a decided epoch needs nothing of this half: it is published, or known not to list it.
    fn is_done_with(&self, epoch: Epoch, unique_key: &str) -> bool {
        epoch <= self.published_through || self.listed.get(&epoch).is_some_and(|keys| !keys.contains(unique_key))
    }
}

/// Answers the check-back of a half by its identity and its UNIQ_KEY. The half's offsets say nothing: each check moves
/// it. The caller has found the view by the identity's job and task.
///
/// ```
/// use onceflow_txn::{Answer, CheckBackView, verdict};
/// # use onceflow_txn::Identity;
/// # use onceflow_types::{Epoch, Generation, Incarnation, Name, Sequence, TaskId};
/// # let identity = Identity {
/// #     job: Name::job("fraud")?, incarnation: Incarnation::new(9),
/// #     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
/// #     generation: Generation::new(12), epoch: Epoch::new(5), sink: Name::new("alerts")?,
/// #     sequence: Sequence::new(40), floor: Sequence::new(38), source: None,
/// # };
/// // A task of which nothing is known.
/// assert_eq!(verdict(&CheckBackView::default(), &identity, "7F000001"), Answer::Unknown);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
pub fn verdict(view: &CheckBackView, identity: &Identity, unique_key: &str) -> Answer {
    let Some((incarnation, generation)) = view.owner else { return Answer::Unknown };
    let superseded = identity.incarnation != incarnation || identity.generation < generation;
    let done = view.is_decided(identity.epoch) && view.is_done_with(identity.epoch, unique_key);
    if superseded || done { Answer::Rollback } else { Answer::Unknown }
}
