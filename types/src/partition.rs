//! Partitions, tasks and channels: where records come from, who works on them, where output goes.

use crate::{Name, Offset};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A RocketMQ message queue: topic, broker name, queue number. Written `topic@broker:queue`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker's name (a master and its slaves share it).
    pub broker: Arc<str>,
    /// The queue's number on that broker.
    pub queue: u32,
}

impl Partition {
    /// A partition from its parts.
    pub fn new(topic: impl Into<Arc<str>>, broker: impl Into<Arc<str>>, queue: u32) -> Self {
        Partition { topic: topic.into(), broker: broker.into(), queue }
    }

    /// The queue with the same broker and number in another topic.
    #[must_use]
    pub fn in_topic(&self, topic: impl Into<Arc<str>>) -> Self {
        Partition { topic: topic.into(), broker: self.broker.clone(), queue: self.queue }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.topic, self.broker, self.queue)
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One subtopology on one partition. Source queues, journal queue and task share broker and queue number, so the task
/// needs no topic. Written `subtopology@broker:queue`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The stable name of the subtopology: an edit elsewhere does not renumber the task.
    pub subtopology: Name,
    /// The broker of its source and journal queues.
    pub broker: Arc<str>,
    /// Their number on that broker.
    pub queue: u32,
}

impl TaskId {
    /// The task's queue in `topic`.
    pub fn partition(&self, topic: impl Into<Arc<str>>) -> Partition {
        Partition { topic: topic.into(), broker: self.broker.clone(), queue: self.queue }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.subtopology, self.broker, self.queue)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A task's stream of messages from one sink to one target queue; they carry a dense [`Sequence`](crate::Sequence).
/// Incarnation and task are those of the record that holds the channel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel {
    /// The sink's name.
    pub sink: Name,
    /// The queue that the messages go to.
    pub target: Partition,
}

/// The next offset to read, per partition.
///
/// ```
/// use onceflow_types::{Offset, Offsets, Partition};
///
/// let queue = Partition::new("payments", "broker-a", 0);
/// let mut offsets = Offsets::default();
/// offsets.set(&queue, Offset::new(6));
/// assert!(offsets.covers(&queue, Offset::new(5)));
/// assert!(!offsets.covers(&queue, Offset::new(6)));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Offsets(BTreeMap<Partition, Offset>);

impl Offsets {
    /// The next offset of a partition, if it has one.
    pub fn get(&self, partition: &Partition) -> Option<Offset> {
        self.0.get(partition).copied()
    }

    /// Sets the next offset of a partition.
    pub fn set(&mut self, partition: &Partition, next: Offset) {
        match self.0.get_mut(partition) {
            Some(slot) => *slot = next,
            None => {
                self.0.insert(partition.clone(), next);
            }
        }
    }

    /// Whether the record at `offset` lies before the next offset.
    pub fn covers(&self, partition: &Partition, offset: Offset) -> bool {
        self.get(partition).is_some_and(|next| offset < next)
    }

    /// Whether no partition of `earlier` is missing here or ahead of this one.
    pub fn at_or_after(&self, earlier: &Offsets) -> bool {
        earlier.iter().all(|(partition, next)| self.get(partition).is_some_and(|own| own >= next))
    }

    /// All partitions in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Partition, Offset)> {
        self.0.iter().map(|(partition, next)| (partition, *next))
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no partition.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(Partition, Offset)> for Offsets {
    fn from_iter<I: IntoIterator<Item = (Partition, Offset)>>(items: I) -> Self {
        Offsets(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_partition_counts_as_going_back() {
        let queue = |number| Partition::new("t", "b", number);
        let one: Offsets = [(queue(0), Offset::new(3))].into_iter().collect();
        let two: Offsets = [(queue(0), Offset::new(3)), (queue(1), Offset::new(1))].into_iter().collect();
        assert!(two.at_or_after(&one));
        assert!(!one.at_or_after(&two));
    }
}
