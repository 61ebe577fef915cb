//! Case 5: messages and epochs at the limits of what the log takes.

use crate::faulty::ledger::{append, make_topic, quick, read_raw, read_view};
use crate::faulty::{Call, Fault, On};
use crate::world::{World, options};
use onceflow::codec::{Bytes, Json};
use onceflow::log::embedded::EmbeddedOptions;
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::txn::{Decoded, JournalRecord, decode};
use onceflow::types::{ErrorKind, Result};
use onceflow::{Config, DEAD_LETTER_TRUNCATED, ErrorPolicy, Runtime};
use std::sync::OnceLock;
use std::time::Duration;

/// Takes a number in and puts out a body of that many bytes, and remembers the body under the number.
fn inflate(delivery: Delivery, policy: ErrorPolicy) -> Topology {
    let builder = StreamBuilder::new("inflate").unwrap();
    let sizes = builder.source("sizes", Json::<usize>::new()).start(StartPolicy::Earliest);
    let bodies = sizes.map(noise).key_by(Vec::len).partitioned_by_key();
    let kept = bodies.aggregate("kept", Vec::new, |kept: &mut Vec<u8>, body: &Vec<u8>| {
        kept.clear();
        kept.extend_from_slice(&body[..body.len().min(600_000)]);
    });
    kept.map(|size, _| noise(size)).sink("bodies", "bodies", Bytes).delivery(delivery).on_error(policy);
    builder.build().unwrap()
}

/// Bytes that do not compress, others for each size.
fn noise(size: usize) -> Vec<u8> {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let words = (0..(10usize << 20) / 8).flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.collect()
    });
    all[size % 4_096..][..size].to_vec()
}

async fn world(options: EmbeddedOptions, sizes: &[usize]) -> World {
    let world = World::with(options);
    for topic in ["sizes", "bodies", "too-large"] {
        make_topic(&*world.plain, topic).await;
    }
    append(&*world.plain, "sizes", sizes).await;
    world
}

async fn start(world: &World, topology: Topology, config: Config) -> Runtime {
    let builder = Runtime::builder(topology, world.faulty.clone(), world.stores.clone());
    builder.config(config).start().await.unwrap()
}

/// Runs until everything is processed and published.
async fn run(world: &World, topology: Topology, config: Config) -> Result<u64> {
    let mut runtime = start(world, topology, config).await;
    assert!(runtime.wait_caught_up(Duration::from_secs(60)).await?, "{:#?}", runtime.status());
    let skipped = runtime.status().values().map(|status| status.stages.skipped).sum();
    runtime.drain().await?;
    world.faulty.reborn().await;
    Ok(skipped)
}

async fn bodies(world: &World, topic: &str) -> Vec<usize> {
    let (records, _, held) = read_view(&world.plain, topic, "inflate").await;
    assert_eq!(held, 0);
    records.iter().for_each(|record| assert!(record.body.len() < 8 || record.body == noise(record.body.len())));
    records.iter().map(|record| record.body.len()).collect()
}

#[tokio::test]
async fn a_record_that_fits_no_message_is_its_policys_to_decide_at_every_size() {
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let limit = World::new().plain.message_bytes_max();
        let around =
            [4_000, 2_500, 2_049, 2_048, 2_047, 1_000, 500, 300, 200, 100, 30, 20, 1, 0].map(|less| limit - less);
        let sizes: Vec<usize> = [5].into_iter().chain(around).chain([limit + 1, limit * 2, 6]).collect();
        let world = world(options(), &sizes).await;
        let skipped = run(&world, inflate(delivery, ErrorPolicy::Skip), quick()).await.unwrap();
        let seen = bodies(&world, "bodies").await;
        assert_eq!(seen.len() as u64 + skipped, sizes.len() as u64, "{delivery:?}");
        assert!(skipped >= 2 && seen.len() > 3, "{delivery:?} seen={seen:?}");
        assert_eq!(seen, sizes.iter().copied().filter(|size| seen.contains(size)).collect::<Vec<_>>());
        assert!(seen.ends_with(&[6]), "what comes behind is not blocked");
    }
}

#[tokio::test]
async fn a_record_that_is_too_large_stops_the_job_under_fail_and_names_size_and_limit() {
    let world = world(options(), &[7, 5 << 20, 8]).await;
    let error = run(&world, inflate(Delivery::Transactional, ErrorPolicy::Fail), quick()).await.unwrap_err();
    world.faulty.reborn().await;
    assert_eq!(error.kind(), ErrorKind::Record, "{error}");
    for part in ["5242880", "bytes_max=", "sizes@local:0 offset 1", "bodies"] {
        assert!(error.report().contains(part), "{part}: {}", error.report());
    }
    assert_eq!(bodies(&world, "bodies").await, Vec::<usize>::new(), "nothing of the epoch is visible");
    // Another policy, and the job goes on where it stopped; nothing is lost.
    let upgrade = Config { allow_upgrade: true, ..quick() };
    run(&world, inflate(Delivery::Transactional, ErrorPolicy::dead_letter("too-large")), upgrade).await.unwrap();
    assert_eq!(bodies(&world, "bodies").await, [7, 8]);
    assert_eq!(read_raw(&world.plain, "too-large").await, [b"5242880"], "the original record");
}

