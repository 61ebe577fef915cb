//! Messages of strangers that claim to be the job's. A reader takes nothing from a message whose job is another or whose
//! checksum is wrong, a message of another incarnation opens a channel of its own, and a copy is a duplicate: none of
//! them moves the position of a real channel. Somebody who may write to a job's topics **and** copies the incarnation
//! from them is not kept out by this; access control is (docs/security.md).

use crate::faulty::FaultyLog;
use crate::faulty::ledger::{Entry, Ledger, Settled, Sum, append_batch, entries, memory, quick, read_raw};
use crate::log_with;
use onceflow::log::{Log, MessageBatch, ReadLimit};
use onceflow::topology::Delivery;
use onceflow::txn::{Frame, Identity, SEQUENCE_MAX};
use onceflow::types::{Epoch, ErrorKind, Generation, Incarnation, Name, Offset, Sequence, Timestamp};
use onceflow::{Runtime, TopicReader, identity_of};
use std::sync::Arc;
use std::time::Duration;

const INFLATED_BYTES_MAX: usize = 1 << 20;

/// The first stored message of a topic with its identity.
async fn first(log: &Arc<dyn Log>, topic: &str) -> (Identity, Vec<u8>, Vec<u8>) {
    let queue = log.partitions(topic).await.unwrap().remove(0);
    let limit = ReadLimit { records_max: 1, bytes_max: 1 << 20, wait_max: Duration::ZERO };
    let batch = log.read(&queue, Offset::ZERO, limit).await.unwrap();
    let record = batch.iter().next().unwrap();
    let identity = identity_of(record, INFLATED_BYTES_MAX).unwrap().unwrap();
    (identity, record.properties().to_vec(), record.body().unwrap().to_vec())
}

/// Identities that are almost `real`.
fn forged(real: &Identity) -> Vec<Identity> {
    let stranger = Identity { job: Name::job("someone-else").unwrap(), ..real.clone() };
    let (far, end) = (Epoch::new(1 << 63), Generation::new(u64::MAX));
    let other = |bit| Identity { incarnation: Incarnation::new(real.incarnation.get() ^ bit), ..real.clone() };
    vec![
        stranger.clone(),
        Identity { epoch: far, generation: end, ..stranger.clone() },
        Identity { sequence: SEQUENCE_MAX, floor: SEQUENCE_MAX, ..stranger },
        Identity { epoch: far, generation: end, ..other(1) },
        Identity { sequence: SEQUENCE_MAX, floor: SEQUENCE_MAX, ..other(2) },
        // The right channel, from far ahead: held, and nothing waits for it.
        Identity { sequence: SEQUENCE_MAX, epoch: far, generation: end, ..real.clone() },
    ]
}

async fn send(log: &Arc<dyn Log>, topic: &str, properties: &[u8], body: &[u8]) {
    let mut batch = MessageBatch::default();
    batch.push(properties, body).unwrap();
    append_batch(&**log, topic, &batch).await;
}

fn property(value: &str) -> Vec<u8> {
    format!("ONCEFLOW\u{1}{value}\u{2}").into_bytes()
}

/// What a forger can send with an identity, as a plain message and framed; and the same with a wrong checksum.
fn messages(identity: &Identity, body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let text = identity.to_property();
    let damaged = format!("{}{}", &text[..text.len() - 1], if text.ends_with('0') { '1' } else { '0' });
    let mut records = MessageBatch::default();
    records.push(&[], body).unwrap();
    let mut frame = vec![];
    Frame::encode_into(&mut frame, identity, Timestamp::MIN, 1, records.as_bytes(), false);
    vec![(property(&text), body.to_vec()), (property(&damaged), body.to_vec()), (vec![], frame)]
}

/// A job that has worked on six of its twelve entries.
async fn halfway(log: &Arc<dyn Log>, ledger: &Ledger) -> (Runtime, Arc<FaultyLog>, Vec<Entry>) {
    ledger.make_topics(&**log).await;
    let all = entries(0, 12);
    let (faulty, stores) = (FaultyLog::new(log.clone()), memory());
    ledger.produce(&**log, &all[..6]).await;
    let mut runtime = ledger.start(&faulty, &stores, quick()).await;
    assert!(matches!(ledger.settle(&mut runtime, &faulty, log, &all[..6]).await, Settled::Done));
    (runtime, faulty, all)
}

