//! Reads the output topics while they are written.

use crate::watch::Watch;
use onceflow::log::{Log, ReadLimit};
use onceflow::txn::{IDENTITY_PROPERTY, Identity};
use onceflow::types::{Error, ErrorKind, Offset, Partition, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

const LIMIT: ReadLimit = ReadLimit { records_max: 4_096, bytes_max: 4 << 20, wait_max: Duration::from_millis(500) };
/// Pause after a read that failed because the broker is away.
const PAUSE: Duration = Duration::from_millis(200);

/// Reads until a read fails for good, which it must not.
///
/// # Errors
/// What the log says: above all `DataLoss`, when the broker lost what it had shown.
pub(crate) async fn follow(log: Arc<dyn Log>, topics: Vec<String>, watch: Arc<Watch>) -> Result<()> {
    let mut readers = JoinSet::new();
    for topic in topics {
        for partition in log.partitions(&topic).await? {
            readers.spawn(queue(log.clone(), partition, watch.clone()));
        }
    }
    let ended = readers.join_next().await.ok_or_else(|| Error::bug("there is no output topic"))?;
    ended.map_err(|e| Error::bug("a reader of the output ended").with_source(e))?
}

async fn queue(log: Arc<dyn Log>, partition: Partition, watch: Arc<Watch>) -> Result<()> {
    let mut next = Offset::new(0);
    loop {
        let batch = match log.read(&partition, next, LIMIT).await {
            Ok(batch) => batch,
            Err(error) if error.kind() == ErrorKind::Retry => {
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.context("tail")),
        };
        for record in batch.iter() {
            match Identity::from_property(record.property(IDENTITY_PROPERTY).unwrap_or_default()) {
                Ok(identity) => watch.seen(&partition.topic, partition.queue, &identity),
                Err(_) => watch.foreign(),
            }
        }
        next = batch.next_offset().unwrap_or(next);
    }
}
