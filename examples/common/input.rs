//! Writing the input: each record once, however often the program is killed while it writes.

use super::Place;
use onceflow::log::{Log, MessageBatch};
use onceflow::types::{Error, ErrorKind, Partition, Result};
use std::sync::Arc;
use std::time::Duration;

/// Records in one append.
const BATCH_RECORDS: usize = 500;
/// How often an append is tried, a second apart.
const TRIES_MAX: u32 = 60;

/// A source topic and the records that belong in it.
pub struct Input {
    pub topic: &'static str,
    /// How many records there are.
    pub records: u64,
    /// Record number `n`, from 0, for a topic with so many queues: the queue, and the body.
    pub record: fn(n: u64, queues: usize) -> (usize, Vec<u8>),
}

impl Input {
    /// Writes what is not there yet, and returns how many records that was.
    ///
    /// The records are numbered, and which queue each belongs to is fixed. So the number of records that a queue holds
    /// says which of its records comes next, and nothing else has to be remembered.
    pub async fn write(self, place: Arc<Place>) -> Result<u64> {
        let mut queues = vec![];
        for partition in place.log.partitions(self.topic).await? {
            queues.push(Queue::open(&place, partition).await?);
        }
        let mut written = 0;
        for number in 0..self.records {
            let (index, body) = (self.record)(number, queues.len());
            let queue = queues.get_mut(index).ok_or_else(|| Error::bug(format!("no such queue: queue={index}")))?;
            if queue.skip > 0 {
                queue.skip -= 1;
                continue;
            }
            queue.batch.push(&[], &body)?;
            written += 1;
            if queue.batch.len() == BATCH_RECORDS {
                queue.append(&*place.log).await?;
            }
        }
        for queue in &mut queues {
            queue.append(&*place.log).await?;
        }
        Ok(written)
    }
}

/// One queue of the source topic.
struct Queue {
    partition: Partition,
    /// How many of its records are already there and still to be passed over.
    skip: u64,
    /// How many records it holds.
    held: u64,
    batch: MessageBatch,
}

impl Queue {
    async fn open(place: &Place, partition: Partition) -> Result<Queue> {
        let mut held = place.log.offsets(&partition).await?.next.get();
        // A broker shows the end of a queue a moment late: look until it stands still.
        while place.on_broker && held > 0 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = place.log.offsets(&partition).await?.next.get();
            if now == held {
                break;
            }
            held = now;
        }
        Ok(Queue { partition, skip: held, held, batch: MessageBatch::default() })
    }

    async fn append(&mut self, log: &dyn Log) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let after = self.held + self.batch.len() as u64;
        for tried in 1.. {
            match log.append(&self.partition, &self.batch).await {
                Err(error) if error.kind() == ErrorKind::Retry && tried < TRIES_MAX => {
                    // It may have been stored all the same; the queue's end says whether it was.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if log.offsets(&self.partition).await.is_ok_and(|range| range.next.get() >= after) {
                        break;
                    }
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        self.held = after;
        self.batch.clear();
        Ok(())
    }
}