#[tokio::test]
async fn a_stranger_on_an_output_topic_silences_nobody() {
    let (log, _directory) = log_with(&[]).await;
    let ledger = Ledger::new("watched");
    let (mut runtime, _, all) = halfway(&log, &ledger).await;

    let (real, properties, body) = first(&log, &ledger.output()).await;
    for identity in forged(&real) {
        for (properties, body) in messages(&identity, b"forged") {
            send(&log, &ledger.output(), &properties, &body).await;
        }
    }
    for _ in 0..3 {
        send(&log, &ledger.output(), &properties, &body).await;
    }
    ledger.produce(&*log, &all[6..]).await;
    assert!(runtime.wait_caught_up(crate::PATIENCE).await.unwrap(), "the job did not notice");
    runtime.drain().await.unwrap();

    let mut reader = TopicReader::open(log.clone(), &ledger.output(), ledger.name()).await.unwrap();
    let view = reader.read_to_end().await.unwrap();
    let real: Vec<Sum> = view.iter().filter_map(|record| serde_json::from_slice(&record.body).ok()).collect();
    assert_eq!(real.iter().map(|sum| sum.id).collect::<Vec<_>>(), all.iter().map(|e| e.id).collect::<Vec<_>>());
    let counts = reader.counts();
    // Three of another job and all with a wrong checksum: twelve. Every copy is a duplicate.
    assert!(counts.foreign >= 12 && counts.dedup.duplicates >= 3, "{counts:?}");
}

#[tokio::test]
async fn a_stranger_on_a_repartition_topic_silences_and_stops_nobody() {
    let (log, _directory) = log_with(&[]).await;
    let ledger = Ledger { repartition: true, delivery: Delivery::Transactional, ..Ledger::new("inner") };
    let (mut runtime, faulty, all) = halfway(&log, &ledger).await;

    let plans = ledger.topology().subtopologies;
    let internal = plans.iter().flat_map(|plan| plan.sources.clone()).find(|source| source.internal).unwrap().topic;
    let (real, ..) = first(&log, &internal).await;
    for identity in forged(&real).into_iter().filter(|identity| identity.job != real.job) {
        for (properties, body) in messages(&identity, b"forged") {
            send(&log, &internal, &properties, &body).await;
        }
    }
    // The right channel, with a wrong checksum; and every real message once more.
    send(&log, &internal, &messages(&forged(&real)[5], b"forged")[1].0, b"forged").await;
    for copy in read_raw(&log, &internal).await.into_iter().filter(|body| body.starts_with(b"OFFR")).take(3) {
        send(&log, &internal, b"", &copy).await;
    }
    ledger.produce(&*log, &all[6..]).await;
    assert!(matches!(ledger.settle(&mut runtime, &faulty, &log, &all).await, Settled::Done));
    runtime.drain().await.unwrap();
    ledger.check(&log, &all).await.unwrap();
}

/// Where the promise ends (docs/decisions/0026): somebody who reads the topic knows the incarnation, and who may also write
/// to it can take the place of a record. That is never silent: the record that was displaced is counted as a duplicate, and
/// a claim that records are missing which were never there is a typed error.
#[tokio::test]
async fn somebody_who_reads_and_writes_a_topic_can_displace_a_record_but_not_unseen() {
    let (log, _directory) = log_with(&[]).await;
    let ledger = Ledger::new("limit");
    let (mut runtime, _, all) = halfway(&log, &ledger).await;
    let (first, ..) = first(&log, &ledger.output()).await;
    let place = |ahead: u64| Sequence::new(first.sequence.get() + ahead);
    let seventh = Identity { sequence: place(6), ..first.clone() };
    send(&log, &ledger.output(), &property(&seventh.to_property()), b"forged").await;
    ledger.produce(&*log, &all[6..]).await;
    assert!(runtime.wait_caught_up(crate::PATIENCE).await.unwrap(), "the job did not notice");
    runtime.drain().await.unwrap();

    let (output, name) = (ledger.output(), ledger.name());
    let open = || TopicReader::open(log.clone(), &output, name.clone());
    let mut reader = open().await.unwrap();
    let view = reader.read_to_end().await.unwrap();
    assert_eq!((view.len(), &view[6].body[..]), (12, b"forged".as_slice()));
    assert_eq!(reader.counts().dedup.duplicates, 1, "the real seventh");

    let gap = Identity { sequence: place(20), floor: place(20), ..first };
    send(&log, &ledger.output(), &property(&gap.to_property()), b"forged").await;
    for mut reader in [reader, open().await.unwrap()] {
        let error = reader.read_to_end().await.expect_err("records 12 to 19 were never there");
        assert_eq!(error.kind(), ErrorKind::DataLoss, "{}", error.report());
    }
}
