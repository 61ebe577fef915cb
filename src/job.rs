//! What all tasks of a running job share.

use crate::backlog::Backlog;
use crate::config::Config;
use crate::edge::{Entropy, Monotonic};
use crate::membership::Membership;
use crate::query::Mailboxes;
use crate::status::Board;
use crate::topology::Topology;
use onceflow_log::Log;
use onceflow_storage::StoreFactory;
use onceflow_txn::{CheckBackView, Owner};
use onceflow_types::{Clock, Partition, TaskId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What check-backs are answered from: each owned task's view of its fold.
pub(crate) type Views = Arc<Mutex<BTreeMap<TaskId, CheckBackView>>>;

/// The barrier queues by broker; new brokers may come.
#[derive(Default, Debug)]
pub(crate) struct Barriers(Mutex<BTreeMap<Arc<str>, Partition>>);

impl Barriers {
    /// Takes the first queue of each broker.
    pub(crate) fn learn(&self, queues: Vec<Partition>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in queues {
            known.entry(queue.broker.clone()).or_insert(queue);
        }
    }

    pub(crate) fn at(&self, broker: &str) -> Option<Partition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(broker).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Partition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

pub(crate) struct Job {
    pub(crate) topology: Topology,
    pub(crate) config: Arc<Config>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) stores: Arc<dyn StoreFactory>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) monotonic: Monotonic,
    pub(crate) owner: Owner,
    /// One barrier queue for each broker.
    pub(crate) barriers: Barriers,
    pub(crate) board: Arc<Board>,
    pub(crate) membership: Membership,
    pub(crate) views: Views,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) backlog: Arc<Backlog>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("topology", &self.topology).field("config", &self.config).finish_non_exhaustive()
    }
}
