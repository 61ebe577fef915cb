//! The brokers of a cluster by name, and the connections to them.
//!
//! Each broker has two lanes, each with one connection: one for reads and administration, one for appends, prepares and
//! ends. Large pulls so never stand before small appends, and all acknowledgements of one life of a broker process carry
//! the same [`Link`].

use super::check_back::Asked;
use super::code::Request;
use super::connection::Connection;
use super::frame::Fields;
use super::options::RocketOptions;
use super::secure::Security;
use crate::remoting::{Reply, RocketCounters};
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::Link;

/// Which of a broker's two connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Reads, offsets, topics.
    Read,
    /// Appends, prepares, ends.
    Write,
}

/// How a request goes to a broker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'l> {
    /// Over the present connection of a lane, or a new one.
    Any(Lane),
    /// Over this connection of the write lane, or not at all.
    Over(&'l Link),
}

/// See the module.
pub(super) struct Brokers {
    options: Arc<RocketOptions>,
    security: Security,
    asked: Asked,
    counters: Arc<RocketCounters>,
    runtime: Handle,
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Broker>>>,
}

struct Broker {
    name: Arc<str>,
    address: Mutex<Arc<str>>,
    read: Slot,
    write: Slot,
}

#[derive(Default)]
struct Slot {
    current: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Brokers {
    pub(super) fn new(
        options: Arc<RocketOptions>,
        security: Security,
        asked: Asked,
        counters: Arc<RocketCounters>,
        runtime: Handle,
    ) -> Self {
        Brokers { options, security, asked, counters, runtime, by_name: Mutex::default() }
    }

    /// When a request that starts now must have ended.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.options.request_timeout
    }

    /// Takes over what the name server says: names and master addresses. Brokers that it no longer knows are forgotten.
    pub(super) fn update(&self, masters: BTreeMap<Arc<str>, Arc<str>>) {
        let mut by_name = lock(&self.by_name);
        by_name.retain(|name, _| masters.contains_key(name));
        for (name, address) in masters {
            match by_name.get(&name) {
                Some(broker) => broker.moved_to(&address),
                None => {
                    let address = Mutex::new(address);
                    let broker = Broker { name: name.clone(), address, read: Slot::default(), write: Slot::default() };
                    by_name.insert(name, Arc::new(broker));
                }
            }
        }
    }

    /// Names and master addresses as last heard.
    pub(super) fn addresses(&self) -> Vec<(Arc<str>, Arc<str>)> {
        lock(&self.by_name).values().map(|broker| (broker.name.clone(), lock(&broker.address).clone())).collect()
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        lock(&self.by_name).contains_key(name)
    }

    /// One request and its reply, and the link that carried both.
    pub(super) async fn call(
        &self,
        broker: &str,
        way: Way<'_>,
        request: Request,
        fields: Fields<'_>,
        body: &[u8],
        deadline: Instant,
    ) -> Result<(Reply, Link)> {
        let known = lock(&self.by_name).get(broker).cloned();
        let known = known.ok_or_else(|| Error::retry(format!("no such broker at present: broker={broker}")))?;
        let connection = match way {
            Way::Any(lane) => self.connection(&known, lane, deadline).await?,
            Way::Over(link) => known.connection_of(link).ok_or_else(|| gone(link))?,
        };
        let called = connection.call(request, fields, body, deadline).await;
        let reply = called.map_err(|error| error.context(format_args!("broker {broker}")))?;
        Ok((reply, Link { broker: known.name.clone(), connection: connection.number }))
    }

    async fn connection(&self, broker: &Broker, lane: Lane, deadline: Instant) -> Result<Arc<Connection>> {
        let slot = if lane == Lane::Read { &broker.read } else { &broker.write };
        if let Some(open) = slot.open() {
            return Ok(open);
        }
        let slow = || Error::retry(format!("broker cannot be reached in time: broker={}", broker.name));
        let Ok(_one_at_a_time) = timeout_at(deadline, slot.connecting.lock()).await else {
            return Err(slow());
        };
        if let Some(open) = slot.open() {
            return Ok(open);
        }
        let address = lock(&broker.address).clone();
        let (options, security, counters) = (self.options.clone(), self.security.clone(), self.counters.clone());
        let asked = (broker.name.clone(), self.asked.clone());
        // The socket belongs to the log's own runtime: the caller's may end before the log does.
        let opening =
            self.runtime.spawn(async move { Connection::open(&address, options, &security, asked, counters).await });
        let opened = timeout_at(deadline, opening).await.map_err(|_| slow())?;
        let opened = opened.map_err(|error| Error::retry("log is closed").with_source(error))??;
        *lock(&slot.current) = Some(opened.clone());
        Ok(opened)
    }

    /// The lanes to keep alive: each broker's for writes, over which it also asks, and open ones for reads.
    pub(super) fn lanes(&self) -> Vec<(Arc<str>, Lane)> {
        let lanes = |broker: &Arc<Broker>| {
            let read = broker.read.open().map(|_| (broker.name.clone(), Lane::Read));
            [Some((broker.name.clone(), Lane::Write)), read]
        };
        lock(&self.by_name).values().flat_map(lanes).flatten().collect()
    }

    /// Whether requests can go over a link.
    pub(super) fn is_open(&self, link: &Link) -> bool {
        lock(&self.by_name).get(&link.broker).is_some_and(|broker| broker.connection_of(link).is_some())
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        for broker in std::mem::take(&mut *lock(&self.by_name)).into_values() {
            broker.disconnect();
        }
    }
}

fn gone(link: &Link) -> Error {
    Error::retry(format!("the connection is gone: broker={} connection={}", link.broker, link.connection))
}

impl Broker {
    /// The write connection, while it is the one of `link`.
    fn connection_of(&self, link: &Link) -> Option<Arc<Connection>> {
        self.write.open().filter(|open| open.number == link.connection)
    }

    fn moved_to(&self, address: &Arc<str>) {
        let before = std::mem::replace(&mut *lock(&self.address), address.clone());
        if before != *address {
            self.disconnect();
        }
    }

    fn disconnect(&self) {
        for slot in [&self.read, &self.write] {
            if let Some(connection) = lock(&slot.current).take() {
                connection.close();
            }
        }
    }
}

impl Slot {
    fn open(&self) -> Option<Arc<Connection>> {
        lock(&self.current).as_ref().filter(|connection| connection.is_open()).cloned()
    }
}

/// No code under these locks can panic, so a poisoned one still guards whole data.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
