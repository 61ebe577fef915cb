//! Decodes source records.

use super::{Guard, Ingest, Push};
use crate::codec::{Data, Decode};
use crate::record::{Origin, Record};
use crate::stage::{Context, SourceBatch, SourceRecord};
use onceflow_log::find_property;
use onceflow_types::{Error, Result};
use std::sync::Arc;

/// The head of a stage: bytes in, records out.
pub(crate) struct Source<T, C> {
    pub(crate) codec: Arc<C>,
    pub(crate) guard: Guard,
    /// The tags to take; `None` takes all.
    pub(crate) tags: Option<Arc<[String]>>,
    pub(crate) decoded: Vec<Record<T>>,
    pub(crate) next: Box<dyn Push<T>>,
}

impl<T: Data, C: Decode<T>> Source<T, C> {
    fn takes(&self, record: &SourceRecord<'_>) -> bool {
        let Some(tags) = &self.tags else { return true };
        let tag = find_property(record.properties, "TAGS").unwrap_or_default();
        tags.iter().any(|wanted| wanted.as_bytes() == tag)
    }
}

impl<T: Data, C: Decode<T>> Ingest for Source<T, C> {
    super::pass_on!();

    fn process(&mut self, batch: &SourceBatch<'_>, cx: &mut Context<'_>) -> Result<()> {
        cx.counters.records_in += batch.records.len() as u64;
        for (index, record) in batch.records.iter().enumerate() {
            if !self.takes(record) {
                continue;
            }
            let (origin, timestamp) = (Origin::new(index), record.timestamp);
            let value = self.guard.attempt(cx, |_| match record.body {
                Ok(body) => self.codec.decode(body),
                Err(reason) => Err(Error::record(reason)),
            });
            match value {
                Ok(value) => self.decoded.push(Record { value, timestamp, origin }),
                Err(error) => self.guard.reject(error, origin, timestamp, cx)?,
            }
        }
        self.next.push(&mut self.decoded, cx)
    }
}
