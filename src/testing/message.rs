//! What a reader of a topic sees.

use super::log::TestLog;
use crate::output::SourcePosition;
use crate::topic_reader::{framed_records, identity_of, is_framed};
use crate::topology::Topology;
use bytes::Bytes;
use onceflow_log::{RecordRef, find_property};
use onceflow_txn::{Accepted, ChannelKey, DedupReader, DedupSettings, Frame, IDENTITY_PROPERTY, Identity, Start};
use onceflow_types::{Partition, Result, Timestamp};
use std::time::Duration;

/// A message in a topic of a [`TestDriver`](super::TestDriver).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestMessage {
    /// The queue it is in.
    pub queue: u32,
    /// Its body.
    pub body: Vec<u8>,
    /// Its properties, encoded, without those of the engine.
    pub properties: Vec<u8>,
    /// When it was sent; for a record of a framed sink its event time, which only frames carry.
    pub timestamp: Timestamp,
    /// The source record it was made from; frames do not say.
    pub source: Option<SourcePosition>,
}

impl TestMessage {
    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<String> {
        find_property(&self.properties, name).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

/// A message whose turn has come.
struct Turn {
    born: Timestamp,
    properties: Bytes,
    body: Bytes,
    identity: Option<Identity>,
}

/// The messages of a queue, each once.
pub(super) fn read(log: &TestLog, queue: &Partition, topology: &Topology) -> Vec<TestMessage> {
    let Ok(records) = log.records(queue) else { return vec![] };
    let settings = DedupSettings::new(Duration::from_secs(10), Duration::from_hours(24));
    let mut dedup = DedupReader::new(settings);
    dedup.begin(queue, Start::First);
    let (mut turn, mut out) = (vec![], vec![]);
    for record in records.iter() {
        let identity = identity_of(record, usize::MAX).ok().flatten();
        let message = Turn {
            born: record.born(),
            properties: record.properties_shared(),
            body: record.body_shared().unwrap_or_default(),
            identity: identity.clone(),
        };
        match identity {
            Some(identity) => accept(&mut dedup, queue, &identity, record, message, &mut turn),
            None => turn.push(message),
        }
        turn.drain(..).for_each(|message| message.unpack(queue, topology, &mut out));
    }
    out
}

fn accept(
    dedup: &mut DedupReader<Turn>,
    queue: &Partition,
    identity: &Identity,
    record: RecordRef<'_>,
    message: Turn,
    turn: &mut Vec<Turn>,
) {
    let key = ChannelKey::of(identity, queue);
    let accepted = dedup.accept(&key, identity.sequence, identity.floor, message, record.stored(), turn);
    debug_assert!(matches!(accepted, Ok(Accepted::New | Accepted::Duplicate | Accepted::Held)), "output is sound");
}

impl Turn {
    fn unpack(self, queue: &Partition, topology: &Topology, out: &mut Vec<TestMessage>) {
        if is_framed(&self.properties, &self.body)
            && let Ok(records) = framed(queue, &self.body)
        {
            out.extend(records);
            return;
        }
        out.push(TestMessage {
            queue: queue.queue,
            body: self.body.to_vec(),
            properties: own_properties(&self.properties),
            timestamp: self.born,
            source: self.identity.and_then(|identity| source_of(&identity, topology)),
        });
    }
}

fn framed(queue: &Partition, body: &[u8]) -> Result<Vec<TestMessage>> {
    let frame = Frame::decode(body, usize::MAX)?;
    let mut scratch = vec![];
    framed_records(frame.base_time, frame.messages(&mut scratch)?)
        .map(|record| {
            let (timestamp, message) = record?;
            let (body, properties) = (message.body.to_vec(), message.properties.to_vec());
            Ok(TestMessage { queue: queue.queue, body, properties, timestamp, source: None })
        })
        .collect()
}

/// Without the identity, which the engine puts behind the others.
fn own_properties(properties: &[u8]) -> Vec<u8> {
    let name = IDENTITY_PROPERTY.as_bytes();
    let own = properties.split_inclusive(|byte| *byte == 2);
    own.filter(|property| property.strip_prefix(name).is_none_or(|rest| !rest.starts_with(&[1])))
        .flatten()
        .copied()
        .collect()
}

fn source_of(identity: &Identity, topology: &Topology) -> Option<SourcePosition> {
    let (partition, offset) = identity.source.as_ref()?;
    let plan = topology.subtopologies.iter().find(|plan| plan.name == identity.task.subtopology)?;
    let source = plan.sources.iter().position(|source| source.topic == partition.topic)?;
    Some(SourcePosition { source: u32::try_from(source).ok()?, offset: *offset })
}
