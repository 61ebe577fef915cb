//! Hostile input and the security promises that a job itself can show (docs/security.md has the list).
#![cfg(feature = "embedded")]
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

#[path = "security/bodies.rs"]
mod bodies;
#[path = "security/directories.rs"]
mod directories;
mod faulty;
#[path = "security/forged.rs"]
mod forged;
#[cfg(unix)]
#[path = "security/full_disk.rs"]
mod full_disk;
#[cfg(unix)]
#[path = "security/local_disk.rs"]
mod local_disk;
#[path = "security/pressure.rs"]
mod pressure;
#[path = "security/secrets.rs"]
mod secrets;

use faulty::ledger::make_topic;
use onceflow::log::Log;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A log with topics of one queue each.
pub(crate) async fn log_with(topics: &[&str]) -> (Arc<dyn Log>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options).unwrap());
    for topic in topics {
        make_topic(&*log, topic).await;
    }
    (log, directory)
}
