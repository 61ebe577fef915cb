//! One run: a job under faults, then without, then the checks.

use crate::check::{self, Found, Violation};
use crate::clock;
use crate::dice::Dice;
use crate::disk::Disk;
use crate::fault::{Counts, Fault, Rates};
use crate::plant::Plant;
use crate::process::{Process, Program};
use crate::workload::{ALL_ENTRIES, Expected, FEW_ENTRIES, INPUT, Jobs, Workload};
use crate::world::{ClientId, Net};
use onceflow::Config;
use onceflow::topology::Delivery;
use onceflow::types::{Error, ErrorKind, Partition, Result};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// How long a job may take to get done once faults have stopped (goal G16), beyond its lease and longest wait.
const DRAIN_MAX: Duration = Duration::from_mins(2);
/// A time that no run lasts.
const NEVER: Duration = Duration::from_hours(24);
/// Phases of event time in a run, each with its share of the records.
const PHASES: u64 = 4;
/// Input queues of a broker that a run may come to have.
const QUEUES_MAX: u32 = 4;
/// How often the checker looks.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// What a run is asked to be; everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The seed.
    pub seed: u64,
    /// The workload; `None`: drawn.
    pub workload: Option<Workload>,
    /// The kinds of faults that may be in the mix.
    pub faults: Vec<Fault>,
    /// What is wrong on purpose.
    pub plant: Option<Plant>,
}

impl Wish {
    /// A seed with all kinds of faults and any workload.
    pub fn new(seed: u64) -> Self {
        Wish { seed, workload: None, faults: Fault::ALL.to_vec(), plant: None }
    }
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Its workload.
    pub workload: Workload,
    /// What was wrong; empty when all is right.
    pub violations: Vec<Violation>,
    /// A hash over everything that happened.
    pub trace: u64,
    /// What happened.
    pub counts: Counts,
    /// Records that were sent.
    pub records: u64,
    /// Epochs that were decided.
    pub epochs: u64,
    /// Ownerships of tasks.
    pub claims: u64,
    /// Copies of messages that plain consumers see.
    pub raw_duplicates: u64,
    /// How long faults lasted, and how long it took to get done then, in virtual time.
    pub fault_time: Duration,
    /// See there.
    pub drain_time: Duration,
}

/// What a seed comes to.
pub(crate) struct Setting {
    pub(crate) jobs: Jobs,
    pub(crate) rates: Rates,
    pub(crate) expected: RefCell<Expected>,
    brokers: usize,
    queues: u32,
    machines: u32,
    records: u64,
    fault_time: Duration,
    pub(crate) config: Config,
}

impl Setting {
    fn draw(wish: &Wish, dice: &mut Dice) -> Setting {
        let workload = wish.workload.or_else(|| dice.pick(&Workload::ALL).copied()).unwrap_or(Workload::Counts);
        let rates = Rates::mixed(&wish.faults, dice);
        // A third of the retention, which is longer than any process stands still.
        let snapshots = dice.happens(200);
        let mut setting = Setting {
            jobs: Jobs {
                workload,
                delivery: delivery(dice),
                first_delivery: delivery(dice),
                wide_per_mille: if dice.happens(60) { 300 } else { 0 },
                cache_entries: FEW_ENTRIES,
            },
            rates,
            expected: RefCell::default(),
            brokers: if dice.happens(300) { 2 } else { 1 },
            queues: u32::try_from(dice.within(1, 2)).unwrap_or(1),
            machines: u32::try_from(dice.within(1, 3)).unwrap_or(1),
            records: dice.within(20, 150),
            fault_time: if snapshots { dice.millis(60_000, 120_000) } else { dice.millis(10_000, 45_000) },
            config: Config {
                snapshot_time: if snapshots { dice.millis(9_000, 15_000) } else { NEVER },
                ..config(dice)
            },
        };
        // One in four has a latency target, and one in three all entries in memory. They are no draws of their own, which would
        // change what is drawn behind them.
        let epoch_time = setting.config.epoch_time;
        setting.config.latency_target = epoch_time.as_millis().is_multiple_of(4).then_some(epoch_time / 2);
        if epoch_time.as_millis().is_multiple_of(3) {
            setting.jobs.cache_entries = ALL_ENTRIES;
        }
        setting
    }

