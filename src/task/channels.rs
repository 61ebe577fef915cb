//! The sequences of a task's output channels: the next one, and the floor that readers may rely on.

use onceflow_txn::PublishPlan;
use onceflow_types::{Channel, Epoch, Sequence};
use std::collections::{BTreeMap, VecDeque};

/// Next sequences and floors of one task's channels.
#[derive(Clone, Default, Debug)]
pub(crate) struct Channels {
    next: BTreeMap<Channel, Sequence>,
    /// The first sequence of each channel that is not known to be published.
    floors: BTreeMap<Channel, Sequence>,
    /// Per sealed epoch, the next sequences behind it, of the channels that it used.
    sealed: VecDeque<(Epoch, Vec<(Channel, Sequence)>)>,
    used: BTreeMap<Channel, Sequence>,
}

impl Channels {
    /// The channels as of the last Commit. Floors begin at the output that may still be unpublished.
    pub(crate) fn recovered(next: BTreeMap<Channel, Sequence>, plans: &[PublishPlan]) -> Self {
        let mut floors = next.clone();
        let mut sealed = VecDeque::new();
        for plan in plans {
            let mut behind: BTreeMap<Channel, Sequence> = BTreeMap::new();
            for item in &plan.items {
                let floor = floors.entry(item.channel.clone()).or_insert(item.first);
                *floor = (*floor).min(item.first);
                behind.insert(item.channel.clone(), item.first.plus(u64::from(item.count)));
            }
            sealed.push_back((plan.epoch, behind.into_iter().collect()));
        }
        Channels { next, floors, sealed, used: BTreeMap::new() }
    }

    /// Takes `count` sequences of a channel for the open epoch; returns the first of them and the channel's floor.
    pub(crate) fn take(&mut self, channel: &Channel, count: u64) -> (Sequence, Sequence) {
        let next = match self.next.get_mut(channel) {
            Some(next) => next,
            None => self.next.entry(channel.clone()).or_default(),
        };
        let first = *next;
        *next = first.plus(count);
        match self.used.get_mut(channel) {
            Some(behind) => *behind = *next,
            None => {
                self.used.insert(channel.clone(), *next);
            }
        }
        (first, self.floors.get(channel).copied().unwrap_or(Sequence::ZERO))
    }

    /// Closes the open epoch and returns the next sequence of every channel.
    pub(crate) fn seal(&mut self, epoch: Epoch) -> BTreeMap<Channel, Sequence> {
        self.sealed.push_back((epoch, std::mem::take(&mut self.used).into_iter().collect()));
        self.next.clone()
    }

    /// Moves the floors: everything up to `through` is published and proven.
    pub(crate) fn published(&mut self, through: Epoch) {
        while self.sealed.front().is_some_and(|(epoch, _)| *epoch <= through) {
            let Some((_, behind)) = self.sealed.pop_front() else { break };
            self.floors.extend(behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::{Name, Partition};

    #[test]
    fn floors_follow_what_is_published() {
        let channel = Channel { sink: Name::new("s").unwrap(), target: Partition::new("t", "b", 0) };
        let mut channels = Channels::default();
        assert_eq!(channels.take(&channel, 3), (Sequence::ZERO, Sequence::ZERO));
        channels.seal(Epoch::new(1));
        assert_eq!(channels.take(&channel, 2), (Sequence::new(3), Sequence::ZERO));
        assert_eq!(channels.seal(Epoch::new(2)).get(&channel), Some(&Sequence::new(5)));
        channels.published(Epoch::new(1));
        assert_eq!(channels.take(&channel, 1), (Sequence::new(5), Sequence::new(3)));
    }
}
