//! A task's journal: one queue, appended and read.

use super::ahead::Ahead;
use crate::edge::{Monotonic, sleep};
use crate::job::Job;
use onceflow_log::{Link, Log, MessageBatch, ReadLimit, RecordBatch};
use onceflow_txn::{Decoded, Foreign, ReadRecord, decode, record_checksum};
use onceflow_types::{Error, ErrorKind, Offset, Partition, Result};
use std::sync::Arc;
use std::time::Duration;

/// Most records of one journal read.
const READ_RECORDS_MAX: usize = 1_024;
/// Most bytes of one journal read.
const READ_BYTES_MAX: usize = 4 << 20;
/// How long, and how often, a read waits for a record that was acknowledged: 10 s in all.
const VISIBLE_WAIT: Duration = Duration::from_millis(10);
const VISIBLE_TRIES_MAX: usize = 1_000;

/// An append that was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Appended {
    pub(crate) offset: Offset,
    pub(crate) link: Link,
    /// When the try that was acknowledged was sent.
    pub(crate) sent_at: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Journal {
    log: Arc<dyn Log>,
    partition: Partition,
    clock: Monotonic,
}

impl Journal {
    pub(crate) fn new(log: Arc<dyn Log>, partition: Partition, clock: Monotonic) -> Self {
        Journal { log, partition, clock }
    }

    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The first readable offset and the journal's end, which may lag.
    pub(crate) async fn range(&self) -> Result<(Offset, Offset)> {
        let range = self.log.offsets(&self.partition).await?;
        Ok((range.first, range.next))
    }

    /// One try to append a record: over any connection, or behind everything that was read from the broker since `over`
    /// carried something.
    pub(crate) async fn append(&self, over: Option<&Link>, record: &[u8]) -> Result<Appended> {
        let mut batch = MessageBatch::default();
        batch.push(&[], record)?;
        let sent_at = self.clock.now();
        let acked = match over {
            Some(link) => self.log.append_over(link, &self.partition, &batch).await?,
            None => self.log.append(&self.partition, &batch).await?,
        };
        Ok(Appended { offset: acked.first, link: acked.link, sent_at })
    }

    pub(crate) fn is_open(&self, link: &Link) -> bool {
        self.log.is_open(link)
    }

    /// Records from `from` on, at least one when `wait` is set: then the caller knows that there is one, and waits for
    /// the log's read side to catch up with its acknowledgement.
    pub(crate) async fn read(&self, from: Offset, wait: bool) -> Result<Vec<ReadRecord>> {
        let limit = ReadLimit { records_max: READ_RECORDS_MAX, bytes_max: READ_BYTES_MAX, wait_max: Duration::ZERO };
        for _ in 0..VISIBLE_TRIES_MAX {
            // An offset beyond the visible end would be reported as lost data.
            let (first, end) = self.range().await?;
            self.check_first(from, first)?;
            if end > from {
                return decode_all(&read_shown(&*self.log, &self.partition, from, limit).await?);
            }
            if !wait {
                return Ok(vec![]);
            }
            sleep(VISIBLE_WAIT).await;
        }
        Err(Error::retry(format!("journal record cannot be read yet: partition={} offset={from}", self.partition)))
    }

    /// Retention may remove the journal's beginning at any moment. Whether what is left is enough, is judged anew by the
    /// next opening; here it is no more than a reader that was overtaken.
    fn check_first(&self, from: Offset, first: Offset) -> Result<()> {
        if from >= first {
            return Ok(());
        }
        Err(Error::retry(format!("the journal's beginning has gone: {} given={from} first={first}", self.partition)))
    }

    /// Records from `from` up to `end`, both of which a look at the queue has shown, read ahead.
    pub(crate) fn stretch(&self, from: Offset, end: Offset) -> Stretch {
        Stretch { journal: self.clone(), ahead: Ahead::new(self.log.clone(), self.partition.clone(), from, end) }
    }