    /// One that nothing is drawn for.
    pub(crate) fn fixed(jobs: Jobs, rates: Rates, config: Config) -> Setting {
        Setting {
            jobs,
            rates,
            expected: RefCell::default(),
            brokers: 1,
            queues: 1,
            machines: 1,
            records: 0,
            fault_time: Duration::ZERO,
            config,
        }
    }

    /// Whether nothing in this run can make a raw duplicate: no request is late or doubled, no owner stands still between
    /// its lease check and its END, and no batch of plain messages is torn, whose first ones come twice then.
    pub(crate) fn explains_nothing(&self) -> bool {
        let torn = self.rates.of(Fault::BrokerPower) > 0 && self.jobs.sends_batches();
        let causes = [Fault::Late, Fault::Twice, Fault::Slow, Fault::PauseProcess];
        !torn && causes.iter().all(|fault| self.rates.of(*fault) == 0)
    }
}

fn delivery(dice: &mut Dice) -> Delivery {
    match dice.below(4) {
        0 => Delivery::Outbox { framed: false },
        1 => Delivery::Outbox { framed: true },
        _ => Delivery::Transactional,
    }
}

fn config(dice: &mut Dice) -> Config {
    Config {
        epoch_time: dice.millis(20, 600),
        epoch_records_max: if dice.happens(300) { 3 } else { 1_000 },
        unpublished_epochs_max: usize::try_from(dice.within(1, 4)).unwrap_or(1),
        unpublished_bytes_max: if dice.happens(300) { 1 } else { Config::default().unpublished_bytes_max },
        publish_lease: dice.millis(1_000, 10_000),
        requests_in_flight_max: usize::try_from(dice.within(1, 8)).unwrap_or(1),
        tries_max: u32::try_from(dice.within(2, 10)).unwrap_or(2),
        backoff_max: dice.millis(500, 5_000),
        read_records_max: usize::try_from(dice.within(1, 20)).unwrap_or(1),
        read_ahead_batches_max: usize::try_from(dice.within(1, 3)).unwrap_or(1),
        outage_max: Duration::from_hours(2),
        ..Config::default()
    }
}

/// Runs one seed, in virtual time, on this thread.
///
/// # Panics
/// When tokio cannot make a runtime.
pub fn run(wish: &Wish) -> Report {
    Plant::begin(wish.plant);
    clock::run(async { Sim::new(wish).run().await })
}

/// One machine, and what runs on it.
struct Slot {
    disk: Disk,
    process: Option<Process>,
    client: ClientId,
    /// When it is started again.
    restart_at: Instant,
    resume_at: Option<Instant>,
}

struct Sim {
    seed: u64,
    setting: Setting,
    net: Net,
    dice: Dice,
    slots: Vec<Slot>,
    clients: u64,
    broker_starts: BTreeMap<Arc<str>, Instant>,
    joins: Vec<(Instant, ClientId, Arc<str>)>,
    violations: Vec<Violation>,
    sent: u64,
    phase: u64,
}

impl Sim {
    fn new(wish: &Wish) -> Sim {
        let mut dice = Dice::new(wish.seed);
        let setting = Setting::draw(wish, &mut dice);
        let names = ["broker-a", "broker-b"];
        let net = Net::new(names.get(..setting.brokers).unwrap_or(&names), dice.fork());
        net.lock().plant = wish.plant;
        let slot = |machine| Slot {
            disk: Disk::new(machine, &net),
            process: None,
            client: ClientId(0),
            restart_at: Instant::now(),
            resume_at: None,
        };
        let slots = (0..setting.machines).map(slot).collect();
        Sim {
            seed: wish.seed,
            setting,
            net,
            dice,
            slots,
            clients: 0,
            broker_starts: BTreeMap::new(),
            joins: vec![],
            violations: vec![],
            sent: 0,
            phase: 0,
        }
    }

