//! What the driver sees of the output while the run goes on: how much of it there is, and how long tasks were silent.
//!
//! The time to recover is measured from outside, for each task that writes output: from the kill to the first output
//! that could not have been there without a recovery. After a kill or a pause of its process that is an output of a
//! later generation; after a kill of the broker it is the next output. A task that is hit again before it has recovered
//! is measured from the later blow.

use onceflow::txn::Identity;
use onceflow::types::TaskId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What a recovery is from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Blow {
    /// SIGKILL of a processor.
    Kill,
    /// SIGSTOP of a processor, beside another one that takes over.
    Pause,
    /// SIGKILL of the broker, its downtime included.
    Broker,
}

#[derive(Default)]
struct Inner {
    /// One past the highest sequence of each channel, by output topic.
    next: BTreeMap<String, BTreeMap<String, u64>>,
    generations: BTreeMap<TaskId, u64>,
    silent: BTreeMap<(Blow, TaskId), (Instant, u64)>,
    samples: BTreeMap<Blow, Vec<Duration>>,
    foreign: u64,
}

/// Shared between the readers of the output and those who strike.
#[derive(Default)]
pub(crate) struct Watch(Mutex<Inner>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics under this lock; a poisoned value would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every task that writes output is silent from now on, as far as `blow` hit it.
    pub(crate) fn struck(&self, blow: Blow) {
        let mut inner = self.lock();
        for (task, generation) in inner.generations.clone() {
            inner.silent.insert((blow, task), (Instant::now(), generation));
        }
    }

    /// A message was read from an output topic.
    pub(crate) fn seen(&self, topic: &str, queue: u32, identity: &Identity) {
        let mut inner = self.lock();
        let channel = format!("{}/{}/{}/{queue}", identity.incarnation, identity.task, identity.sink);
        let next = inner.next.entry(topic.to_owned()).or_default().entry(channel).or_default();
        *next = (*next).max(identity.sequence.get() + 1);
        let generation = identity.generation.get();
        let newest = inner.generations.entry(identity.task.clone()).or_default();
        *newest = (*newest).max(generation);
        for blow in [Blow::Kill, Blow::Pause, Blow::Broker] {
            inner.heard(blow, &identity.task, generation);
        }
    }

    /// A message in an output topic that is none of ours.
    pub(crate) fn foreign(&self) {
        self.lock().foreign += 1;
    }

    /// How many different records a topic holds, as far as it was read.
    pub(crate) fn outputs(&self, topic: &str) -> u64 {
        self.lock().next.get(topic).map_or(0, |channels| channels.values().sum())
    }

    /// The times to recover, shortest first.
    pub(crate) fn recoveries(&self, blow: Blow) -> Vec<Duration> {
        let mut samples = self.lock().samples.get(&blow).cloned().unwrap_or_default();
        samples.sort_unstable();
        samples
    }
}

impl Inner {
    fn heard(&mut self, blow: Blow, task: &TaskId, generation: u64) {
        let key = (blow, task.clone());
        let recovered = |(_, before): &(Instant, u64)| blow == Blow::Broker || generation > *before;
        if let Some((since, _)) = self.silent.get(&key).copied().filter(recovered) {
            self.silent.remove(&key);
            self.samples.entry(blow).or_default().push(since.elapsed());
        }
    }
}

/// The value below which so many of 100 samples lie; zero without samples.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::types::{Epoch, Generation, Incarnation, Name, Sequence};

    fn message(generation: u64, sequence: u64) -> Identity {
        Identity {
            job: Name::job("j").unwrap(),
            incarnation: Incarnation::new(1),
            task: TaskId { subtopology: Name::new("s").unwrap(), broker: "b".into(), queue: 0 },
            generation: Generation::new(generation),
            epoch: Epoch::new(1),
            sink: Name::new("o").unwrap(),
            sequence: Sequence::new(sequence),
            floor: Sequence::new(0),
            source: None,
        }
    }

    #[test]
    fn copies_are_counted_once() {
        let watch = Watch::default();
        for sequence in [0, 1, 1, 0] {
            watch.seen("t", 0, &message(1, sequence));
        }
        watch.seen("t", 1, &message(1, 0));
        assert_eq!((watch.outputs("t"), watch.outputs("other")), (3, 0));
    }

    #[test]
    fn a_killed_task_has_recovered_with_its_next_generation_only() {
        let watch = Watch::default();
        watch.seen("t", 0, &message(1, 0));
        watch.struck(Blow::Kill);
        watch.struck(Blow::Broker);
        watch.seen("t", 0, &message(1, 1));
        assert_eq!((watch.recoveries(Blow::Kill).len(), watch.recoveries(Blow::Broker).len()), (0, 1));
        watch.seen("t", 0, &message(2, 2));
        watch.seen("t", 0, &message(3, 3));
        assert_eq!(watch.recoveries(Blow::Kill).len(), 1);
    }

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&samples, 50), Duration::from_millis(100));
        assert_eq!(percentile(&samples, 99), Duration::from_millis(198));
        assert_eq!(percentile(&samples[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