/// A record of the largest size that the log takes cannot be decoded; its dead letter has more properties than it.
#[tokio::test]
async fn a_dead_letter_of_the_largest_record_is_cut_and_fits() {
    let world = World::new();
    for topic in ["numbers", "bad"] {
        make_topic(&*world.plain, topic).await;
    }
    let limit = world.plain.message_bytes_max();
    for less in [0, 1_000, 3_500, 40_000] {
        let mut batch = onceflow::log::MessageBatch::default();
        batch.push(b"KEYS\x01k\x02", &vec![b'x'; limit - less - 7]).unwrap();
        crate::faulty::ledger::append_batch(&*world.plain, "numbers", &batch).await;
    }
    let builder = StreamBuilder::new("inflate").unwrap();
    let numbers = builder.source("numbers", Json::<usize>::new()).start(StartPolicy::Earliest);
    numbers.on_error(ErrorPolicy::dead_letter("bad")).for_each(|_| ());
    run(&world, builder.build().unwrap(), quick()).await.unwrap();
    let (records, ..) = read_view(&world.plain, "bad", "inflate").await;
    let cut = |record: &onceflow::OutputRecord| {
        onceflow::log::find_property(&record.properties, DEAD_LETTER_TRUNCATED).map(<[u8]>::to_vec)
    };
    let body = Some(b"body".to_vec());
    assert_eq!(records.iter().map(cut).collect::<Vec<_>>(), [body.clone(), body, None, None]);
    assert!(records.iter().all(|record| record.body.iter().all(|byte| *byte == b'x')));
}

#[tokio::test]
async fn a_log_with_a_smaller_limit_is_respected_or_refused() {
    let small = EmbeddedOptions { message_bytes_max: 2 << 20, ..options() };
    let sizes = [5, 1 << 20, (2 << 20) - 4_000, (2 << 20) - 10, 3 << 20, 6];
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let world = world(small.clone(), &sizes).await;
        // Larger than the log takes: the limit of the log counts.
        let config = Config { frame_bytes_max: 8 << 20, send_bytes_max: 8 << 20, epoch_records_max: 100, ..quick() };
        let skipped = run(&world, inflate(delivery, ErrorPolicy::Skip), config).await.unwrap();
        assert_eq!(
            (bodies(&world, "bodies").await, skipped),
            (vec![5, 1 << 20, (2 << 20) - 4_000, 6], 2),
            "{delivery:?}"
        );
    }
    let world = world(EmbeddedOptions { message_bytes_max: 100_000, ..options() }, &[5]).await;
    let topology = inflate(Delivery::Transactional, ErrorPolicy::Skip);
    let error = Runtime::builder(topology, world.faulty.clone(), world.stores.clone()).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("100000"), "{error}");
}

/// Epochs of many megabytes: split over several messages and Delta parts. Their ENDs are lost at first; a small epoch
/// behind them comes through, and all or nothing of each is visible.
#[tokio::test]
async fn large_epochs_are_split_and_a_small_one_behind_is_not_blocked() {
    for delivery in [Delivery::Transactional, Delivery::Outbox { framed: false }, Delivery::Outbox { framed: true }] {
        let mut sizes: Vec<usize> = (0..20).map(|size| 700_000 + size).collect();
        sizes.push(10);
        let world = world(options(), &sizes).await;
        let call = if delivery == Delivery::Transactional { Call::End } else { Call::Append };
        let lost = world.faulty.on_each(On::of(call, "bodies"), 1..4, Fault::RequestLost);
        let config = Config { epoch_records_max: 10, read_records_max: 10, ..quick() };
        run(&world, inflate(delivery, ErrorPolicy::Fail), config).await.unwrap();
        assert_eq!(world.faulty.fired(lost), 3);
        assert_eq!(bodies(&world, "bodies").await, sizes, "{delivery:?}");
        let limit = world.plain.message_bytes_max();
        let journal = read_raw(&world.plain, "inflate-journal-sizes").await;
        let deltas = journal.iter().filter(|body| matches!(decode(body), Ok(Decoded::Record(JournalRecord::Delta(_)))));
        assert!(deltas.count() > 8, "{delivery:?}: the bodies are split");
        for topic in ["bodies", "inflate-journal-sizes"] {
            let largest = read_raw(&world.plain, topic).await.iter().map(Vec::len).max().unwrap();
            assert!(largest <= limit, "{topic} {largest}");
        }
    }
}
