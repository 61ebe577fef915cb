//! The dedup reader's rule, for one channel whose queue was read from its first message on: sequences are dense from 0;
//! a lower one than expected is a copy, a higher one waits until the missing ones are there.

use crate::identity::Identity;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A message of the channel, and what `T` it carries.
#[derive(Clone, Debug)]
pub(crate) struct Item<T> {
    pub(crate) identity: Identity,
    pub(crate) content: T,
    prints: Prints,
}

/// What tells copies from others: hashes of what was said and of the name that the log gave the stored message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prints {
    said: u64,
    stored: u64,
}

impl<T> Item<T> {
    /// `said` is all that was sent: identity and body. `stored` is RocketMQ's name for the message that was stored.
    pub(crate) fn new(identity: Identity, said: impl Hash, stored: impl Hash, content: T) -> Self {
        let print = |what: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            what(&mut hasher);
            hasher.finish()
        };
        let prints = Prints { said: print(&|hasher| said.hash(hasher)), stored: print(&|hasher| stored.hash(hasher)) };
        Item { identity, content, prints }
    }
}

/// What a message turned out to be.
#[derive(Debug)]
pub(crate) enum Seen<T> {
    /// The next ones in order; the message itself and what waited for it.
    Next(Vec<Item<T>>),
    /// It waits for one before it.
    Waits,
    /// An exact copy of one that is there: of the same stored message, or of another one.
    Copy { of_one_stored: bool },
    /// It has the number of one that is there, and is another.
    Conflict,
}

/// A channel while it is read.
#[derive(Debug)]
pub(crate) struct Channel<T> {
    /// One for each sequence below the next expected one.
    passed: Vec<Prints>,
    held: BTreeMap<u64, Item<T>>,
}

impl<T> Default for Channel<T> {
    fn default() -> Self {
        Channel { passed: Vec::new(), held: BTreeMap::new() }
    }
}

impl<T> Channel<T> {
    fn next(&self) -> u64 {
        self.passed.len() as u64
    }

    pub(crate) fn take(&mut self, item: Item<T>) -> Seen<T> {
        let sequence = item.identity.sequence;
        let index = usize::try_from(sequence).unwrap_or(usize::MAX);
        let there = self.passed.get(index).copied().or_else(|| self.held.get(&sequence).map(|held| held.prints));
        if let Some(there) = there {
            let of_one_stored = there.stored == item.prints.stored;
            return if there.said == item.prints.said { Seen::Copy { of_one_stored } } else { Seen::Conflict };
        }
        self.held.insert(sequence, item);
        let mut ready = Vec::new();
        while let Some(item) = self.held.remove(&self.next()) {
            self.passed.push(item.prints);
            ready.push(item);
        }
        if ready.is_empty() { Seen::Waits } else { Seen::Next(ready) }
    }

    /// What still waits when everything was read: some before these are missing.
    pub(crate) fn rest(self) -> (u64, Vec<Item<T>>) {
        (self.next(), self.held.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(sequence: u64, said: &str, stored: &str) -> Item<String> {
        let identity = Identity {
            job: "j".to_owned(),
            task: "t".to_owned(),
            generation: 1,
            epoch: 1,
            sink: "s".to_owned(),
            floor: 0,
            sequence,
        };
        Item::new(identity, said, stored, said.to_owned())
    }

    fn next(seen: Seen<String>) -> Vec<String> {
        match seen {
            Seen::Next(items) => items.into_iter().map(|item| item.content).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_come_out_in_order_and_each_once() {
        let mut channel = Channel::default();
        assert!(matches!(channel.take(item(1, "b", "2")), Seen::Waits));
        assert!(matches!(channel.take(item(1, "b", "3")), Seen::Copy { of_one_stored: false }));
        assert_eq!(next(channel.take(item(0, "a", "1"))), ["a", "b"]);
        assert!(matches!(channel.take(item(0, "a", "1")), Seen::Copy { of_one_stored: true }));
        assert!(matches!(channel.take(item(0, "other", "9")), Seen::Conflict));
        assert_eq!(next(channel.take(item(2, "c", "4"))), ["c"]);
        let (expected, rest) = channel.rest();
        assert_eq!((expected, rest.len()), (3, 0));
    }

    #[test]
    fn what_waits_for_ever_is_left() {
        let mut channel = Channel::default();
        next(channel.take(item(0, "a", "1")));
        assert!(matches!(channel.take(item(2, "c", "2")), Seen::Waits));
        let (expected, rest) = channel.rest();
        assert_eq!((expected, rest.len()), (1, 1));
    }
}
