//! Carries a stage's error policy out.

use super::{ErrorPolicy, dead_letter};
use crate::record::Origin;
use crate::stage::Context;
use onceflow_types::{Error, ErrorKind, Result, Timestamp};
use std::sync::Arc;

/// The error policy of one stage in one task.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    stage: Arc<str>,
    policy: ErrorPolicy,
    /// The sink of the policy's dead letter topic.
    dead_letters: Option<usize>,
}

impl Guard {
    pub(crate) fn new(stage: Arc<str>, policy: ErrorPolicy, dead_letters: Option<usize>) -> Self {
        Guard { stage, policy, dead_letters }
    }

    /// Runs `attempt`, again as often as the policy says.
    #[inline]
    pub(crate) fn attempt<R>(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Context<'_>) -> Result<R>,
    ) -> Result<R> {
        match attempt(cx) {
            Err(error) if matches!(self.policy, ErrorPolicy::Retry { .. }) => self.again(error, cx, attempt),
            result => result,
        }
    }

    #[cold]
    fn again<R>(
        &self,
        first: Error,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Context<'_>) -> Result<R>,
    ) -> Result<R> {
        let ErrorPolicy::Retry { tries } = self.policy else { return Err(first) };
        let mut result = Err(first);
        for _ in 0..tries {
            match &result {
                Err(error) if matches!(error.kind(), ErrorKind::Record | ErrorKind::Retry) => {
                    cx.counters.retried += 1;
                    self.count("onceflow_records_retried_total");
                    result = attempt(cx);
                }
                _ => break,
            }
        }
        result
    }

    /// Deals with a record that failed. After `Ok` it is dealt with, and the stage goes on with the next one.
    ///
    /// # Errors
    /// The error, with the stage and the record's place, when it stops the task.
    #[cold]
    pub(crate) fn reject(
        &self,
        error: Error,
        origin: Origin,
        timestamp: Timestamp,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        match (&self.policy, self.dead_letters, error.kind()) {
            (ErrorPolicy::Skip, _, ErrorKind::Record) => {
                cx.counters.skipped += 1;
                self.count("onceflow_records_skipped_total");
                tracing::debug!(stage = %self.stage, error = %error.report(), "record skipped");
                Ok(())
            }
            (ErrorPolicy::DeadLetter { .. }, Some(sink), ErrorKind::Record) => {
                dead_letter::push(sink, &self.stage, &error, origin, timestamp, cx)?;
                cx.counters.dead_letters += 1;
                self.count("onceflow_dead_letters_total");
                Ok(())
            }
            _ => {
                cx.counters.failed += 1;
                self.count("onceflow_records_failed_total");
                Err(match cx.source_record(origin) {
                    Some((partition, record)) => {
                        error.context(format!("stage {} at {partition} offset {}", self.stage, record.offset))
                    }
                    None => error.context(format!("stage {}", self.stage)),
                })
            }
        }
    }

    /// Records came too late.
    #[cold]
    pub(crate) fn count_late(&self, records: usize) {
        metrics::counter!("onceflow_records_late_total", "stage" => self.stage.to_string()).increment(records as u64);
    }

    fn count(&self, name: &'static str) {
        metrics::counter!(name, "stage" => self.stage.to_string()).increment(1);
    }
}
