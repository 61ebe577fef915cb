//! Virtual time that begins the same way in every run.

use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// The tick of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
/// How often a runtime is made anew when the machine stood still in between.
const TRIES_MAX: usize = 10_000;

/// Runs `main` to its end on this thread, in virtual time.
///
/// # Panics
/// When tokio cannot make a runtime, or the machine is so busy that it cannot make one within a tick.
pub(crate) fn run<T>(main: impl Future<Output = T>) -> T {
    let runtime = paused();
    LocalSet::new().block_on(&runtime, async {
        // The clock was paused within the first tick; from the second one on all times are whole ticks.
        tokio::time::sleep(TICK).await;
        main.await
    })
}

/// A runtime whose clock was paused within the first tick of its timers. Timers of the same tick fire in an order that
/// depends on where the tick lies, so a later pause would make another run.
#[expect(clippy::disallowed_methods, reason = "what is measured is the real time that tokio lets pass")]
fn paused() -> Runtime {
    for _ in 0..TRIES_MAX {
        let before = Instant::now();
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a current-thread runtime needs nothing from the system");
        if before.elapsed() < TICK * 9 / 10 {
            return runtime;
        }
    }
    panic!("no runtime can be made within {TICK:?}");
}
