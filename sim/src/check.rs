//! Looks at what is in the brokers, not at what the engine says, and names what is wrong with it.

use crate::journal::Decided;
use crate::run::Setting;
use crate::workload::{Changes, Sum};
use crate::world::World;
use onceflow::txn::{Frame, IDENTITY_PROPERTY, Identity};
use onceflow::types::{Epoch, Incarnation, Name, Partition, Sequence, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What can be wrong, in the words of the field's history checkers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Violation {
    /// Output of a decided epoch that is not there.
    Lost(String),
    /// An effect that happened twice.
    Doubled(String),
    /// An epoch of which a part is there.
    Torn(String),
    /// Output of an epoch that was not decided.
    AbortedRead(String),
    /// Output in another order than it was made.
    OutOfOrder(String),
    /// A result made from state that was not the newest.
    StaleState(String),
    /// Committed offsets that contradict input, order or state.
    InconsistentOffset(String),
    /// A raw duplicate without a fault that explains it.
    UnexplainedDuplicate(String),
    /// The job stopped, although everything that was acknowledged is there.
    Stopped(String),
    /// Faults have stopped, and it does not get done.
    Stuck(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = match self {
            Violation::Lost(text) => ("lost", text),
            Violation::Doubled(text) => ("duplicate", text),
            Violation::Torn(text) => ("torn epoch", text),
            Violation::AbortedRead(text) => ("aborted read", text),
            Violation::OutOfOrder(text) => ("out of order", text),
            Violation::StaleState(text) => ("stale state", text),
            Violation::InconsistentOffset(text) => ("inconsistent offset", text),
            Violation::UnexplainedDuplicate(text) => ("unexplained raw duplicate", text),
            Violation::Stopped(text) => ("stopped", text),
            Violation::Stuck(text) => ("stuck", text),
        };
        write!(f, "{name}: {text}")
    }
}

/// What a look at the brokers found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) violations: Vec<Violation>,
    /// Copies of messages in topics that anybody may read.
    pub(crate) raw_duplicates: u64,
    /// Valid epochs of all tasks.
    pub(crate) epochs: u64,
    pub(crate) claims: u64,
}

type ChannelId = (Incarnation, TaskId, Name, Partition);

/// One output message, by its place in the channel; `outputs` are the records in it.
struct Output {
    identity: Identity,
    outputs: Vec<Vec<u8>>,
}

/// Everything is wrong that is not right at the end: all input processed, all output there once.
pub(crate) fn check(world: &World, setting: &Setting) -> Found {
    let mut found = Found::default();
    let journals = journals(world);
    for (journal, decided) in &journals {
        found.epochs += decided.commits.len() as u64;
        found.claims += decided.claims;
        found.violations.extend(check_journal(world, journal, decided));
    }
    let by_task: BTreeMap<TaskKey, &Decided> =
        journals.iter().map(|(journal, decided)| (key_of(journal), decided)).collect();
    for (topic, writer) in setting.jobs.topics() {
        let Some(writer) = writer else { continue };
        let mut channels = BTreeMap::new();
        for queue in queues(world, topic) {
            read_queue(world, &queue, &mut channels, &mut found);
        }
        check_channels(writer, topic, &channels, &by_task, &mut found);
        if topic == crate::workload::OUTPUT {
            let view = channels.values().flat_map(|channel| channel.values());
            found
                .violations
                .extend(check_sums(view.flat_map(|output| &output.outputs), &setting.expected.borrow().keys));
        }
    }
    if setting.explains_nothing() && found.raw_duplicates > 0 {
        found.violations.push(Violation::UnexplainedDuplicate(format!("copies={}", found.raw_duplicates)));
    }
    found
}

/// A task by job and place: the journal's topic names both.
type TaskKey = (String, std::sync::Arc<str>, u32);

fn key_of(journal: &Partition) -> TaskKey {
    (journal.topic.to_string(), journal.broker.clone(), journal.queue)
}

