//! Tasks that change hands: cases 13 and 29.

use crate::faulty::ledger::{Ledger, Settled, entries, entry, memory, quick};
use crate::faulty::{Call, Fault, FaultyLog, On, pause};
use crate::world::{World, options};
use futures_util::StreamExt;
use onceflow::Config;
use onceflow::log::Log;
use onceflow::log::embedded::EmbeddedLog;
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::types::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// Jobs that are started to fail at once.
const STARTS: usize = 300;
/// Longest wait for the end of such a job.
const END_TIME_MAX: Duration = Duration::from_mins(1);

/// Case 29. A dies between what it did with a record and its commit, before or after the record of the decision reached
/// the journal; B goes on with a directory of its own; A comes back to its old one.
#[cfg(feature = "fjall")]
#[tokio::test]
async fn a_directory_that_missed_epochs_is_brought_up_to_date_before_use() {
    for carried_out in [false, true] {
        let world = World::new();
        let ledger = Ledger::new("returning");
        ledger.make_topics(&*world.plain).await;
        let directory = |name| -> Arc<dyn StoreFactory> {
            Arc::new(StoreOptions::new(Backend::Fjall, world.directory.path().join(name)))
        };
        let (of_a, of_b) = (directory("a"), directory("b"));
        let all: Vec<_> = (0..4).map(|id| entry(id, if id == 0 { "zero" } else { "one" }, 1)).collect();
        let config = Config { epoch_records_max: 1, read_records_max: 1, ..quick() };

        // A commits key "zero", and dies over key "one". Claim, start offsets and one epoch come before.
        ledger.produce(&*world.plain, &all[..2]).await;
        let death = Fault::Death { carried_out };
        let dies = world.faulty.on(On::of(Call::Append, &ledger.journal()), 4, death);
        let mut runtime = ledger.start(&world.faulty, &of_a, config.clone()).await;
        let settled = world.settle(&ledger, &mut runtime, &all[..2]).await;
        assert!(matches!(settled, Settled::Died), "{settled:?}");
        world.crash(runtime).await;
        assert_eq!(world.faulty.fired(dies), 1);
        assert_eq!(ledger.committed_in_state(&*of_a).get(), 1, "the effect of key \"one\" is not in the store");

        // B takes over, and commits it.
        let mut runtime = ledger.start(&world.faulty, &of_b, config.clone()).await;
        ledger.produce(&*world.plain, &all[2..3]).await;
        let settled = world.settle(&ledger, &mut runtime, &all[..3]).await;
        assert!(matches!(settled, Settled::Done), "{settled:?}");
        world.crash(runtime).await;
        assert_eq!(ledger.committed_in_state(&*of_a).get(), 1);
        assert_eq!(ledger.committed_in_state(&*of_b).get(), 3);

        // A returns: its counts go on where B's ended.
        ledger.produce(&*world.plain, &all[3..]).await;
        let mut runtime = ledger.start(&world.faulty, &of_a, config).await;
        let settled = world.settle(&ledger, &mut runtime, &all).await;
        assert!(matches!(settled, Settled::Done), "{settled:?}");
        let counters = runtime.status()[&ledger.task()].protocol;
        runtime.drain().await.unwrap();
        world.faulty.reborn().await;
        assert!(counters.epochs_replayed >= 2, "{counters:?}");
        assert_eq!(ledger.committed_in_state(&*of_a).get(), 4);
        ledger.check(&world.plain, &all).await.unwrap();
    }
}

/// Case 13. Two processes believe that they own every task, and take it from each other while slow reads are pending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_owners_that_fight_lose_and_double_nothing() {
    let world = World::new();
    let ledger = Ledger { repartition: true, ..Ledger::new("fight") };
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 120);
    let other = FaultyLog::new(world.plain.clone());
    for log in [&world.faulty, &other] {
        // Every fifth read is slow.
        for nth in (5..2_000).step_by(5) {
            log.on(On::of(Call::Read, &ledger.input()), nth, Fault::Delayed(Duration::from_millis(40)));
        }
    }
    let config = Config { read_records_max: 5, epoch_records_max: 5, ..quick() };
    let of_other = memory();
    let one = ledger.start(&world.faulty, &world.stores, config.clone()).await;
    let mut two = ledger.start(&other, &of_other, config).await;
    for part in all.chunks(10) {
        ledger.produce(&*world.plain, part).await;
        pause(Duration::from_millis(120)).await;
    }
    let fenced =
        |runtime: &onceflow::Runtime| -> u64 { runtime.status().values().map(|status| status.protocol.fenced).sum() };
    assert!(fenced(&one) + fenced(&two) >= 2, "there was no fight: {:#?} {:#?}", one.status(), two.status());
    drop(one);
    let settled = ledger.settle(&mut two, &other, &world.plain, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    two.drain().await.unwrap();
    ledger.check(&world.plain, &all).await.unwrap();
    assert_eq!(ledger.committed(&world.plain).await.get(), 120);
}

/// A worker may end while the steward still gives it the next task: whoever waits for the job must hear of that, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_ends_when_its_first_task_fails_before_the_next_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), options()).unwrap();
    let jobs = (0..STARTS).map(|number| {
        let log = log.with_group(&format!("race-{number}")).unwrap();
        async move {
            let ledger = Ledger { repartition: true, ..Ledger::new(&format!("race-{number}")) };
            let plain: Arc<dyn Log> = Arc::new(log);
            let faulty = FaultyLog::new(plain.clone());
            ledger.make_topics(&*plain).await;
            faulty.on(On::changes(), 1, Fault::Refused(ErrorKind::DataLoss));
            let mut runtime = ledger.start(&faulty, &memory(), quick()).await;
            let ended = tokio::time::timeout(END_TIME_MAX, runtime.wait()).await.expect("the job ends");
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::DataLoss);
        }
    });
    futures_util::stream::iter(jobs).buffer_unordered(32).collect::<()>().await;
}
