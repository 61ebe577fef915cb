//! Names, messages, and waiting with a deadline.

use super::Subject;
use crate::{Log, MessageBatch, Properties, ReadLimit, TopicSpec, find_property};
use crate::{Queues, RecordRef};
use bytes::Bytes;
use onceflow_types::{Clock, ErrorKind, Offset, Partition, SystemClock};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The message is in its queue under this property, whatever the log adds of its own.
const KEYS: &str = "KEYS";

/// Longer than any single call may take (rule 11).
pub(super) const CALL_WITHIN: Duration = Duration::from_mins(1);
/// Pause between two looks at where a queue ends.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// A name that no earlier run has used.
pub(super) fn unique(what: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("contract-{what}-{}-{}-{number}", SystemClock.now(), std::process::id())
}

/// A record as a test compares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) offset: Offset,
    pub(super) body: Bytes,
    pub(super) properties: Bytes,
}

impl Seen {
    pub(super) fn new(record: RecordRef<'_>) -> Seen {
        let body = record.body().expect("the suite's bodies can be decoded");
        Seen {
            offset: record.offset(),
            body: Bytes::copy_from_slice(body),
            properties: Bytes::copy_from_slice(record.properties()),
        }
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the suite's bodies are text")
    }

    pub(super) fn property(&self, name: &str) -> Option<&[u8]> {
        find_property(&self.properties, name)
    }
}

/// A topic of its own with a handle to it.
pub(super) struct Room<'s> {
    pub(super) subject: &'s dyn Subject,
    pub(super) group: String,
    pub(super) log: Arc<dyn Log>,
    pub(super) queues: Vec<Partition>,
}

impl<'s> Room<'s> {
    pub(super) async fn new(subject: &'s dyn Subject, queues: u32) -> Room<'s> {
        let (topic, group) = (unique("topic"), unique("group"));
        let log = subject.log(&group).await;
        let spec = TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(queues) };
        must("create_topic", log.create_topic(&spec)).await;
        let queues = partitions_of_new(subject, &*log, &topic).await;
        Room { subject, group, log, queues }
    }

    /// The first queue.
    pub(super) fn queue(&self) -> Partition {
        self.queues.first().cloned().expect("a topic has a queue")
    }

    /// Crashes the log and makes a new handle.
    pub(super) async fn crash(self) -> Room<'s> {
        let Room { subject, group, log, queues } = self;
        drop(log);
        subject.crash().await;
        let log = subject.log(&group).await;
        Room { subject, group, log, queues }
    }

    /// Appends one message and returns its offset.
    pub(super) async fn append(&self, queue: &Partition, text: &str) -> Offset {
        must("append", self.log.append(queue, &batch([text]))).await.first
    }

    /// Appends a barrier to `queue`, and reads the queue from `from` up to it: what is not among the records before the
    /// barrier is not in the queue (rule 5).
    pub(super) async fn up_to_barrier(&self, queue: &Partition, from: Offset) -> Vec<String> {
        let barrier = self.append(queue, "barrier").await;
        let seen = self.read_through(queue, from, barrier).await;
        let texts = seen.iter().filter(|record| record.offset < barrier);
        texts.map(|record| record.text().to_owned()).collect()
    }

    /// Reads from `from` until `offset_last` was read, however long that takes within the log's notes.
    pub(super) async fn read_through(&self, queue: &Partition, from: Offset, offset_last: Offset) -> Vec<Seen> {
        self.wait_for_next(queue, offset_last.next()).await;
        let limit = ReadLimit { records_max: 100, bytes_max: 1 << 20, wait_max: Duration::from_millis(100) };
        let reading = async {
            let (mut seen, mut next) = (vec![], from);
            while next <= offset_last {
                let records = must("read", self.log.read(queue, next, limit)).await;
                for record in records.iter() {
                    assert_eq!(record.offset(), next, "rule 4: reads are dense");
                    seen.push(Seen::new(record));
                    next = next.next();
                }
            }
            // A read may have brought more than was asked for.
            seen.retain(|record: &Seen| record.offset <= offset_last);
            seen
        };
        let within = self.subject.notes().visible_within;
        timeout(within, reading)
            .await
            .unwrap_or_else(|_| panic!("rule 5: {queue} {offset_last} not read in {within:?}"))
    }

    /// Waits until the queue says that `next` is its next offset, or a later one: an acknowledged message may show later
    /// (rule 5), and until then its offset is out of range.
    pub(super) async fn wait_for_next(&self, queue: &Partition, next: Offset) {
        let waiting = async {
            while must("offsets", self.log.offsets(queue)).await.next < next {
                sleep(LOOK_PAUSE).await;
            }
        };
        let within = self.subject.notes().visible_within;
        timeout(within, waiting).await.unwrap_or_else(|_| panic!("rule 5: {queue} {next} not shown in {within:?}"));
    }
}

/// The queues of a topic that was just created: where a topic travels through a name server, it may be unknown or
/// unreachable for a while.
pub(super) async fn partitions_of_new(subject: &dyn Subject, log: &dyn Log, topic: &str) -> Vec<Partition> {
    let asking = async {
        loop {
            match log.partitions(topic).await {
                Ok(queues) => return queues,
                Err(error) if error.kind() == ErrorKind::Bug => panic!("partitions: {error:?}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    timeout(subject.notes().visible_within, asking).await.unwrap_or_else(|_| panic!("{topic} does not appear"))
}

/// A batch of messages with these bodies, each with its body as a property, too.
pub(super) fn batch<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> MessageBatch {
    let (mut batch, mut properties) = (MessageBatch::default(), Properties::default());
    for text in texts {
        properties.clear();
        properties.push(KEYS, text.as_ref()).expect("the suite's texts are properties");
        batch.push(properties.as_bytes(), text.as_ref().as_bytes()).expect("the suite's messages are small");
    }
    batch
}

/// The offset `count` after `first`.
pub(super) fn after(first: Offset, count: usize) -> Offset {
    first.plus(count as u64)
}

/// The result of a call that has no reason to fail.
pub(super) async fn must<T>(what: &str, call: impl Future<Output = onceflow_types::Result<T>>) -> T {
    let result = timeout(CALL_WITHIN, call).await.unwrap_or_else(|_| panic!("rule 11: {what} does not end"));
    result.unwrap_or_else(|error| panic!("{what}: {error:?}"))
}

/// The error of a call that must fail.
pub(super) async fn must_fail<T: fmt::Debug>(
    what: &str,
    call: impl Future<Output = onceflow_types::Result<T>>,
) -> onceflow_types::Error {
    let result = timeout(CALL_WITHIN, call).await.unwrap_or_else(|_| panic!("rule 11: {what} does not end"));
    match result {
        Ok(value) => panic!("{what} must fail and gave {value:?}"),
        Err(error) => error,
    }
}
