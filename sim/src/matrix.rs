//! The crash matrix (goal G2): a small job, crashed at named steps, must end right.

use crate::check::{self, Violation};
use crate::clock;
use crate::cut::{Crash, Cut, Cuts, Victim};
use crate::dice::Dice;
use crate::disk::Disk;
use crate::fault::Rates;
use crate::process::{Process, Program};
use crate::run::Setting;
use crate::workload::{FEW_ENTRIES, INPUT, Jobs, Workload};
use crate::world::{ClientId, Net};
use onceflow::Config;
use onceflow::storage::StoreFactory;
use onceflow::topology::Delivery;
use onceflow::types::{Partition, Result};
use onceflow_storage::contract::copy_directory;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// Records of a run, and the time between two.
const RECORDS: u64 = 80;
const RECORD_TIME: Duration = Duration::from_millis(50);
/// How soon a killed process is started again.
const RESTART_TIME: Duration = Duration::from_millis(200);
/// How long a killed broker is away.
const BROKER_AWAY: Duration = Duration::from_millis(400);
/// How long a run may take in all, in virtual time.
const TIME_MAX: Duration = Duration::from_mins(3);
const LOOK_TIME: Duration = Duration::from_millis(250);

/// Where the state of a run lies.
#[derive(Clone)]
pub enum Stores {
    /// On the model disk.
    Model,
    /// In a directory. A killed process leaves a copy of it as it was at that moment; the next one opens the copy.
    Real {
        /// Opens stores in a directory.
        open: fn(&Path) -> Arc<dyn StoreFactory>,
        /// The directory for the run.
        root: PathBuf,
    },
}

/// What a run of the matrix showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// Crashes that never came: the step did not happen.
    pub missed: usize,
}

/// Runs the job with these crashes, one after the other.
///
/// # Panics
/// When tokio cannot make a runtime, or a directory cannot be copied.
pub fn crash(workload: Workload, delivery: Delivery, cuts: &[Cut], stores: &Stores) -> Outcome {
    clock::run(async { Run::new(workload, delivery, cuts, stores).run().await })
}

/// A crash on model brokers: they are away for a while; the process is killed by the run.
struct ModelCrash {
    net: Net,
    crashed: Arc<Notify>,
}

impl Crash for ModelCrash {
    fn kill(&self, victim: Victim) {
        if victim != Victim::Processor {
            self.kill_brokers();
        }
        self.crashed.notify_one();
    }
}

impl ModelCrash {
    fn kill_brokers(&self) {
        let mut world = self.net.lock();
        for broker in world.brokers.values_mut() {
            broker.kill();
        }
        drop(world);
        self.net.at(Instant::now() + BROKER_AWAY, |world| {
            for broker in world.brokers.values_mut().filter(|broker| !broker.up) {
                broker.start();
            }
        });
    }
}

struct Run {
    setting: Setting,
    net: Net,
    cuts: Cuts,
    crashed: Arc<Notify>,
    dice: Dice,
    stores: Stores,
    disk: Disk,
    lives: u64,
    process: Option<Process>,
    violations: Vec<Violation>,
}

impl Run {
    fn new(workload: Workload, delivery: Delivery, cuts: &[Cut], stores: &Stores) -> Run {
        let net = Net::new(&["broker-a"], Dice::new(11));
        // Wide records need Deltas; a snapshot is due within the run.
        let jobs =
            Jobs { workload, delivery, first_delivery: delivery, wide_per_mille: 700, cache_entries: FEW_ENTRIES };
        let config = Config {
            epoch_time: Duration::from_millis(600),
            publish_lease: Duration::from_secs(1),
            snapshot_time: Duration::from_millis(700),
            backoff_max: Duration::from_secs(1),
            ..Config::default()
        };
        let crashed: Arc<Notify> = Arc::default();
        let crash = ModelCrash { net: net.clone(), crashed: crashed.clone() };
        Run {
            setting: Setting::fixed(jobs, Rates::default(), config),
            cuts: Cuts::new(cuts, Arc::new(crash)),
            crashed,
            dice: Dice::new(12),
            stores: stores.clone(),
            disk: Disk::new(0, &net),
            net,
            lives: 0,
            process: None,
            violations: vec![],
        }
    }

