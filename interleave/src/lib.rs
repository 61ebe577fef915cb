//! Where threads meet, with other locks, channels and threads in their place: files of the product are compiled here once
//! more, and their `crate::sync` is [Shuttle](https://docs.rs/shuttle)'s, which runs them under schedules of its choice. So the
//! checks see orders of steps that a test on real threads sees once in a million runs (goal G11). `tests/` runs them.
//!
//! What has no thread of its own and shares nothing with another has no place here: a task lives on one thread, and the
//! orders of its steps are what `onceflow-sim` tries.
//!
//! tokio's `Notify` and `oneshot` are not replaced: a call to them is one step, as their own authors tested them.
#![allow(clippy::missing_panics_doc, reason = "a check panics when it finds something")]

mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, mpsc};
    pub(crate) use shuttle::thread;
}

#[allow(dead_code, reason = "not all of it is checked here")]
#[path = "../../src/signal.rs"]
mod signal;

#[allow(dead_code, reason = "not all of it is checked here")]
#[path = "../../log/src/rocketmq/waiting.rs"]
mod waiting;

/// Checks of `log/src/rocketmq/waiting.rs`.
pub mod calls;

pub mod embedded;

/// Checks of `src/signal.rs`.
pub mod signals;
