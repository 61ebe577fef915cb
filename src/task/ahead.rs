//! Reading a known stretch of a queue, several reads ahead of whoever takes the records.
//!
//! An opening reads a snapshot and a journal from one place to another, and works on what it has got while more is on its
//! way. A broker answers a read with as little as 256 KiB (`maxTransferBytesOnMessageInMemory`), so that one read at a
//! time would mostly wait. Where the next read begins is not known before the answer; but offsets are dense, so it is
//! guessed by the number of records that came before, and what an answer left out is read next.

use futures_util::future::{FutureExt, LocalBoxFuture};
use futures_util::stream::{FuturesOrdered, StreamExt};
use onceflow_log::{Log, ReadLimit, RecordBatch};
use onceflow_types::{Error, Offset, Partition, Result};
use std::sync::Arc;
use std::time::Duration;

/// Reads under way at once.
const READS_MAX: usize = 4;
/// Most bytes of one read: with those under way it bounds the memory.
const READ_BYTES_MAX: usize = 2 << 20;
/// Records asked for by the first reads, and by any.
const READ_RECORDS_FIRST: u64 = 8;
const READ_RECORDS_MAX: u64 = 1_024;

/// A stretch of a queue that is being read. Dropped, it gives up the reads under way.
pub(super) struct Ahead {
    log: Arc<dyn Log>,
    queue: Partition,
    /// The next offset to hand out.
    next: Offset,
    /// Behind what is asked for.
    asked: Offset,
    /// Behind the stretch.
    end: Offset,
    under_way: FuturesOrdered<LocalBoxFuture<'static, Answer>>,
    /// How many records a read asks for: what an answer holds, and more while it holds all.
    read_records: u64,
}

struct Answer {
    /// Behind what was asked for.
    behind: Offset,
    records: Result<RecordBatch>,
}

impl Ahead {
    /// The stretch from `next` up to `end`, which has been seen to exist.
    pub(super) fn new(log: Arc<dyn Log>, queue: Partition, next: Offset, end: Offset) -> Ahead {
        let (under_way, read_records) = (FuturesOrdered::new(), READ_RECORDS_FIRST);
        Ahead { log, queue, next, asked: next, end, under_way, read_records }
    }

    /// The next offset to hand out.
    pub(super) fn at(&self) -> Offset {
        self.next
    }

    /// Behind the stretch.
    pub(super) fn end(&self) -> Offset {
        self.end
    }

    /// The next records, at least one; `None` at the end. `wanted`: how many of them are of use; not many more are asked for.
    ///
    /// # Errors
    /// Those of the log, as they are; `Retry` when it has nothing to give.
    pub(super) async fn read(&mut self, wanted: u64) -> Result<Option<RecordBatch>> {
        if self.next >= self.end {
            return Ok(None);
        }
        self.ask(wanted.max(1));
        let Some(Answer { behind, records }) = self.under_way.next().await else {
            return Err(Error::bug("a stretch with nothing under way"));
        };
        let records = records?;
        let Some(next) = records.next_offset().filter(|next| *next > self.next) else {
            return Err(Error::retry(format!("nothing could be read: {} offset={}", self.queue, self.next)));
        };
        if next > behind {
            return Err(Error::bug(format!(
                "a read gave more than was asked for: {} next={next} asked={behind}",
                self.queue
            )));
        }
        let came = next.distance_from(self.next).unwrap_or(1);
        self.next = next;
        if next < behind {
            self.read_records = came;
            let rest = self.reading(next, behind);
            self.under_way.push_front(rest);
        } else {
            self.read_records = self.read_records.max(came.saturating_mul(2)).min(READ_RECORDS_MAX);
        }
        Ok(Some(records))
    }

    fn ask(&mut self, wanted: u64) {
        let left = self.end.distance_from(self.next).unwrap_or(0);
        let end = self.next.plus(wanted.min(left));
        while self.under_way.len() < READS_MAX && self.asked < end {
            let behind = self.asked.plus(self.read_records).min(end);
            let reading = self.reading(self.asked, behind);
            self.under_way.push_back(reading);
            self.asked = behind;
        }
    }

    fn reading(&self, from: Offset, behind: Offset) -> LocalBoxFuture<'static, Answer> {
        let (log, queue) = (self.log.clone(), self.queue.clone());
        let records_max = usize::try_from(behind.distance_from(from).unwrap_or(1)).unwrap_or(usize::MAX).max(1);
        let limit = ReadLimit { records_max, bytes_max: READ_BYTES_MAX, wait_max: Duration::ZERO };
        let reading = async move { Answer { behind, records: log.read(&queue, from, limit).await } };
        reading.boxed_local()
    }
}
