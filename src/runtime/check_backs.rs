//! Answers the log's questions about half messages, from the folds of the tasks owned here.

use crate::edge::Backoff;
use crate::job::Job;
use onceflow_log::{CheckBack, Verdict, find_property};
use onceflow_txn::{Answer, IDENTITY_PROPERTY, Identity, verdict};
use std::sync::PoisonError;

/// Runs for as long as it is polled. Neither recovery nor publishing depends on it.
pub(super) async fn answer_all(job: &Job) {
    let mut backoff = Backoff::new(job.config.backoff_first, job.config.backoff_max);
    loop {
        match job.log.next_check_back().await {
            Ok(check) => {
                backoff.reset();
                let verdict = judge(job, &check);
                count(verdict);
                if let Err(error) = job.log.answer_check_back(&check, verdict).await {
                    tracing::debug!(error = %error.report(), "check-back not answered, the log asks again");
                }
            }
            Err(error) => {
                tracing::debug!(error = %error.report(), "no check-backs from the log");
                backoff.wait(&*job.entropy).await;
            }
        }
    }
}

/// Unknown for whatever this process knows nothing about.
fn judge(job: &Job, check: &CheckBack) -> Verdict {
    let Some(property) = find_property(&check.properties, IDENTITY_PROPERTY) else { return Verdict::Unknown };
    let Ok(identity) = Identity::from_property(property) else { return Verdict::Unknown };
    if !identity.is_of(&job.topology.job) {
        return Verdict::Unknown;
    }
    let views = job.views.lock().unwrap_or_else(PoisonError::into_inner);
    match views.get(&identity.task).map(|view| verdict(view, &identity, &check.unique_key)) {
        Some(Answer::Rollback) => Verdict::Rollback,
        Some(Answer::Unknown) | None => Verdict::Unknown,
    }
}

fn count(verdict: Verdict) {
    let answer = match verdict {
        Verdict::Rollback => "rollback",
        Verdict::Unknown => "unknown",
    };
    metrics::counter!("onceflow_check_backs_total", "answer" => answer).increment(1);
}
