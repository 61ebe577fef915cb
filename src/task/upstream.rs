//! What the tasks of the subtopologies before this one have said about event time, for sources that the job itself made.
//!
//! Kept in the table `onceflow-upstreams`, one entry for each source and upstream task:
//!
//! | bytes | stored |
//! | --- | --- |
//! | key | table number, then source text, subtopology text, broker text, queue count |
//! | value | version `01`, idle `u8`, watermark `i64`, writing tasks count |

use crate::state::{TableId, TaskState};
use crate::time::Watermark;
use crate::topology::Subtopology;
use onceflow_storage::Order;
use onceflow_txn::FrameTime;
use onceflow_types::wire::{Decoder, Encode};
use onceflow_types::{BROKER_BYTES_MAX, Error, NAME_BYTES_MAX, Name, Result, TaskId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The table of the task's state.
pub(super) const UPSTREAMS_TABLE: &str = "onceflow-upstreams";
const VERSION: u8 = 1;

/// The last word of each upstream task.
#[derive(Debug)]
pub(super) struct Upstreams {
    table: Option<TableId>,
    sources: Vec<Heard>,
    changed: BTreeSet<(usize, TaskId)>,
}

/// About one source.
#[derive(Debug)]
struct Heard {
    name: Name,
    tasks: BTreeMap<TaskId, FrameTime>,
}

impl Upstreams {
    /// Takes what was heard before from the task's state. A task without such a source has no table.
    pub(super) fn open(plan: &Subtopology, state: &mut TaskState) -> Result<Upstreams> {
        let sources = plan.sources.iter().map(|source| Heard { name: source.name.clone(), tasks: BTreeMap::new() });
        let mut upstreams = Upstreams { table: None, sources: sources.collect(), changed: BTreeSet::new() };
        if plan.sources.iter().any(|source| source.internal && source.timed) {
            let table = state.table(&Name::new(UPSTREAMS_TABLE)?)?;
            upstreams.table = Some(table);
            upstreams.restore(table, state)?;
        }
        Ok(upstreams)
    }

    fn restore(&mut self, table: TableId, state: &TaskState) -> Result<()> {
        let mut entries = state.scan(table, Order::Ascending)?;
        while let Some((key, value)) = entries.next()? {
            let (source, task) = decode_key(key.get(2..).unwrap_or_default())?;
            let said = decode_value(value)?;
            // A source that the topology dropped has nothing to say any more.
            if let Some(heard) = self.sources.iter_mut().find(|heard| heard.name == source) {
                heard.tasks.insert(task, said);
            }
        }
        Ok(())
    }

    /// An upstream task has said how far it is; returns how far the source is.
    pub(super) fn said(&mut self, source: usize, task: &TaskId, said: FrameTime) -> Option<Watermark> {
        self.table?;
        let heard = self.sources.get_mut(source)?;
        let watermark = heard.tasks.get(task).map_or(said.watermark, |before| before.watermark.max(said.watermark));
        heard.tasks.insert(task.clone(), FrameTime { watermark, ..said });
        self.changed.insert((source, task.clone()));
        Some(self.watermark(source))
    }

    /// The smallest watermark of the tasks that are not idle; none while one of them has not been heard.
    pub(super) fn watermark(&self, source: usize) -> Watermark {
        let Some(heard) = self.sources.get(source) else { return Watermark::NONE };
        let tasks = heard.tasks.values().map(|said| said.tasks as usize).max().unwrap_or(usize::MAX);
        if heard.tasks.len() < tasks {
            return Watermark::NONE;
        }
        let active = heard.tasks.values().filter(|said| !said.idle).map(|said| said.watermark).min();
        let newest = heard.tasks.values().map(|said| said.watermark).max().unwrap_or(Timestamp::MIN);
        match active {
            Some(time) => Watermark { time, idle: false },
            None => Watermark { time: newest, idle: true },
        }
    }

    /// The sources of which something was heard, and how far they are.
    pub(super) fn heard(&self) -> impl Iterator<Item = (usize, Watermark)> {
        let heard = self.sources.iter().enumerate().filter(|(_, heard)| !heard.tasks.is_empty());
        heard.map(|(source, _)| (source, self.watermark(source)))
    }

    /// Writes what changed into the open epoch.
    pub(super) fn seal(&mut self, state: &mut TaskState) {
        let Some(table) = self.table else { return };
        let (mut key, mut value) = (vec![], vec![]);
        for (source, task) in std::mem::take(&mut self.changed) {
            let Some(heard) = self.sources.get(source) else { continue };
            let Some(said) = heard.tasks.get(&task) else { continue };
            key.clear();
            key.extend_from_slice(&table.prefix());
            encode_key(&heard.name, &task, &mut key);
            value.clear();
            encode_value(said, &mut value);
            state.put(&key, &value);
        }
    }
}

fn encode_key(source: &Name, task: &TaskId, to: &mut Vec<u8>) {
    to.put_str(source.as_str());
    to.put_str(task.subtopology.as_str());
    to.put_str(&task.broker);
    to.put_count(task.queue.into());
}

fn decode_key(bytes: &[u8]) -> Result<(Name, TaskId)> {
    let damaged = |e: Error| Error::corrupt("name in a table of the engine is damaged").with_source(e);
    let mut from = Decoder::new(bytes);
    let source = Name::new(from.str(NAME_BYTES_MAX)?).map_err(damaged)?;
    let subtopology = Name::new(from.str(NAME_BYTES_MAX)?).map_err(damaged)?;
    let broker = from.str(BROKER_BYTES_MAX)?.into();
    let queue = u32::try_from(from.count()?).map_err(|_| Error::corrupt("queue number is too large"))?;
    from.finish()?;
    Ok((source, TaskId { subtopology, broker, queue }))
}

fn encode_value(said: &FrameTime, to: &mut Vec<u8>) {
    to.put_u8(VERSION);
    to.put_u8(said.idle.into());
    to.put_i64(said.watermark.as_millis());
    to.put_count(said.tasks.into());
}

fn decode_value(bytes: &[u8]) -> Result<FrameTime> {
    let mut from = Decoder::new(bytes);
    match from.u8()? {
        VERSION => {}
        newer if newer > VERSION => {
            return Err(Error::invalid(format!(
                "what upstream tasks said is of a newer format, upgrade onceflow: version={newer} known={VERSION}"
            )));
        }
        version => return Err(Error::corrupt(format!("what upstream tasks said is damaged: version={version}"))),
    }
    let idle = from.u8()? != 0;
    let watermark = Timestamp::from_millis(from.i64()?);
    let tasks = u32::try_from(from.count()?).map_err(|_| Error::corrupt("number of tasks is too large"))?;
    from.finish()?;
    Ok(FrameTime { watermark, idle, tasks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(queue: u32) -> TaskId {
        TaskId { subtopology: Name::new("first").unwrap(), broker: "broker-a".into(), queue }
    }

    fn said(millis: i64, idle: bool) -> FrameTime {
        FrameTime { watermark: Timestamp::from_millis(millis), idle, tasks: 2 }
    }

    fn upstreams() -> Upstreams {
        let heard = Heard { name: Name::new("by-word").unwrap(), tasks: BTreeMap::new() };
        Upstreams { table: Some(TableId::of(1)), sources: vec![heard], changed: BTreeSet::new() }
    }

    #[test]
    fn a_source_is_as_far_as_the_slowest_task_that_is_not_idle() {
        let mut upstreams = upstreams();
        let at = |millis| Timestamp::from_millis(millis);
        assert_eq!(upstreams.said(0, &task(0), said(100, false)), Some(Watermark::NONE), "one has not been heard");
        let both = upstreams.said(0, &task(1), said(30, false));
        assert_eq!(both, Some(Watermark { time: at(30), idle: false }));
        let without = upstreams.said(0, &task(1), said(30, true));
        assert_eq!(without, Some(Watermark { time: at(100), idle: false }));
        let none = upstreams.said(0, &task(0), said(90, true));
        assert_eq!(none, Some(Watermark { time: at(100), idle: true }), "nobody goes back");
    }

    #[test]
    fn entries_survive_and_damage_is_typed() {
        let (mut key, mut value) = (vec![], vec![]);
        encode_key(&Name::new("by-word").unwrap(), &task(3), &mut key);
        encode_value(&said(-5, true), &mut value);
        assert_eq!(decode_key(&key).unwrap(), (Name::new("by-word").unwrap(), task(3)));
        assert_eq!(decode_value(&value).unwrap(), said(-5, true));
        for len in 0..value.len() {
            assert!(decode_value(&value[..len]).is_err(), "cut at {len}");
        }
        value[0] = VERSION + 1;
        assert_eq!(decode_value(&value).unwrap_err().kind(), onceflow_types::ErrorKind::Invalid);
    }
}
