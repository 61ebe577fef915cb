//! Looks in target queues for output whose fate is unknown.

use super::journal::read_shown;
use crate::planted::{self, Bug};
use crate::topic_reader::identity_of;
use onceflow_log::{Log, ReadLimit};
use onceflow_txn::{Item, ItemId};
use onceflow_types::{Incarnation, Name, Offset, Partition, Result, Sequence, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const READ_RECORDS_MAX: usize = 4_096;
const READ_BYTES_MAX: usize = 4 << 20;
/// Most that a frame may inflate to; only its identity is looked at.
const INFLATED_BYTES_MAX: usize = 64 << 20;
/// How long one read waits for what must be there.
const READ_WAIT_MAX: Duration = Duration::from_millis(500);

/// An item that is looked for: it is visible when its **last** message is. A batch that nobody acknowledged may be torn by
/// loss of power, as a broker takes its messages for separate ones when it reads its log again; then its end is missing.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: ItemId,
    pub(crate) target: Partition,
    sink: Name,
    /// The sequence of its last message.
    last: Sequence,
}

impl Wanted {
    pub(crate) fn new(id: ItemId, item: &Item) -> Self {
        let channel = &item.channel;
        let behind = if planted::is(Bug::FirstOfBatchIsEnough) { 0 } else { item.count.saturating_sub(1) };
        let last = item.first.plus(u64::from(behind));
        Wanted { id, target: channel.target.clone(), sink: channel.sink.clone(), last }
    }
}

/// Whose output is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'t> {
    pub(crate) task: &'t TaskId,
    pub(crate) incarnation: Incarnation,
}

/// Reads each target queue from its lower bound to its end, as known now, and returns what is there. The caller has
/// put a barrier behind everything that may be in the queues.
pub(crate) async fn look_for(
    log: &dyn Log,
    whose: Whose<'_>,
    wanted: &[Wanted],
    lower_bound: impl Fn(&Partition) -> Option<Offset>,
) -> Result<BTreeSet<ItemId>> {
    let mut by_target: BTreeMap<&Partition, BTreeMap<(Name, Sequence), ItemId>> = BTreeMap::new();
    for want in wanted {
        by_target.entry(&want.target).or_default().insert((want.sink.clone(), want.last), want.id);
    }
    let mut visible = BTreeSet::new();
    for (target, mut missing) in by_target {
        let range = log.offsets(target).await?;
        let mut next = lower_bound(target).unwrap_or(range.first).max(range.first);
        while next < range.next && !missing.is_empty() {
            let limit = ReadLimit { records_max: READ_RECORDS_MAX, bytes_max: READ_BYTES_MAX, wait_max: READ_WAIT_MAX };
            let batch = read_shown(log, target, next, limit).await?;
            for record in batch.iter() {
                // What cannot be read is nobody's output, and certainly not ours.
                let Ok(Some(identity)) = identity_of(record, INFLATED_BYTES_MAX) else { continue };
                if identity.incarnation == whose.incarnation && identity.task == *whose.task {
                    visible.extend(missing.remove(&(identity.sink, identity.sequence)));
                }
            }
            next = batch.next_offset().unwrap_or(next);
        }
    }
    Ok(visible)
}
