//! From an opened task to one that can process: state, stage, start offsets, targets, publisher.

use super::channels::Channels;
use super::epoch::listed_keys;
use super::intake::{INPUTS_TABLE, Intake};
use super::journal::barrier_at;
use super::open::Opened;
use super::pace::Pace;
use super::publish::Publishing;
use super::tails::Tails;
use super::time::Tellings;
use super::upstream::UPSTREAMS_TABLE;
use super::{OpenEpoch, Task, TaskSeat};
use crate::backlog::Share;
use crate::config::SourceLoss;
use crate::job::Job;
use crate::output::{IDENTITY_BYTES_USUAL, Output};
use crate::planted::{self, Bug};
use crate::processor::queue_of_task;
use crate::stage::Counters;
use crate::state::TaskState;
use crate::status::Line;
use crate::topology::{Delivery, SourcePlan, StartPolicy, Subtopology};
use onceflow_log::{Log, MESSAGE_OVERHEAD_BYTES};
use onceflow_storage::Overlay;
use onceflow_txn::{CheckBackView, PassedOver, Publisher};
use onceflow_types::{Epoch, Error, Name, Offset, Offsets, Partition, Result, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use tokio::sync::Notify;

/// Where a source begins to be read: its index in the plan, its partition, and the next offset.
pub(super) type SourceStart = (usize, Partition, Offset);

/// Makes the task, and says where its sources begin.
pub(super) async fn start(
    job: &Arc<Job>,
    seat: &TaskSeat,
    line: &Line,
    opened: Opened,
) -> Result<(Task, Vec<SourceStart>)> {
    let TaskSeat { id, plan, .. } = seat;
    let point = opened.coordinator.fold().point();
    let (mut offsets, channels, tails, published, watermarks) = match point {
        Some(point) if planted::is(Bug::SequencesStartAgain) => {
            (point.offsets, BTreeMap::new(), point.tails, point.published_through, point.watermarks)
        }
        Some(point) => (point.offsets, point.channels, point.tails, point.published_through, point.watermarks),
        None => (Offsets::default(), BTreeMap::new(), Offsets::default(), Epoch::ZERO, BTreeMap::new()),
    };
    let committed = offsets.clone();
    let sources: Vec<Partition> = plan.sources.iter().map(|source| id.partition(source.topic.clone())).collect();
    let mut state = TaskState::open(Overlay::new(opened.store))?;
    check_tables(job, plan, &state)?;
    state.restore_times(sources.iter().map(|source| committed_time(&watermarks, source)).collect());
    let mut stage = (plan.build)();
    stage.open(&mut state)?;
    let mut intake = Intake::open(job, plan, &mut state)?;
    let readable = resolve(job, seat, &sources, &mut offsets).await?;
    for partition in readable.iter().filter_map(|source| sources.get(*source)) {
        if committed.get(partition).is_none() {
            intake.begin(partition, offsets.get(partition));
        }
    }
    let targets = targets(&*job.log, plan).await?;
    let counts = targets.iter().map(|queues| u32::try_from(queues.len()).unwrap_or(u32::MAX));
    let output = Output::new(&counts.collect::<Vec<u32>>())
        .with_task_queues(targets.iter().map(|queues| queue_of_task(id, queues)))
        .with_added_bytes(plan.sinks.iter().map(|sink| added_bytes(sink.delivery)))
        .for_messages_of(job.log.message_bytes_max());

    let mut publisher = Publisher::new(published, job.config.publish_lease, job.config.requests_in_flight_max);
    publisher.lease_from(opened.lease_from);
    let mut view = CheckBackView::of(opened.coordinator.fold());
    for plan in &opened.plans {
        view.list(plan.epoch, listed_keys(plan));
    }
    job.views.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), view);
    let channels = Channels::recovered(channels, &opened.plans);
    let tails = Tails::recovered(tails, opened.plans.last().map(|plan| plan.epoch));
    let plans = if planted::is(Bug::ForgetsUnpublished) { vec![] } else { opened.plans };
    publisher.take_over(plans, opened.claimed_at, opened.wait);
    line.update(|status| {
        status.generation = Some(opened.generation);
        status.epoch = opened.coordinator.epoch();
        status.published_through = published;
        status.offsets.clone_from(&committed);
        // Until it has looked what is due.
        status.time_behind = plan.timed;
    });
    let coordinator = Rc::new(RefCell::new(opened.coordinator));
    let publishing = Rc::new(Publishing {
        job: job.clone(),
        line: line.clone(),
        task: id.clone(),
        incarnation: opened.incarnation,
        journal: opened.journal,
        external: external_targets(plan, &targets),
        publisher: RefCell::new(publisher),
        tails: RefCell::new(tails),
        pace: RefCell::new(Pace::of(&job.config, &job.topology, plan)),
        backlog: Share::of(job.backlog.clone()),
        coordinator: coordinator.clone(),
        work: Notify::new(),
        progress: Notify::new(),
    });
    let starts = readable.into_iter().filter_map(|source| {
        let partition = sources.get(source)?;
        Some((source, partition.clone(), offsets.get(partition)?))
    });
    let snapshot_at = super::snapshot::first_due(job, publishing.journal.partition()).await;
    let starts = starts.collect();
    // New start offsets, and tables that were named for the first time, are progress of their own.
    let progress = offsets != committed || !state.overlay().delta().is_empty();
    let open = OpenEpoch { since: progress.then(|| job.monotonic.now()), records: 0 };
    let task = Task {
        job: job.clone(),
        id: id.clone(),
        plan: plan.clone(),
        line: line.clone(),
        stage,
        state,
        output,
        sources,
        targets,
        channels,
        intake,
        coordinator,
        publishing,
        counters: Counters::default(),
        reported: Rc::new(RefCell::new(offsets.clone())),
        offsets,
        open,
        link: opened.link,
        append_sent_at: None,
        passed_over: PassedOver::default(),
        snapshot_at,
        tellings: Tellings::new(seat.tasks, job.config.watermark_time),
    };
    Ok((task, starts))
}

