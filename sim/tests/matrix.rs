//! The crash matrix: every step of the protocol, before and after its effect, x {processor, broker, both} x stores; and
//! ordered pairs of steps. All on the model broker; `cargo xtask test --long` runs all pairs on every store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use onceflow::topology::Delivery;
use onceflow_sim::{Cut, Moment, Step, Stores, Victim, Workload, crash};
use std::path::Path;

/// The jobs that between them do every step.
const JOBS: [(Workload, Delivery); 3] = [
    (Workload::Transfers, Delivery::Transactional),
    (Workload::Counts, Delivery::Outbox { framed: false }),
    (Workload::Chain, Delivery::Outbox { framed: true }),
];

fn points() -> Vec<(Step, Moment)> {
    Step::ALL.into_iter().flat_map(|step| Moment::ALL.map(|moment| (step, moment))).collect()
}

/// Halves are made by transactional output only.
fn happens(step: Step, delivery: Delivery) -> bool {
    delivery == Delivery::Transactional || !matches!(step, Step::Prepare | Step::End | Step::Barrier)
}

fn check(workload: Workload, delivery: Delivery, cuts: &[Cut], stores: &Stores) {
    let outcome = crash(workload, delivery, cuts, stores);
    assert_eq!(outcome.missed, 0, "{workload} {delivery:?} {cuts:?}: a step did not happen");
    assert!(outcome.violations.is_empty(), "{workload} {delivery:?} {cuts:?}: {:?}", outcome.violations);
}

/// Every single crash of every job; returns how many there were.
fn singles(jobs: &[(Workload, Delivery)], stores: impl Fn(&Path) -> Stores) -> u32 {
    let mut runs = 0;
    for (workload, delivery) in jobs {
        for (step, moment) in points().into_iter().filter(|(step, _)| happens(*step, *delivery)) {
            for victim in Victim::ALL {
                let root = tempfile::tempdir().unwrap();
                let cut = Cut { step, moment, nth: 1, victim };
                check(*workload, *delivery, &[cut], &stores(root.path()));
                runs += 1;
            }
        }
    }
    runs
}

/// A crash at every step, and then one at every step of what follows.
fn pairs(stores: impl Fn(&Path) -> Stores) -> u32 {
    let mut runs = 0;
    let cut = |(step, moment)| Cut { step, moment, nth: 1, victim: Victim::Processor };
    for first in points() {
        // Nothing follows a hand-over but the end.
        for second in points().into_iter().filter(|_| first.0 != Step::Release) {
            let root = tempfile::tempdir().unwrap();
            check(Workload::Transfers, Delivery::Transactional, &[cut(first), cut(second)], &stores(root.path()));
            runs += 1;
        }
    }
    runs
}

#[test]
fn every_single_crash_on_the_model_disk() {
    let jobs = if cfg!(debug_assertions) { &JOBS[..1] } else { &JOBS[..] };
    eprintln!("crash matrix: store=model singles={}", singles(jobs, |_| Stores::Model));
}

#[test]
fn every_ordered_pair_of_crashes_on_the_model_disk() {
    if cfg!(debug_assertions) {
        return eprintln!("NOT RUN without optimisation: the tests of all features run it");
    }
    eprintln!("crash matrix: store=model pairs={}", pairs(|_| Stores::Model));
}

#[cfg(feature = "stores")]
mod real {
    use super::*;
    use onceflow::storage::{Backend, MemoryBudget, StoreFactory, StoreOptions};
    use std::sync::Arc;

    fn open(backend: Backend, root: &Path) -> Arc<dyn StoreFactory> {
        let mut options = StoreOptions::new(backend, root);
        let bytes = MemoryBudget::BYTES_MIN;
        options.memory = MemoryBudget { write_buffer_bytes: bytes, cache_bytes: bytes };
        Arc::new(options)
    }

    fn stores(backend: Backend) -> impl Fn(&Path) -> Stores {
        let open: fn(&Path) -> Arc<dyn StoreFactory> = match backend {
            Backend::Fjall => |root| open(Backend::Fjall, root),
            Backend::RocksDb => |root| open(Backend::RocksDb, root),
            _ => |root| open(Backend::Sled, root),
        };
        move |root| Stores::Real { open, root: root.to_path_buf() }
    }

    fn matrix(backend: Backend) {
        let all = std::env::var("ONCEFLOW_LONG").is_ok();
        let jobs = if all { &JOBS[..] } else { &JOBS[..1] };
        eprintln!("crash matrix: store={backend} singles={}", singles(jobs, stores(backend)));
        if all {
            eprintln!("crash matrix: store={backend} pairs={}", pairs(stores(backend)));
        }
    }

    #[test]
    fn every_single_crash_on_fjall() {
        matrix(Backend::Fjall);
    }

    #[test]
    fn every_single_crash_on_rocksdb() {
        matrix(Backend::RocksDb);
    }

    #[test]
    fn every_single_crash_on_sled() {
        matrix(Backend::Sled);
    }
}
