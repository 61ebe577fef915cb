//! Every changing call of a small job meets every kind of fault, one in each run; the job is started again where it
//! stopped or died, with its state or without. Whatever happens, the reader view and the state are exact.

use crate::faulty::ledger::{Entry, Ledger, Settled, entries, exact, memory, quick};
use crate::faulty::{Fault, FaultyLog, On};
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
const STARTS_MAX: usize = 6;
/// Schedules under way at once; they share a log, not a topic.
const TOGETHER: usize = 32;

const FAULTS: [Fault; 13] = [
    Fault::RequestLost,
    Fault::ReplyLost,
    Fault::Twice,
    Fault::TwiceFirstReply,
    Fault::Delayed(Duration::from_millis(40)),
    Fault::Late(1),
    Fault::Late(4),
    Fault::Reconnected,
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

#[derive(Clone, Copy, Debug)]
struct Schedule {
    shape: Shape,
    call: usize,
    fault: Fault,
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
    let rule = faulty.on(On::changes(), schedule.call, schedule.fault);
    let mut stores = memory();
    for starts in 1..=STARTS_MAX {
        let mut runtime = ledger.start(&faulty, &stores, quick()).await;
        let settled = ledger.settle(&mut runtime, &faulty, &plain, &input).await;
        let drained = match settled {
            Settled::Done => runtime.drain().await.is_ok() && !faulty.is_dead(),
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
                calls: faulty.matched(rule),
                fired: faulty.fired(rule),
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

async fn sweep(shape: Shape, lag: bool) {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let quiet = Schedule { shape, call: 0, fault: Fault::RequestLost, state_lost: false, lag };
    let quiet_run = run(&log, 0, quiet).await;
    assert_eq!((quiet_run.fired, quiet_run.starts, quiet_run.duplicates), (0, 1, 0));
    let faults = FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]);
    let faults = faults.filter(|(fault, state_lost)| {
        let stops = matches!(fault, Fault::Death { .. } | Fault::Refused(_));
        let telling = matches!(fault, Fault::ReplyLost | Fault::Twice | Fault::Late(_) | Fault::Death { .. });
        (stops || !state_lost) && (telling || !lag)
    });
    let schedules = faults.flat_map(|(fault, state_lost)| {
        (1..=quiet_run.calls).map(move |call| Schedule { shape, call, fault, state_lost, lag })
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_would_see_a_wrong_result() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let schedule =
        Schedule { shape: Shape::Transactional, call: 0, fault: Fault::Twice, state_lost: false, lag: false };
    run(&log, 0, schedule).await;
    let ledger = ledger(schedule.shape, 0);
    let plain: Arc<dyn Log> = Arc::new(log);
    let right = entries(0, ENTRIES);
    ledger.check(&plain, &right).await.unwrap();
    let wrong: [Vec<Entry>; 3] =
        [entries(0, ENTRIES + 1), entries(0, ENTRIES - 1), right.iter().cloned().rev().collect()];
    for entries in wrong {
        ledger.check(&plain, &entries).await.unwrap_err();
    }
}
