//! Reads ahead from a task's source partitions, one small local task for each.

use crate::edge::Backoff;
use crate::job::Job;
use crate::status::Line;
use onceflow_log::{ReadLimit, RecordBatch};
use onceflow_types::{Error, ErrorKind, Offset, Partition, Result, Timestamp};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long one read waits when the queue is empty.
const READ_WAIT_MAX: Duration = Duration::from_millis(500);

/// A batch from one of the task's sources.
#[derive(Debug)]
pub(crate) struct Pulled {
    /// The index of the source in the subtopology's plan.
    pub(crate) source: usize,
    /// Its records; none when the read found the queue's end.
    pub(crate) batch: RecordBatch,
    /// When the read was sent, by the processing clock.
    pub(crate) read_at: Timestamp,
}

/// The readers of a task's partitions; dropped with it, and with them every read under way. So a reply that comes after
/// the task was given up moves nothing.
#[derive(Debug)]
pub(crate) struct Readers {
    /// One for each reader.
    receivers: Vec<mpsc::Receiver<Result<Pulled>>>,
    /// Whose turn it is.
    turn: usize,
    _tasks: JoinSet<()>,
}

impl Readers {
    /// Starts a reader for each `(source, partition, next offset)`. Needs a `LocalSet` around it.
    pub(crate) fn start(job: &Arc<Job>, line: &Line, partitions: Vec<(usize, Partition, Offset)>) -> Self {
        let (mut receivers, mut tasks) = (vec![], JoinSet::new());
        for (source, partition, next) in partitions {
            let (sender, receiver) = mpsc::channel(job.config.read_ahead_batches_max.max(1));
            receivers.push(receiver);
            let (job, line) = (job.clone(), line.clone());
            tasks.spawn_local(async move {
                if let Err(error) = read_on(&job, &line, source, &partition, next, &sender).await {
                    // The task that owns the other end may be gone already; then nobody needs the error.
                    let _ = sender.send(Err(error.context(format!("source {partition}")))).await;
                }
            });
        }
        Readers { receivers, turn: 0, _tasks: tasks }
    }

    /// The next batch of any partition, in order for each. They take turns: where streams meet, what comes by one that runs
    /// ahead has to wait in the state for the others. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Pulled> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Pulled>> {
        let count = self.receivers.len();
        for at in (self.turn..count).chain(0..self.turn) {
            // One that ended has sent its error before. When all have, or there is none, nothing comes any more.
            if let Some(receiver) = self.receivers.get_mut(at)
                && let Poll::Ready(Some(pulled)) = receiver.poll_recv(cx)
            {
                self.turn = (at + 1) % count;
                return Poll::Ready(pulled);
            }
        }
        Poll::Pending
    }
}

async fn read_on(
    job: &Job,
    line: &Line,
    source: usize,
    partition: &Partition,
    from: Offset,
    sender: &mpsc::Sender<Result<Pulled>>,
) -> Result<()> {
    let config = &job.config;
    let limit =
        ReadLimit { records_max: config.read_records_max, bytes_max: config.read_bytes_max, wait_max: READ_WAIT_MAX };
    let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
    let mut next = from;
    loop {
        let read_at = job.clock.now();
        let batch = match job.log.read(partition, next, limit).await {
            Ok(batch) => batch,
            Err(error) if error.kind() == ErrorKind::Retry => {
                tracing::debug!(%partition, error = %error.report(), "read failed, trying again");
                line.count(|counters| counters.read_retries += 1);
                backoff.wait(&*job.entropy).await;
                continue;
            }
            // Only what was committed was promised to stay: what was read since may be gone with the power of its broker,
            // shown and never acknowledged. The next opening begins at the committed offset, and judges that one.
            Err(error) if error.kind() == ErrorKind::DataLoss && next > from => {
                return Err(Error::retry("records that were read ahead are gone").with_source(error));
            }
            Err(error) => return Err(error),
        };
        backoff.reset();
        check_dense(&batch, next)?;
        next = batch.next_offset().unwrap_or(next);
        if sender.send(Ok(Pulled { source, batch, read_at })).await.is_err() {
            return Ok(());
        }
    }
}

/// The log promises it (contract, rule 4); a hole here would be a lost record, so it is looked at twice.
fn check_dense(batch: &RecordBatch, from: Offset) -> Result<()> {
    let mut expected = from;
    for record in batch.iter() {
        if record.offset() != expected {
            return Err(Error::data_loss(format!("hole in a read: expected={expected} got={}", record.offset())));
        }
        expected = expected.next();
    }
    Ok(())
}
