//! At a limit a job slows down: it neither drops nor dies nor grows (S11).

use crate::faulty::ledger::{Ledger, Settled, append, entries, memory, quick, read_view};
use crate::faulty::{Call, Fault, FaultyLog, On, pause};
use crate::log_with;
use onceflow::codec::{Json, Utf8};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder};
use onceflow::{Config, Runtime};
use std::time::Duration;

/// While nothing can be published the task decides as many epochs as it may and then waits, however long; afterwards all
/// output is there once.
async fn held_back(delivery: Delivery, call: Call, config: Config, epochs_max: u64) {
    let (log, _directory) = log_with(&[]).await;
    let ledger = Ledger { delivery, ..Ledger::new("pressed") };
    ledger.make_topics(&*log).await;
    let all = entries(0, 60);
    ledger.produce(&*log, &all).await;
    let faulty = FaultyLog::new(log.clone());
    let stuck = faulty.on_each(On::of(call, &ledger.output()), 1..1_000_000, Fault::RequestLost);
    let records_max = config.epoch_records_max as u64;
    let stores = memory();
    let mut runtime = ledger.start(&faulty, &stores, config).await;
    let full = |runtime: &onceflow::Runtime| {
        let status = runtime.status()[&ledger.task()].clone();
        let unpublished = status.epoch.get() - status.published_through.get();
        assert!(unpublished <= epochs_max, "{status:?}");
        assert!(status.stages.records_in <= (status.epoch.get() + 1) * records_max, "{status:?}");
        unpublished == epochs_max
    };
    while !full(&runtime) {
        pause(Duration::from_millis(2)).await;
    }
    // From now on nothing moves but the tries to publish.
    let epoch = runtime.status()[&ledger.task()].epoch;
    let tried = faulty.fired(stuck);
    while faulty.fired(stuck) < tried + 40 {
        assert!(full(&runtime));
        pause(Duration::from_millis(2)).await;
    }
    assert_eq!(runtime.status()[&ledger.task()].epoch, epoch);
    assert!(epoch.get() < all.len() as u64 / records_max, "there was more to do");
    faulty.clear();
    assert!(matches!(ledger.settle(&mut runtime, &faulty, &log, &all).await, Settled::Done));
    runtime.drain().await.unwrap();
    ledger.check(&log, &all).await.unwrap();
}

#[tokio::test]
async fn halves_that_cannot_be_ended_hold_the_task_back() {
    held_back(Delivery::Transactional, Call::End, Config { unpublished_epochs_max: 4, ..quick() }, 4).await;
}

#[tokio::test]
async fn an_outbox_that_cannot_be_sent_holds_the_task_back() {
    let config = Config { unpublished_epochs_max: 4, ..quick() };
    held_back(Delivery::Outbox { framed: false }, Call::Append, config, 4).await;
}

#[tokio::test]
async fn an_outbox_of_many_bytes_holds_the_task_back_earlier() {
    // Without room for the bytes of two, one goes all the same.
    let config = Config { unpublished_epochs_max: 4, unpublished_bytes_max: 1, ..quick() };
    held_back(Delivery::Outbox { framed: false }, Call::Append, config, 1).await;
}

/// One read may bring records that become far more output than an epoch may hold: the read is cut into several epochs.
#[tokio::test]
async fn a_read_whose_output_does_not_fit_one_epoch_becomes_several() {
    let (log, _directory) = log_with(&["in", "out"]).await;
    // 92 MB of output; the body of an epoch is 64 MiB at most.
    let (records, fan_out, bytes) = (96, 16, 60_000);
    let numbers: Vec<u64> = (0..records).collect();
    append(&*log, "in", &numbers).await;
    let builder = StreamBuilder::new("fan-out").unwrap();
    let source = builder.source("in", Json::<u64>::new()).start(StartPolicy::Earliest);
    let many = source.flat_map(move |number| (0..fan_out).map(move |part| (number * fan_out + part).to_string()));
    let padded = many.map(move |text| format!("{text:0>bytes$}"));
    padded.sink("out", "out", Utf8).delivery(Delivery::Outbox { framed: false });
    let runtime = Runtime::builder(builder.build().unwrap(), log.clone(), memory());
    let mut runtime =
        runtime.config(Config { publish_lease: quick().publish_lease, ..Config::default() }).start().await.unwrap();
    assert!(runtime.wait_caught_up(crate::PATIENCE).await.unwrap());
    let epochs = runtime.status().values().next().unwrap().epoch.get();
    runtime.drain().await.unwrap();
    let (output, ..) = read_view(&log, "out", "fan-out").await;
    let seen: Vec<u64> = output.iter().map(|record| String::from_utf8_lossy(&record.body).parse().unwrap()).collect();
    assert_eq!(seen, (0..records * fan_out).collect::<Vec<_>>());
    assert!(epochs > 10, "epochs of about 4 MiB each: {epochs}");
}
