//! Reading topics again, to check the job from outside.

use super::grouped;
use onceflow::log::{Log, ReadLimit};
use onceflow::types::{Error, Name, Offset, Result};
use onceflow::{OutputRecord, TopicReader};
use std::sync::Arc;
use std::time::Duration;

/// Shows every message of a topic to `take`, queue by queue, as an ordinary consumer would read it.
pub async fn read_plain(log: &dyn Log, topic: &str, mut take: impl FnMut(&[u8])) -> Result<()> {
    let limit = ReadLimit { records_max: 4_096, bytes_max: 4 << 20, wait_max: Duration::from_secs(1) };
    for partition in log.partitions(topic).await? {
        let range = log.offsets(&partition).await?;
        if range.first > Offset::ZERO {
            return Err(Error::data_loss(format!("the topic no longer holds its first messages: queue={partition}")));
        }
        let mut next = range.first;
        while next < range.next {
            let batch = log.read(&partition, next, limit).await?;
            for record in batch.iter() {
                take(record.body().map_err(Error::data_loss)?);
            }
            next = batch.next_offset().unwrap_or(next);
        }
    }
    Ok(())
}

/// Everything that `job` wrote to a topic, each record once, and prints what that took.
///
/// # Errors
/// `DataLoss` when a record is missing.
pub async fn read_output(log: &Arc<dyn Log>, topic: &str, job: &str) -> Result<Vec<OutputRecord>> {
    let mut reader = TopicReader::open(log.clone(), topic, Name::job(job)?).await?;
    let records = reader.read_to_end().await?;
    let counts = reader.counts();
    println!(
        "{topic:<20} {} records in {} messages, {} repeated",
        grouped(records.len() as u64),
        grouped(counts.messages),
        grouped(counts.dedup.duplicates),
    );
    let gaps = counts.dedup.gaps_passed + reader.held() as u64;
    if gaps > 0 || counts.foreign > 0 {
        let foreign = counts.foreign;
        return Err(Error::data_loss(format!("output has holes: topic={topic} gaps={gaps} foreign={foreign}")));
    }
    Ok(records)
}
