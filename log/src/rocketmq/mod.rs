//! Apache RocketMQ 5.x as a [`Log`].
//!
//! What it is: one handle for one producer group of one cluster. The name server is asked through `rocketmq-client-rust`;
//! appends, prepares, ends, reads, offsets, heartbeats and check-backs go through connections of our own, because the
//! client's handle makes one call at a time, hides which connection carried an answer, skips what it cannot decode, and
//! inflates what a check-back brings without a bound.
//! A job's processes are members of its consumer group, so that they know of each other. What it is not: a consumer that
//! the brokers give queues to. Queues are read by number and offset, always from the master.
//!
//! ```no_run
//! use onceflow_log::rocketmq::{RocketLog, RocketOptions};
//! use onceflow_log::{Log, MessageBatch};
//!
//! # async fn example() -> onceflow_types::Result<()> {
//! let log = RocketLog::open(RocketOptions::new("127.0.0.1:9876", "payments-job")).await?;
//! let queue = log.partitions("payments").await?.remove(0);
//! let mut batch = MessageBatch::default();
//! batch.push(b"KEYS\x01order-7\x02", b"{}")?;
//! let acked = log.append(&queue, &batch).await?;
//! println!("at {} over {:?}", acked.first, acked.link);
//! log.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | [`RocketOptions`], [`Credentials`], [`TlsOptions`] |
//! | `secure` | TLS, when it is asked for |
//! | `client`, `library` | what the client library does for us |
//! | `brokers`, `connection`, `frame`, `code` | brokers by name, pipelined connections, the remoting protocol |
//! | `topics` | routes, creation, offsets |
//! | `send` | appends, prepares, ends |
//! | `pull` | reads; what they bring is decoded by `remoting`, beside this module |
//! | `start` | finding the brokers, at the start and after |
//! | `heartbeat`, `check_back` | what registers the producer group, and what a broker asks then |
//! | `members` | who is in a consumer group |

mod brokers;
mod check_back;
mod client;
mod code;
mod connection;
mod frame;
mod heartbeat;
mod library;
mod members;
mod options;
mod pull;
mod secure;
mod send;
mod start;
mod topics;
mod unique_key;
mod waiting;

pub use crate::remoting::{INFLATED_BYTES_MAX, RocketCounters};
pub use options::{ClientCertificate, Credentials, RocketOptions, TlsOptions};

use crate::remoting::Reply;
use crate::{
    Acked, CheckBack, End, Link, Log, MemberId, MessageBatch, OffsetRange, Prepared, ReadLimit, RecordBatch, TopicSpec,
    Verdict,
};
use async_trait::async_trait;
use brokers::{Brokers, Lane, Way};
use check_back::{CheckBacks, check_backs};
use client::Client;
use code::Request;
use frame::Fields;
use members::Members;
use onceflow_types::{HalfHandle, Offset, Offsets, Partition, Result, SystemClock, Timestamp};
use secure::Security;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use topics::Topics;
use unique_key::UniqueKeys;

/// A cluster of RocketMQ brokers. Cheap to share behind an `Arc`; every method may be called by many at once, and from
/// any tokio runtime. See [`Log`] for the contract.
///
/// Dropping it ends its connections and threads in the background; [`close`](Self::close) waits for that.
pub struct RocketLog {
    shared: Arc<Shared>,
    check_backs: CheckBacks,
}

struct Shared {
    options: Arc<RocketOptions>,
    counters: Arc<RocketCounters>,
    client: Client,
    brokers: Brokers,
    topics: Topics,
    members: Members,
    keys: UniqueKeys,
    clock: SystemClock,
    security: Security,
}

