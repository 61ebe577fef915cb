//! S5: carries out what the publisher says, beside the processing of later epochs.

use super::journal::{Journal, barrier_at};
use super::pace::Pace;
use super::scan::{self, Wanted};
use super::tails::Tails;
use crate::backlog::Share;
use crate::edge::{Backoff, sleep};
use crate::job::Job;
use crate::status::Line;
use futures_util::future::{FutureExt, LocalBoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use onceflow_log::{End, Link, MessageBatch};
use onceflow_txn::{Coordinator, Item, ItemId, LinkId, Publisher, Step, Work};
use onceflow_types::{Error, ErrorKind, Incarnation, Offset, Partition, Result, TaskId};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What the task loop and its publishing share; both run on the task's thread.
pub(crate) struct Publishing {
    pub(crate) job: Arc<Job>,
    pub(crate) line: Line,
    pub(crate) task: TaskId,
    pub(crate) incarnation: Incarnation,
    pub(crate) journal: Journal,
    /// The target queues that anybody may read.
    pub(crate) external: Vec<Partition>,
    pub(crate) publisher: RefCell<Publisher>,
    pub(crate) tails: RefCell<Tails>,
    /// How long epochs last.
    pub(crate) pace: RefCell<Pace>,
    /// How much of all tasks' unpublished output is this one's.
    pub(crate) backlog: Share,
    pub(crate) coordinator: Rc<RefCell<Coordinator>>,
    /// The publisher has something new to do.
    pub(crate) work: Notify,
    /// The publisher got somewhere.
    pub(crate) progress: Notify,
}

/// What became of one request.
struct Outcome {
    id: ItemId,
    result: Result<Reached>,
}

enum Reached {
    Ended(Link),
    Sent { link: Link, first: Offset, count: u64, ticket: u64 },
    Unknown,
}

type InFlight<'p> = FuturesUnordered<LocalBoxFuture<'p, Outcome>>;

impl Publishing {
    /// Runs until something fails for good. The task loop drops it with the task.
    pub(crate) async fn run(&self) -> Error {
        let mut in_flight: InFlight<'_> = FuturesUnordered::new();
        let mut backoff = Backoff::new(self.job.config.backoff_first, self.job.config.backoff_max);
        loop {
            if let Err(error) = self.turn(&mut in_flight, &mut backoff).await {
                if error.kind() != ErrorKind::Retry {
                    return error;
                }
                tracing::debug!(task = %self.task, error = %error.report(), "publishing failed, trying again");
                backoff.wait(&*self.job.entropy).await;
            }
        }
    }

    async fn turn<'p>(&'p self, in_flight: &mut InFlight<'p>, backoff: &mut Backoff) -> Result<()> {
        let step = self.publisher.borrow_mut().step(self.job.monotonic.now());
        self.show();
        match step {
            Step::Publish(ids) => {
                for id in ids {
                    in_flight.push(self.request(id).boxed_local());
                }
                self.await_one(in_flight, None, backoff).await
            }
            Step::Idle => self.await_one(in_flight, self.prove_at(), backoff).await,
            Step::WaitUntil(until) => self.await_one(in_flight, Some(until), backoff).await,
            Step::RenewLease => self.renew_lease().await,
            Step::Scan(ids) => self.scan(&ids).await,
            Step::Prove(brokers) => self.prove(&brokers).await,
        }
    }

    /// Waits for one outcome, for new work, or until a time.
    async fn await_one<'p>(
        &'p self,
        in_flight: &mut InFlight<'p>,
        until: Option<Duration>,
        backoff: &mut Backoff,
    ) -> Result<()> {
        let timer = async {
            match until {
                Some(until) => sleep(until.saturating_sub(self.job.monotonic.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(outcome) = in_flight.next(), if !in_flight.is_empty() => {
                self.report(outcome, backoff)?;
                // Take all that is ready, so that a step is asked for once a burst.
                while let Some(Some(outcome)) = in_flight.next().now_or_never() {
                    self.report(outcome, backoff)?;
                }
                self.progress.notify_one();
            }
            () = self.work.notified() => {}
            // Nothing came that would prove the last ENDs by the way: ask for it.
            () = timer => self.publisher.borrow_mut().want_proof(),
        }
        Ok(())
    }

    /// When to stop waiting for the next epoch's sends to prove this one's ENDs.
    fn prove_at(&self) -> Option<Duration> {
        let open = self.publisher.borrow().unpublished() > 0;
        open.then(|| self.job.monotonic.now() + self.job.config.epoch_time)
    }

    /// Whether so much is unpublished that no further epoch may be decided. It becomes less as this task publishes.
    pub(crate) fn is_far_ahead(&self) -> bool {
        let (epochs, config) = (self.publisher.borrow().unpublished(), &self.job.config);
        let is_full = self.job.backlog.bytes() >= config.unpublished_bytes_max;
        epochs >= config.unpublished_epochs_max || (epochs > 0 && is_full)
    }

    fn show(&self) {
        let publisher = self.publisher.borrow();
        self.backlog.set(publisher.unpublished_bytes());
        let through = publisher.published_through();
        self.line.update(|status| status.published_through = through);
    }

    async fn request(&self, id: ItemId) -> Outcome {
        let Some(item) = self.publisher.borrow().item(id).cloned() else {
            return Outcome { id, result: Ok(Reached::Unknown) };
        };
        let ticket = self.publisher.borrow().ticket();
        let result = match item.work {
            Work::End(handle) => self.job.log.end(&handle, End::Commit).await.map(Reached::Ended),
            Work::Send(messages) => match MessageBatch::from_bytes(messages) {
                Ok(batch) => self.job.log.append(&item.channel.target, &batch).await.map(|acked| Reached::Sent {
                    link: acked.link,
                    first: acked.first,
                    count: batch.len() as u64,
                    ticket,
                }),
                Err(error) => Err(error),
            },
        };
        let result = match result {
            Err(error) if error.kind() == ErrorKind::Retry => {
                tracing::debug!(task = %self.task, ?id, error = %error.report(), "no reply to a publish request");
                // The wait is here, so that other channels go on meanwhile.
                Backoff::new(self.job.config.backoff_first, self.job.config.backoff_max).wait(&*self.job.entropy).await;
                Ok(Reached::Unknown)
            }
            other => other.map_err(|e| e.context(format!("publishing epoch {}", id.epoch))),
        };
        Outcome { id, result }
    }

    fn report(&self, outcome: Outcome, backoff: &mut Backoff) -> Result<()> {
        let mut publisher = self.publisher.borrow_mut();
        match outcome.result? {
            Reached::Ended(link) => {
                publisher.ended(outcome.id, link_id(&link));
                self.line.count(|counters| counters.ends += 1);
            }
            Reached::Sent { link, first, count, ticket } => {
                if let Some(Item { channel, .. }) = publisher.item(outcome.id) {
                    self.tails.borrow_mut().reached(&channel.target, first.plus(count));
                }
                publisher.sent(outcome.id);
                publisher.send_acknowledged(&link_id(&link), ticket);
                self.line.count(|counters| counters.sends += 1);
            }
            Reached::Unknown => {
                publisher.unknown(outcome.id);
                self.line.count(|counters| counters.publish_unknown += 1);
                return Ok(());
            }
        }
        self.pace.borrow_mut().acknowledged(outcome.id.epoch, self.job.monotonic.now());
        backoff.reset();
        Ok(())
    }

    async fn renew_lease(&self) -> Result<()> {
        let sent_at = self.job.monotonic.now();
        let cursor = self.coordinator.borrow().cursor();
        let records = self.journal.read_to_end(cursor).await?;
        if let Some(newer) = self.coordinator.borrow().newer_claim(&records) {
            return Err(Error::fenced(format!("a newer claim owns the task: current={newer}")));
        }
        self.publisher.borrow_mut().lease_from(sent_at);
        Ok(())
    }

    /// Behind a barrier on each broker, looks for output whose fate is unknown.
    async fn scan(&self, ids: &[ItemId]) -> Result<()> {
        let wanted: Vec<Wanted> = {
            let publisher = self.publisher.borrow();
            ids.iter().filter_map(|id| publisher.item(*id).map(|item| Wanted::new(*id, item))).collect()
        };
        for broker in wanted.iter().map(|wanted| &wanted.target.broker).collect::<BTreeSet<_>>() {
            self.barrier(broker).await?;
        }
        let identity = scan::Whose { task: &self.task, incarnation: self.incarnation };
        let visible =
            scan::look_for(&*self.job.log, identity, &wanted, |target| self.tails.borrow().of(target)).await?;
        self.line.count(|counters| {
            counters.scans += 1;
            counters.scan_found += visible.len() as u64;
        });
        self.publisher.borrow_mut().scanned(ids, |id| visible.contains(&id));
        self.progress.notify_one();
        Ok(())
    }

    async fn prove(&self, brokers: &[Arc<str>]) -> Result<()> {
        for broker in brokers {
            if let Err(error) = self.barrier(broker).await {
                self.publisher.borrow_mut().prove_failed();
                return Err(error);
            }
        }
        self.progress.notify_one();
        Ok(())
    }

    async fn barrier(&self, broker: &Arc<str>) -> Result<()> {
        let ticket = self.publisher.borrow().ticket();
        let link = barrier_at(&self.job, broker).await?;
        self.publisher.borrow_mut().send_acknowledged(&link_id(&link), ticket);
        Ok(())
    }
}

pub(crate) fn link_id(link: &Link) -> LinkId {
    LinkId { broker: link.broker.clone(), connection: link.connection }
}
