//! S5: what happens between a decision and its output.

use crate::faulty::ledger::{Entry, Ledger, Settled, append, entries, entry, exact, make_topic, quick, read_view};
use crate::faulty::{Call, Fault, On, pause};
use crate::world::{World, options};
use onceflow::codec::Json;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
use onceflow::log::{Log, Verdict};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::Epoch;
use onceflow::{Config, Runtime};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Serialize, Deserialize)]
struct Booking {
    account: String,
    amount: i64,
}

fn booking(account: &str, amount: i64) -> Booking {
    Booking { account: account.to_owned(), amount }
}

/// Hands bookings on, each in an epoch of its own.
fn upstream() -> Topology {
    let builder = StreamBuilder::new("upstream").unwrap();
    let bookings = builder.source("bookings", Json::<Booking>::new()).start(StartPolicy::Earliest);
    bookings.sink("checked", "bookings-checked", Json::<Booking>::new());
    builder.build().unwrap()
}

/// Sums what another job put out.
fn downstream() -> Topology {
    let builder = StreamBuilder::new("downstream").unwrap();
    let bookings = builder.source("bookings-checked", Json::<Booking>::new()).start(StartPolicy::Earliest);
    let accounts = bookings.key_by(|booking| booking.account.clone()).partitioned_by_key();
    let sums = accounts.sum("sums", |booking| booking.amount);
    sums.sink("sums-out", "sums", Json::<(String, i64)>::new());
    builder.build().unwrap()
}

async fn caught_up(world: &World, topology: Topology, config: Config) -> Runtime {
    let builder = Runtime::builder(topology, world.faulty.clone(), world.stores.clone());
    let mut runtime = builder.config(config).start().await.unwrap();
    assert!(runtime.wait_caught_up(Duration::from_secs(30)).await.unwrap(), "{:#?}", runtime.status());
    runtime
}

/// Case 1.
#[tokio::test]
async fn the_same_end_twice_counts_once_downstream() {
    let world = World::new();
    for topic in ["bookings", "bookings-checked", "sums"] {
        make_topic(&*world.plain, topic).await;
    }
    append(&*world.plain, "bookings", &[booking("A", 10)]).await;
    let twice = world.faulty.on(On::of(Call::End, "bookings-checked"), 1, Fault::Twice);
    let runtime = caught_up(&world, upstream(), quick()).await;
    append(&*world.plain, "bookings", &[booking("A", 5)]).await;
    runtime.drain().await.unwrap();
    caught_up(&world, upstream(), quick()).await.drain().await.unwrap();
    assert_eq!(world.faulty.fired(twice), 1);

    let (records, counts, held) = read_view(&world.plain, "bookings-checked", "upstream").await;
    assert_eq!((records.len(), counts.messages, counts.dedup.duplicates, held), (2, 3, 1, 0));

    let runtime = caught_up(&world, downstream(), quick()).await;
    let dropped: u64 = runtime.status().values().map(|status| status.protocol.duplicates_dropped).sum();
    assert_eq!(dropped, 1);
    runtime.drain().await.unwrap();
    let (records, ..) = read_view(&world.plain, "sums", "downstream").await;
    let bodies: Vec<&[u8]> = records.iter().map(|record| &*record.body).collect();
    assert_eq!(bodies, [br#"["A",10]"#, br#"["A",15]"#]);
}

/// The output of the first eight entries is published; over the first END of the rest, which is decided, the process dies.
async fn die_before_publishing(world: &World, ledger: &Ledger, all: &[Entry]) {
    ledger.make_topics(&*world.plain).await;
    ledger.produce(&*world.plain, &all[..8]).await;
    world.run(ledger, quick(), &all[..8]).await;
    ledger.produce(&*world.plain, &all[8..]).await;
    let dies = world.faulty.on(On::of(Call::End, &ledger.output()), 1, Fault::Death { carried_out: false });
    let mut runtime = world.start(ledger, quick()).await;
    let settled = world.settle(ledger, &mut runtime, all).await;
    assert!(matches!(settled, Settled::Died), "{settled:?}");
    world.crash(runtime).await;
    assert_eq!(world.faulty.fired(dies), 1);
}

/// Case 3. The END of the last epoch is lost and the process dies; the log is closed and opened again, and asks about the
/// half for as long as nobody ends it.
#[tokio::test]
async fn checks_after_a_restart_are_answered_from_durable_records_only() {
    let checks = EmbeddedOptions {
        check_after: Duration::from_millis(20),
        check_interval: Duration::from_millis(20),
        checks_max: 1_000,
        ..options()
    };
    let mut world = World::with(checks.clone());
    let ledger = Ledger::new("checked");
    let all = entries(0, 10);
    die_before_publishing(&world, &ledger, &all).await;
    let decided = ledger.fold(&world.plain).await;
    assert_eq!(ledger.committed(&world.plain).await.get(), 10, "the decision is in the journal");
    ledger.check(&world.plain, &all).await.expect_err("its output is not visible");

    let stores = world.stores.clone();
    let directory = world.close();
    let plain: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), checks).unwrap());
    world = World::around(plain, directory, stores);
    // The halves can be ended only after they were asked about a few times.
    let lost = world.faulty.on_each(On::of(Call::End, &ledger.output()), 1..40, Fault::RequestLost);
    let mut runtime = world.start(&ledger, quick()).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    let verdicts = world.faulty.verdicts();
    runtime.drain().await.unwrap();
    assert!(world.faulty.fired(lost) > 0);
    assert!(!verdicts.is_empty(), "nobody asked");
    // A verdict cannot be a commit, and a rollback undoes no decision: END goes by the recorded handle.
    assert!(
        verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Rollback),
        "the old generation's halves: {verdicts:?}"
    );
    let counts = ledger.check(&world.plain, &all).await.unwrap();
    assert!(counts.messages >= 10);
    let fold = ledger.fold(&world.plain).await;
    assert_eq!(ledger.committed(&world.plain).await.get(), 10);
    assert_eq!(fold.epoch(), decided.epoch(), "a check-back decides nothing");
}

