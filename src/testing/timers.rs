//! The runtime in which the engine's timers are made.

use crate::edge::sleep;
use onceflow_types::{Error, Result};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Runtime};

/// A runtime that may live and end within another one, as a driver in an asynchronous test does. `None` when it is dropped.
pub(super) struct Timers(Option<Runtime>);

impl Timers {
    pub(super) fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build();
        let failed = |e| Error::invalid("no runtime for the test driver").with_source(e);
        runtime.map(|runtime| Timers(Some(runtime))).map_err(failed)
    }

    /// Timers that are made on this thread until the guard is dropped are this runtime's.
    pub(super) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(Runtime::enter)
    }

    /// Lets them go on for a while. On another thread, as a thread of a runtime must not wait for one.
    pub(super) fn let_pass(&self, time: Duration) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.0.iter().for_each(|runtime| runtime.block_on(sleep(time))));
        });
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        // Dropped as usual it would wait for its threads, which a thread of another runtime must not do.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
