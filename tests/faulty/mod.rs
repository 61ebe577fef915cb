//! A log that misbehaves by rule, around any other log: the n-th call of a kind to a topic meets a fault, always the same
//! one. It keeps to the contract of `Log`: what it does, a broker behind a bad network can do.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::manual_is_multiple_of,
    reason = "a test helper; not every test uses all of it"
)]

mod forward;
pub mod group;
mod lag;
pub mod ledger;
mod rule;

pub use rule::{Call, Fault, On};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use group::Group;
use lag::Lag;
use onceflow::log::{Link, Log, Verdict};
use onceflow::types::{Error, Partition, Result};
use rule::Rule;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;

/// Names a rule of a [`FaultyLog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(usize);

/// One step of a changing call, in the order in which they happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trace {
    Started(Call, Arc<str>),
    /// With whether the caller was told that it worked.
    Finished(Call, Arc<str>, bool),
}

/// The misbehaving log. Shared: a job that is started again meets the same one.
pub struct FaultyLog {
    inner: Arc<dyn Log>,
    rules: Mutex<Vec<Rule>>,
    /// Requests that a network still holds: how many later changing calls they wait for.
    late: Mutex<Vec<(usize, BoxFuture<'static, ()>)>>,
    trace: Mutex<Vec<Trace>>,
    verdicts: Mutex<Vec<(Arc<str>, Verdict)>>,
    redirects: Mutex<BTreeMap<Arc<str>, Arc<str>>>,
    lag: Mutex<Option<Arc<Lag>>>,
    group: Mutex<Option<Arc<Group>>>,
    frozen: watch::Sender<bool>,
    connections: AtomicU64,
    /// The next call needs a new connection.
    broken: AtomicBool,
    dead: AtomicBool,
}

impl FaultyLog {
    pub fn new(inner: Arc<dyn Log>) -> Arc<Self> {
        Arc::new(FaultyLog {
            inner,
            rules: Mutex::default(),
            late: Mutex::default(),
            trace: Mutex::default(),
            verdicts: Mutex::default(),
            redirects: Mutex::default(),
            lag: Mutex::default(),
            group: Mutex::default(),
            frozen: watch::Sender::new(false),
            connections: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        })
    }

    /// From now on the `nth` matching call, counted from 1, meets `fault`.
    pub fn on(&self, on: On, nth: usize, fault: Fault) -> RuleId {
        self.on_each(on, nth..nth + 1, fault)
    }

    /// From now on the matching calls with these numbers, counted from 1, meet `fault`.
    pub fn on_each(&self, on: On, calls: std::ops::Range<usize>, fault: Fault) -> RuleId {
        let mut rules = lock(&self.rules);
        rules.push(Rule::new(on, calls, fault));
        RuleId(rules.len() - 1)
    }

    /// How often a rule's fault happened.
    pub fn fired(&self, rule: RuleId) -> usize {
        lock(&self.rules)[rule.0].fired
    }

    /// How many calls a rule matched, with or without a fault.
    pub fn matched(&self, rule: RuleId) -> usize {
        lock(&self.rules)[rule.0].matched
    }

    /// Forgets all rules.
    pub fn clear(&self) {
        lock(&self.rules).clear();
    }

    /// Reads see nothing newer than a snapshot, which is taken anew every `period` reads: the broker's dispatch lags.
    pub fn lag(&self, period: u64) {
        *lock(&self.lag) = Some(Arc::new(Lag::new(period)));
    }

    /// The process behind this log is one of a group from now on.
    pub fn join(&self, group: Arc<Group>) {
        *lock(&self.group) = Some(group);
    }

    /// Holds every call of the process behind this log, requests that were not sent and replies that were not seen, until
    /// it is thawed: as if the process were paused wherever it waits.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        frozen.wait_for(|frozen| !frozen).await.unwrap();
    }

    /// Reads of `topic` are answered from another topic: the broker lost what the other one lacks.
    pub fn redirect(&self, topic: &str, to: &str) {
        lock(&self.redirects).insert(topic.into(), to.into());
    }

    pub fn trace(&self) -> Vec<Trace> {
        lock(&self.trace).clone()
    }

    /// The answers to check-backs so far, with the UNIQ_KEY.
    pub fn verdicts(&self) -> Vec<(Arc<str>, Verdict)> {
        lock(&self.verdicts).clone()
    }

    /// Whether the process behind this log died by [`Fault::Death`].
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ends when nobody else holds the log any more, so that all threads of a dropped runtime are gone; then another
    /// process may come.
    pub async fn reborn(self: &Arc<Self>) {
        for _ in 0..20_000 {
            if Arc::strong_count(self) == 1 {
                self.dead.store(false, Ordering::SeqCst);
                return;
            }
            pause(Duration::from_millis(1)).await;
        }
        panic!("a dropped runtime still runs");
    }