/// Case 25. The job is down for so long that the log gives its halves up: they are ended all the same, by the handles that
/// the journal keeps.
#[tokio::test]
async fn halves_that_were_given_up_during_an_outage_are_published_once() {
    let world = World::with(EmbeddedOptions {
        check_after: Duration::from_millis(5),
        check_interval: Duration::from_millis(5),
        checks_max: 3,
        ..options()
    });
    let ledger = Ledger::new("expired");
    let all = entries(0, 11);
    die_before_publishing(&world, &ledger, &all).await;
    // Whoever is there in the job's name knows nothing of it, until the log asks no more.
    let mut asked = 0;
    while let Ok(check) = tokio::time::timeout(Duration::from_millis(300), world.plain.next_check_back()).await {
        world.plain.answer_check_back(&check.unwrap(), Verdict::Unknown).await.unwrap();
        asked += 1;
    }
    assert!(asked >= 3, "asked={asked}");
    world.run(&ledger, quick(), &all).await;
    let counts = ledger.check(&world.plain, &all).await.unwrap();
    assert_eq!(counts.messages, 11, "each once, also for plain consumers");
}

/// Case 3, the owner that is still alive: it says Unknown until the half is ended, and Rollback to orphans.
#[tokio::test]
async fn checks_while_the_owner_publishes_are_answered_unknown_and_orphans_rolled_back() {
    let world = World::with(EmbeddedOptions {
        check_after: Duration::from_millis(5),
        check_interval: Duration::from_millis(5),
        checks_max: 10_000,
        ..options()
    });
    let ledger = Ledger::new("asked");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 2);
    ledger.produce(&*world.plain, &all).await;
    let orphan = world.faulty.on(On::of(Call::Prepare, &ledger.output()), 1, Fault::ReplyLost);
    let lost = world.faulty.on_each(On::of(Call::End, &ledger.output()), 1..40, Fault::RequestLost);
    let mut runtime = world.start(&ledger, quick()).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    runtime.drain().await.unwrap();
    assert_eq!(world.faulty.fired(orphan), 1);
    assert!(world.faulty.fired(lost) > 0);
    let verdicts = world.faulty.verdicts();
    let rolled_back: std::collections::BTreeSet<_> =
        verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Rollback).map(|(key, _)| key.clone()).collect();
    assert!(verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Unknown), "{verdicts:?}");
    assert_eq!(rolled_back.len(), 1, "the orphan and nothing else: {verdicts:?}");
    ledger.check(&world.plain, &all).await.unwrap();
}

/// Case 7.
#[tokio::test]
async fn an_end_that_is_lost_again_and_again_keeps_later_epochs_back() {
    let world = World::new();
    let ledger = Ledger::new("stubborn");
    ledger.make_topics(&*world.plain).await;
    let all: Vec<_> = (0..12).map(|id| entry(id, "A", 1)).collect();
    ledger.produce(&*world.plain, &all).await;
    // Nobody asks about the half: the embedded log would after 6 s.
    let lost = world.faulty.on_each(On::of(Call::End, &ledger.output()), 5..25, Fault::RequestLost);
    world.run(&ledger, quick(), &all).await;
    assert_eq!(world.faulty.fired(lost), 20);
    assert!(world.faulty.verdicts().is_empty(), "the engine does not rely on check-backs");
    ledger.check(&world.plain, &all).await.unwrap();
    exact(&ledger.raw(&world.plain).await, &all).expect("epochs become visible one after the other");
}

/// Case 21.
#[tokio::test]
async fn an_epoch_waits_for_the_reply_to_every_half() {
    let world = World::new();
    let ledger = Ledger::new("waiting");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 10);
    ledger.produce(&*world.plain, &all).await;
    let config = Config { epoch_records_max: 10, read_records_max: 10, ..quick() };
    let slow = Fault::Delayed(Duration::from_millis(250));
    let delayed = world.faulty.on(On::of(Call::Prepare, &ledger.output()), 1, slow);
    world.run(&ledger, config, &all).await;
    assert_eq!(world.faulty.fired(delayed), 1);
    let trace = world.faulty.trace();
    let last_prepare = trace.iter().rposition(|step| step.is_finish_of(Call::Prepare, &ledger.output())).unwrap();
    let commits = trace.iter().enumerate().filter(|(_, step)| step.is_start_of(Call::Append, &ledger.journal()));
    // Claim and start offsets come before; what is appended next comes behind every half.
    let commit_behind = commits.map(|(index, _)| index).nth(2).unwrap();
    assert!(last_prepare < commit_behind, "decided before all halves were stored: {trace:?}");
    assert_eq!(
        ledger.view(&world.plain).await.0.iter().map(|sum| sum.id).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
}

