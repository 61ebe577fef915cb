//! The handle: opening, and the contract of [`Log`] on top of writer and reader.

use super::checks::{Checks, Waiting};
use super::chunk::Draft;
use super::closing::{Closed, Closing};
use super::committer::Committer;
use super::directory::{self, Directory};
use super::fault;
use super::half::{self, At, Checked};
use super::journal;
use super::options::{BATCH_BYTES_MAX, EmbeddedOptions, Sync, check_name};
use super::queues::Queues;
use super::read;
use super::store::Store;
use super::writer::{Shared, Writer};
use crate::{Acked, CheckBack, End, Link, Log, MessageBatch, OffsetRange, Prepared, ReadLimit, RecordBatch, Ticket};
use crate::{TopicSpec, Verdict};
use async_trait::async_trait;
use bytes::Bytes;
use onceflow_types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp, check_topic};
use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

/// A handle on an open log, acting for one producer group. Clones and [other groups'](Self::with_group) handles share
/// the log; it is closed, and its directory free, when the last is dropped. All calls are cancel safe in the sense of
/// rule 10.
#[derive(Clone)]
pub struct EmbeddedLog {
    open: Arc<Open>,
    group: Arc<str>,
}

/// An open log. Fields are dropped in order: the writer first, then the log is closed, the lock last.
struct Open {
    committer: Committer,
    _closing: Closing,
    shared: Arc<Shared>,
    _directory: Directory,
}

impl EmbeddedLog {
    /// Opens the log in `path`, or makes one.
    ///
    /// # Errors
    /// `Fenced` when it is open elsewhere; `Invalid` when the directory holds something else or a newer format, which
    /// stays untouched, when a setting is wrong or the directory cannot be used; `DataLoss` when it is damaged.
    pub fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<EmbeddedLog> {
        options.check()?;
        let directory = Directory::open(path.as_ref())?;
        let path = directory.path();
        let closed = Closed::read(path).map_err(|e| directory::failed(path, e))?;
        if closed.is_none() {
            journal::mend(&directory.data()).map_err(|e| directory::failed(path, e))?;
        }
        let store = Store::open(&directory.data(), &options)?;
        let (checks, places) = load_halves(&store, &options)?;
        let mut tails = store.queues(&options.broker)?;
        if let Some(closed) = closed {
            closed.check(Closed::of(&tails, places.next), path)?;
        }
        directory.begin()?;
        let connection = store.begin(&options)?;
        if options.retention_bytes.is_some() {
            for tail in &mut tails {
                tail.bytes = store.chunk_bytes(&tail.queue)?;
            }
        }
        let queues = Queues::default();
        for tail in &tails {
            queues.insert(tail.queue.clone());
        }
        let (group, sync) = (options.group.clone(), options.sync);
        let link = Link::new(options.broker.clone(), connection);
        let checks = Mutex::new(checks);
        let shared = Arc::new(Shared {
            store,
            queues,
            options,
            link,
            checks,
            halves_added: Notify::new(),
            failed: false.into(),
        });
        let writer = Writer::new(shared.clone(), tails, places.oldest, places.next);
        let committer = match sync {
            Sync::EachAppend => Committer::grouped(writer)?,
            Sync::Never => Committer::direct(writer),
        };
        let closing = Closing { shared: shared.clone(), directory: path.to_owned() };
        Ok(EmbeddedLog { open: Arc::new(Open { committer, _closing: closing, shared, _directory: directory }), group })
    }

    /// A handle for another producer group on the same log.
    ///
    /// # Errors
    /// `Invalid` when the group's name breaks RocketMQ's rule for names.
    pub fn with_group(&self, group: &str) -> Result<EmbeddedLog> {
        check_name("producer group", group)?;
        Ok(EmbeddedLog { open: self.open.clone(), group: group.into() })
    }

    /// The producer group that this handle acts for.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// How far a consumer group has come in a topic, as [reported](Log::report_offsets). For tools.
    ///
    /// # Errors
    /// `Retry` or `DataLoss` when it cannot be read.
    pub fn reported_offsets(&self, group: &str, topic: &str) -> Result<Offsets> {
        let shared = self.shared();
        let mut offsets = Offsets::default();
        for partition in shared.queues.of_topic(topic, &shared.options.broker) {
            let queue = shared.queues.find(&partition)?;
            if let Some(next) = shared.store.report(group, queue.id)? {
                offsets.set(&partition, next);
            }
        }
        Ok(offsets)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.open.shared
    }

    /// Checks what is to be written against the limits of a message and of a batch.
    fn check_size(&self, batch: &MessageBatch) -> Result<()> {
        if batch.is_empty() {
            return Err(Error::invalid("batch is empty"));
        }
        let (largest, limit) = (batch.largest_bytes(), self.message_bytes_max());
        if largest > limit {
            return Err(Error::invalid(format!("message is too large: bytes={largest} limit={limit}")));
        }
        let bytes = batch.as_bytes().len();
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!("batch is too large: bytes={bytes} limit={BATCH_BYTES_MAX}")));
        }
        Ok(())
    }

    /// Asks about a half that was due; `None` when somebody else did, or it was given up.
    async fn ask(&self, first: u64) -> Result<Option<CheckBack>> {
        let asked = self.open.committer.write(move |writer| writer.check(first)).await?;
        let Some((place, target, half)) = asked else { return Ok(None) };
        Ok(Some(CheckBack {
            unique_key: half.unique_key.as_str().into(),
            properties: Bytes::copy_from_slice(half.message()?.properties),
            ticket: Ticket {
                target,
                commit_log_offset: place,
                half_queue_offset: place,
                transaction_id: half.unique_key,
            },
        }))
    }
}