/// How far event time had come in a source, as committed.
fn committed_time(watermarks: &BTreeMap<Partition, Timestamp>, source: &Partition) -> Timestamp {
    watermarks.get(source).copied().unwrap_or(Timestamp::MIN)
}

/// State that no operator names any more is not forgotten unasked.
fn check_tables(job: &Job, plan: &Subtopology, state: &TaskState) -> Result<()> {
    let mut known: Vec<Name> = plan.tables.clone();
    known.extend([Name::new(INPUTS_TABLE)?, Name::new(UPSTREAMS_TABLE)?]);
    let dropped = state.tables_unknown_to(&known);
    let refused: Vec<&String> = dropped.iter().filter(|table| !job.config.allow_dropped.contains(table)).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the topology no longer names tables that hold state, name them in allow_dropped: subtopology={} tables={refused:?}",
        plan.name
    )))
}

/// Finds the start offset of each source partition that exists; returns the indexes of those sources.
async fn resolve(job: &Job, seat: &TaskSeat, sources: &[Partition], offsets: &mut Offsets) -> Result<Vec<usize>> {
    let mut readable = vec![];
    for (index, (plan, partition)) in seat.plan.sources.iter().zip(sources).enumerate() {
        if !job.log.partitions(&plan.topic).await?.contains(partition) {
            continue;
        }
        readable.push(index);
        match offsets.get(partition) {
            Some(committed) => {
                let start = check_committed(job, partition, committed).await?;
                offsets.set(partition, start);
            }
            None => {
                let fresh = seat.fresh && offsets.is_empty();
                let start = first_offset(&*job.log, plan, partition, fresh).await?;
                offsets.set(partition, start);
            }
        }
    }
    Ok(readable)
}

/// A committed offset beyond the queue's end means that the log lost messages, unless it only lags.
async fn check_committed(job: &Job, partition: &Partition, committed: Offset) -> Result<Offset> {
    if job.log.offsets(partition).await?.next >= committed {
        return Ok(committed);
    }
    barrier_at(job, &partition.broker).await?;
    let end = job.log.offsets(partition).await?.next;
    if end >= committed {
        return Ok(committed);
    }
    let lost = committed.distance_from(end).unwrap_or(0);
    match job.config.on_source_loss {
        SourceLoss::Stop => Err(Error::data_loss(format!(
            "the source lost messages that were processed: partition={partition} committed={committed} end={end}"
        ))),
        SourceLoss::ResumeAtEnd => {
            tracing::error!(%partition, %committed, %end, lost, "the source lost messages, going on at its end");
            metrics::counter!("onceflow_source_offsets_lost_total").increment(lost);
            Ok(end)
        }
    }
}

/// Where a queue without a committed offset starts.
async fn first_offset(log: &dyn Log, plan: &SourcePlan, partition: &Partition, fresh: bool) -> Result<Offset> {
    let range = log.offsets(partition).await?;
    if plan.internal || !fresh {
        return Ok(range.first);
    }
    match plan.start {
        StartPolicy::Earliest => Ok(range.first),
        StartPolicy::Latest => Ok(range.next),
        StartPolicy::Timestamp(time) => log.offset_at(partition, time).await,
    }
}

/// The target queues of each sink.
async fn targets(log: &dyn Log, plan: &Subtopology) -> Result<Vec<Vec<Partition>>> {
    let mut targets = Vec::with_capacity(plan.sinks.len());
    for sink in &plan.sinks {
        let queues = log.partitions(&sink.topic).await?;
        if queues.is_empty() {
            return Err(Error::invalid(format!("topic has no queues: topic={}", sink.topic)));
        }
        targets.push(queues);
    }
    Ok(targets)
}

/// What the commit adds to each message, as far as an epoch's bound on output counts it.
fn added_bytes(delivery: Delivery) -> usize {
    match delivery {
        Delivery::Outbox { framed: true } => 0,
        Delivery::Outbox { framed: false } | Delivery::Transactional => MESSAGE_OVERHEAD_BYTES + IDENTITY_BYTES_USUAL,
    }
}

/// The queues that anybody may read: where a repeated message would be seen.
fn external_targets(plan: &Subtopology, targets: &[Vec<Partition>]) -> Vec<Partition> {
    let external = plan.sinks.iter().zip(targets).filter(|(sink, _)| !sink.internal);
    external.flat_map(|(_, queues)| queues.iter().cloned()).collect()
}