/// Case 21: a half that cannot be stored takes its whole epoch with it, and the epoch is run again.
#[tokio::test]
async fn a_half_that_fails_for_good_aborts_the_whole_epoch() {
    let world = World::new();
    let ledger = Ledger::new("aborting");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 10);
    ledger.produce(&*world.plain, &all).await;
    let config = Config { epoch_records_max: 10, read_records_max: 10, requests_in_flight_max: 1, ..quick() };
    let tries = usize::try_from(config.tries_max).unwrap();
    // The fifth half and each of its tries.
    let refused = world.faulty.on_each(On::of(Call::Prepare, &ledger.output()), 5..5 + tries, Fault::RequestLost);
    let mut runtime = world.start(&ledger, config).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    let counters = runtime.status()[&ledger.task()].protocol;
    runtime.drain().await.unwrap();
    assert_eq!(world.faulty.fired(refused), tries);
    assert_eq!((counters.halves_rolled_back, counters.openings), (4, 2), "{counters:?}");
    let counts = ledger.check(&world.plain, &all).await.unwrap();
    assert_eq!(counts.messages, 10, "nothing of the aborted epoch became visible");
    assert_eq!(ledger.fold(&world.plain).await.epoch(), Epoch::new(2));
}

/// Case 31: what failed and was not stored is sent again under the same sequence, wherever in the protocol it failed.
#[tokio::test]
async fn a_lost_send_is_repeated_and_sequences_stay_complete() {
    let outbox = Delivery::Outbox { framed: false };
    let base = Ledger { delivery: outbox, ..Ledger::new("outbox") };
    let topics = |ledger: &Ledger| [ledger.output(), ledger.journal(), ledger.barrier()];
    for (step, place) in topics(&base).iter().enumerate() {
        for (number, fault) in [Fault::RequestLost, Fault::WeakStatus, Fault::Late(2)].into_iter().enumerate() {
            let world = World::new();
            let ledger = Ledger { job: format!("outbox-{step}-{number}"), ..base.clone() };
            ledger.make_topics(&*world.plain).await;
            let all: Vec<_> = (0..21).map(|id| entry(id, "A", 1)).collect();
            ledger.produce(&*world.plain, &all).await;
            let config = Config { epoch_records_max: 1, read_records_max: 1, ..quick() };
            // The 18th message; the Commit before it; the only barrier that is needed.
            let nth = if *place == base.barrier() { 1 } else { 18 };
            let rule = world.faulty.on(On::of(Call::Append, &topics(&ledger)[step]), nth, fault);
            // A lost reply leads to a scan, and that to a barrier.
            let unsure = world.faulty.on(On::of(Call::Append, &ledger.output()), 9, Fault::ReplyLost);
            let mut runtime = world.start(&ledger, config).await;
            let settled = world.settle(&ledger, &mut runtime, &all).await;
            assert!(matches!(settled, Settled::Done), "{settled:?}");
            runtime.drain().await.unwrap();
            pause(Duration::ZERO).await;
            world.faulty.deliver_late().await;
            assert_eq!((world.faulty.fired(rule), world.faulty.fired(unsure)), (1, 1), "{place} {fault:?}");
            ledger.check(&world.plain, &all).await.unwrap_or_else(|text| panic!("{place} {fault:?}: {text}"));
        }
    }
}

/// An END that was answered, but not on disk when the broker was killed: the reply proved nothing, and a send over a newer
/// connection proves nothing about it either. The output is looked for, and the END repeated.
#[tokio::test]
async fn an_answered_end_that_the_broker_forgot_is_repeated() {
    for nth in 1..=6 {
        let world = World::new();
        let ledger = Ledger::new("forgotten");
        ledger.make_topics(&*world.plain).await;
        let all = entries(0, 6);
        ledger.produce(&*world.plain, &all).await;
        let forgotten = world.faulty.on(On::of(Call::End, &ledger.output()), nth, Fault::Forgotten);
        let mut runtime = world.start(&ledger, quick()).await;
        let settled = world.settle(&ledger, &mut runtime, &all).await;
        assert!(matches!(settled, Settled::Done), "{settled:?}");
        let scans = runtime.status()[&ledger.task()].protocol.scans;
        runtime.drain().await.unwrap();
        assert_eq!(world.faulty.fired(forgotten), 1);
        assert!(scans > 0, "without a look nobody would know");
        let counts = ledger.check(&world.plain, &all).await.unwrap();
        assert_eq!((counts.messages, counts.dedup.duplicates), (6, 0), "what was found is not repeated");
    }
}
