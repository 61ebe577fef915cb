//! One life of the process: this test binary again, running the one test `the_process_that_dies`, which does nothing unless
//! the environment tells it what to run.
//!
//! ```text
//! process to harness (stdout)   cut: met            it is at the step
//!                               cut: kill broker    it waits there until the broker is dead
//! harness to process (stdin)    killed              the broker is dead
//!                               finish              no more input comes: hand over and end
//! ```

use crate::job::Job;
use onceflow::log::Log;
use onceflow::log::rocketmq::{RocketLog, RocketOptions};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::types::{ErrorKind, Result};
use onceflow::{Config, Runtime, topics};
use onceflow_sim::{Crash, Cut, CutLog, CutStores, Cuts, Step, Victim};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::LocalSet;

const ENV: &str = "ONCEFLOW_TEST_LIFE";
/// Exit codes beside success: the broker was away for too long, start me again; the step was never met; too slow.
pub const AGAIN: i32 = 75;
pub const MISSED: i32 = 76;
const TOO_SLOW: i32 = 77;
/// How long a step that has to come may take to come once all input is processed.
const MEET_MAX: Duration = Duration::from_secs(30);
const LOOK_TIME: Duration = Duration::from_millis(50);
/// How long all input may take, an outage of the broker and a wait for a silent member included.
const CAUGHT_UP_MAX: Duration = Duration::from_mins(4);
/// The same for a wrong engine, which may never get there.
const PLANTED_CAUGHT_UP_MAX: Duration = Duration::from_secs(15);
const LIFE_MAX: Duration = Duration::from_mins(10);

/// What a life runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    pub job: Job,
    pub store: String,
    pub directory: PathBuf,
    pub name_server: String,
    pub cut: Option<Cut>,
    /// Which wrong engine it is, if any.
    pub planted: Option<usize>,
}

impl Life {
    /// Starts it; what it logs is appended to `log`.
    pub fn spawn(&self, log: &std::path::Path) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        // This path works even when the program's file was replaced by a build in the meantime.
        Command::new("/proc/self/exe")
            .args(["--exact", "the_process_that_dies", "--nocapture"])
            .env(ENV, serde_json::to_string(self).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn config() -> Config {
        Config {
            threads: 2,
            epoch_time: Duration::from_millis(150),
            epoch_records_max: 8,
            read_records_max: 8,
            publish_lease: Duration::from_secs(1),
            // Snapshots come within the run, and are cut, too.
            snapshot_time: Duration::from_millis(700),
            backoff_max: Duration::from_secs(1),
            start_time_max: Duration::from_secs(90),
            ..Config::default()
        }
    }

    async fn open_log(&self) -> Result<Arc<dyn Log>> {
        let options = RocketOptions::new(&*self.name_server, topics::producer_group(&self.job.name()));
        Ok(Arc::new(RocketLog::open(options).await?))
    }

    async fn live(&self, cuts: Cuts, finish: Receiver<()>) -> Result<i32> {
        let log = CutLog::new(self.open_log().await?, cuts.clone());
        let backend: Backend = self.store.parse()?;
        let stores: Arc<dyn StoreFactory> = Arc::new(StoreOptions::new(backend, self.directory.join("state")));
        let stores = CutStores::new(stores, cuts.clone());
        let mut builder = Runtime::builder(self.job.topology(), Arc::new(log), Arc::new(stores)).config(Life::config());
        if self.planted.is_some() {
            // Where the bug is planted.
            builder = builder.on_this_thread();
        }
        let mut runtime = builder.start().await?;
        self.caught_up(&mut runtime).await?;
        let comes_by_itself = self.cut.is_some_and(|cut| cut.step != Step::Release);
        for _ in 0..MEET_MAX.as_millis() / LOOK_TIME.as_millis() {
            if !comes_by_itself || cuts.left() == 0 {
                break;
            }
            tokio::time::sleep(LOOK_TIME).await;
        }
        while finish.try_recv().is_err() {
            tokio::time::sleep(LOOK_TIME).await;
        }
        self.caught_up(&mut runtime).await?;
        runtime.drain().await?;
        Ok(if cuts.left() == 0 { 0 } else { MISSED })
    }

    async fn caught_up(&self, runtime: &mut Runtime) -> Result<()> {
        let done = runtime.wait_caught_up(if self.planted.is_some() { PLANTED_CAUGHT_UP_MAX } else { CAUGHT_UP_MAX });
        let done = done.await?;
        assert!(done, "input is left: {:#?}", runtime.status());
        Ok(())
    }
}

/// The body of the test `the_process_that_dies`.
pub fn body() {
    let Ok(text) = std::env::var(ENV) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let life: Life = serde_json::from_str(&text).unwrap();
    let ((killed, killed_seen), (finish, finish_seen)) = (channel(), channel());
    std::thread::spawn(move || listen(&killed, &finish));
    std::thread::spawn(|| {
        std::thread::sleep(LIFE_MAX);
        std::process::exit(TOO_SLOW);
    });
    let cuts = Cuts::new(life.cut.as_slice(), Arc::new(RealCrash { killed: Mutex::new(killed_seen) }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    #[cfg(feature = "planted")]
    life.planted.into_iter().for_each(crate::planted::begin);
    let code = match LocalSet::new().block_on(&runtime, life.live(cuts, finish_seen)) {
        Ok(code) => code,
        Err(error) if error.kind() == ErrorKind::Retry => {
            tracing::warn!(error = %error.report(), "gave up");
            AGAIN
        }
        Err(error) => panic!("{}", error.report()),
    };
    std::process::exit(code);
}

/// Hands on what the harness says. When the harness is gone, nobody else would end this process.
fn listen(killed: &Sender<()>, finish: &Sender<()>) {
    for line in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
        let to = if line == "killed" { killed } else { finish };
        to.send(()).unwrap();
    }
    std::process::exit(TOO_SLOW);
}

/// The line begins anew: the test harness prints to the same place.
fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\ncut: {word}").and_then(|()| out.flush()).unwrap();
}

/// A crash of this process, and of the broker by the harness.
struct RealCrash {
    killed: Mutex<Receiver<()>>,
}

impl Crash for RealCrash {
    fn kill(&self, victim: Victim) {
        say("met");
        if victim != Victim::Processor {
            say("kill broker");
            self.killed.lock().unwrap().recv().unwrap();
        }
        if victim != Victim::Broker {
            nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL).unwrap();
            unreachable!("SIGKILL");
        }
    }
}