/// All journals, folded.
pub(crate) fn journals(world: &World) -> Vec<(Partition, Decided)> {
    let all = world.brokers.values().flat_map(|broker| {
        let journals = broker.all_queues().filter(|(topic, _)| topic.contains("-journal-"));
        journals.map(|(topic, queue)| Partition::new(topic.clone(), broker.name.clone(), queue))
    });
    all.map(|journal| {
        let decided = Decided::read(world, &journal);
        (journal, decided)
    })
    .collect()
}

fn queues(world: &World, topic: &str) -> Vec<Partition> {
    let of = |broker: &crate::broker::Broker| {
        broker
            .queues_of(topic)
            .into_iter()
            .map(|queue| Partition::new(topic, broker.name.clone(), queue))
            .collect::<Vec<_>>()
    };
    world.brokers.values().flat_map(of).collect()
}

/// Offsets only grow, reach the end of the input, and not beyond.
fn check_journal(world: &World, journal: &Partition, decided: &Decided) -> Vec<Violation> {
    let mut violations = vec![];
    if let Some(wrong) = &decided.wrong {
        violations.push(Violation::Stuck(format!("{journal}: {wrong}")));
    }
    for pair in decided.commits.windows(2) {
        if let [earlier, later] = pair
            && !later.offsets.at_or_after(&earlier.offsets)
        {
            violations.push(Violation::InconsistentOffset(format!("{journal}: epoch {} goes back", later.epoch)));
        }
    }
    let Some(last) = decided.last() else {
        violations.push(Violation::Stuck(format!("{journal}: no epoch")));
        return violations;
    };
    for (partition, next) in last.offsets.iter() {
        let end = world.brokers.get(&partition.broker).map_or(0, |broker| broker.end(partition));
        if next.get() > end {
            violations
                .push(Violation::InconsistentOffset(format!("{journal}: {partition} committed={next} end={end}")));
        }
        if next.get() < end {
            violations.push(Violation::Stuck(format!("{journal}: {partition} committed={next} end={end}")));
        }
    }
    violations
}

fn read_queue(
    world: &World,
    queue: &Partition,
    channels: &mut BTreeMap<ChannelId, BTreeMap<Sequence, Output>>,
    found: &mut Found,
) {
    let Some(broker) = world.brokers.get(&queue.broker) else { return };
    for message in broker.all(queue) {
        let Some(output) = output_of(message) else {
            found.violations.push(Violation::Torn(format!("{queue}: a message without identity")));
            continue;
        };
        let identity = &output.identity;
        let id = (identity.incarnation, identity.task.clone(), identity.sink.clone(), queue.clone());
        let channel = channels.entry(id).or_default();
        match channel.get(&identity.sequence) {
            None => {
                channel.insert(identity.sequence, output);
            }
            Some(first) if first.identity == output.identity && first.outputs == output.outputs => {
                found.raw_duplicates += 1;
            }
            Some(first) => found.violations.push(Violation::Doubled(format!(
                "{queue}: one sequence, two messages: {:?} and {:?}",
                first.identity, output.identity
            ))),
        }
    }
}

fn output_of(message: &crate::broker::Stored) -> Option<Output> {
    if let Some(property) = onceflow::log::find_property(&message.properties, IDENTITY_PROPERTY) {
        let identity = Identity::from_property(property).ok()?;
        return Some(Output { identity, outputs: vec![message.body.to_vec()] });
    }
    let frame = Frame::decode(&message.body, 64 << 20).ok()?;
    let mut scratch = vec![];
    let messages = frame.messages(&mut scratch).ok()?;
    let outputs: Option<Vec<Vec<u8>>> =
        onceflow::log::MessageIter::new(messages).map(|inner| inner.ok().map(|inner| inner.body.to_vec())).collect();
    let outputs = outputs?;
    Some(Output { identity: frame.identity.clone(), outputs })
}

