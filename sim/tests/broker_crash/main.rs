//! The singles of the crash matrix on a real broker: a process that kills itself with SIGKILL at exactly one step of the
//! protocol, before or after its effect, or has the broker killed there, or both. It is started again and finishes; then every
//! record must be in the reader view once, with the right state in it. A step that never happens fails the test.
//!
//! Needs a broker; `cargo xtask crash` starts one and runs this, `cargo xtask crash --long` with every store and every victim.
#![cfg(all(feature = "rocketmq", feature = "stores"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    reason = "a test: it fails by panicking, and works with real processes in real time"
)]

mod job;
mod life;
#[cfg(feature = "planted")]
mod planted;
mod single;

use job::{Job, Shape};
use onceflow::log::rocketmq::{RocketLog, RocketOptions};
use onceflow::storage::Backend;
use onceflow_sim::{Cut, Moment, Step, Victim};
use single::{Broker, Shown, Single};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Runs that go on at once while nobody kills the broker: most of their time is waiting.
const LANES: usize = 4;

#[test]
fn the_process_that_dies() {
    life::body();
}

fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask crash`"))
}

/// Which of the steps of a kind: one in the middle of the work where there are many.
fn nth(step: Step) -> u32 {
    match step {
        // The first Commits only settle where tasks start.
        Step::Commit | Step::Apply => 6,
        Step::Prepare | Step::End => 3,
        Step::Claim | Step::Delta | Step::Send | Step::Chunk | Step::Snapshot | Step::Release => 2,
        Step::Barrier => 1,
    }
}

/// Every step on both sides of its effect. Plain messages are cut twice: internal ones, and those of an output.
fn points(victim: Victim) -> Vec<(Shape, Cut)> {
    let moved = Step::ALL.map(|step| (Shape::Moved, step));
    let all = moved.into_iter().chain([(Shape::Kept, Step::Send)]);
    all.flat_map(|(shape, step)| Moment::ALL.map(|moment| (shape, Cut { step, moment, nth: nth(step), victim })))
        .collect()
}

/// Runs of one store.
struct Matrix<'b> {
    broker: &'b Broker,
    store: Backend,
    folder: PathBuf,
    /// Where finished singles are noted, in the long form: it can be broken off, and goes on where it was.
    done: Option<PathBuf>,
    failures: Mutex<Vec<String>>,
}

static RUNS: AtomicU64 = AtomicU64::new(0);

impl Matrix<'_> {
    /// Runs these singles, so many at once, and prints one line for all.
    fn run(&self, what: &str, singles: Vec<(Shape, Cut)>, lanes: usize) {
        let began = Instant::now();
        let (waiting, sum) = (Mutex::new(VecDeque::from(singles)), Mutex::new((0, Shown::default())));
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    while let Some((shape, cut)) = next(&waiting) {
                        let Some(shown) = self.single(shape, cut) else { continue };
                        let (runs, all) = &mut *sum.lock().unwrap();
                        *runs += 1;
                        all.payments += shown.payments;
                        all.outputs += shown.outputs;
                        all.lives += shown.lives;
                        all.raw_duplicates += shown.raw_duplicates;
                    }
                });
            }
        });
        let (runs, all) = *sum.lock().unwrap();
        eprintln!(
            "crash matrix on a real broker: store={} victims={what} singles={runs} lives={} records={} outputs={} lost=0 doubled=0 \
             raw_duplicates={} seconds={}",
            self.store,
            all.lives,
            all.payments,
            all.outputs,
            all.raw_duplicates,
            began.elapsed().as_secs()
        );
    }

    /// One single, unless it is done; `None` when it failed, too.
    fn single(&self, shape: Shape, cut: Cut) -> Option<Shown> {
        let name = format!("crash-{}-{cut}-{shape:?}", self.store).to_lowercase();
        let mark = self.done.as_ref().map(|folder| folder.join(&name));
        if mark.as_ref().is_some_and(|mark| mark.exists()) {
            eprintln!("{name} is done");
            return None;
        }
        let began = Instant::now();
        match self.outcome(&name, shape, cut, None) {
            Ok(shown) => {
                eprintln!("{name}: {shown:?} seconds={:.1}", began.elapsed().as_secs_f64());
                mark.inspect(|mark| std::fs::write(mark, "").unwrap());
                Some(shown)
            }
            Err(why) => {
                eprintln!("{name} FAILED: {why}\n{}", Single::log(&self.folder.join(&name)));
                self.failures.lock().unwrap().push(format!("{name}: {why}"));
                None
            }
        }
    }

    /// What one single shows, or why it failed; its folder is left then.
    fn outcome(&self, name: &str, shape: Shape, cut: Cut, planted: Option<usize>) -> Result<Shown, String> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let run = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let single = Single::new(self.broker, Job { run, shape }, cut, self.store.as_str(), &folder).planted(planted);
        let shown = catch_unwind(AssertUnwindSafe(|| single.run())).map_err(|why| match why.downcast::<String>() {
            Ok(text) => *text,
            Err(_) => "a panic without text".to_owned(),
        })?;
        std::fs::remove_dir_all(folder).unwrap();
        Ok(shown)
    }
}

fn next<T>(waiting: &Mutex<VecDeque<T>>) -> Option<T> {
    waiting.lock().unwrap().pop_front()
}

/// Runs `body` with the broker and a folder, which is kept when something failed.
fn with_broker(store: Backend, body: impl FnOnce(&Matrix<'_>)) {
    assert!(store.is_available(), "built without {store}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let name_server = environment("ONCEFLOW_NAME_SERVER");
    let log = runtime.block_on(RocketLog::open(RocketOptions::new(&*name_server, "crash-audit"))).unwrap();
    let broker = Broker {
        name_server,
        kill: environment("ONCEFLOW_BROKER_KILL"),
        start: environment("ONCEFLOW_BROKER_START"),
        log: Arc::new(log),
        handle: runtime.handle().clone(),
    };
    let folder = tempfile::tempdir().unwrap();
    let done = std::env::var_os("ONCEFLOW_LONG_DONE").map(PathBuf::from);
    let matrix =
        Matrix { broker: &broker, store, folder: folder.path().to_path_buf(), done, failures: Mutex::default() };
    body(&matrix);
    let failures = matrix.failures.into_inner().unwrap();
    if !failures.is_empty() {
        keep(folder.keep().as_path());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn keep(folder: &Path) {
    eprintln!("directories and logs of what failed are kept in {}", folder.display());
}

fn is_long() -> bool {
    std::env::var("ONCEFLOW_LONG").is_ok()
}

/// All victims, one after the other.
fn all(store: Backend) {
    with_broker(store, |matrix| {
        matrix.run("processor", points(Victim::Processor), LANES);
        // Who kills the broker is alone with it.
        matrix.run("broker", points(Victim::Broker), 1);
        matrix.run("both", points(Victim::Both), 1);
    });
}

/// The gate: all processors, and a broker at the decision and at the END, alone and with the processor.
#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn a_crash_at_every_step_on_fjall() {
    if is_long() {
        return all(Backend::Fjall);
    }
    with_broker(Backend::Fjall, |matrix| {
        matrix.run("processor", points(Victim::Processor), LANES);
        let chosen = [(Step::Commit, Moment::After), (Step::End, Moment::After), (Step::Send, Moment::After)];
        let chosen = |victim| {
            let all = points(victim).into_iter().filter(|(shape, _)| *shape == Shape::Moved);
            all.filter(|(_, cut)| chosen.contains(&(cut.step, cut.moment))).collect()
        };
        matrix.run("broker", chosen(Victim::Broker), 1);
        matrix.run("both", chosen(Victim::Both), 1);
    });
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn a_crash_at_every_step_on_rocksdb() {
    if !is_long() {
        return eprintln!("NOT RUN: part of `cargo xtask crash --long`; the gate runs on fjall");
    }
    all(Backend::RocksDb);
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn a_crash_at_every_step_on_sled() {
    if !is_long() {
        return eprintln!("NOT RUN: part of `cargo xtask crash --long`; the gate runs on fjall");
    }
    all(Backend::Sled);
}

/// Aim: the matrix can fail. Method: wrong engines that the right crash must show, and a step that never comes.
#[cfg(feature = "planted")]
#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn what_is_planted_is_found() {
    with_broker(Backend::Fjall, |matrix| {
        // Who kills the broker is alone with it.
        let (first, alone): (Vec<_>, Vec<_>) =
            (0..planted::ALL.len()).partition(|index| planted::ALL[*index].cut.victim == Victim::Processor);
        let first = Mutex::new(VecDeque::from(first));
        let look_for = |index: usize| {
            let planted = planted::ALL[index];
            let outcome = matrix.outcome(&format!("planted-{index}"), planted.shape, planted.cut, Some(index));
            matrix.must_fail(&format!("{planted:?}"), outcome);
        };
        std::thread::scope(|scope| {
            for _ in 0..LANES {
                scope.spawn(|| std::iter::from_fn(|| next(&first)).for_each(look_for));
            }
        });
        alone.into_iter().for_each(look_for);
        let cut = Cut { step: Step::Release, moment: Moment::Before, nth: 1_000, victim: Victim::Processor };
        let outcome = matrix.outcome("never", Shape::Kept, cut, None);
        matrix.must_fail("a step that never comes", outcome);
    });
}

#[cfg(feature = "planted")]
impl Matrix<'_> {
    fn must_fail(&self, what: &str, outcome: Result<Shown, String>) {
        match outcome {
            Ok(shown) => self.failures.lock().unwrap().push(format!("{what} was not found: {shown:?}")),
            Err(why) => eprintln!("{what} is found as: {}", why.chars().take(300).collect::<String>()),
        }
    }
}
