//! How far event time has come: watermarks, whose they are, and what of them outlives an epoch.
//! `docs/decisions/0027-time-and-windows.md` says how they flow.

use onceflow_types::Timestamp;
use std::time::Duration;

/// How much younger than its successor a record may be at least, unless a source says otherwise.
pub const OUT_OF_ORDERNESS_DEFAULT: Duration = Duration::from_secs(2);
/// How long a source may be silent until it is left out, unless it says otherwise.
pub const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Event times beyond this, in either direction, are taken for errors: 73 million years from 1970. Sums of times and
/// sizes of windows stay in range.
pub const EVENT_TIME_MAX: Timestamp = Timestamp::from_millis(i64::MAX / 4);

/// Whether a time can be an event time.
pub(crate) fn is_event_time(time: Timestamp) -> bool {
    (-EVENT_TIME_MAX.as_millis()..=EVENT_TIME_MAX.as_millis()).contains(&time.as_millis())
}

/// How far a stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermark {
    /// No record that comes later and is older is on time. It never goes back.
    pub time: Timestamp,
    /// Whether nothing comes at present, so that nobody is to wait for it.
    pub idle: bool,
}

impl Watermark {
    /// Of a stream that has said nothing yet.
    pub const NONE: Watermark = Watermark { time: Timestamp::MIN, idle: false };
}

/// The number of an input within a stage: the sources as in the plan, then operators whose output has a time of its own.
pub(crate) type Input = u32;

/// How far one input has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) input: Input,
    pub(crate) watermark: Watermark,
}

/// What a task knows of time between two calls of its stage, kept beside its state.
#[derive(Clone, Default, Debug)]
pub(crate) struct Times {
    /// The watermark of each source: as committed, until the first report of an epoch.
    committed: Vec<Timestamp>,
    reported: Vec<Option<Timestamp>>,
    /// Below which no source's event time is, by the will of a test.
    floor: Option<Timestamp>,
    behind: bool,
    wake_at: Option<Timestamp>,
}

impl Times {
    /// As of the last commit, in the order of the sources.
    pub(crate) fn restored(committed: Vec<Timestamp>) -> Times {
        Times { reported: vec![None; committed.len()], committed, ..Times::default() }
    }

    /// Where the watermark of a source goes on.
    pub(crate) fn committed(&self, source: Input) -> Timestamp {
        self.committed.get(source as usize).copied().unwrap_or(Timestamp::MIN)
    }

    /// Says how far a source has come by one of those that take its time; the smallest of an epoch is committed.
    pub(crate) fn report(&mut self, source: Input, time: Timestamp) {
        if let Some(reported) = self.reported.get_mut(source as usize) {
            *reported = Some(reported.map_or(time, |before| before.min(time)));
        }
    }

    /// Moves all sources that others write on to `time`.
    pub(crate) fn raise(&mut self, time: Timestamp) {
        self.floor = self.floor.max(Some(time));
    }

    /// Below which no source's event time is.
    pub(crate) fn floor(&self) -> Timestamp {
        self.floor.unwrap_or(Timestamp::MIN)
    }

    /// Ends the epoch: the watermark of each source, in order.
    pub(crate) fn seal(&mut self) -> &[Timestamp] {
        for (committed, reported) in self.committed.iter_mut().zip(&mut self.reported) {
            if let Some(reported) = reported.take() {
                *committed = (*committed).max(reported);
            }
        }
        &self.committed
    }

    /// A new look at the stage begins.
    pub(crate) fn begin(&mut self) {
        (self.behind, self.wake_at) = (false, None);
    }

    /// An operator stopped firing because the epoch is full.
    pub(crate) fn set_behind(&mut self) {
        self.behind = true;
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.behind
    }

    /// An operator has something to do at this processing time.
    pub(crate) fn wake_at(&mut self, time: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(time, |before| before.min(time)));
    }

    /// When the stage wants to be looked at.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        self.wake_at
    }
}

/// A duration in whole milliseconds, the unit of event time; at most what keeps sums of times in range.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(EVENT_TIME_MAX.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_report_counts_and_nothing_goes_back() {
        let at = Timestamp::from_millis;
        let mut times = Times::restored(vec![at(10), Timestamp::MIN]);
        times.report(0, at(30));
        times.report(0, at(20));
        times.report(7, at(1));
        assert_eq!(times.seal(), [at(20), Timestamp::MIN]);
        times.report(0, at(5));
        assert_eq!(times.seal(), [at(20), Timestamp::MIN]);
        times.wake_at(at(9));
        times.wake_at(at(4));
        assert_eq!(times.next_wake(), Some(at(4)));
    }
}