    /// Carries out what the network still holds.
    pub async fn deliver_late(&self) {
        let late = std::mem::take(&mut *lock(&self.late));
        for (_, request) in late {
            request.await;
        }
    }

    /// One changing call under its fault.
    async fn change<T: Send + 'static>(
        &self,
        call: Call,
        partition: &Partition,
        run: impl Fn() -> BoxFuture<'static, Result<T>> + Send,
        forgotten: Option<BoxFuture<'static, Result<T>>>,
    ) -> Result<T> {
        self.thawed().await;
        if self.is_dead() {
            pause(Duration::from_millis(1)).await;
            return Err(Error::retry("the process is dead"));
        }
        if self.broken.swap(false, Ordering::SeqCst) {
            self.connections.fetch_add(1, Ordering::SeqCst);
        }
        let fault = self.fault(call, &partition.topic);
        let held_back = matches!(fault, Some(Fault::Late(_)));
        lock(&self.trace).push(Trace::Started(call, partition.topic.clone()));
        let lag = lock(&self.lag).clone();
        let result = match &lag {
            Some(lag) => lag.during(self.under(fault, run, forgotten)).await,
            None => self.under(fault, run, forgotten).await,
        };
        lock(&self.trace).push(Trace::Finished(call, partition.topic.clone(), result.is_ok()));
        if !held_back {
            self.deliver_due().await;
        }
        self.thawed().await;
        result
    }

    async fn under<T: Send + 'static>(
        &self,
        fault: Option<Fault>,
        run: impl Fn() -> BoxFuture<'static, Result<T>> + Send,
        forgotten: Option<BoxFuture<'static, Result<T>>>,
    ) -> Result<T> {
        let lost = |what: &str| Err(Error::retry(format!("injected: {what}")));
        match fault {
            None => run().await,
            Some(Fault::RequestLost) => lost("request lost"),
            Some(Fault::ReplyLost) => {
                run().await?;
                lost("reply lost")
            }
            Some(Fault::WeakStatus) => {
                run().await?;
                lost("flush disk timeout")
            }
            Some(Fault::Twice) => {
                run().await?;
                run().await
            }
            Some(Fault::TwiceFirstReply) => {
                let first = run().await?;
                run().await?;
                Ok(first)
            }
            Some(Fault::Delayed(time)) => {
                let result = run().await;
                pause(time).await;
                result
            }
            Some(Fault::Refused(kind)) => Err(Error::new(kind, "injected: refused")),
            Some(Fault::Late(calls)) => {
                lock(&self.late).push((calls, run().map(drop).boxed()));
                lost("no reply yet")
            }
            Some(Fault::Reconnected) => {
                self.connections.fetch_add(1, Ordering::SeqCst);
                run().await
            }
            Some(Fault::Forgotten) => {
                let result = match forgotten {
                    Some(forgotten) => forgotten.await,
                    // Other acknowledgements are kept.
                    None => run().await,
                };
                self.broken.store(true, Ordering::SeqCst);
                result
            }
            Some(Fault::Death { carried_out }) => {
                self.dead.store(true, Ordering::SeqCst);
                if carried_out {
                    run().await?;
                }
                lost("process died")
            }
        }
    }

    async fn deliver_due(&self) {
        let mut due = vec![];
        lock(&self.late).retain_mut(|(calls, request)| {
            *calls -= 1;
            if *calls == 0 {
                due.push(std::mem::replace(request, async {}.boxed()));
            }
            *calls > 0
        });
        for request in due {
            request.await;
        }
    }

    fn fault(&self, call: Call, topic: &str) -> Option<Fault> {
        // Every rule counts; the first that fires wins.
        lock(&self.rules).iter_mut().filter_map(|rule| rule.meet(call, topic)).reduce(|first, _| first)
    }

    /// Whether the connection has not been replaced by another one.
    fn is_present(&self, link: &Link) -> bool {
        let inner = link.connection.checked_sub(self.connections.load(Ordering::SeqCst));
        let inner = inner.map(|connection| Link { connection, ..link.clone() });
        !self.broken.load(Ordering::SeqCst) && inner.is_some_and(|inner| self.inner.is_open(&inner))
    }

    fn over(&self, link: Link) -> Link {
        Link { connection: link.connection + self.connections.load(Ordering::SeqCst), ..link }
    }
}

impl fmt::Debug for FaultyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyLog").finish_non_exhaustive()
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

impl Trace {
    pub fn is_start_of(&self, call: Call, topic: &str) -> bool {
        matches!(self, Trace::Started(own, to) if *own == call && &**to == topic)
    }

    pub fn is_finish_of(&self, call: Call, topic: &str) -> bool {
        matches!(self, Trace::Finished(own, to, _) if *own == call && &**to == topic)
    }
}
