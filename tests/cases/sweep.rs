//! Every changing call of a small job meets every kind of fault, one in each run; the job is started again where it
//! stopped or died, with its state or without. Whatever happens, the reader view and the state are exact.

use crate::faulty::ledger::{Entry, Ledger, Settled, entries, exact, memory, quick};
use crate::faulty::{Fault, FaultyLog, On, pause};
use crate::world::options;
use futures_util::StreamExt;
use onceflow::log::Log;
use onceflow::log::embedded::EmbeddedLog;
use onceflow::topology::Delivery;
use onceflow::types::{ErrorKind, Offset};
use std::sync::Arc;
use std::time::Duration;

const ENTRIES: u64 = 6;
/// How often a job may be started for one schedule.
const STARTS_MAX: usize = 8;
/// How many schedules of several faults are drawn.
const SEEDS: usize = 300;
/// Schedules under way at once; they share a log, not a topic.
const TOGETHER: usize = 32;

const FAULTS: [Fault; 14] = [
    Fault::RequestLost,
    Fault::ReplyLost,
    Fault::Twice,
    Fault::TwiceFirstReply,
    Fault::Delayed(Duration::from_millis(40)),
    Fault::Late(1),
    Fault::Late(4),
    Fault::Reconnected,
    Fault::Forgotten,
    Fault::Refused(ErrorKind::Invalid),
    Fault::Refused(ErrorKind::DataLoss),
    Fault::Refused(ErrorKind::Fenced),
    Fault::Death { carried_out: false },
    Fault::Death { carried_out: true },
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Transactional,
    Outbox,
    Repartitioned,
}

#[derive(Clone, Debug)]
struct Schedule {
    shape: Shape,
    /// The number of the call, counted over all starts, and what happens to it.
    faults: Vec<(usize, Fault)>,
    state_lost: bool,
    lag: bool,
}

/// What a run did.
#[derive(Debug)]
struct Ran {
    calls: usize,
    fired: usize,
    starts: usize,
    duplicates: u64,
    /// Whether the raw topic would do for a consumer without the dedup rule.
    raw_is_exact: bool,
}

fn ledger(shape: Shape, number: usize) -> Ledger {
    let delivery = match shape {
        Shape::Outbox => Delivery::Outbox { framed: false },
        Shape::Transactional | Shape::Repartitioned => Delivery::Transactional,
    };
    Ledger { delivery, repartition: shape == Shape::Repartitioned, ..Ledger::new(&format!("sweep-{number}")) }
}

async fn run(log: &EmbeddedLog, number: usize, schedule: Schedule) -> Ran {
    let ledger = ledger(schedule.shape, number);
    let group = onceflow::topics::producer_group(&ledger.name());
    let plain: Arc<dyn Log> = Arc::new(log.with_group(&group).unwrap());
    let faulty = FaultyLog::new(plain.clone());
    if schedule.lag {
        faulty.lag(5);
    }
    let input = entries(0, ENTRIES);
    ledger.make_topics(&*plain).await;
    ledger.produce(&*plain, &input).await;
    let rules: Vec<_> = schedule.faults.iter().map(|(call, fault)| faulty.on(On::changes(), *call, *fault)).collect();
    let calls = faulty.on_each(On::changes(), 0..0, Fault::RequestLost);
    let mut stores = memory();
    for starts in 1..=STARTS_MAX {
        let mut runtime = ledger.start(&faulty, &stores, quick()).await;
        let settled = ledger.settle(&mut runtime, &faulty, &plain, &input).await;
        let drained = match settled {
            Settled::Done => tokio::select! {
                drained = runtime.drain() => drained.is_ok() && !faulty.is_dead(),
                // It would wait for a log that is gone as long as it may.
                () = died(&faulty) => false,
            },
            Settled::Died | Settled::Stopped(_) => {
                drop(runtime);
                false
            }
        };
        faulty.reborn().await;
        if drained {
            faulty.deliver_late().await;
            assert_eq!(ledger.committed(&plain).await, Offset::new(ENTRIES), "{schedule:?}");
            let counts = ledger.check(&plain, &input).await.unwrap_or_else(|text| panic!("{schedule:?}: {text}"));
            return Ran {
                calls: faulty.matched(calls),
                fired: rules.iter().map(|rule| faulty.fired(*rule)).sum(),
                starts,
                duplicates: counts.dedup.duplicates,
                raw_is_exact: exact(&ledger.raw(&plain).await, &input).is_ok(),
            };
        }
        if schedule.state_lost {
            stores = memory();
        }
    }
    panic!("{schedule:?}: the job does not come through");
}

