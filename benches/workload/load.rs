//! Writes the input of a run.

use crate::programs::{Names, Workload};
use crate::spec::{Generator, QUEUES};
use futures_util::future::try_join_all;
use onceflow::log::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow::types::{Error, Offset, Partition, Result};
use std::time::Duration;

/// Records of one send.
const BATCH: usize = 1_000;

/// Creates the topics and writes the input in batches, in order for each queue; with windows, a sentinel ends each queue.
pub async fn load(log: &dyn Log, workload: Workload, names: &Names, generator: Generator, records: u64) -> Result<()> {
    create(log, names).await?;
    let mut input = Input::open(log, names).await?;
    for record in 0..records {
        input.push(generator, record)?;
        if input.largest() == BATCH {
            input.send().await?;
        }
    }
    let mut messages = records;
    if workload == Workload::W2 {
        input.close_windows(generator, records)?;
        messages += u64::from(QUEUES);
    }
    input.send().await?;
    until_readable(log, &names.inputs, messages).await
}

/// Waits until so many messages can be read in the topics. A broker that has acknowledged them may still have seconds of
/// work to do before, and counts them as there meanwhile; nobody else's time is to contain that. So the last message of each
/// queue is read, too.
pub async fn until_readable(log: &dyn Log, topics: &[String], messages: u64) -> Result<()> {
    const TIME_MAX: Duration = Duration::from_secs(120);
    const LAST: ReadLimit = ReadLimit { records_max: 1, bytes_max: 1, wait_max: Duration::ZERO };
    let deadline = tokio::time::Instant::now() + TIME_MAX;
    loop {
        let mut readable = 0;
        for topic in topics {
            for queue in log.partitions(topic).await? {
                let next = log.offsets(&queue).await?.next;
                let Some(last) = next.get().checked_sub(1) else { continue };
                if !log.read(&queue, Offset::new(last), LAST).await?.is_empty() {
                    readable += next.get();
                }
            }
        }
        if readable >= messages {
            return Ok(());
        }
        if tokio::time::Instant::now() > deadline {
            return Err(Error::retry(format!("not all can be read: readable={readable} messages={messages}")));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Creates the topics of a run.
pub async fn create(log: &dyn Log, names: &Names) -> Result<()> {
    for topic in names.inputs.iter().chain([&names.output]) {
        let queues = Queues::PerBroker(QUEUES);
        log.create_topic(&TopicSpec { topic: topic.as_str().into(), queues }).await?;
    }
    Ok(())
}

/// The topics of the input, with the records of each queue that are not written yet.
pub struct Input<'a> {
    log: &'a dyn Log,
    topics: Vec<Vec<(Partition, MessageBatch)>>,
}

impl<'a> Input<'a> {
    pub async fn open(log: &'a dyn Log, names: &Names) -> Result<Input<'a>> {
        let mut topics = Vec::new();
        for topic in &names.inputs {
            let queues = log.partitions(topic).await?;
            topics.push(queues.into_iter().map(|queue| (queue, MessageBatch::default())).collect());
        }
        Ok(Input { log, topics })
    }

    pub fn push(&mut self, generator: Generator, record: u64) -> Result<()> {
        let topic = record as usize % self.topics.len();
        self.put(topic, generator.key(record), &generator.record(record))
    }

    /// A sentinel for each queue; its time is behind all windows of the records before it.
    pub fn close_windows(&mut self, generator: Generator, records: u64) -> Result<()> {
        (0..u64::from(QUEUES)).try_for_each(|key| self.put(0, key, &generator.sentinel(records, key)))
    }

    fn put(&mut self, topic: usize, key: u64, record: &[u8]) -> Result<()> {
        let queues = &mut self.topics[topic];
        let queue = (key % queues.len() as u64) as usize;
        queues[queue].1.push(&[], record)
    }

    fn batches(&self) -> impl Iterator<Item = &(Partition, MessageBatch)> {
        self.topics.iter().flatten().filter(|(_, batch)| !batch.is_empty())
    }

    /// Records that wait, in the queue that has most of them.
    fn largest(&self) -> usize {
        self.batches().map(|(_, batch)| batch.len()).max().unwrap_or(0)
    }

    /// Writes what waits, all queues at once. One try: an unknown outcome would make the input itself inexact.
    pub async fn send(&mut self) -> Result<()> {
        let sends = self.batches().map(|(queue, batch)| self.log.append(queue, batch));
        try_join_all(sends).await.map_err(|e| e.context("writing the input"))?;
        self.topics.iter_mut().flatten().for_each(|(_, batch)| batch.clear());
        Ok(())
    }
}