#[async_trait]
impl Log for EmbeddedLog {
    fn message_bytes_max(&self) -> usize {
        self.shared().options.message_bytes_max
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        check_topic(&spec.topic)?;
        let spec = spec.clone();
        self.open.committer.write(move |writer| writer.create_topic(&spec)).await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let partitions = self.shared().queues.of_topic(topic, &self.shared().options.broker);
        if partitions.is_empty() {
            return Err(Error::invalid(format!("no such topic: topic={topic}")));
        }
        Ok(partitions)
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        let queue = self.shared().queues.find(partition)?;
        Ok(OffsetRange { first: queue.first(), next: queue.next() })
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        let queue = self.shared().queues.find(partition)?;
        read::offset_at(&self.shared().store, &queue, time)
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        limit.check()?;
        let queue = self.shared().queues.find(partition)?;
        let appended = async {
            loop {
                // Listen before looking, or an append in between would not wake us.
                let mut ring = pin!(queue.appended.notified());
                ring.as_mut().enable();
                if read::readable(&queue, from)? {
                    return Ok(());
                }
                ring.await;
            }
        };
        if !read::readable(&queue, from)? {
            match timeout(limit.wait_max, appended).await {
                Ok(ready) => ready?,
                Err(_) => return Ok(RecordBatch::empty(partition.clone())),
            }
        }
        read::read(&self.shared().store, &queue, from, limit)
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.check_size(batch)?;
        let queue = self.shared().queues.find(partition)?.id;
        let count = u32::try_from(batch.len()).map_err(|_| Error::invalid("batch has too many messages"))?;
        let draft = Draft::new(batch.as_bytes(), count);
        self.open.committer.write(move |writer| writer.append(queue, draft)).await
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        if !self.is_open(link) {
            return Err(Error::retry(format!("the log was opened again since: connection={}", link.connection)));
        }
        self.append(partition, batch).await
    }

    fn is_open(&self, link: &Link) -> bool {
        // The log lives in this process: no connection can break.
        self.shared().link == *link
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        self.check_size(batch)?;
        let queue = self.shared().queues.find(target)?;
        let (group, message) = (self.group.clone(), batch.clone());
        self.open.committer.write(move |writer| writer.prepare(&queue, group, &message)).await
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let (handle, group) = (handle.clone(), self.group.clone());
        self.open.committer.write(move |writer| writer.end(&handle, &group, end)).await
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        loop {
            let mut ring = pin!(self.shared().halves_added.notified());
            ring.as_mut().enable();
            let next = self.shared().checks().next(&self.group);
            match next {
                Some((due, first)) if due <= Instant::now() => {
                    if let Some(check) = self.ask(first).await? {
                        return Ok(check);
                    }
                }
                Some((due, _)) => {
                    // Whether it rang or the time came: look again.
                    let _ = timeout_at(due, ring).await;
                }
                None => ring.await,
            }
        }
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        let handle = HalfHandle {
            target: check.ticket.target.clone(),
            commit_log_offset: check.ticket.commit_log_offset,
            half_queue_offset: check.ticket.half_queue_offset,
            unique_key: check.unique_key.clone(),
        };
        match verdict {
            Verdict::Rollback => self.end(&handle, End::Rollback).await.map(drop),
            Verdict::Unknown => Ok(()),
        }
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        check_name("consumer group", group)?;
        let (group, offsets) = (group.to_owned(), offsets.clone());
        self.open.committer.write(move |writer| writer.report(&group, &offsets)).await
    }
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog")
            .field("group", &self.group)
            .field("link", &self.shared().link)
            .finish_non_exhaustive()
    }
}

/// The places of halves in use.
struct Places {
    oldest: Option<(u64, Timestamp)>,
    next: u64,
}

/// The halves that wait for their end, all asked about again after `check_after`.
fn load_halves(store: &Store, options: &EmbeddedOptions) -> Result<(Checks, Places)> {
    let mut checks = Checks::default();
    let due = Instant::now() + options.check_after;
    for entry in store.checks.iter() {
        let (key, value) = entry.into_inner().map_err(fault::reading)?;
        let first = half::place(&key)?;
        let checked = Checked::decode(first, &value)?;
        let stored = store.halves.get(&key).map_err(fault::reading)?;
        match stored.map(|stored| At::decode(first, &stored)).transpose()? {
            Some(At::Half(half)) => checks.set(first, Waiting { group: half.group.into(), due, checked }),
            _ => return Err(Error::data_loss(format!("half message is missing: place={first}"))),
        }
    }
    let mut halves = store.halves.iter();
    let oldest = halves.next().map(|entry| -> Result<(u64, Timestamp)> {
        let (key, value) = entry.into_inner().map_err(fault::reading)?;
        let place = half::place(&key)?;
        Ok((place, At::decode(place, &value)?.stored()))
    });
    let oldest = oldest.transpose()?;
    drop(halves);
    Ok((checks, Places { oldest, next: store.place_next()? }))
}
