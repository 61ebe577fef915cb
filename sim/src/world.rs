//! Everything outside the processes: brokers, requests under way, faults in force, and the trace of what happened.

use crate::broker::{Broker, Check};
use crate::dice::Dice;
use crate::fault::{Counts, Rates};
use crate::plant::Plant;
use onceflow::log::MemberId;
use onceflow::types::{Clock, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

/// Processing time at the start of each run: any fixed number does.
const START_MILLIS: i64 = 1_700_000_000_000;

/// One process's way to the brokers. A process that is started again is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientId(pub(crate) u64);

type Action = Box<dyn FnOnce(&mut World) + Send>;

/// The outside, and the clock's zero.
pub(crate) struct World {
    pub(crate) brokers: BTreeMap<Arc<str>, Broker>,
    pub(crate) dice: Dice,
    pub(crate) rates: Rates,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    pub(crate) plant: Option<Plant>,
    /// Processes that cannot reach a broker, and the brokers that they cannot reach.
    pub(crate) cut: BTreeSet<(ClientId, Arc<str>)>,
    /// Until when the name server does not answer.
    pub(crate) name_server_back: Instant,
    /// The present connection of each process to each broker.
    connections: BTreeMap<(ClientId, Arc<str>), (u64, u64)>,
    connections_made: u64,
    /// Who can be asked about halves of a group.
    members: Vec<Member>,
    /// Who gave a sign of life in a consumer group, and when.
    alive: BTreeMap<Arc<str>, BTreeMap<MemberId, (ClientId, Instant)>>,
    events: BinaryHeap<Reverse<Event>>,
    events_made: u64,
    started: Instant,
}

struct Member {
    client: ClientId,
    group: Arc<str>,
    checks: mpsc::UnboundedSender<Check>,
}

struct Event {
    at: Instant,
    number: u64,
    action: Action,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A shared world. One thread uses it; the lock is there because the product's traits are for threads.
#[derive(Clone)]
pub(crate) struct Net {
    world: Arc<Mutex<World>>,
    wake: Arc<Notify>,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(crate) fn new(brokers: &[&str], dice: Dice) -> Self {
        let brokers = brokers.iter().map(|name| (Arc::from(*name), Broker::new(Arc::from(*name)))).collect();
        let world = World {
            brokers,
            dice,
            rates: Rates::default(),
            counts: Counts::default(),
            trace: Trace::default(),
            plant: None,
            cut: BTreeSet::new(),
            name_server_back: Instant::now(),
            connections: BTreeMap::new(),
            connections_made: 0,
            members: vec![],
            alive: BTreeMap::new(),
            events: BinaryHeap::new(),
            events_made: 0,
            started: Instant::now(),
        };
        Net { world: Arc::new(Mutex::new(world)), wake: Arc::new(Notify::new()) }
    }

    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.lock().plant == Some(plant)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the world at a later time, whatever becomes of the caller.
    pub(crate) fn at(&self, at: Instant, action: impl FnOnce(&mut World) + Send + 'static) {
        self.lock().at(at, Box::new(action));
        self.wake.notify_one();
    }

    /// Carries out what is due, for ever: events, operation records, check-backs.
    pub(crate) async fn pump(&self) {
        loop {
            let next = self.lock().run_due();
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = sleep_until(next.unwrap_or_else(|| Instant::now() + IDLE)) => {}
            }
        }
    }
}

/// How long a member may be silent: as on a real broker.
const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How long the pump sleeps when nothing is due.
const IDLE: std::time::Duration = std::time::Duration::from_hours(1);

impl World {
    fn at(&mut self, at: Instant, action: Action) {
        self.events_made += 1;
        self.events.push(Reverse(Event { at, number: self.events_made, action }));
    }

    /// Runs everything that is due; returns when something is due next.
    fn run_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        while self.events.peek().is_some_and(|event| event.0.at <= now) {
            if let Some(Reverse(event)) = self.events.pop() {
                (event.action)(self);
            }
        }
        self.check_halves(now);
        let ticks = self.brokers.values().filter(|broker| broker.up).filter_map(Broker::next_tick);
        ticks.chain(self.events.peek().map(|event| event.0.at)).min()
    }

    fn check_halves(&mut self, now: Instant) {
        let mut checks = vec![];
        for broker in self.brokers.values_mut().filter(|broker| broker.up) {
            checks.extend(broker.tick(now));
        }
        for check in checks {
            self.members.retain(|member| !member.checks.is_closed());
            let asked: Vec<usize> = (0..self.members.len())
                .filter(|at| self.members.get(*at).is_some_and(|m| m.group == check.half.group))
                .collect();
            let member = self.dice.pick(&asked).and_then(|at| self.members.get(*at));
            if let Some(member) = member {
                let cut = self.cut.contains(&(member.client, check.half.target.broker.clone()));
                if !cut && member.checks.send(check).is_ok() {
                    self.counts.check_backs += 1;
                }
            }
        }
    }

    /// Registers a process for check-backs.
    pub(crate) fn join(&mut self, client: ClientId, group: Arc<str>) -> mpsc::UnboundedReceiver<Check> {
        let (checks, receiver) = mpsc::unbounded_channel();
        self.members.push(Member { client, group, checks });
        receiver
    }

    /// A sign of life in a consumer group; returns who gave one lately. `None` when no broker can be reached.
    pub(crate) fn sign_of_life(&mut self, client: ClientId, group: &str, own: &MemberId) -> Option<BTreeSet<MemberId>> {
        let reached = |broker: &&Broker| broker.up && !self.cut.contains(&(client, broker.name.clone()));
        self.brokers.values().find(reached)?;
        let now = Instant::now();
        let members = self.alive.entry(group.into()).or_default();
        members.insert(own.clone(), (client, now));
        Some(members.iter().filter(|(_, (_, at))| now - *at < SILENCE_MAX).map(|(member, _)| member.clone()).collect())
    }

    /// A member leaves.
    pub(crate) fn leave_group(&mut self, group: &str, own: &MemberId) {
        if let Some(members) = self.alive.get_mut(group) {
            members.remove(own);
        }
    }

    /// The process is gone: its connections close, nobody asks it any more.
    pub(crate) fn leave(&mut self, client: ClientId) {
        self.members.retain(|member| member.client != client);
        self.alive.values_mut().for_each(|group| group.retain(|_, (member, _)| *member != client));
        self.connections.retain(|(owner, _), _| *owner != client);
        self.cut.retain(|(owner, _)| *owner != client);
    }

    /// The connection of a process to a broker that runs: the one it has, or a new one.
    pub(crate) fn connection(&mut self, client: ClientId, broker: &Arc<str>) -> Option<u64> {
        let life = self.brokers.get(broker).filter(|broker| broker.up)?.life;
        let present = self.connections.get(&(client, broker.clone()));
        if let Some((connection, of_life)) = present
            && *of_life == life
        {
            return Some(*connection);
        }
        self.connections_made += 1;
        self.connections.insert((client, broker.clone()), (self.connections_made, life));
        Some(self.connections_made)
    }

    /// Whether this is the present connection of a process to a broker, and the same life of the broker is at its end.
    pub(crate) fn has_connection(&self, client: ClientId, broker: &Arc<str>, connection: u64) -> bool {
        let Some(found) = self.brokers.get(broker).filter(|broker| broker.up) else { return false };
        self.connections.get(&(client, broker.clone())) == Some(&(connection, found.life))
    }

    /// Breaks a connection: replies under way are lost, the next call makes a new one.
    pub(crate) fn reset(&mut self, client: ClientId, broker: &Arc<str>) {
        self.connections.remove(&(client, broker.clone()));
    }

    /// Whether a reply over this connection can still arrive.
    pub(crate) fn is_open(&self, client: ClientId, broker: &Arc<str>, connection: u64) -> bool {
        let up = self.brokers.get(broker).is_some_and(|found| found.up);
        let same = self.connections.get(&(client, broker.clone())).is_some_and(|found| found.0 == connection);
        up && same && !self.cut.contains(&(client, broker.clone()))
    }

    /// Processing time now.
    pub(crate) fn time(&self) -> Timestamp {
        let since = i64::try_from((Instant::now() - self.started).as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(START_MILLIS + since)
    }

    /// Virtual time since the start of the run.
    pub(crate) fn elapsed(&self) -> std::time::Duration {
        Instant::now() - self.started
    }

    /// Notes what happened, for the trace hash.
    pub(crate) fn note(&mut self, what: &str, numbers: &[u64]) {
        let at = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.trace.note(at, what, numbers);
        tracing::trace!(at, what, ?numbers);
    }
}

/// Processing time as the simulation has it.
#[derive(Clone, Debug)]
pub(crate) struct SimClock(pub(crate) Net);

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.lock().time()
    }
}

/// A hash over everything that happened, in order: two runs of a seed have the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        // FNV-1a's offset basis; so is the prime below.
        Trace(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    fn note(&mut self, at: u64, what: &str, numbers: &[u64]) {
        let mut mix = |word: u64| self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        mix(at);
        what.bytes().for_each(|byte| mix(byte.into()));
        numbers.iter().copied().for_each(mix);
    }

    pub(crate) const fn hash(self) -> u64 {
        self.0
    }
}
