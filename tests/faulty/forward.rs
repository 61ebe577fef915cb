//! The calls of `Log`, handed on.

use super::lag::Lag;
use super::{Call, Fault, FaultyLog, lock, pause};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use onceflow::log::{
    Acked, Body, CheckBack, End, Entry, Link, Log, MemberId, MessageBatch, OffsetRange, Prepared, ReadLimit,
    RecordBatch, TopicSpec, Verdict,
};
use onceflow::types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

impl FaultyLog {
    /// The partition that stands for `partition` now.
    fn place(&self, partition: &Partition) -> Partition {
        match lock(&self.redirects).get(&partition.topic) {
            Some(topic) => partition.in_topic(topic.clone()),
            None => partition.clone(),
        }
    }

    fn lagging(&self) -> Option<Arc<Lag>> {
        lock(&self.lag).clone()
    }

    async fn read_lagging(&self, lag: &Lag, place: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        let end = lag.end(&*self.inner, place).await?;
        match end.distance_from(from) {
            None => Err(Error::data_loss(format!("offset is not readable: given={from} next={end}"))),
            Some(0) => {
                pause(limit.wait_max.min(Duration::from_millis(2))).await;
                Ok(RecordBatch::empty(place.clone()))
            }
            Some(there) => {
                let records_max = limit.records_max.min(usize::try_from(there).unwrap());
                Ok(self.inner.read(place, from, ReadLimit { records_max, ..limit }).await?.with_end(end))
            }
        }
    }
}

#[async_trait]
impl Log for FaultyLog {
    fn message_bytes_max(&self) -> usize {
        self.inner.message_bytes_max()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        self.thawed().await;
        self.inner.create_topic(spec).await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.thawed().await;
        self.inner.partitions(topic).await
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        self.thawed().await;
        let place = self.place(partition);
        let range = self.inner.offsets(&place).await?;
        match self.lagging() {
            Some(lag) => Ok(OffsetRange { next: lag.end(&*self.inner, &place).await?, ..range }),
            None => Ok(range),
        }
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        self.inner.offset_at(&self.place(partition), time).await
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        self.thawed().await;
        let place = self.place(partition);
        let read = async || match self.lagging() {
            Some(lag) => self.read_lagging(&lag, &place, from, limit).await,
            None => self.inner.read(&place, from, limit).await,
        };
        let batch = match self.fault(Call::Read, &partition.topic) {
            None => read().await?,
            Some(Fault::Delayed(time)) => {
                // Asked now, answered later: a reply that may have become stale.
                let batch = read().await;
                pause(time).await;
                batch?
            }
            Some(Fault::Refused(kind)) => return Err(Error::new(kind, "injected: refused")),
            Some(Fault::RequestLost | Fault::ReplyLost) => return Err(Error::retry("injected: reply lost")),
            Some(other) => panic!("not a fault of reads: {other:?}"),
        };
        self.thawed().await;
        if batch.partition() == partition { Ok(batch) } else { Ok(relabelled(&batch, partition)) }
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        let (inner, to, batch) = (self.inner.clone(), partition.clone(), batch.clone());
        let run = move || {
            let (inner, to, batch) = (inner.clone(), to.clone(), batch.clone());
            async move { inner.append(&to, &batch).await }.boxed()
        };
        let acked = self.change(Call::Append, partition, run, None).await?;
        Ok(Acked { link: self.over(acked.link), ..acked })
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        if !self.is_open(link) {
            return Err(Error::retry("the connection is gone"));
        }
        self.append(partition, batch).await
    }

    fn is_open(&self, link: &Link) -> bool {
        self.is_present(link)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        let (inner, to, batch) = (self.inner.clone(), target.clone(), batch.clone());
        let run = move || {
            let (inner, to, batch) = (inner.clone(), to.clone(), batch.clone());
            async move { inner.prepare(&to, &batch).await }.boxed()
        };
        let prepared = self.change(Call::Prepare, target, run, None).await?;
        Ok(Prepared { link: self.over(prepared.link), ..prepared })
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let (inner, given) = (self.inner.clone(), handle.clone());
        let run = move || {
            let (inner, given) = (inner.clone(), given.clone());
            async move { inner.end(&given, end).await }.boxed()
        };
        let (inner, given) = (self.inner.clone(), handle.clone());
        // The message is lost, the half is not: it can be ended again.
        let forgotten = async move { inner.end(&given, End::Rollback).await }.boxed();
        let link = self.change(Call::End, &handle.target, run, Some(forgotten)).await?;
        Ok(self.over(link))
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        self.inner.next_check_back().await
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        lock(&self.verdicts).push((check.unique_key.clone(), verdict));
        self.inner.answer_check_back(check, verdict).await
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        self.inner.report_offsets(group, offsets).await
    }

    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        self.thawed().await;
        let shared = lock(&self.group).clone();
        let members = match shared {
            Some(shared) => shared.look(own)?,
            None => self.inner.members(group, own).await?,
        };
        self.thawed().await;
        Ok(members)
    }

    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        self.thawed().await;
        let shared = lock(&self.group).clone();
        match shared {
            Some(shared) => {
                shared.gone(own);
                Ok(())
            }
            None => self.inner.leave(group, own).await,
        }
    }
}

/// The same records under another partition's name.
fn relabelled(batch: &RecordBatch, partition: &Partition) -> RecordBatch {
    let mut raw = vec![];
    let mut keep = |bytes: &[u8]| -> Range<u32> {
        let start = u32::try_from(raw.len()).unwrap();
        raw.extend_from_slice(bytes);
        start..u32::try_from(raw.len()).unwrap()
    };
    let entries = batch.iter().map(|record| Entry {
        offset: record.offset(),
        born: record.born(),
        stored: record.stored(),
        body: record.body().map_or_else(Body::Undecodable, |body| Body::Plain(keep(body))),
        properties: 0..0,
    });
    let entries: Vec<Entry> = entries.collect();
    let end = batch.next_offset().map_or(Offset::ZERO, |next| next.plus(batch.remaining()));
    RecordBatch::new(partition.clone(), Bytes::from(raw), Bytes::new(), entries).with_end(end)
}
