//! The edge: the only place where the engine sleeps, measures intervals and draws random numbers. Under a paused tokio
//! clock and a seeded [`Entropy`] a run is deterministic.

use onceflow_types::{Clock, Error, Nonce, Result, Timestamp};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// A source of random numbers.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// 128 random bits.
    ///
    /// # Errors
    /// `Retry` when the system has none to give.
    fn draw(&self) -> Result<u128>;
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn draw(&self) -> Result<u128> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|e| Error::retry(format!("no random numbers from the system: {e}")))?;
        Ok(u128::from_le_bytes(bytes))
    }
}

/// A nonce for an opening.
pub(crate) fn nonce(entropy: &dyn Entropy) -> Result<Nonce> {
    entropy.draw().map(Nonce::new)
}

/// A monotonic clock: time since the job's start. Leases and time-outs run on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Monotonic(Instant);

impl Monotonic {
    pub(crate) fn start() -> Self {
        Monotonic(Instant::now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// How long it is until the clock shows `time`; a little more, so that it does.
pub(crate) fn until(time: Timestamp, clock: &dyn Clock) -> Duration {
    let millis = time.as_millis().saturating_sub(clock.now().as_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// The engine's one door to sleeping.
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Growing waits between tries: doubled each time from `first` to `max`, then cut by up to a half at random, so that
/// instances do not move in step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    tries: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Backoff { first, max, tries: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }

    pub(crate) fn next(&mut self, entropy: &dyn Entropy) -> Duration {
        let whole = self.first.saturating_mul(1 << self.tries.min(16)).min(self.max);
        self.tries = self.tries.saturating_add(1);
        // Without random numbers the whole wait is as good as any.
        let thousandth = entropy.draw().map_or(0, |draw| u32::try_from(draw % 501).unwrap_or(0));
        whole.saturating_sub(whole / 1000 * thousandth)
    }

    pub(crate) async fn wait(&mut self, entropy: &dyn Entropy) {
        sleep(self.next(entropy)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u128);
    impl Entropy for Fixed {
        fn draw(&self) -> Result<u128> {
            Ok(self.0)
        }
    }

    #[test]
    fn waits_grow_to_their_bound_and_are_cut_by_at_most_a_half() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let waits: Vec<u128> = (0..6).map(|_| backoff.next(&Fixed(0)).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next(&Fixed(500)).as_millis(), 50);
    }
}
