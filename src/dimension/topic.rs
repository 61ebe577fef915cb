//! Rows from the messages of a topic, read from the first one, then followed.

use super::{Load, too_many};
use crate::codec::{Data, Decode, Key};
use crate::topic_reader::{OutputRecord, TopicReader};
use onceflow_log::Log;
use onceflow_types::{Error, Result};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub(super) struct TopicRows<K, V, C> {
    log: Arc<dyn Log>,
    topic: Arc<str>,
    codec: C,
    /// `None` before the first load and after one that failed: the next one reads from the first message on, so that nothing
    /// that was not understood is passed over.
    followed: Mutex<Option<Followed<K, V>>>,
}

/// How far the topic was read, and what came of it.
struct Followed<K, V> {
    reader: TopicReader,
    rows: BTreeMap<K, V>,
}

impl<K: Key, V: Data + Sync, C: Decode<(K, Option<V>)>> TopicRows<K, V, C> {
    pub(super) fn new(log: Arc<dyn Log>, topic: &str, codec: C) -> Self {
        TopicRows { log, topic: topic.into(), codec, followed: Mutex::new(None) }
    }

    /// Reads to the ends of the queues; returns whether anything was new.
    async fn read(&self, followed: Option<Followed<K, V>>, rows_max: usize) -> Result<(Followed<K, V>, bool)> {
        let (mut followed, mut changed) = match followed {
            Some(followed) => (followed, false),
            None => {
                let reader = TopicReader::of_everybody(self.log.clone(), &self.topic).await?;
                (Followed { reader, rows: BTreeMap::new() }, true)
            }
        };
        followed.reader.look_for_queues(&self.topic).await?;
        let (rows, mut outcome) = (&mut followed.rows, Ok(()));
        let take = |record: OutputRecord| {
            changed = true;
            if outcome.is_ok() {
                outcome = self.change(rows, &record, rows_max);
            }
        };
        followed.reader.for_each(take).await?;
        outcome?;
        Ok((followed, changed))
    }

    fn change(&self, rows: &mut BTreeMap<K, V>, record: &OutputRecord, rows_max: usize) -> Result<()> {
        let decoded = self.codec.decode(&record.body).map_err(|e| {
            let (partition, offset) = (&record.partition, record.offset);
            Error::invalid(format!("message is no row: partition={partition} offset={offset}")).with_source(e)
        })?;
        match decoded {
            (key, Some(value)) => rows.insert(key, value),
            (key, None) => rows.remove(&key),
        };
        if rows.len() > rows_max { Err(too_many(rows_max)) } else { Ok(()) }
    }
}

impl<K: Key + Sync, V: Data + Sync, C: Decode<(K, Option<V>)>> Load<K, V> for TopicRows<K, V, C> {
    fn load(&self, rows_max: usize) -> Result<Option<BTreeMap<K, V>>> {
        let mut slot = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = slot.take();
        let (followed, changed) = wait_for(|| self.read(before, rows_max))?;
        let rows = changed.then(|| followed.rows.clone());
        *slot = Some(followed);
        Ok(rows)
    }
}

/// Runs a future to its end on a thread of its own: the caller's runs other futures, which a wait would hold up inside.
fn wait_for<T: Send, F: Future<Output = Result<T>>>(work: impl FnOnce() -> F + Send) -> Result<T> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| Error::retry("no runtime to read a topic").with_source(e))?.block_on(work())
    };
    let joined = thread::scope(|scope| scope.spawn(run).join());
    joined.unwrap_or_else(|_| Err(Error::bug("reading a topic of rows panicked")))
}
