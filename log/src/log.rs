//! The contract of a log.

use crate::{MemberId, MessageBatch, RecordBatch};
use async_trait::async_trait;
use onceflow_types::{Error, HalfHandle, Offset, Offsets, Partition, Result, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A connection to one broker process, from its opening to its loss. Two acknowledgements over equal links came from
/// the same life of that process: what was appended before the later one is as durable as the later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The broker's name.
    pub broker: Arc<str>,
    /// Grows with each new connection to that broker.
    pub connection: u64,
}

/// An append that the log acknowledged without reservation (RocketMQ: SEND_OK).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acked {
    /// The offset of the batch's first message; the others follow without gaps.
    pub first: Offset,
    /// The connection that carried the acknowledgement.
    pub link: Link,
}

/// A half message that the log acknowledged without reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// By which it is ended.
    pub handle: HalfHandle,
    /// The connection that carried the acknowledgement.
    pub link: Link,
}

/// How a half message ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It becomes visible in its queue, once more if it did so before.
    Commit,
    /// It stays invisible; a later commit still makes it visible.
    Rollback,
}

/// The answer to a check-back. There is no way to answer with a commit: see `docs/commit-protocol.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The half will never be needed.
    Rollback,
    /// Ask again later.
    Unknown,
}

/// The log's question about a half message that nobody ended.
#[derive(Clone, Debug)]
pub struct CheckBack {
    /// The UNIQ_KEY of the half. Its offsets may have changed since it was prepared; this has not.
    pub unique_key: Arc<str>,
    /// The half's properties, in the encoding of [`MessageBatch`].
    pub properties: bytes::Bytes,
    /// What [`Log::answer_check_back`] needs to find its way back; opaque.
    pub ticket: Ticket,
}

/// Opaque to callers: where the answer to a [`CheckBack`] goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The queue in which the message would become visible.
    pub target: Partition,
    /// The half's present place in the commit log.
    pub commit_log_offset: u64,
    /// The half's present place in the half queue.
    pub half_queue_offset: u64,
    /// The log's own transaction id.
    pub transaction_id: String,
}

/// The readable part of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetRange {
    /// The first offset that can be read.
    pub first: Offset,
    /// The offset that the next message will get. May lag behind an acknowledged append (dispatch is asynchronous).
    pub next: Offset,
}

/// Bounds of one read.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimit {
    /// Most records to return, 1 or more.
    pub records_max: usize,
    /// Most bytes to return; one record is returned even if it is larger.
    pub bytes_max: usize,
    /// How long to wait when there is nothing to read; zero: do not wait.
    pub wait_max: Duration,
}

/// A topic to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub topic: Arc<str>,
    /// How many queues each broker gets, 1 or more.
    pub queues: Queues,
}

/// The queues of a new topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Queues {
    /// So many on each broker.
    PerBroker(u32),
    /// The same brokers and queue numbers as another topic, which must exist.
    SameAs(Arc<str>),
}

