//! Lower bounds of the target queues' positions: where a scan for lost output begins.

use onceflow_types::{Epoch, Offset, Offsets, Partition};
use std::collections::VecDeque;

/// Keeps, for each epoch that may be unpublished, where its target queues ended before it was published.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tails {
    now: Offsets,
    epochs: VecDeque<(Epoch, Offsets)>,
}

impl Tails {
    /// Starts with the tails of the last Commit; they hold for every epoch up to `unpublished` that it left open.
    pub(crate) fn recovered(tails: Offsets, unpublished: Option<Epoch>) -> Self {
        let epochs = unpublished.map(|last| (last, tails.clone())).into_iter().collect();
        Tails { now: tails, epochs }
    }

    /// The queue is known to reach at least to `next`. Bounds only grow.
    pub(crate) fn reached(&mut self, target: &Partition, next: Offset) {
        if self.now.get(target).is_none_or(|known| known < next) {
            self.now.set(target, next);
        }
    }

    /// What the Commit of `epoch` says: bounds that hold for it and every unpublished epoch before it.
    pub(crate) fn seal(&mut self, epoch: Epoch, published_through: Epoch) -> Offsets {
        self.epochs.push_back((epoch, self.now.clone()));
        while self.epochs.len() > 1 && self.epochs.front().is_some_and(|(oldest, _)| *oldest <= published_through) {
            self.epochs.pop_front();
        }
        self.oldest()
    }

    /// The bounds that hold for every epoch that may be unpublished.
    pub(crate) fn oldest(&self) -> Offsets {
        self.epochs.front().map_or_else(|| self.now.clone(), |(_, tails)| tails.clone())
    }

    /// Where to begin to look in `target`.
    pub(crate) fn of(&self, target: &Partition) -> Option<Offset> {
        self.epochs.front().map_or(&self.now, |(_, tails)| tails).get(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_names_the_bounds_of_the_oldest_unpublished_epoch() {
        let queue = Partition::new("out", "b", 0);
        let mut tails = Tails::default();
        tails.reached(&queue, Offset::new(5));
        assert_eq!(tails.seal(Epoch::new(1), Epoch::ZERO).get(&queue), Some(Offset::new(5)));
        tails.reached(&queue, Offset::new(9));
        assert_eq!(tails.seal(Epoch::new(2), Epoch::ZERO).get(&queue), Some(Offset::new(5)));
        assert_eq!(tails.seal(Epoch::new(3), Epoch::new(1)).get(&queue), Some(Offset::new(9)));
        tails.reached(&queue, Offset::new(3));
        assert_eq!(tails.of(&queue), Some(Offset::new(9)), "bounds never go back");
    }
}