    /// Everything from `from` to the end as known now. For a look at newer Claims; the tail is short.
    pub(crate) async fn read_to_end(&self, from: Offset) -> Result<Vec<ReadRecord>> {
        let (_, end) = self.range().await?;
        let mut records: Vec<ReadRecord> = vec![];
        let mut next = from;
        while next < end {
            let more = self.read(next, true).await?;
            next = more.last().map_or(next, |last| last.offset.next());
            records.extend(more);
        }
        Ok(records)
    }
}

/// A part of a journal that is being read from its beginning to its end.
pub(crate) struct Stretch {
    journal: Journal,
    ahead: Ahead,
}

impl Stretch {
    /// Behind the last offset.
    pub(crate) fn end(&self) -> Offset {
        self.ahead.end()
    }

    /// The next offset.
    pub(crate) fn at(&self) -> Offset {
        self.ahead.at()
    }

    /// The next records; none at the end.
    ///
    /// # Errors
    /// `Retry` also when the part is no longer there, as in [`read_shown`].
    pub(crate) async fn read(&mut self) -> Result<Vec<ReadRecord>> {
        let from = self.at();
        match self.ahead.read(u64::MAX).await {
            Ok(batch) => batch.map_or(Ok(vec![]), |batch| decode_all(&batch)),
            Err(error) => Err(no_longer_shown(&*self.journal.log, &self.journal.partition, from, error).await?),
        }
    }
}

/// Reads from an offset that a look at the queue has just shown.
///
/// # Errors
/// `Retry` also when the offset is outside of the queue by now: retention has passed it, or the broker lost power with
/// what it had shown and not acknowledged. What that means is judged by whoever looks again.
pub(crate) async fn read_shown(
    log: &dyn Log,
    queue: &Partition,
    from: Offset,
    limit: ReadLimit,
) -> Result<RecordBatch> {
    match log.read(queue, from, limit).await {
        Err(error) => Err(no_longer_shown(log, queue, from, error).await?),
        Ok(records) => Ok(records),
    }
}

/// What the error of such a read means.
async fn no_longer_shown(log: &dyn Log, queue: &Partition, from: Offset, error: Error) -> Result<Error> {
    if error.kind() != ErrorKind::DataLoss {
        return Ok(error);
    }
    let range = log.offsets(queue).await?;
    if (range.first..range.next).contains(&from) {
        return Ok(error);
    }
    Ok(Error::retry("the queue is not as it was shown").with_source(error))
}

fn decode_all(batch: &RecordBatch) -> Result<Vec<ReadRecord>> {
    let decode_one = |record: onceflow_log::RecordRef<'_>| {
        let decoded = match record.body() {
            Ok(body) => decode(body).map_err(|e| e.context(format!("journal offset {}", record.offset())))?,
            // A message that cannot be read at all is nobody's record: void for every reader alike.
            Err(_) => Decoded::Foreign(Foreign::NotOurs),
        };
        Ok(ReadRecord { offset: record.offset(), decoded, checksum: record.body().map_or(0, record_checksum) })
    };
    batch.iter().map(decode_one).collect()
}

/// [`barrier`] on a broker that is named.
pub(crate) async fn barrier_at(job: &Job, broker: &str) -> Result<Link> {
    match job.barriers.at(broker) {
        Some(queue) => barrier(&*job.log, &queue).await,
        None => Err(Error::retry(format!("no barrier queue yet: broker={broker}"))),
    }
}

/// Appends to a broker's barrier queue and waits until it can be read: after that every message which that broker
/// acknowledged before can be read (log contract, rule 5).
pub(crate) async fn barrier(log: &dyn Log, partition: &Partition) -> Result<Link> {
    let mut batch = MessageBatch::default();
    batch.push(&[], b"barrier")?;
    let acked = log.append(partition, &batch).await?;
    for _ in 0..VISIBLE_TRIES_MAX {
        if log.offsets(partition).await?.next > acked.first {
            return Ok(acked.link);
        }
        sleep(VISIBLE_WAIT).await;
    }
    Err(Error::retry(format!("barrier cannot be read back: partition={partition} offset={}", acked.first)))
}