/// A partitioned, replicated or local, append-only log with half messages: RocketMQ, or the embedded log, or the
/// simulated one. A handle acts for one producer group, which is part of each half message's identity.
///
/// # Contract
/// The suite in the module `contract` (feature `contract`) quotes these numbers.
///
/// 1. **Dense offsets.** The messages of a partition have offsets without gaps; a batch gets consecutive ones.
/// 2. **Acknowledged means kept.** After [`append`](Self::append) returns `Ok`, the batch is at the offset it names, whole,
///    for as long as the log keeps its promise of durability.
/// 3. **An error says nothing about the outcome** when its kind is `Retry`: the batch may be in the log, now or later,
///    once or more than once. `Invalid` (no such topic, no permission, too large) says that it is not.
/// 4. **Reads are dense.** [`read`](Self::read) returns records from the asked offset on, without gaps. A hole is `DataLoss`;
///    a record that cannot be decoded is in its place, marked, never skipped. An offset below the first readable or above
///    the next one is `DataLoss`, with both in the message; never a silent restart elsewhere.
/// 5. **A read may lag.** A message is readable some time after its acknowledgement, messages of one broker in the
///    order of its commit log: when a later one can be read, so can every earlier one, in every queue of that broker.
/// 6. **Halves are invisible** until [`end`](Self::end) with `Commit`. Several tries of one prepare are several halves.
/// 7. **`end` is looked up by the handle**, works after a rollback and after the log gave up checking the half, and is
///    **not** idempotent: each commit makes the message visible once more. Its `Ok` says that the broker carried it out,
///    not that the result is durable.
/// 8. **Only the group that prepared** a half can end it; another gets `Invalid`.
/// 9. **Check-backs** about unended halves of the group come to any live handle of the group, more than once each, with
///    the half's properties unchanged. Unanswered ones come again, up to the log's limit. They may also never come.
/// 10. **Cancel safety.** Dropping a call's future leaves its outcome unknown, as an error of kind `Retry` does; the
///     handle stays usable.
/// 11. **Bounded.** Every call ends, by the log's own deadline, with a result or `Retry`.
/// 12. **One life.** What [`append_over`](Self::append_over) sends is carried out by the life of the broker process that
///     the link belongs to, or not at all: so behind everything that could be read from that broker while the link was
///     open. A message may be read before anything keeps it; with a broker that loses power it can go, and another
///     message takes its offset.
/// 13. **Membership is advice.** [`members`](Self::members) is the caller's sign of life in a group, and returns those who
///     gave one, the caller among them. One that left is missing soon, and so is one that has been silent for as long as
///     the log says. Two handles may see different members for a while, and one that is alive may be missing: only who
///     does which work may depend on it, never what is right. A log that one process uses has no other members.
/// 14. **A read tells how much is left.** [`RecordBatch::remaining`] of what [`read`](Self::read) returns is how many records
///     the partition had behind them when the log answered, those left out that reads do not show yet (rule 5). Without
///     records it is 0.
#[async_trait]
pub trait Log: Send + Sync + fmt::Debug + 'static {
    /// What one message may be at most: body and properties together, in bytes, with the log's reserve taken off.
    fn message_bytes_max(&self) -> usize;

    /// Creates a topic; one that exists with at least these queues is left as it is.
    ///
    /// # Errors
    /// `Invalid` when it may not be created, `Retry` when the log cannot be reached.
    async fn create_topic(&self, spec: &TopicSpec) -> Result<()>;

    /// The queues of a topic, in order. Asks the log each time, so new queues are seen.
    ///
    /// # Errors
    /// `Invalid` when there is no such topic, `Retry` when the log cannot be reached.
    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>>;

    /// The readable part of a partition.
    ///
    /// # Errors
    /// `Invalid` when there is no such partition, `Retry` when the log cannot be reached.
    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange>;

    /// The first offset whose message was stored at or after `time`; the next offset when there is none.
    ///
    /// # Errors
    /// As [`offsets`](Self::offsets).
    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset>;

    /// Reads records from `from` on (rules 4 and 5). Empty when nothing came within the limit's wait.
    ///
    /// # Errors
    /// `DataLoss` for an offset that is not readable or a hole, `Invalid` when there is no such partition, `Retry`
    /// when the log cannot be reached.
    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch>;

    /// Appends all messages of a batch, as one (rules 1 to 3). One try: resending is the caller's decision.
    ///
    /// # Errors
    /// `Retry` when the outcome is unknown or the status weak, `Invalid` when the log refuses it for good.
    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked>;

    /// As [`append`](Self::append), but only over `link` (rule 12): when that connection is gone, nothing is sent.
    ///
    /// # Errors
    /// As [`append`](Self::append); `Retry` when the link is gone, see [`is_open`](Self::is_open).
    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked>;

    /// Whether a request may still go over `link`; once false, it stays false.
    fn is_open(&self, link: &Link) -> bool;

    /// Stores the one message of `batch` as a half message. One try.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared>;

    /// Ends a half message (rule 7) and returns the connection that carried the acknowledgement.
    ///
    /// # Errors
    /// `Retry` when the outcome is unknown, `DataLoss` when the log no longer has the half, `Invalid` for another group.
    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link>;

    /// The next check-back for this group; waits for one. Cancel safe: a question is lost only if the log asks again.
    ///
    /// # Errors
    /// `Retry` when the log cannot be reached.
    async fn next_check_back(&self) -> Result<CheckBack>;

    /// Answers a check-back.
    ///
    /// # Errors
    /// `Retry` when the answer may not have arrived; the log asks again.
    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()>;

    /// Tells the log, for lag tools only, how far a consumer group has come. Nothing reads it back.
    ///
    /// # Errors
    /// `Retry` when the log cannot be reached; the caller ignores it and counts.
    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()>;

    /// Makes `own` a member of a consumer group, or keeps it one, and returns all members (rule 13). To be called every
    /// few seconds.
    ///
    /// # Errors
    /// `Retry` when the log cannot be reached, `Invalid` when it does not let the caller into the group.
    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        let _ = group;
        Ok(BTreeSet::from([own.clone()]))
    }

    /// Ends a membership: the others need not wait for silence. No effect for one that is none.
    ///
    /// # Errors
    /// `Retry` when the log cannot be reached; the others will see silence.
    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        let _ = (group, own);
        Ok(())
    }
}

impl Link {
    /// A link to `broker`.
    pub fn new(broker: impl Into<Arc<str>>, connection: u64) -> Self {
        Link { broker: broker.into(), connection }
    }
}

impl ReadLimit {
    /// # Errors
    /// `Invalid` when a bound is zero.
    pub fn check(&self) -> Result<()> {
        if self.records_max == 0 || self.bytes_max == 0 {
            return Err(Error::invalid(format!(
                "read limit must be at least 1: records_max={} bytes_max={}",
                self.records_max, self.bytes_max
            )));
        }
        Ok(())
    }
}
