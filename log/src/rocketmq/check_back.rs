//! Check-backs: a broker's questions about halves that nobody ended.
//!
//! A broker asks over any connection that named the half's producer group in a heartbeat: ours do that on the lane for
//! writes. The question carries the half as it is stored. Only its properties are looked at; the body, which anybody who
//! knows the group's name can make as large as inflation allows, stays as it is.

use super::code::CHECK_TRANSACTION_STATE;
use crate::remoting::{Reply, RocketCounters, UNIQUE_KEY, half};
use crate::{CheckBack, Ticket, find_property};
use onceflow_types::{Error, Partition, Result};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// The half's producer group (`MessageConst.PROPERTY_PRODUCER_GROUP`).
pub(super) const PRODUCER_GROUP: &str = "PGROUP";

/// The questions that wait for an answer.
pub(super) struct CheckBacks {
    questions: Mutex<mpsc::Receiver<CheckBack>>,
}

/// Takes the questions of all brokers in.
#[derive(Clone)]
pub(super) struct Asked {
    group: Arc<str>,
    questions: mpsc::Sender<CheckBack>,
    counters: Arc<RocketCounters>,
}

/// At most `max` questions wait for an answer.
pub(super) fn check_backs(group: &str, max: usize, counters: Arc<RocketCounters>) -> (Asked, CheckBacks) {
    let (sender, receiver) = mpsc::channel(max);
    (Asked { group: group.into(), questions: sender, counters }, CheckBacks { questions: Mutex::new(receiver) })
}

impl CheckBacks {
    pub(super) async fn next(&self) -> Result<CheckBack> {
        self.questions.lock().await.recv().await.ok_or_else(|| Error::retry("log is closed"))
    }
}

impl Asked {
    /// Takes a broker's request if it is a question; `false`: it is something else.
    pub(super) fn take(&self, broker: &Arc<str>, request: &Reply) -> bool {
        if request.code != CHECK_TRANSACTION_STATE {
            return false;
        }
        match self.check_back(broker, request) {
            None => RocketCounters::add(&self.counters.check_backs_bad),
            Some(check) => {
                if self.questions.try_send(check).is_err() {
                    RocketCounters::add(&self.counters.check_backs_dropped);
                }
            }
        }
        true
    }

    /// `None` for a half that cannot be one of ours: of another group, without UNIQ_KEY, or with impossible places.
    fn check_back(&self, broker: &Arc<str>, request: &Reply) -> Option<CheckBack> {
        let half = half(&request.body)?;
        let text = |name| find_property(half.properties, name).and_then(|value| std::str::from_utf8(value).ok());
        if text(PRODUCER_GROUP)? != &*self.group {
            return None;
        }
        let unique_key: Arc<str> = text(UNIQUE_KEY).filter(|key| !key.is_empty())?.into();
        let ticket = Ticket {
            target: Partition::new(half.topic, broker.clone(), half.queue),
            commit_log_offset: request.offset("commitLogOffset").ok()?.get(),
            half_queue_offset: request.offset("tranStateTableOffset").ok()?.get(),
            transaction_id: unique_key.to_string(),
        };
        Some(CheckBack { unique_key, properties: half.properties.to_vec().into(), ticket })
    }
}
