//! Reading a task's journal and folding it, as an owner would.

use onceflow::log::{Log, ReadLimit};
use onceflow::txn::{Decoded, Fold, Folded, JournalRecord, decode};
use onceflow::types::wire::checksum;
use onceflow::types::{Channel, Epoch, Error, Offset, Partition, Result, Sequence};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const RECORDS_MAX: usize = 1_024;
const BYTES_MAX: usize = 4 << 20;

/// A journal, read and folded to its end.
pub(crate) struct Journal {
    /// `None` when the journal has lost its beginning: without it nobody can say which records are valid.
    pub(crate) fold: Option<Fold>,
    pub(crate) first: Offset,
    pub(crate) next: Offset,
    /// The next sequence of each channel, epoch by epoch, from the last one that is published and proven.
    epochs: BTreeMap<Epoch, BTreeMap<Channel, Sequence>>,
}

/// One record and what it did.
pub(crate) struct Entry<'r> {
    pub(crate) offset: Offset,
    pub(crate) bytes: usize,
    pub(crate) decoded: &'r Decoded,
    /// `None` when the journal has lost its beginning.
    pub(crate) folded: Option<Folded>,
}

/// Reads the journal in `partition` and shows each record to `show`.
///
/// # Errors
/// `Invalid` when there is no such queue or a record is of a newer format, `DataLoss` when the journal is damaged.
pub(crate) async fn read(log: &dyn Log, partition: &Partition, mut show: impl FnMut(Entry<'_>)) -> Result<Journal> {
    let range = log.offsets(partition).await?;
    let fold = (range.first == Offset::ZERO).then(Fold::default);
    let mut journal = Journal { fold, first: range.first, next: range.first, epochs: BTreeMap::new() };
    let limit = ReadLimit { records_max: RECORDS_MAX, bytes_max: BYTES_MAX, wait_max: Duration::from_secs(1) };
    while journal.next < range.next {
        let batch = log.read(partition, journal.next, limit).await?;
        for record in batch.iter() {
            let body = record.body().unwrap_or_default();
            let decoded =
                decode(body).map_err(|e| e.context(format!("journal {partition} offset {}", record.offset())))?;
            let folded = journal.apply(record.offset(), &decoded, checksum(body))?;
            show(Entry { offset: record.offset(), bytes: body.len(), decoded: &decoded, folded });
        }
        let Some(next) = batch.next_offset() else {
            return Err(Error::retry(format!("the end of the journal cannot be read yet: queue={partition}")));
        };
        journal.next = next;
    }
    Ok(journal)
}

impl Journal {
    fn apply(&mut self, offset: Offset, decoded: &Decoded, checksum: u32) -> Result<Option<Folded>> {
        let Some(fold) = &mut self.fold else { return Ok(None) };
        let folded = fold.apply(offset, decoded, checksum)?;
        if let Folded::Committed(committed) = &folded {
            self.epochs.insert(committed.commit.epoch, committed.commit.channels.clone());
        }
        let proven = fold.published_through();
        self.epochs.retain(|epoch, _| *epoch >= proven);
        Ok(Some(folded))
    }

    /// The next sequence of each channel by what is published and proven: all below it must be in the target queue.
    pub(crate) fn proven(&self) -> BTreeMap<Channel, Sequence> {
        let proven = self.fold.as_ref().map(Fold::published_through);
        proven.and_then(|epoch| self.epochs.get(&epoch)).cloned().unwrap_or_default()
    }

    /// The next sequence of each channel by what is decided: what lies between may still be on its way.
    pub(crate) fn decided(&self) -> BTreeMap<Channel, Sequence> {
        self.epochs.last_key_value().map(|(_, channels)| channels.clone()).unwrap_or_default()
    }
}

/// The queues of a journal topic that belong to `brokers` and queue numbers of `tasks`, or all when there are none.
pub(crate) async fn queues(log: &dyn Log, topic: &str, tasks: &BTreeSet<String>) -> Result<Vec<Partition>> {
    let all = log.partitions(topic).await?;
    let wanted = |queue: &Partition| tasks.is_empty() || tasks.contains(&place(queue));
    Ok(all.into_iter().filter(wanted).collect())
}

/// `broker:queue`.
pub(crate) fn place(partition: &Partition) -> String {
    format!("{}:{}", partition.broker, partition.queue)
}

/// The kind of a record as a word.
pub(crate) fn kind(decoded: &Decoded) -> &'static str {
    match decoded {
        Decoded::Foreign(_) => "foreign",
        Decoded::Record(record) => match record {
            JournalRecord::Claim(_) => "claim",
            JournalRecord::Delta(_) => "delta",
            JournalRecord::Commit(_) => "commit",
            JournalRecord::Snapshot(_) => "snapshot",
            JournalRecord::Release(_) => "release",
        },
    }
}

/// What a record did, in words.
pub(crate) fn effect(folded: Option<&Folded>) -> String {
    match folded {
        None => "unknown".into(),
        Some(Folded::Void(void)) => format!("void: {void:?}"),
        Some(Folded::Foreign(foreign)) => format!("foreign: {foreign:?}"),
        Some(_) => "valid".into(),
    }
}