/// Each channel holds what the task's valid Commits say, and nothing else.
fn check_channels(
    job: &str,
    topic: &str,
    channels: &BTreeMap<ChannelId, BTreeMap<Sequence, Output>>,
    journals: &BTreeMap<TaskKey, &Decided>,
    found: &mut Found,
) {
    let mut known = BTreeSet::new();
    for ((journal, broker, queue), decided) in journals {
        let Some(subtopology) = journal.strip_prefix(&format!("{job}-journal-")) else { continue };
        let mut from = BTreeMap::new();
        for commit in &decided.commits {
            for (channel, next) in &commit.channels {
                if &*channel.target.topic != topic {
                    continue;
                }
                let subtopology = Name::new(subtopology).ok();
                let Some(subtopology) = subtopology else { continue };
                let task = TaskId { subtopology, broker: broker.clone(), queue: *queue };
                let id = (commit.incarnation, task, channel.sink.clone(), channel.target.clone());
                let start = from.insert(channel.clone(), *next).unwrap_or(Sequence::new(0));
                let there = channels.get(&id);
                known.extend((start.get()..next.get()).map(|sequence| (id.clone(), Sequence::new(sequence))));
                check_epoch(&id, commit.epoch, (start, *next), there, found);
            }
        }
    }
    for (id, channel) in channels {
        for (sequence, output) in channel {
            if !known.contains(&(id.clone(), *sequence)) {
                found.violations.push(Violation::AbortedRead(format!("{:?} {:?}", id.3, output.identity)));
            }
        }
    }
}

fn check_epoch(
    id: &ChannelId,
    epoch: Epoch,
    (start, next): (Sequence, Sequence),
    channel: Option<&BTreeMap<Sequence, Output>>,
    found: &mut Found,
) {
    let wanted = next.get().saturating_sub(start.get());
    let there = channel.map(|channel| channel.range(start..next).collect::<Vec<_>>()).unwrap_or_default();
    for (sequence, output) in &there {
        let made = output.identity.epoch;
        if epoch != made {
            found
                .violations
                .push(Violation::AbortedRead(format!("{:?} {sequence} epoch={made} valid={epoch:?}", id.3)));
        }
    }
    let missing = wanted - there.len() as u64;
    if missing == 0 {
        return;
    }
    let what = format!("{:?} {} epoch={epoch} missing={missing}", id.3, id.1);
    found.violations.push(if there.is_empty() { Violation::Lost(what) } else { Violation::Torn(what) });
}

/// For each key every change once, and each result made from the one before.
fn check_sums<'o>(outputs: impl Iterator<Item = &'o Vec<u8>>, expected: &Changes) -> Vec<Violation> {
    let mut violations = vec![];
    let mut by_key: BTreeMap<String, Vec<Sum>> = BTreeMap::new();
    for body in outputs {
        match serde_json::from_slice::<Sum>(body) {
            Ok(sum) => by_key.entry(sum.key.clone()).or_default().push(sum),
            Err(error) => violations.push(Violation::Torn(format!("not an output: {error}"))),
        }
    }
    for (key, changes) in expected {
        let sums = by_key.remove(key).unwrap_or_default();
        check_key(key, changes, &sums, &mut violations);
    }
    violations.extend(by_key.keys().map(|key| Violation::Doubled(format!("key {key} was never sent"))));
    violations
}

fn check_key(key: &str, changes: &BTreeMap<u64, i64>, sums: &[Sum], violations: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    let mut last = (0, 0i64);
    for sum in sums {
        let Some(change) = changes.get(&sum.id) else {
            violations.push(Violation::Doubled(format!("key={key} id={} was never sent", sum.id)));
            continue;
        };
        if !seen.insert(sum.id) {
            violations.push(Violation::Doubled(format!("key={key} id={} twice", sum.id)));
        }
        if sum.count <= last.0 {
            violations.push(Violation::OutOfOrder(format!("key={key} count={} after {}", sum.count, last.0)));
        }
        if sum.count == last.0 + 1 && sum.total != last.1 + change {
            violations.push(Violation::StaleState(format!(
                "key={key} id={} sum={} expected={}",
                sum.id,
                sum.total,
                last.1 + change
            )));
        }
        last = (sum.count, sum.total);
    }
    if seen.len() < changes.len() {
        let missing = changes.len() - seen.len();
        violations.push(Violation::Lost(format!("key={key} outputs={missing}")));
    }
    let total: i64 = changes.values().sum();
    if seen.len() == changes.len() && last != (changes.len() as u64, total) {
        violations
            .push(Violation::StaleState(format!("key={key} last={last:?} expected={:?}", (changes.len(), total))));
    }
}
