//! The task loop cut into steps that somebody else takes one by one: for the test driver.

#[cfg(test)]
use super::OpenEpoch;
use super::reader::Pulled;
use super::{Task, TaskSeat, open, start};
use crate::job::Job;
use crate::stage::Counters;
use crate::state::TaskState;
use crate::status::Line;
use onceflow_log::ReadLimit;
use onceflow_types::{Error, Offset, Partition, Result, Timestamp};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// An owned task between two steps.
pub(crate) struct Stepped {
    task: Task,
    /// The sources that exist, by their index in the plan.
    sources: Vec<(usize, Partition)>,
}

impl Stepped {
    /// Opens the task, commits its start offsets and publishes what its owner before left.
    pub(crate) async fn open(job: &Arc<Job>, seat: &TaskSeat, line: &Line) -> Result<Stepped> {
        let opened = open::open(job, &seat.plan, &seat.id, line, &Cell::new(false)).await?;
        let (mut task, starts) = start::start(job, seat, line, opened).await?;
        task.begin_time()?;
        let sources = starts.into_iter().map(|(source, partition, _)| (source, partition)).collect();
        let mut stepped = Stepped { task, sources };
        stepped.commit().await?;
        Ok(stepped)
    }

    /// S0: reads one source after the other to its end, at most so many messages at once, and lets time pass.
    pub(crate) async fn process(&mut self, records_max: usize) -> Result<()> {
        for source in 0..self.sources.len() {
            while self.read_once(source, records_max).await? {
                self.pass_time().await?;
            }
        }
        self.pass_time().await
    }

    async fn read_once(&mut self, source: usize, records_max: usize) -> Result<bool> {
        let limit = ReadLimit { records_max, bytes_max: usize::MAX, wait_max: Duration::ZERO };
        let Some((source, partition)) = self.sources.get(source) else { return Ok(false) };
        let next = self.task.offsets.get(partition).unwrap_or(Offset::ZERO);
        let read_at = self.task.job.clock.now();
        let batch = self.task.job.log.read(partition, next, limit).await?;
        if batch.is_empty() {
            return Ok(false);
        }
        self.task.process(&Pulled { source: *source, batch, read_at })?;
        Ok(true)
    }

    /// Lets processing time pass. Commits only when an epoch is full.
    pub(crate) async fn pass_time(&mut self) -> Result<()> {
        if !self.task.plan.timed {
            return Ok(());
        }
        loop {
            self.task.tick()?;
            if !self.task.state.times().is_behind() {
                return Ok(());
            }
            self.commit().await?;
        }
    }

    /// S1 to S5, if there is anything to commit; returns whether there was.
    pub(crate) async fn commit(&mut self) -> Result<bool> {
        let publishing = self.task.publishing.clone();
        let task = &mut self.task;
        let progress = task.epoch_has_progress();
        let committed = async {
            if progress {
                task.commit_epoch().await?;
            }
            task.publish_everything().await;
            Ok(progress)
        };
        tokio::select! {
            biased;
            error = publishing.run() => Err(error),
            result = committed => result,
        }
    }

    /// Moves event time on to `time` in all sources that others write.
    pub(crate) fn raise_event_time(&mut self, time: Timestamp) -> Result<()> {
        self.task.state.times_mut().raise(time);
        self.task.tick()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.task.counters
    }

    pub(crate) fn state(&self) -> &TaskState {
        &self.task.state
    }

    #[cfg(test)]
    /// The state as it is; changes in it become part of the open epoch.
    pub(crate) fn state_mut(&mut self) -> &mut TaskState {
        &mut self.task.state
    }

    #[cfg(test)]
    /// Counts the open epoch as one with progress.
    pub(crate) fn touch(&mut self) {
        let now = self.task.job.monotonic.now();
        self.task.open = OpenEpoch { since: Some(now), records: 0 };
    }
}

/// What a poll says that nobody can wait for: everything here is done at once or never.
pub(crate) fn stuck() -> Error {
    Error::bug("a step of the test driver waits for something")
}
