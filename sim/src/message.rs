//! Messages in the brokers' form.

use crate::broker::Stored;
use bytes::Bytes;
use onceflow::log::{Body, Entry, Message, RecordBatch, find_property};
use onceflow::types::{Offset, Partition};
use std::ops::Range;
use std::sync::Arc;

/// The property by which a message is known.
const UNIQUE_KEY: &str = "UNIQ_KEY";

/// Properties as stored, and the unique key among them.
pub(crate) struct Fields {
    pub(crate) properties: Bytes,
    pub(crate) unique_key: Arc<str>,
}

/// Properties with a unique key: the sender's, or a new one.
pub(crate) fn fields_of(message: Message<'_>, new_key: impl FnOnce() -> String) -> Fields {
    if let Some(key) = find_property(message.properties, UNIQUE_KEY) {
        let unique_key = String::from_utf8_lossy(key).into();
        return Fields { properties: Bytes::copy_from_slice(message.properties), unique_key };
    }
    let key = new_key();
    let mut properties = message.properties.to_vec();
    if properties.last().is_some_and(|last| *last != 2) {
        properties.push(2);
    }
    properties.extend_from_slice(UNIQUE_KEY.as_bytes());
    properties.push(1);
    properties.extend_from_slice(key.as_bytes());
    properties.push(2);
    Fields { properties: properties.into(), unique_key: key.into() }
}

/// Records as a reader gets them.
pub(crate) fn batch(partition: &Partition, from: Offset, records: &[Stored]) -> RecordBatch {
    let mut raw = vec![];
    let mut keep = |bytes: &[u8]| -> Range<u32> {
        let start = raw.len();
        raw.extend_from_slice(bytes);
        place(start)..place(raw.len())
    };
    let entries = records.iter().zip(0..).map(|(record, index)| Entry {
        offset: from.plus(index),
        born: record.born,
        stored: record.at,
        body: Body::Plain(keep(&record.body)),
        properties: keep(&record.properties),
    });
    let entries: Vec<Entry> = entries.collect();
    RecordBatch::new(partition.clone(), Bytes::from(raw), Bytes::new(), entries)
}

/// Places beyond 4 GiB do not occur: a read is bounded far below.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
