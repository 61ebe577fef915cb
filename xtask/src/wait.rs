//! The only place in this program that reads a clock or sleeps. It works with real processes, which have no other time.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Measures one stretch of time.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "measures real child processes")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Looks at `done` until it is true, at most for `limit`; says whether it became true.
pub(crate) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let watch = Stopwatch::start();
    while !done() {
        if watch.elapsed() > limit {
            return false;
        }
        pause(POLL);
    }
    true
}

#[expect(clippy::disallowed_methods, reason = "this thread has nothing else to do")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
