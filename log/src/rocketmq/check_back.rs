//! Check-backs: the broker's questions about halves that nobody ended.
//!
//! The client library calls a synchronous listener and sends its answer itself. Ours always says Unknown, which changes
//! nothing at the broker, and queues the question; the real answer, if it is Rollback, goes out as an END of our own.

use super::Shared;
use crate::remoting::{RocketCounters, UNIQUE_KEY};
use crate::{CheckBack, Properties, Ticket};
use onceflow_types::{Error, Partition, Result};
use rocketmq_client_rust::{ArcTransactionListener, LocalTransactionState, TransactionListener};
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use std::any::Any;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// The questions that wait for an answer.
pub(super) struct CheckBacks {
    questions: Mutex<mpsc::Receiver<Question>>,
    listener: ArcTransactionListener,
}

struct Question {
    topic: Arc<str>,
    queue: u32,
    /// Where the half is stored; tells which broker asks.
    store_host: SocketAddr,
    commit_log_offset: u64,
    half_queue_offset: u64,
    unique_key: Arc<str>,
    properties: BTreeMap<String, String>,
}

struct Listener {
    questions: mpsc::Sender<Question>,
    counters: Arc<RocketCounters>,
}

impl CheckBacks {
    pub(super) fn new(max: usize, counters: Arc<RocketCounters>) -> Self {
        let (sender, questions) = mpsc::channel(max);
        CheckBacks { questions: Mutex::new(questions), listener: Arc::new(Listener { questions: sender, counters }) }
    }

    pub(super) fn listener(&self) -> ArcTransactionListener {
        self.listener.clone()
    }

    pub(super) async fn next(&self, shared: &Shared) -> Result<CheckBack> {
        let mut questions = self.questions.lock().await;
        loop {
            let question = questions.recv().await.ok_or_else(|| Error::retry("log is closed"))?;
            match question.check_back(shared).await {
                Some(check) => return Ok(check),
                None => RocketCounters::add(&shared.counters.check_backs_bad),
            }
        }
    }
}

impl TransactionListener for Listener {
    fn execute_local_transaction(
        &self,
        _: &dyn MessageTrait,
        _: Option<&(dyn Any + Send + Sync)>,
    ) -> LocalTransactionState {
        // Never called: halves are sent by ourselves.
        LocalTransactionState::Unknown
    }

    fn check_local_transaction(&self, message: &MessageExt) -> LocalTransactionState {
        match question(message) {
            None => RocketCounters::add(&self.counters.check_backs_bad),
            Some(question) => {
                if self.questions.try_send(question).is_err() {
                    RocketCounters::add(&self.counters.check_backs_dropped);
                }
            }
        }
        LocalTransactionState::Unknown
    }
}

/// `None` for a half that cannot be one of ours: without UNIQ_KEY, or with impossible places.
fn question(message: &MessageExt) -> Option<Question> {
    let properties = message.properties().iter();
    let properties: BTreeMap<_, _> =
        properties.map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned())).collect();
    Some(Question {
        topic: message.topic().as_str().into(),
        queue: u32::try_from(message.queue_id()).ok()?,
        store_host: message.store_host(),
        commit_log_offset: u64::try_from(message.commit_log_offset()).ok()?,
        half_queue_offset: u64::try_from(message.queue_offset()).ok()?,
        unique_key: properties.get(UNIQUE_KEY).filter(|key| !key.is_empty())?.as_str().into(),
        properties,
    })
}

impl Question {
    /// `None` when no broker of that address is known, or a property could not have been sent.
    async fn check_back(self, shared: &Shared) -> Option<CheckBack> {
        let broker = match shared.broker_at(self.store_host).await {
            Some(broker) => broker,
            None => {
                shared.refresh().await.ok()?;
                shared.broker_at(self.store_host).await?
            }
        };
        let mut properties = Properties::default();
        for (name, value) in &self.properties {
            properties.push(name, value).ok()?;
        }
        let ticket = Ticket {
            target: Partition::new(self.topic, broker, self.queue),
            commit_log_offset: self.commit_log_offset,
            half_queue_offset: self.half_queue_offset,
            transaction_id: self.unique_key.to_string(),
        };
        Some(CheckBack { unique_key: self.unique_key, properties: properties.as_bytes().to_vec().into(), ticket })
    }
}

impl Shared {
    /// The broker whose master has this address; names are resolved, as a broker may advertise one.
    async fn broker_at(&self, host: SocketAddr) -> Option<Arc<str>> {
        for (name, address) in self.brokers.addresses() {
            let same = match address.parse::<SocketAddr>() {
                Ok(address) => address == host,
                Err(_) => match tokio::net::lookup_host(&*address).await {
                    Ok(mut addresses) => addresses.any(|address| address == host),
                    Err(_) => false,
                },
            };
            if same {
                return Some(name);
            }
        }
        None
    }
}
