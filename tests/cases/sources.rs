//! Where records come from, and which were processed: cases 9, 11, 13 and 17.

use crate::faulty::ledger::{Ledger, Settled, append, append_batch, entries, entry, make_topic, quick};
use crate::faulty::{Call, Fault, On, pause};
use crate::world::World;
use onceflow::log::MessageBatch;
use onceflow::types::ErrorKind;
use onceflow::{Config, SourceLoss};
use std::time::Duration;

/// Case 9.
#[tokio::test]
async fn two_messages_with_one_message_id_are_two_messages() {
    let world = World::new();
    let ledger = Ledger::new("same-id");
    ledger.make_topics(&*world.plain).await;
    let all = [entry(0, "A", 5), entry(1, "A", 7)];
    let mut batch = MessageBatch::default();
    for entry in &all {
        let body = serde_json::to_vec(entry).unwrap();
        batch.push(b"UNIQ_KEY\x01AC1100010000007B18B4AAC217180000\x02", &body).unwrap();
    }
    append_batch(&*world.plain, &ledger.input(), &batch).await;
    world.run(&ledger, quick(), &all).await;
    ledger.check(&world.plain, &all).await.unwrap();
    assert_eq!(ledger.view(&world.plain).await.0[1].sum, 12);
}

/// The input of a job that committed offset 6 comes back one message short.
async fn short_input() -> (World, Ledger) {
    let world = World::new();
    let ledger = Ledger::new("short");
    ledger.make_topics(&*world.plain).await;
    ledger.produce(&*world.plain, &entries(0, 6)).await;
    world.run(&ledger, quick(), &entries(0, 6)).await;
    assert_eq!(ledger.committed(&world.plain).await.get(), 6);
    make_topic(&*world.plain, "short-in-restored").await;
    append(&*world.plain, "short-in-restored", &entries(0, 5)).await;
    world.faulty.redirect(&ledger.input(), "short-in-restored");
    (world, ledger)
}

/// Case 11.
#[tokio::test]
async fn a_source_that_lost_processed_messages_stops_the_job_and_changes_nothing() {
    let (world, ledger) = short_input().await;
    let before = ledger.fold(&world.plain).await;
    for _ in 0..2 {
        let mut runtime = world.start(&ledger, quick()).await;
        let error = runtime.wait().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataLoss, "{error}");
        for part in ["short-in@local:0", "committed=6", "end=5"] {
            assert!(error.report().contains(part), "{part}: {}", error.report());
        }
        assert_eq!(runtime.status()[&ledger.task()].stages.records_in, 0);
        world.crash(runtime).await;
    }
    let after = ledger.fold(&world.plain).await;
    assert_eq!((after.epoch(), ledger.committed(&world.plain).await.get()), (before.epoch(), 6));
    ledger.check(&world.plain, &entries(0, 6)).await.unwrap();
}

/// Case 11, the other policy: goes on at the end; what is written there now is processed once.
#[tokio::test]
async fn a_source_that_lost_messages_can_be_resumed_at_its_end() {
    let (world, ledger) = short_input().await;
    let config = Config { on_source_loss: SourceLoss::ResumeAtEnd, ..quick() };
    let mut runtime = world.start(&ledger, config.clone()).await;
    // Its start is committed before anything new is read.
    while ledger.committed(&world.plain).await.get() != 5 {
        pause(Duration::from_millis(2)).await;
    }
    let new = entry(77, "A", 1_000);
    append(&*world.plain, "short-in-restored", std::slice::from_ref(&new)).await;
    let mut all = entries(0, 6);
    all.push(new);
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    world.crash(runtime).await;
    assert_eq!(ledger.committed(&world.plain).await.get(), 6);
    world.run(&ledger, config, &all).await;
    ledger.check(&world.plain, &all).await.unwrap();
}

/// Case 13. A read is under way when its task is dropped, by a Claim that no one reads for long; the task is opened again
/// before the reply comes. The reply moves nothing.
#[tokio::test]
async fn a_reply_to_a_read_of_an_earlier_ownership_moves_nothing() {
    let world = World::new();
    let ledger = Ledger::new("stale-read");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 20);
    ledger.produce(&*world.plain, &all).await;
    // Each third read takes long; some half messages fail for good, which drops the task while reads are under way.
    let tries = usize::try_from(quick().tries_max).unwrap();
    let slow: Vec<_> = (1..60)
        .step_by(3)
        .map(|nth| world.faulty.on(On::of(Call::Read, &ledger.input()), nth, Fault::Delayed(Duration::from_millis(60))))
        .collect();
    let dropped: Vec<_> = [3, 10, 18, 26]
        .map(|nth| world.faulty.on_each(On::of(Call::Prepare, &ledger.output()), nth..nth + tries, Fault::RequestLost))
        .to_vec();
    let config = Config { requests_in_flight_max: 1, ..quick() };
    let mut runtime = world.start(&ledger, config).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    let openings = runtime.status()[&ledger.task()].protocol.openings;
    runtime.drain().await.unwrap();
    assert!(slow.iter().filter(|rule| world.faulty.fired(**rule) > 0).count() > 3);
    assert!(dropped.iter().all(|rule| world.faulty.fired(*rule) == tries));
    assert_eq!(openings, 5, "the task was dropped four times");
    assert_eq!(ledger.committed(&world.plain).await.get(), 20);
    ledger.check(&world.plain, &all).await.unwrap();
}

