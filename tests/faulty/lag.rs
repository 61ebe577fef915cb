//! Dispatch that lags: readers see a snapshot of all queues, taken at one instant, so that order between queues holds
//! (log contract, rule 5).

use super::lock;
use onceflow::log::Log;
use onceflow::types::{Offset, Partition, Result};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::RwLock;

pub(super) struct Lag {
    period: u64,
    looks: AtomicU64,
    seen: Mutex<BTreeMap<Partition, Offset>>,
    gate: RwLock<()>,
}

impl Lag {
    pub(super) fn new(period: u64) -> Self {
        Lag { period, looks: AtomicU64::new(0), seen: Mutex::default(), gate: RwLock::default() }
    }

    /// Runs a changing call; no snapshot is taken meanwhile.
    pub(super) async fn during<T>(&self, change: impl Future<Output = T>) -> T {
        let _open = self.gate.read().await;
        change.await
    }

    /// Where `partition` ends for a reader now.
    pub(super) async fn end(&self, inner: &dyn Log, partition: &Partition) -> Result<Offset> {
        let known = lock(&self.seen).contains_key(partition);
        if !known || self.looks.fetch_add(1, Ordering::SeqCst) % self.period == 0 {
            let _shut = self.gate.write().await;
            let mut partitions: Vec<Partition> = lock(&self.seen).keys().cloned().collect();
            partitions.push(partition.clone());
            for partition in partitions {
                let next = inner.offsets(&partition).await?.next;
                lock(&self.seen).insert(partition, next);
            }
        }
        Ok(lock(&self.seen)[partition])
    }
}
