//! Before the first task opens: do the topics exist, which tasks are there, is the job new?

use crate::config::Config;
use crate::edge::{Backoff, Entropy, Monotonic};
use crate::job::Barriers;
use crate::task::TaskSeat;
use crate::topics;
use crate::topology::{Subtopology, Topology};
use onceflow_log::{Log, Queues, TopicSpec};
use onceflow_types::{Error, ErrorKind, Offset, Partition, Result, TaskId};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Makes the topics that the job owns, and finds its tasks and barrier queues.
pub(crate) async fn prepare(
    topology: &Topology,
    log: &dyn Log,
    barriers: &Barriers,
    patience: &Patience<'_>,
) -> Result<Vec<TaskSeat>> {
    make_internal_topics(topology, log, patience).await?;
    let seats = find_seats(topology, log, patience).await?;
    for sink in topology.subtopologies.iter().flat_map(|plan| &plan.sinks) {
        patience.of(|| log.partitions(&sink.topic)).await.map_err(|e| e.context(format!("sink {}", sink.name)))?;
    }
    make_own_topics(topology, log, barriers, patience).await?;
    Ok(seats)
}

/// The tasks of all subtopologies; their journal topics are made, or grow.
pub(super) async fn find_seats(topology: &Topology, log: &dyn Log, patience: &Patience<'_>) -> Result<Vec<TaskSeat>> {
    let mut seats = vec![];
    for plan in &topology.subtopologies {
        seats.extend(tasks(topology, plan, log, patience).await?);
    }
    Ok(seats)
}

/// Barrier and snapshot topics, on every broker that there is now.
pub(super) async fn make_own_topics(
    topology: &Topology,
    log: &dyn Log,
    barriers: &Barriers,
    patience: &Patience<'_>,
) -> Result<()> {
    let barrier: Arc<str> = topics::barrier(&topology.job).into();
    for topic in [barrier.clone(), topics::snapshot(&topology.job).into()] {
        let spec = TopicSpec { topic, queues: Queues::PerBroker(1) };
        patience.of(|| log.create_topic(&spec)).await?;
    }
    barriers.learn(patience.of(|| log.partitions(&barrier)).await?);
    Ok(())
}

/// Tries again while the log cannot be reached, up to a bound.
pub(crate) struct Patience<'c> {
    config: &'c Config,
    entropy: &'c dyn Entropy,
    clock: Monotonic,
    time_max: Duration,
}

impl<'c> Patience<'c> {
    /// For a start.
    pub(crate) fn new(config: &'c Config, entropy: &'c dyn Entropy) -> Self {
        Patience { config, entropy, clock: Monotonic::start(), time_max: config.start_time_max }
    }

    /// None at all: for whoever comes again.
    pub(super) fn none(config: &'c Config, entropy: &'c dyn Entropy) -> Self {
        Patience { time_max: Duration::ZERO, ..Patience::new(config, entropy) }
    }

    pub(super) async fn of<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        let mut backoff = Backoff::new(self.config.backoff_first, self.config.backoff_max);
        loop {
            match call().await {
                Err(error) if error.kind() == ErrorKind::Retry => {
                    if self.clock.now() >= self.time_max {
                        let waited = self.time_max.as_millis();
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
async fn tasks(
    topology: &Topology,
    plan: &Subtopology,
    log: &dyn Log,
    patience: &Patience<'_>,
) -> Result<Vec<TaskSeat>> {
    let mut places: BTreeSet<(Arc<str>, u32)> = BTreeSet::new();
    let mut widest: Option<(usize, Arc<str>)> = None;
    let mut of_sources = vec![];
    for source in &plan.sources {
        let queues = patience
            .of(|| log.partitions(&source.topic))
            .await
            .map_err(|e| e.context(format!("source {}", source.name)))?;
        if widest.as_ref().is_none_or(|(most, _)| queues.len() > *most) {
            widest = Some((queues.len(), source.topic.clone()));
        }
        let queues: BTreeSet<_> = queues.into_iter().map(|queue| (queue.broker, queue.queue)).collect();
        places.extend(queues.iter().cloned());
        of_sources.push(queues);
    }
    check_copartitioned(plan, &of_sources)?;
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
    let tasks = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let seats = places.into_iter().map(|(broker, queue)| TaskSeat {
        id: TaskId { subtopology: plan.name.clone(), broker, queue },
        plan: plan.clone(),
        tasks,
        fresh,
    });
    Ok(seats.collect())
}

/// Equal keys of the two sides of a join meet only when both topics have the same queues.
fn check_copartitioned(plan: &Subtopology, queues: &[BTreeSet<(Arc<str>, u32)>]) -> Result<()> {
    for sources in &plan.copartitioned {
        let mut sides = sources.iter().filter_map(|at| Some((plan.sources.get(*at)?, queues.get(*at)?)));
        let Some((first, wanted)) = sides.next() else { continue };
        if let Some((other, found)) = sides.find(|(_, found)| *found != wanted) {
            return Err(Error::invalid(format!(
                "topics that are joined need the same queues on the same brokers, bring one side through a repartition: \
                 subtopology={} topic={} queues={} other_topic={} other_queues={}",
                plan.name,
                first.topic,
                wanted.len(),
                other.topic,
                found.len()
            )));
        }
    }
    Ok(())
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
