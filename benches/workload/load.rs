//! Writes the input of a run.

use crate::programs::{Names, Workload};
use crate::spec::{Generator, QUEUES, sentinel};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::types::{Partition, Result};

/// Creates the topics and writes the input in batches, in order for each queue; with windows, a sentinel ends each queue.
pub async fn load(log: &dyn Log, workload: Workload, names: &Names, generator: Generator, records: u64) -> Result<()> {
    create(log, &names.output).await?;
    let mut topics = Vec::new();
    for topic in &names.inputs {
        create(log, topic).await?;
        topics.push(Loading::open(log, topic).await?);
    }
    for record in 0..records {
        let topic = record as usize % topics.len();
        topics[topic].push(generator.key(record), &generator.record(record)).await?;
    }
    if workload == Workload::W2 {
        for key in 0..u64::from(QUEUES) {
            topics[0].push(key, &sentinel(records, key)).await?;
        }
    }
    for topic in &mut topics {
        topic.finish().await?;
    }
    Ok(())
}

async fn create(log: &dyn Log, topic: &str) -> Result<()> {
    log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(QUEUES) }).await
}

/// A topic, with the records of each queue that are not written yet.
struct Loading<'a> {
    log: &'a dyn Log,
    queues: Vec<(Partition, MessageBatch)>,
}

impl<'a> Loading<'a> {
    async fn open(log: &'a dyn Log, topic: &str) -> Result<Loading<'a>> {
        let queues = log.partitions(topic).await?.into_iter().map(|queue| (queue, MessageBatch::default())).collect();
        Ok(Loading { log, queues })
    }

    async fn push(&mut self, key: u64, record: &[u8]) -> Result<()> {
        const BATCH: usize = 1_000;
        let queue = (key % self.queues.len() as u64) as usize;
        let (partition, batch) = &mut self.queues[queue];
        batch.push(&[], record)?;
        if batch.len() == BATCH { append(self.log, partition, batch).await } else { Ok(()) }
    }

    async fn finish(&mut self) -> Result<()> {
        for (partition, batch) in self.queues.iter_mut().filter(|(_, batch)| !batch.is_empty()) {
            append(self.log, partition, batch).await?;
        }
        Ok(())
    }
}

/// One try: an unknown outcome would make the input itself inexact.
async fn append(log: &dyn Log, queue: &Partition, batch: &mut MessageBatch) -> Result<()> {
    log.append(queue, batch).await.map_err(|e| e.context("loading the input"))?;
    batch.clear();
    Ok(())
}
