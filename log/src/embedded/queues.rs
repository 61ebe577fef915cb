//! The queues of the log, as readers see them.

use onceflow_types::{Error, Offset, Partition, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Notify;

/// One queue. Readers see what lies from `first` to `next`; the writer moves both, only ever up.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its number in keys.
    pub(super) id: u32,
    pub(super) partition: Partition,
    first: AtomicU64,
    next: AtomicU64,
    /// Rings when `next` moves.
    pub(super) appended: Notify,
}

impl Queue {
    pub(super) fn new(id: u32, partition: Partition, first: Offset, next: Offset) -> Queue {
        let (first, next) = (AtomicU64::new(first.get()), AtomicU64::new(next.get()));
        Queue { id, partition, first, next, appended: Notify::new() }
    }

    /// The first offset that can be read.
    pub(super) fn first(&self) -> Offset {
        Offset::new(self.first.load(Ordering::Acquire))
    }

    /// The offset after the last that can be read.
    pub(super) fn next(&self) -> Offset {
        Offset::new(self.next.load(Ordering::Acquire))
    }

    /// Shows readers what lies below `next`.
    pub(super) fn publish(&self, next: Offset) {
        self.next.fetch_max(next.get(), Ordering::AcqRel);
        self.appended.notify_waiters();
    }

    /// Hides from readers what lies below `first`.
    pub(super) fn retire(&self, first: Offset) {
        self.first.fetch_max(first.get(), Ordering::AcqRel);
    }
}

/// All queues by partition.
#[derive(Debug, Default)]
pub(super) struct Queues(RwLock<BTreeMap<Partition, Arc<Queue>>>);

impl Queues {
    pub(super) fn insert(&self, queue: Arc<Queue>) {
        let mut queues = self.0.write().unwrap_or_else(PoisonError::into_inner);
        queues.insert(queue.partition.clone(), queue);
    }

    /// The queue of a partition.
    ///
    /// # Errors
    /// `Invalid` when there is none.
    pub(super) fn find(&self, partition: &Partition) -> Result<Arc<Queue>> {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = queues.get(partition).cloned();
        found.ok_or_else(|| Error::invalid(format!("no such partition: partition={partition}")))
    }

    /// All partitions of a topic, in order.
    pub(super) fn of_topic(&self, topic: &str, broker: &Arc<str>) -> Vec<Partition> {
        let first = Partition::new(topic, broker.clone(), 0);
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let from_first = queues.range(first..).map(|(partition, _)| partition);
        from_first.take_while(|partition| *partition.topic == *topic).cloned().collect()
    }
}