async fn died(faulty: &FaultyLog) {
    while !faulty.is_dead() {
        pause(Duration::from_millis(3)).await;
    }
}

async fn sweep(shape: Shape, lag: bool) {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let quiet = Schedule { shape, faults: vec![], state_lost: false, lag };
    let quiet_run = run(&log, 0, quiet).await;
    assert_eq!((quiet_run.fired, quiet_run.starts, quiet_run.duplicates), (0, 1, 0));
    let faults = FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]);
    let faults = faults.filter(|(fault, state_lost)| {
        let stops = matches!(fault, Fault::Death { .. } | Fault::Refused(ErrorKind::Invalid));
        let telling = matches!(fault, Fault::ReplyLost | Fault::Twice | Fault::Late(_) | Fault::Death { .. });
        (stops || !state_lost) && (telling || !lag)
    });
    let schedules = faults.flat_map(|(fault, state_lost)| {
        (1..=quiet_run.calls).map(move |call| Schedule { shape, faults: vec![(call, fault)], state_lost, lag })
    });
    let runs = schedules.zip(1..).map(|(schedule, number)| run(&log, number, schedule));
    let ran: Vec<Ran> = futures_util::stream::iter(runs).buffer_unordered(TOGETHER).collect().await;
    let fired = ran.iter().filter(|ran| ran.fired > 0).count();
    let again = ran.iter().filter(|ran| ran.starts > 1).count();
    let duplicates = ran.iter().map(|ran| ran.duplicates).sum::<u64>();
    let raw_wrong = ran.iter().filter(|ran| !ran.raw_is_exact).count();
    println!(
        "{shape:?} lag={lag}: calls={} schedules={} fired={fired} started_again={again} raw_duplicates={duplicates} \
         raw_wrong={raw_wrong}",
        quiet_run.calls,
        ran.len()
    );
    // Epochs are cut by time as well, so a run may need fewer calls than the quiet one.
    assert!(fired * 10 >= ran.len() * 9, "faults hit: fired={fired} of={}", ran.len());
    assert!(again > 0 && duplicates > 0, "without trouble nothing is shown");
    assert!(raw_wrong > 0, "a consumer without the dedup rule would have been right all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_fault_leaves_transactional_output_exact() {
    sweep(Shape::Transactional, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_fault_leaves_outbox_output_exact() {
    sweep(Shape::Outbox, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_single_fault_leaves_repartitioned_output_exact() {
    sweep(Shape::Repartitioned, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_while_dispatch_lags_leave_output_exact() {
    sweep(Shape::Transactional, true).await;
}

/// Two or three faults in one run, often the later ones during the recovery from the first. Drawn from a seed, which is
/// printed with a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_faults_leave_output_exact() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let runs = (0..SEEDS).map(|seed| run(&log, seed, drawn(seed)));
    let ran: Vec<Ran> = futures_util::stream::iter(runs).buffer_unordered(TOGETHER).collect().await;
    let several = ran.iter().filter(|ran| ran.fired > 1).count();
    let duplicates = ran.iter().map(|ran| ran.duplicates).sum::<u64>();
    println!("seeds={SEEDS} several_fired={several} raw_duplicates={duplicates}");
    assert!(several * 2 > SEEDS && duplicates > 0, "several={several} duplicates={duplicates}");
}

fn drawn(seed: usize) -> Schedule {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let shape = [Shape::Transactional, Shape::Outbox, Shape::Repartitioned][draw(3)];
    let first = 1 + draw(if shape == Shape::Outbox { 8 } else { 18 });
    let mut faults = vec![(first, FAULTS[draw(FAULTS.len())])];
    for _ in 0..=draw(2) {
        let later = faults.last().map_or(1, |(call, _)| call + 1 + draw(5));
        faults.push((later, FAULTS[draw(FAULTS.len())]));
    }
    Schedule { shape, faults, state_lost: draw(2) == 0, lag: draw(3) == 0 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_would_see_a_wrong_result() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let schedule = Schedule { shape: Shape::Transactional, faults: vec![], state_lost: false, lag: false };
    run(&log, 0, schedule).await;
    let ledger = ledger(Shape::Transactional, 0);
    let plain: Arc<dyn Log> = Arc::new(log);
    let right = entries(0, ENTRIES);
    ledger.check(&plain, &right).await.unwrap();
    let wrong: [Vec<Entry>; 3] =
        [entries(0, ENTRIES + 1), entries(0, ENTRIES - 1), right.iter().cloned().rev().collect()];
    for entries in wrong {
        ledger.check(&plain, &entries).await.unwrap_err();
    }
}
