//! Counting the messages of channels: which sequences are there, how often.

use onceflow::txn::{ChannelKey, Identity};
use onceflow::types::Sequence;
use std::collections::{BTreeMap, BTreeSet};

/// All channels of a topic.
pub(crate) type Channels = BTreeMap<ChannelKey, Channel>;

/// What is known of one channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Channel {
    /// Every sequence from the channel's first to below this one is there.
    pub(crate) next: Sequence,
    /// Sequences above `next` that are there.
    beyond: BTreeSet<Sequence>,
    pub(crate) messages: u64,
    pub(crate) duplicates: u64,
}

impl Channel {
    /// A channel whose first sequence must be `first`.
    pub(crate) fn new(first: Sequence) -> Self {
        Channel { next: first, beyond: BTreeSet::new(), messages: 0, duplicates: 0 }
    }

    /// A message was found. One below `first` is older than what the queue still holds of the channel.
    pub(crate) fn found(&mut self, sequence: Sequence) {
        self.messages += 1;
        if sequence < self.next || !self.beyond.insert(sequence) {
            self.duplicates += 1;
            return;
        }
        while self.beyond.remove(&self.next) {
            self.next = self.next.next();
        }
    }

    /// How many sequences below `end` are missing.
    pub(crate) fn missing_below(&self, end: Sequence) -> u64 {
        let there = self.beyond.range(..end).count() as u64;
        end.distance_from(self.next).unwrap_or(0).saturating_sub(there)
    }

    /// One past the highest sequence that was found.
    pub(crate) fn end(&self) -> Sequence {
        self.beyond.last().map_or(self.next, |sequence| sequence.next())
    }
}

/// Takes a message in. `whole`: the queue still holds its first message, so a channel must begin at its beginning; in
/// another queue it begins at the first message's floor, below which everything was published before.
pub(crate) fn found(channels: &mut Channels, key: ChannelKey, identity: &Identity, whole: bool) {
    let first = if whole { Sequence::ZERO } else { identity.floor };
    channels.entry(key).or_insert_with(|| Channel::new(first)).found(identity.sequence);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(found: &[u64]) -> Channel {
        let mut channel = Channel::new(Sequence::ZERO);
        for sequence in found {
            channel.found(Sequence::new(*sequence));
        }
        channel
    }

    #[test]
    fn order_does_not_matter() {
        let found = channel(&[2, 0, 1, 3]);
        assert_eq!((found.next, found.end(), found.duplicates), (Sequence::new(4), Sequence::new(4), 0));
    }

    #[test]
    fn what_comes_again_is_a_duplicate_wherever_it_lies() {
        let found = channel(&[0, 0, 2, 2, 1, 2]);
        assert_eq!((found.messages, found.duplicates, found.missing_below(found.end())), (6, 3, 0));
    }

    #[test]
    fn holes_and_a_short_end_are_missing() {
        let found = channel(&[0, 3]);
        assert_eq!((found.end(), found.missing_below(found.end())), (Sequence::new(4), 2));
        assert_eq!((found.missing_below(Sequence::new(2)), found.missing_below(Sequence::new(6))), (1, 4));
        assert_eq!(channel(&[]).missing_below(Sequence::new(2)), 2);
        assert_eq!(channel(&[0, 1, 2]).missing_below(Sequence::new(1)), 0, "more than must be there is fine");
    }
}