impl RocketLog {
    /// Connects: asks the name server for the brokers, says hello to each with the given credentials, and registers the
    /// producer group. Brokers that cannot be reached are left for later, as long as one can be. While none can be, or
    /// no name server, it tries again for [`start_time_max`](RocketOptions::start_time_max).
    ///
    /// # Errors
    /// At once `Invalid` for bad settings, refused credentials and refused certificates; `Retry` when the name server or
    /// every broker is still away after that time.
    pub async fn open(options: RocketOptions) -> Result<RocketLog> {
        let security = Security::of(&options)?;
        let options = Arc::new(options);
        let counters = Arc::<RocketCounters>::default();
        let client = Client::open(options.clone()).await?;
        let (asked, check_backs) = check_backs(&options.group, options.check_backs_max, counters.clone());
        let brokers =
            Brokers::new(options.clone(), security.clone(), asked, counters.clone(), client.runtime().clone());
        let shared = Arc::new(Shared {
            keys: UniqueKeys::new()?,
            clock: SystemClock,
            security,
            topics: Topics::default(),
            members: Members::default(),
            options,
            counters,
            client,
            brokers,
        });
        match shared.start().await {
            Ok(()) => Ok(RocketLog { shared, check_backs }),
            Err(error) => {
                shared.close().await;
                Err(error)
            }
        }
    }

    /// What went wrong without an error to show for it.
    pub fn counters(&self) -> &RocketCounters {
        &self.shared.counters
    }

    /// Ends connections, heartbeats and threads. Calls that are under way end with `Retry`.
    pub async fn close(&self) {
        self.shared.close().await;
    }

    /// Offsets of the messages with this UNIQ_KEY in a queue, by the broker's message index, oldest first, at most
    /// `max`. The index is written after the message can be read and may lose its newest entries in a crash of the
    /// broker: what it finds is there, what it does not find proves nothing.
    ///
    /// # Errors
    /// `Invalid` when there is no such partition, `Retry` when the broker cannot be reached.
    pub async fn find_unique_key(&self, partition: &Partition, key: &str, max: u32) -> Result<Vec<Offset>> {
        self.shared.find_unique_key(partition, key, max).await
    }
}

impl Shared {
    /// One request to the broker of a partition that is known to exist, and the link that carried the answer. A broker
    /// that we do not know, or that cannot be reached, may have moved: the name server is asked, once a call.
    async fn call(
        &self,
        partition: &Partition,
        lane: Lane,
        request: Request,
        fields: Fields<'_>,
        body: &[u8],
    ) -> Result<(Reply, Link)> {
        let deadline = self.brokers.deadline();
        self.call_until(partition, Way::Any(lane), request, fields, body, deadline).await
    }

    async fn call_until(
        &self,
        partition: &Partition,
        way: Way<'_>,
        request: Request,
        fields: Fields<'_>,
        body: &[u8],
        deadline: tokio::time::Instant,
    ) -> Result<(Reply, Link)> {
        self.check_partition(partition).await?;
        if !self.brokers.knows(&partition.broker) {
            self.refresh().await?;
        }
        let called = self.brokers.call(&partition.broker, way, request, fields, body, deadline).await;
        let gone = |reply: &Reply| reply.code == code::TOPIC_NOT_EXIST;
        if called.as_ref().map_or(true, |(reply, _)| gone(reply)) {
            self.topics.forget(&partition.topic);
        }
        called
    }

    async fn close(&self) {
        self.brokers.close();
        self.client.close().await;
    }
}

impl fmt::Debug for RocketLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketLog").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

#[async_trait]
impl Log for RocketLog {
    fn message_bytes_max(&self) -> usize {
        self.shared.options.message_bytes_max
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        self.shared.create_topic(spec).await
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        self.shared.partitions(topic).await
    }

    async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        self.shared.offsets(partition).await
    }

    async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        self.shared.offset_at(partition, time).await
    }

    async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        self.shared.read(partition, from, limit).await
    }

    async fn append(&self, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.shared.append(partition, batch, None).await
    }

    async fn append_over(&self, link: &Link, partition: &Partition, batch: &MessageBatch) -> Result<Acked> {
        self.shared.append(partition, batch, Some(link)).await
    }

    fn is_open(&self, link: &Link) -> bool {
        self.shared.brokers.is_open(link)
    }

    async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        self.shared.prepare(target, batch).await
    }

    async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        self.shared.end(handle, end).await
    }

    async fn next_check_back(&self) -> Result<CheckBack> {
        self.check_backs.next().await
    }

    async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        self.shared.answer_check_back(check, verdict).await
    }

    async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        self.shared.report_offsets(group, offsets).await
    }
    async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        self.shared.members(group, own).await
    }

    async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        self.shared.leave(group, own).await
    }
}