    async fn run(mut self) -> Report {
        let net = self.net.clone();
        spawn_local(async move { net.pump().await });
        self.make_topics();
        let fault_time = self.setting.fault_time;
        self.under_faults(Instant::now() + fault_time).await;
        self.stop_faults();
        let started = Instant::now();
        let found = self.until_done().await;
        let drain_time = Instant::now() - started;
        for slot in &mut self.slots {
            if let Some(process) = slot.process.take() {
                process.kill().await;
            }
        }
        let world = self.net.lock();
        self.violations.extend(found.violations);
        self.violations.sort();
        self.violations.dedup();
        Report {
            seed: self.seed,
            workload: self.setting.jobs.workload,
            violations: self.violations,
            trace: world.trace.hash(),
            counts: world.counts.clone(),
            records: self.sent,
            epochs: found.epochs,
            claims: found.claims,
            raw_duplicates: found.raw_duplicates,
            fault_time,
            drain_time,
        }
    }

    fn make_topics(&mut self) {
        let mut world = self.net.lock();
        for (topic, _) in self.setting.jobs.topics() {
            world.brokers.values_mut().for_each(|broker| broker.add_queues(&topic.into(), self.setting.queues));
        }
    }

    /// Input comes and faults happen, until `until`.
    async fn under_faults(&mut self, until: Instant) {
        self.net.lock().rates = self.setting.rates.clone();
        let step = self.setting.fault_time / u32::try_from(self.setting.records).unwrap_or(1);
        let (mut record_at, mut fault_at) = (Instant::now(), self.next_fault());
        while Instant::now() < until {
            let now = Instant::now();
            if record_at <= now && self.sent < self.setting.records {
                self.send();
                record_at = now + step.mul_f64(f64::from(u32::try_from(self.dice.within(0, 20)).unwrap_or(10)) / 10.0);
            }
            if fault_at <= now {
                self.inject().await;
                fault_at = self.next_fault();
            }
            self.keep_house().await;
            let next = record_at.min(fault_at).min(self.next_change()).min(until);
            sleep(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))).await;
        }
        while self.sent < self.setting.records {
            self.send();
        }
    }

    fn next_fault(&mut self) -> Instant {
        Instant::now() + self.dice.millis(100, 2_500)
    }

    /// When a machine, a broker or a connection changes by itself.
    fn next_change(&self) -> Instant {
        let far = Instant::now() + LOOK_TIME;
        let slots = self
            .slots
            .iter()
            .map(|slot| slot.resume_at.unwrap_or(if slot.process.is_none() { slot.restart_at } else { far }));
        let brokers = self.broker_starts.values().copied();
        slots.chain(brokers).chain(self.joins.iter().map(|join| join.0)).fold(far, Instant::min)
    }

    /// A record reaches the input; its producer is no part of this.
    fn send(&mut self) {
        let brokers = self.broker_names();
        let Some(broker) = self.dice.pick(&brokers).cloned() else { return };
        let queue = u32::try_from(self.dice.below(self.setting.queues.into())).unwrap_or(0);
        let partition = Partition::new(INPUT, broker.clone(), queue);
        let place = format!("{broker}-{queue}");
        let body = self.setting.jobs.record(
            self.sent,
            (&place, self.phase),
            &mut self.dice,
            &mut self.setting.expected.borrow_mut(),
        );
        let Ok(body) = body else { return };
        self.store(&partition, body);
        self.sent += 1;
        if self.sent * PHASES / self.setting.records > self.phase {
            self.end_phase();
        }
    }

    fn broker_names(&self) -> Vec<Arc<str>> {
        self.net.lock().brokers.keys().cloned().collect()
    }

    fn store(&self, partition: &Partition, body: Vec<u8>) {
        let mut world = self.net.lock();
        let (time, lag) = (world.time(), world.lag());
        if let Some(broker) = world.brokers.get_mut(&partition.broker) {
            let stored =
                crate::broker::Stored { born: time, at: time, properties: bytes::Bytes::new(), body: body.into() };
            broker.append(partition, stored, lag);
            broker.acknowledge();
        }
    }

    /// The last records of a phase of event time, for jobs that need them.
    fn end_phase(&mut self) {
        for broker in self.broker_names() {
            for queue in 0..self.setting.queues {
                if let Some(Ok(body)) = self.setting.jobs.mark(self.phase) {
                    self.store(&Partition::new(INPUT, broker.clone(), queue), body);
                }
            }
        }
        self.phase += 1;
    }

    /// One fault of the schedule.
    async fn inject(&mut self) {
        const SCHEDULED: [Fault; 10] = [
            Fault::KillProcess,
            Fault::PauseProcess,
            Fault::ProcessPower,
            Fault::KillBroker,
            Fault::BrokerPower,
            Fault::Partition,
            Fault::Drain,
            Fault::Retention,
            Fault::NameServer,
            Fault::Queues,
        ];
        let allowed: Vec<Fault> = SCHEDULED.into_iter().filter(|fault| self.setting.rates.of(*fault) > 0).collect();
        let Some(fault) = self.dice.pick(&allowed).copied() else { return };
        let at = usize::try_from(self.dice.below(self.slots.len() as u64)).unwrap_or(0);
        match fault {
            Fault::KillBroker | Fault::BrokerPower => self.stop_broker(fault),
            Fault::Partition => self.cut(at),
            Fault::Retention => self.age(),
            Fault::NameServer => self.stop_name_server(),
            Fault::Queues => self.add_queues(),
            _ => self.stop_process(at, fault).await,
        }
    }

    async fn stop_process(&mut self, at: usize, fault: Fault) {
        let back = Instant::now() + self.dice.millis(0, 3_000);
        let pause = Instant::now() + self.dice.millis(100, 25_000);
        let Some(slot) = self.slots.get_mut(at) else { return };
        let Some(process) = slot.process.take() else { return };
        {
            let mut world = self.net.lock();
            world.counts.fault(fault);
            world.note(fault.word(), &[slot.client.0]);
        }
        match fault {
            Fault::PauseProcess => {
                process.pause();
                slot.resume_at = Some(slot.resume_at.unwrap_or(pause));
                slot.process = Some(process);
            }
            Fault::Drain => {
                process.drain();
                slot.process = Some(process);
            }
            _ => {
                process.kill().await;
                slot.restart_at = back;
                slot.resume_at = None;
                if fault == Fault::ProcessPower {
                    slot.disk.lose_power(&mut self.dice);
                }
            }
        }
    }

    fn stop_broker(&mut self, fault: Fault) {
        let mut world = self.net.lock();
        let up: Vec<Arc<str>> =
            world.brokers.values().filter(|broker| broker.up).map(|broker| broker.name.clone()).collect();
        let Some(name) = self.dice.pick(&up).cloned() else { return };
        let Some(broker) = world.brokers.get_mut(&name) else { return };
        let lost = match fault {
            Fault::BrokerPower => broker.lose_power(&mut self.dice),
            _ => {
                broker.kill();
                0
            }
        };
        world.counts.entries_lost += lost as u64;
        world.counts.fault(fault);
        world.note(fault.word(), &[lost as u64]);
        let back = self.dice.millis(100, 5_000);
        self.broker_starts.insert(name, Instant::now() + back);
    }

    /// Journals lose what is older than their retention, as far as a snapshot covers it: an owner that could not write
    /// one for so long is beyond the promise.
    fn age(&mut self) {
        let mut world = self.net.lock();
        let retention = self.setting.config.snapshot_time.saturating_mul(3).as_millis();
        let oldest = world.time().saturating_add(-i64::try_from(retention).unwrap_or(i64::MAX));
        for (journal, decided) in check::journals(&world) {
            let Some(broker) = world.brokers.get_mut(&journal.broker) else { continue };
            let first = decided.covered.min(broker.offset_at(&journal, oldest));
            if broker.trim(&journal, first) {
                world.counts.fault(Fault::Retention);
                world.note("retention", &[first]);
            }
        }
    }

    fn stop_name_server(&mut self) {
        let mut world = self.net.lock();
        world.name_server_back = Instant::now() + self.dice.millis(500, 15_000);
        world.counts.fault(Fault::NameServer);
        world.note("name server", &[]);
    }

    /// Not in a job whose event time must wait for every queue: nobody can wait for one that is not known yet.
    fn add_queues(&mut self) {
        if self.setting.queues >= QUEUES_MAX || self.setting.jobs.workload.is_timed() {
            return;
        }
        self.setting.queues += 1;
        let mut world = self.net.lock();
        world.brokers.values_mut().for_each(|broker| broker.add_queues(&INPUT.into(), self.setting.queues));
        world.counts.fault(Fault::Queues);
        world.note("queues", &[self.setting.queues.into()]);
    }

    fn cut(&mut self, at: usize) {
        let mut world = self.net.lock();
        let names: Vec<Arc<str>> = world.brokers.keys().cloned().collect();
        let (Some(slot), Some(name)) = (self.slots.get(at), self.dice.pick(&names).cloned()) else { return };
        world.cut.insert((slot.client, name.clone()));
        world.counts.fault(Fault::Partition);
        world.note("cut", &[slot.client.0]);
        self.joins.push((Instant::now() + self.dice.millis(500, 15_000), slot.client, name));
    }

    /// Starts, resumes and joins what is due, and looks after processes that have ended.
    async fn keep_house(&mut self) {
        let now = Instant::now();
        self.start_brokers(now);
        for at in 0..self.slots.len() {
            self.keep_slot(at, now).await;
        }
    }

    fn start_brokers(&mut self, now: Instant) {
        let mut world = self.net.lock();
        let due: Vec<Arc<str>> =
            self.broker_starts.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.broker_starts.remove(&name);
            world.brokers.get_mut(&name).into_iter().for_each(crate::broker::Broker::start);
        }
        self.joins.retain(|(at, client, broker)| {
            let due = *at <= now;
            if due {
                world.cut.remove(&(*client, broker.clone()));
            }
            !due
        });
    }

    async fn keep_slot(&mut self, at: usize, now: Instant) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        if slot.resume_at.is_some_and(|at| at <= now) {
            slot.resume_at = None;
            slot.process.iter().for_each(Process::resume);
        }
        if slot.process.as_ref().is_some_and(Process::has_ended)
            && let Some(process) = slot.process.take()
        {
            slot.restart_at = now + Duration::from_millis(500);
            let ended = process.ended().await;
            self.violations.extend(wrong_end(ended));
        }
        if self.slots.get(at).is_some_and(|slot| slot.process.is_none() && slot.restart_at <= now) {
            self.start(at);
        }
    }

    fn start(&mut self, at: usize) {
        let program = self.program(at);
        let Some(slot) = self.slots.get_mut(at) else { return };
        self.clients += 1;
        slot.client = ClientId(self.clients);
        match program {
            Ok(program) => slot.process = Some(Process::start(&self.net, slot.client, program, &mut self.dice)),
            Err(error) => self.violations.push(Violation::Stopped(error.report())),
        }
    }

    fn program(&self, at: usize) -> Result<Program> {
        let slot = self.slots.get(at).ok_or_else(|| Error::bug("no such machine"))?;
        Ok(Program {
            topologies: self.setting.jobs.topologies()?,
            config: self.setting.config.clone(),
            stores: Arc::new(slot.disk.clone()),
            cuts: None,
        })
    }

    /// No more faults; brokers, connections and paused processes come back.
    fn stop_faults(&mut self) {
        let mut world = self.net.lock();
        world.rates = Rates::default();
        world.cut.clear();
        world.name_server_back = Instant::now();
        world.note("faults stop", &[]);
        self.joins.clear();
        let now = Instant::now();
        self.broker_starts.values_mut().for_each(|at| *at = now);
        for slot in &mut self.slots {
            slot.resume_at = slot.resume_at.map(|_| now);
        }
    }

    /// Waits until nothing is wrong, at most for the time that the goal gives.
    async fn until_done(&mut self) -> Found {
        let limit = DRAIN_MAX + self.setting.config.publish_lease + self.setting.config.backoff_max;
        let until = Instant::now() + limit;
        let mut entries = 0;
        loop {
            self.keep_house().await;
            sleep(LOOK_TIME).await;
            let world = self.net.lock();
            let now = world.brokers.values().map(crate::broker::Broker::entries).sum();
            let quiet = std::mem::replace(&mut entries, now) == now;
            let last = Instant::now() >= until;
            if quiet || last {
                let found = check::check(&world, &self.setting);
                if found.violations.is_empty() || last || !self.violations.is_empty() {
                    return found;
                }
            }
        }
    }
}

/// What is wrong with the way in which a process ended.
fn wrong_end(ended: Option<Result<()>>) -> Option<Violation> {
    match ended {
        None => Some(Violation::Stopped("the process panicked".to_owned())),
        Some(Ok(())) => None,
        // Away, or a store that failed while it was drained: the next start puts that right.
        Some(Err(error)) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Corrupt) => None,
        Some(Err(error)) => Some(Violation::Stopped(error.report())),
    }
}
