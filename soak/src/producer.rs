//! Writes the input at a steady rate. A send without a clear answer is sent again, so the raw input may hold copies:
//! what counts as input is what lies in the topic.

use crate::dice::Dice;
use crate::job::{INPUT, Payment, QUEUES};
use onceflow::log::{Log, MessageBatch};
use onceflow::types::{Error, ErrorKind, Partition, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Pause between two batches of a queue, and before a batch is sent again.
const PAUSE: Duration = Duration::from_millis(100);
/// Most payments of one batch: after an outage the producer catches up.
const BATCH_MAX: u64 = 500;

/// What is written.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) seed: u64,
    pub(crate) cards: u64,
    /// Payments a second over all queues.
    pub(crate) rate: u64,
}

impl Input {
    /// Payment `id`, from the seed alone.
    fn payment(&self, id: u64) -> Payment {
        let mut dice = Dice::new(self.seed, id);
        let card = format!("card-{:05}", dice.between(0, self.cards));
        let amount = i64::try_from(dice.between(0, 15_000)).unwrap_or(0) - 5_000;
        Payment { id, card, amount }
    }

    /// Writes until `stop` is true, each queue by a task of its own, in the order of the ids.
    ///
    /// # Errors
    /// What the log refuses for good.
    pub(crate) async fn write(self, log: Arc<dyn Log>, stop: watch::Receiver<bool>) -> Result<()> {
        let mut lanes = JoinSet::new();
        for partition in log.partitions(INPUT).await? {
            lanes.spawn(self.clone().lane(log.clone(), partition, stop.clone()));
        }
        while let Some(lane) = lanes.join_next().await {
            lane.map_err(|e| Error::bug("a lane of the producer ended").with_source(e))??;
        }
        Ok(())
    }

    async fn lane(self, log: Arc<dyn Log>, queue: Partition, stop: watch::Receiver<bool>) -> Result<()> {
        let began = Instant::now();
        let mut written = 0;
        while !*stop.borrow() {
            let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let due = elapsed_ms * self.rate / 1_000 / u64::from(QUEUES);
            let count = due.saturating_sub(written).min(BATCH_MAX);
            if count > 0 {
                append(&*log, &queue, &self.batch(&queue, written, count)?).await?;
                written += count;
            }
            if count < BATCH_MAX {
                sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    fn batch(&self, queue: &Partition, from: u64, count: u64) -> Result<MessageBatch> {
        let mut batch = MessageBatch::default();
        for number in from..from + count {
            let payment = self.payment(number * u64::from(QUEUES) + u64::from(queue.queue));
            let body = serde_json::to_vec(&payment).map_err(|e| Error::bug("a payment is JSON").with_source(e))?;
            batch.push(&[], &body)?;
        }
        Ok(batch)
    }
}

async fn append(log: &dyn Log, queue: &Partition, batch: &MessageBatch) -> Result<()> {
    loop {
        match log.append(queue, batch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Retry => sleep(PAUSE).await,
            Err(error) => return Err(error.context("producer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_write_different_payments_and_the_same_ones_again() {
        let input = Input { seed: 3, cards: 10, rate: 1 };
        let queue = |number| Partition { topic: INPUT.into(), broker: "b".into(), queue: number };
        let bytes = |number| input.batch(&queue(number), 5, 2).unwrap().into_bytes();
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        assert_ne!(input.payment(1), input.payment(2));
    }
}