/// A broker showed records that nothing kept, and lost them with its power: what was read ahead is outside of the queue
/// then. That is no lost data: nothing was committed beyond it. The simulation found it (seed 19655 of its second form).
#[tokio::test]
async fn records_that_were_read_ahead_and_are_gone_are_read_again() {
    let world = World::new();
    let ledger = Ledger::new("read-ahead");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 20);
    ledger.produce(&*world.plain, &all).await;
    let gone = world.faulty.on(On::of(Call::Read, &ledger.input()), 3, Fault::Refused(ErrorKind::DataLoss));
    let config = Config { read_records_max: 4, ..quick() };
    let mut runtime = world.start(&ledger, config).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    assert_eq!(runtime.status()[&ledger.task()].protocol.openings, 2, "the task was dropped once");
    runtime.drain().await.unwrap();
    assert_eq!(world.faulty.fired(gone), 1);
    ledger.check(&world.plain, &all).await.unwrap();
}

/// Case 17. Batches come slowly, so that records are in every room when the drain is asked for.
#[tokio::test]
async fn a_drain_ends_at_an_epoch_boundary() {
    for rows_before in [0, 3, 10, 25] {
        let world = World::new();
        let ledger = Ledger::new("drained");
        ledger.make_topics(&*world.plain).await;
        let all = entries(0, 100);
        ledger.produce(&*world.plain, &all).await;
        world.faulty.on_each(On::of(Call::Read, &ledger.input()), 2..60, Fault::Delayed(Duration::from_millis(3)));
        let config = Config { epoch_records_max: 20, read_records_max: 7, ..quick() };
        let runtime = world.start(&ledger, config.clone()).await;
        while runtime.status()[&ledger.task()].stages.records_in < rows_before {
            pause(Duration::from_millis(1)).await;
        }
        runtime.drain().await.unwrap();
        world.faulty.reborn().await;

        let committed = ledger.committed(&world.plain).await.get();
        assert!(committed >= rows_before && committed < 100, "in the middle: {committed}");
        assert_eq!(ledger.committed_in_state(&*world.stores).get(), committed);
        let some = &all[..usize::try_from(committed).unwrap()];
        ledger.check(&world.plain, some).await.expect("the view is that of the committed offset");
        // A task that was not open yet may have nothing to hand over.
        assert!(ledger.fold(&world.plain).await.released() || rows_before == 0);

        world.run(&ledger, config, &all).await;
        ledger.check(&world.plain, &all).await.unwrap();
    }
}

/// A drain that cannot hand over says so; what is open is settled by the next start.
#[tokio::test]
async fn a_drain_that_cannot_hand_over_is_an_error() {
    let world = World::new();
    let ledger = Ledger::new("cut-off");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 4);
    ledger.produce(&*world.plain, &all).await;
    let config = Config { drain_time_max: Duration::from_millis(300), ..quick() };
    let mut runtime = world.start(&ledger, config).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    let away = world.faulty.on_each(On::of(Call::Append, &ledger.journal()), 1..1_000, Fault::RequestLost);
    let error = runtime.drain().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    assert!(error.to_string().contains("entries@local:0"), "{error}");
    assert!(world.faulty.fired(away) > 0);
    world.faulty.reborn().await;
    world.faulty.clear();
    world.run(&ledger, quick(), &all).await;
    ledger.check(&world.plain, &all).await.unwrap();
}

/// A broker that is away for a moment does not keep a task from being handed over.
#[tokio::test]
async fn a_drain_that_met_an_outage_hands_over_when_it_is_over() {
    let world = World::new();
    let ledger = Ledger::new("short-outage");
    ledger.make_topics(&*world.plain).await;
    let all = entries(0, 4);
    ledger.produce(&*world.plain, &all).await;
    let mut runtime = world.start(&ledger, quick()).await;
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Done), "{settled:?}");
    let tries = usize::try_from(quick().tries_max).unwrap();
    let away = world.faulty.on_each(On::of(Call::Append, &ledger.journal()), 1..tries + 1, Fault::RequestLost);
    runtime.drain().await.unwrap();
    assert_eq!(world.faulty.fired(away), tries, "the first Release, and each try again");
    assert!(ledger.fold(&world.plain).await.released());
    ledger.check(&world.plain, &all).await.unwrap();
}
