//! The contract suite: what [`Log`] promises, as tests that any log can run.
//!
//! Each case quotes the rule of [`Log`] that it holds the log to. Give the suite a [`Subject`], which knows how to make
//! handles on your log and how to crash it, and call [`run_all`] in a test:
//!
//! ```
//! use onceflow_log::contract::{self, Notes, Subject};
//! # #[cfg(feature = "embedded")]
//! # {
//! use onceflow_log::Log;
//! use onceflow_log::embedded::{EmbeddedLog, EmbeddedOptions};
//! use std::sync::Arc;
//!
//! struct Mine(EmbeddedLog);
//!
//! #[async_trait::async_trait]
//! impl Subject for Mine {
//!     fn notes(&self) -> Notes {
//!         Notes::default()
//!     }
//!
//!     async fn log(&self, group: &str) -> Arc<dyn Log> {
//!         Arc::new(self.0.with_group(group).expect("the suite's groups are valid"))
//!     }
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! let mine = Mine(EmbeddedLog::open(directory.path(), EmbeddedOptions::default())?);
//! runtime.block_on(contract::run_all(&mine));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The suite suits a broker that others use, too: it makes its own topics and groups, does not assume that they are
//! empty, and waits for what may lag (rule 5) instead of expecting it at once. It leaves its topics behind.
#![allow(clippy::missing_panics_doc, reason = "every function here is a test: it panics when the log breaks a rule")]

mod appending;
mod halves;
mod members;
mod reading;
mod support;

use crate::Log;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A log under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// What the suite must know about the log.
    fn notes(&self) -> Notes;

    /// A handle for `group`, on the same log each time.
    async fn log(&self, group: &str) -> Arc<dyn Log>;

    /// Kills the log and brings it back, as hard as the log promises to survive. The suite has dropped all its handles.
    /// Does nothing unless implemented.
    async fn crash(&self) {}
}

/// What a log is able to do, and how long it takes.
#[derive(Clone, Copy, Debug)]
pub struct Notes {
    /// How long an acknowledged message may stay unreadable (rule 5).
    pub visible_within: Duration,
    /// How long a half may wait for its first check-back, and from one to the next; `None`: leave check-backs out.
    pub check_back_within: Option<Duration>,
    /// How many unanswered check-backs make the log give a half up; `None`: do not wait for that.
    pub checks_max: Option<u32>,
    /// How soon a member that left is missing (rule 13); `None`: one process uses the log, and is its only member.
    pub members_within: Option<Duration>,
}

impl Default for Notes {
    /// Readable within 10 s, no check-backs, one process.
    fn default() -> Self {
        Notes {
            visible_within: Duration::from_secs(10),
            check_back_within: None,
            checks_max: None,
            members_within: None,
        }
    }
}

/// One case of the suite.
pub struct Case {
    /// What it claims.
    pub name: &'static str,
    run: for<'s> fn(&'s dyn Subject) -> BoxFuture<'s, ()>,
}

impl Case {
    /// Runs the case.
    ///
    /// # Panics
    /// When the log breaks the rule, or does not answer.
    pub async fn run(&self, subject: &dyn Subject) {
        (self.run)(subject).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cases {
    ($($room:ident::$name:ident),* $(,)?) => {
        /// All cases, in the order of the rules.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            run: |subject| Box::pin($room::$name(subject)),
        }),*];
    };
}

cases![
    appending::a_topic_has_the_queues_it_was_given,
    appending::a_topic_can_be_like_another,
    appending::offsets_are_dense_and_a_batch_gets_consecutive_ones,
    appending::what_was_acknowledged_survives_a_crash,
    appending::what_is_refused_is_not_in_the_log,
    appending::a_message_comes_back_as_it_was_given,
    appending::an_append_that_was_dropped_leaves_the_handle_usable,
    appending::an_append_over_a_link_is_sent_over_it_or_not_at_all,
    reading::a_read_starts_anywhere_and_is_dense,
    reading::a_read_keeps_its_limits,
    reading::a_read_tells_how_much_is_left,
    reading::a_read_outside_the_range_is_data_loss,
    reading::a_read_waits_for_an_append_and_no_longer_than_asked,
    reading::a_later_message_proves_the_earlier_ones,
    reading::an_offset_can_be_found_by_time,
    halves::a_half_is_invisible_until_it_is_committed,
    halves::several_tries_are_several_halves,
    halves::each_commit_makes_the_message_visible_once_more,
    halves::a_commit_works_after_a_rollback,
    halves::a_half_can_be_ended_after_a_crash,
    halves::another_group_cannot_end_a_half,
    halves::a_check_back_comes_again_with_the_properties_unchanged,
    halves::a_check_back_answered_with_rollback_does_not_end_the_half_for_good,
    halves::a_half_that_was_given_up_can_still_be_committed,
    members::a_member_is_there_until_it_leaves,
    members::groups_know_nothing_of_each_other,
];

/// Runs all cases, one after the other, and names each on standard error.
///
/// # Panics
/// At the first case that fails.
pub async fn run_all(subject: &dyn Subject) {
    for case in CASES {
        eprintln!("contract: {}", case.name);
        case.run(subject).await;
    }
}