    async fn run(mut self) -> Outcome {
        let net = self.net.clone();
        spawn_local(async move { net.pump().await });
        for (topic, _) in self.setting.jobs.topics() {
            self.net.lock().brokers.values_mut().for_each(|broker| broker.add_queues(&topic.into(), 1));
        }
        self.start();
        for id in 0..RECORDS {
            self.send(id);
            self.wait(RECORD_TIME).await;
        }
        let until = Instant::now() + TIME_MAX;
        self.until_right(until).await;
        // Handed over at the end, and started once more if that was cut.
        self.process.iter().for_each(Process::drain);
        while self.process.as_ref().is_some_and(|process| !process.has_ended()) && Instant::now() < until {
            self.wait(LOOK_TIME).await;
        }
        let violations = self.until_right(until).await;
        self.violations.extend(violations);
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
        Outcome { violations: self.violations, missed: self.cuts.left() }
    }

    /// Waits until nothing is wrong; what still is at the end.
    async fn until_right(&mut self, until: Instant) -> Vec<Violation> {
        loop {
            let violations = check::check(&self.net.lock(), &self.setting).violations;
            if violations.is_empty() || Instant::now() >= until {
                return violations;
            }
            if self.process.as_ref().is_none_or(Process::has_ended) {
                self.start();
            }
            self.wait(LOOK_TIME).await;
        }
    }

    /// Lets time pass, and starts the process again when it was killed.
    async fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            tokio::select! {
                biased;
                () = self.crashed.notified() => self.crashed().await,
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    async fn crashed(&mut self) {
        if !self.cuts.take_dead() {
            return;
        }
        let Some(process) = self.process.take() else { return };
        // What the killed process leaves is what lies there now, not what its stores write when they are dropped.
        if let Stores::Real { root, .. } = &self.stores {
            let left = copy_directory(&place(root, self.lives), &place(root, self.lives + 1));
            left.expect("the directory of the run can be copied");
        }
        process.kill().await;
        sleep(RESTART_TIME).await;
        self.start();
    }

    fn start(&mut self) {
        if self.process.take().is_some() {
            // It ended by itself: the next one finds its directory.
            self.lives = self.lives.saturating_sub(1);
        }
        self.lives += 1;
        match self.program() {
            Ok(program) => {
                self.process = Some(Process::start(&self.net, ClientId(self.lives), program, &mut self.dice));
            }
            Err(error) => self.violations.push(Violation::Stopped(error.report())),
        }
    }

    fn program(&self) -> Result<Program> {
        let stores = match &self.stores {
            Stores::Model => Arc::new(self.disk.clone()),
            Stores::Real { open, root } => open(&place(root, self.lives)),
        };
        Ok(Program {
            topologies: self.setting.jobs.topologies()?,
            config: self.setting.config.clone(),
            stores,
            cuts: Some(self.cuts.clone()),
        })
    }

    fn send(&mut self, id: u64) {
        let partition = Partition::new(INPUT, "broker-a", 0);
        let expected = &mut *self.setting.expected.borrow_mut();
        let Ok(body) = self.setting.jobs.record(id, ("broker-a-0", 0), &mut self.dice, expected) else { return };
        let mut world = self.net.lock();
        let time = world.time();
        if let Some(broker) = world.brokers.get_mut(&partition.broker) {
            let stored =
                crate::broker::Stored { born: time, at: time, properties: bytes::Bytes::new(), body: body.into() };
            broker.append(&partition, stored, Duration::ZERO);
            broker.acknowledge();
        }
    }
}

/// The directory of one life of the process.
fn place(root: &Path, life: u64) -> PathBuf {
    root.join(life.to_string())
}
