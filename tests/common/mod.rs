//! What the end-to-end tests share: a payment job with a known answer.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "a test helper; not every test uses all of it"
)]

use onceflow::codec::Json;
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::{Name, Partition};
use onceflow::{Config, TopicReader};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const JOB: &str = "payments-job";
pub const CARDS: u64 = 50;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Payment {
    pub id: u64,
    pub card: String,
    pub amount: i64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Total {
    pub card: String,
    pub count: u64,
    pub sum: i64,
}

pub fn payment(id: u64) -> Payment {
    let mixed = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17;
    Payment { id, card: format!("card-{:04}", mixed % CARDS), amount: (mixed % 1_000) as i64 + 1 }
}

/// Payments in, a running total per card out, through a repartition topic.
pub fn topology(delivery: Delivery) -> Topology {
    topology_of(JOB, "payments", "totals", delivery)
}

/// The same between topics of a job's own.
pub fn topology_of(job: &str, input: &str, output: &str, delivery: Delivery) -> Topology {
    let builder = StreamBuilder::new(job).unwrap();
    builder
        .source(input, Json::<Payment>::new())
        .start(StartPolicy::Earliest)
        .key_by(|payment| payment.card.clone())
        .repartition("by-card")
        .queues(4)
        .aggregate(
            "totals",
            || (0u64, 0i64),
            |total, payment: &Payment| {
                total.0 += 1;
                total.1 += payment.amount;
            },
        )
        .map(|card, (count, sum)| Total { card, count, sum })
        .sink("totals-out", output, Json::<Total>::new())
        .key(|total: &Total| total.card.clone())
        .delivery(delivery);
    builder.build().unwrap()
}

pub async fn make_topics(log: &dyn Log) {
    for topic in ["payments", "totals"] {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(4) }).await.unwrap();
    }
}

/// Writes payments `from..to` to the four queues in turn.
pub async fn produce(log: &dyn Log, from: u64, to: u64) {
    produce_to(log, &log.partitions("payments").await.unwrap(), from, to).await;
}

/// The same for a producer that knows the queues.
pub async fn produce_to(log: &dyn Log, queues: &[Partition], from: u64, to: u64) {
    let mut batches: BTreeMap<Partition, MessageBatch> = BTreeMap::new();
    for id in from..to {
        let queue = queues[id as usize % queues.len()].clone();
        let body = serde_json::to_vec(&payment(id)).unwrap();
        batches.entry(queue).or_default().push(&[], &body).unwrap();
    }
    for (queue, batch) in batches {
        log.append(&queue, &batch).await.unwrap();
    }
}

pub fn config() -> Config {
    Config {
        threads: 2,
        epoch_time: Duration::from_millis(20),
        publish_lease: Duration::from_millis(200),
        ..Config::default()
    }
}

/// The reader view of the output: per card the totals in order, checked against what the payments say.
pub async fn verify(log: Arc<dyn Log>, payments: u64) -> onceflow::TopicCounts {
    let mut reader = TopicReader::open(log, "totals", Name::job(JOB).unwrap()).await.unwrap();
    let mut seen: BTreeMap<String, Vec<Total>> = BTreeMap::new();
    for record in reader.read_to_end().await.unwrap() {
        let total: Total = serde_json::from_slice(&record.body).unwrap();
        seen.entry(total.card.clone()).or_default().push(total);
    }
    assert_eq!(reader.held(), 0, "messages wait for one that never came");
    let mut amounts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for id in 0..payments {
        let payment = payment(id);
        amounts.entry(payment.card).or_default().push(payment.amount);
    }
    assert_eq!(seen.keys().collect::<Vec<_>>(), amounts.keys().collect::<Vec<_>>());
    for (card, amounts) in amounts {
        let totals = &seen[&card];
        let counts: Vec<u64> = totals.iter().map(|total| total.count).collect();
        let expected: Vec<u64> = (1..=amounts.len() as u64).collect();
        assert_eq!(counts, expected, "{card}: every payment changes the total once, in order");
        assert_eq!(totals.last().unwrap().sum, amounts.iter().sum::<i64>(), "{card}");
    }
    reader.counts()
}
