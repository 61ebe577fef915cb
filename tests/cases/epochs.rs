//! Case 23: epochs without output.

use crate::faulty::ledger::{Ledger, Settled, entry, quick, read_raw};
use crate::faulty::{Call, Fault, On};
use crate::world::World;
use onceflow::topology::Delivery;
use onceflow::types::Epoch;
use onceflow::{Config, Runtime};
use std::time::Duration;

async fn caught_up(runtime: &mut Runtime) {
    assert!(runtime.wait_caught_up(Duration::from_secs(30)).await.unwrap(), "{:#?}", runtime.status());
}

#[tokio::test]
async fn an_epoch_without_output_moves_offsets_and_holds_nobody_up() {
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let world = World::new();
        let ledger = Ledger { delivery, ..Ledger::new("silent") };
        ledger.make_topics(&*world.plain).await;
        // The records of the silent batch are an epoch.
        let config = Config { epoch_records_max: 50, read_records_max: 1_000, ..quick() };
        let mut all = vec![entry(0, "A", 3), entry(1, "A", 4)];
        ledger.produce(&*world.plain, &all).await;
        let mut runtime = world.start(&ledger, config.clone()).await;
        caught_up(&mut runtime).await;
        let before = runtime.status()[&ledger.task()].epoch;
        let silent: Vec<_> = (2..52).map(|id| entry(id, "A", 0)).collect();
        ledger.produce(&*world.plain, &silent).await;
        all.extend(silent);
        caught_up(&mut runtime).await;
        let status = runtime.status()[&ledger.task()].clone();
        assert_eq!(status.epoch.distance_from(before), Some(1), "{status:#?}");
        let framed = delivery == Delivery::Outbox { framed: true };
        assert_eq!(read_raw(&world.plain, &ledger.output()).await.len(), if framed { 1 } else { 2 });
        world.crash(runtime).await;
        assert_eq!(ledger.committed(&world.plain).await.get(), 52);
        assert_eq!(ledger.committed_in_state(&*world.stores).get(), 52);

        all.push(entry(52, "A", 5));
        ledger.produce(&*world.plain, &all[52..]).await;
        let mut runtime = world.start(&ledger, config).await;
        let settled = world.settle(&ledger, &mut runtime, &all).await;
        assert!(matches!(settled, Settled::Done), "{settled:?}");
        assert_eq!(runtime.status()[&ledger.task()].stages.records_in, 1, "the silent ones are not read again");
        runtime.drain().await.unwrap();
        let counts = ledger.check(&world.plain, &all).await.unwrap();
        assert_eq!(counts.dedup.gaps_passed, 0, "a silent epoch is no gap");
    }
}

/// The Commit of a silent epoch is decided as any other, also when its reply is lost and the process with it.
#[tokio::test]
async fn a_silent_epoch_survives_the_loss_of_its_reply() {
    let world = World::new();
    let ledger = Ledger::new("silent");
    ledger.make_topics(&*world.plain).await;
    ledger.produce(&*world.plain, &[entry(0, "A", 0), entry(1, "A", 0)]).await;
    // Claim, start offsets, then the silent epoch.
    let dies = world.faulty.on(On::of(Call::Append, &ledger.journal()), 3, Fault::Death { carried_out: true });
    let mut runtime = world.start(&ledger, quick()).await;
    let all = [entry(0, "A", 0), entry(1, "A", 0), entry(2, "A", 9)];
    let settled = world.settle(&ledger, &mut runtime, &all).await;
    assert!(matches!(settled, Settled::Died), "{settled:?}");
    world.crash(runtime).await;
    assert_eq!(world.faulty.fired(dies), 1);
    let fold = ledger.fold(&world.plain).await;
    assert_eq!((fold.epoch(), ledger.committed(&world.plain).await.get()), (Epoch::new(2), 2));
    ledger.produce(&*world.plain, &all[2..]).await;
    world.run(&ledger, quick(), &all).await;
    ledger.check(&world.plain, &all).await.unwrap();
}
