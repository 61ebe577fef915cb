//! Before the first task opens: do the topics exist, which tasks are there, is the job new?

use crate::config::Config;
use crate::edge::{Backoff, Entropy, Monotonic};
use crate::topics;
use crate::topology::{Subtopology, Topology};
use onceflow_log::{Log, Queues, TopicSpec};
use onceflow_types::{Error, ErrorKind, Offset, Partition, Result, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

pub(super) struct Prepared {
    pub(super) seats: Vec<Seat>,
    pub(super) barriers: BTreeMap<Arc<str>, Partition>,
}

/// A task to run.
pub(super) struct Seat {
    pub(super) id: TaskId,
    pub(super) plan: Subtopology,
    pub(super) index: u32,
    pub(super) fresh: bool,
}

pub(super) async fn prepare(
    topology: &Topology,
    log: &dyn Log,
    config: &Config,
    entropy: &dyn Entropy,
) -> Result<Prepared> {
    let patience = Patience { config, entropy, clock: Monotonic::start() };
    make_internal_topics(topology, log, &patience).await?;
    let mut seats = vec![];
    for plan in &topology.subtopologies {
        seats.extend(tasks(topology, plan, log, &patience).await?);
    }
    for sink in topology.subtopologies.iter().flat_map(|plan| &plan.sinks) {
        patience.of(|| log.partitions(&sink.topic)).await.map_err(|e| e.context(format!("sink {}", sink.name)))?;
    }
    let barrier: Arc<str> = topics::barrier(&topology.job).into();
    let spec = TopicSpec { topic: barrier.clone(), queues: Queues::PerBroker(1) };
    patience.of(|| log.create_topic(&spec)).await?;
    let queues = patience.of(|| log.partitions(&barrier)).await?;
    let snapshot: Arc<str> = topics::snapshot(&topology.job).into();
    let spec = TopicSpec { topic: snapshot, queues: Queues::PerBroker(1) };
    patience.of(|| log.create_topic(&spec)).await?;
    let mut barriers = BTreeMap::new();
    for queue in queues {
        barriers.entry(queue.broker.clone()).or_insert(queue);
    }
    Ok(Prepared { seats, barriers })
}

/// Tries again while the log cannot be reached, up to the start's bound.
struct Patience<'c> {
    config: &'c Config,
    entropy: &'c dyn Entropy,
    clock: Monotonic,
}

impl Patience<'_> {
    async fn of<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        let mut backoff = Backoff::new(self.config.backoff_first, self.config.backoff_max);
        loop {
            match call().await {
                Err(error) if error.kind() == ErrorKind::Retry => {
                    if self.clock.now() >= self.config.start_time_max {
                        let waited = self.config.start_time_max.as_millis();
                        return Err(error.context(format!("the log cannot be reached: waited_ms={waited}")));
                    }
                    backoff.wait(self.entropy).await;
                }
                other => return other,
            }
        }
    }
}

/// A topic between subtopologies exists before anybody reads or writes it.
async fn make_internal_topics(topology: &Topology, log: &dyn Log, patience: &Patience<'_>) -> Result<()> {
    for sink in topology.subtopologies.iter().flat_map(|plan| &plan.sinks) {
        if let Some(queues) = sink.queues {
            let spec = TopicSpec { topic: sink.topic.clone(), queues: Queues::PerBroker(queues) };
            patience.of(|| log.create_topic(&spec)).await?;
        }
    }
    Ok(())
}

/// The tasks of a subtopology: one for each broker and queue number that any of its sources has.
async fn tasks(topology: &Topology, plan: &Subtopology, log: &dyn Log, patience: &Patience<'_>) -> Result<Vec<Seat>> {
    let mut places: BTreeSet<(Arc<str>, u32)> = BTreeSet::new();
    let mut widest: Option<(usize, Arc<str>)> = None;
    for source in &plan.sources {
        let queues = patience
            .of(|| log.partitions(&source.topic))
            .await
            .map_err(|e| e.context(format!("source {}", source.name)))?;
        if widest.as_ref().is_none_or(|(most, _)| queues.len() > *most) {
            widest = Some((queues.len(), source.topic.clone()));
        }
        places.extend(queues.into_iter().map(|queue| (queue.broker, queue.queue)));
    }
    let Some((_, widest)) = widest.filter(|(queues, _)| *queues > 0) else {
        return Err(Error::invalid(format!("no source of the subtopology has queues: subtopology={}", plan.name)));
    };
    let journal: Arc<str> = topics::journal(&topology.job, &plan.name).into();
    let spec = TopicSpec { topic: journal.clone(), queues: Queues::SameAs(widest) };
    patience.of(|| log.create_topic(&spec)).await?;
    let journals = patience.of(|| log.partitions(&journal)).await?;
    let has_journal =
        |place: &(Arc<str>, u32)| journals.iter().any(|queue| (&queue.broker, queue.queue) == (&place.0, place.1));
    if let Some((broker, queue)) = places.iter().find(|place| !has_journal(place)) {
        return Err(Error::invalid(format!(
            "the sources of a subtopology must lie on the same brokers and queue numbers, no journal queue for one: \
             subtopology={} broker={broker} queue={queue}",
            plan.name
        )));
    }
    let fresh = journals_are_empty(log, &journals, patience).await?;
    let seats = places.into_iter().zip(0..).map(|((broker, queue), index)| Seat {
        id: TaskId { subtopology: plan.name.clone(), broker, queue },
        plan: plan.clone(),
        index,
        fresh,
    });
    Ok(seats.collect())
}

/// A job that has never run: only then start policies count. Afterwards a queue without a journal is a new queue.
async fn journals_are_empty(log: &dyn Log, journals: &[Partition], patience: &Patience<'_>) -> Result<bool> {
    for queue in journals {
        if patience.of(|| log.offsets(queue)).await?.next > Offset::ZERO {
            return Ok(false);
        }
    }
    Ok(true)
}
