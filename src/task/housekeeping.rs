//! S6 and what else is done now and then, beside everything: nothing depends on it.

use super::publish::Publishing;
use crate::edge::sleep;
use onceflow_types::Offsets;
use std::cell::RefCell;

impl Publishing {
    /// Keeps the lower bounds of the target queues fresh, so that a scan is short, and tells the log how far the task
    /// has come. Failures are the log's to count.
    pub(crate) async fn keep_house(&self, consumer_group: &str, committed: &RefCell<Offsets>) {
        loop {
            self.refresh_tails().await;
            let offsets = committed.borrow().clone();
            if let Err(error) = self.job.log.report_offsets(consumer_group, &offsets).await {
                tracing::debug!(task = %self.task, error = %error.report(), "offsets not reported");
            }
            sleep(self.job.config.report_time).await;
        }
    }

    async fn refresh_tails(&self) {
        for target in &self.external {
            if let Ok(range) = self.job.log.offsets(target).await {
                self.tails.borrow_mut().reached(target, range.next);
            }
        }
    }
}
