//! How far a task is behind the ends of its sources.

use std::time::Duration;

/// How many records the mean time of one looks back over.
const RECORDS_OF_MEAN: u32 = 1_024;

/// What lies behind the records that were read, and how long the task would process it.
#[derive(Clone, Debug)]
pub(crate) struct Lag {
    /// Records behind the last batch of each source, as its read saw them.
    records: Vec<u64>,
    /// How long one record takes to be processed: a smoothed mean, each record with a gain of one in [`RECORDS_OF_MEAN`].
    of_each: Option<Duration>,
}

impl Lag {
    pub(crate) fn new(sources: usize) -> Lag {
        Lag { records: vec![0; sources], of_each: None }
    }

    /// So many records of a source lie behind what was read last.
    pub(crate) fn saw(&mut self, source: usize, remaining: u64) {
        if let Some(records) = self.records.get_mut(source) {
            *records = remaining;
        }
    }

    /// So many records were processed, in this time.
    pub(crate) fn processed(&mut self, records: usize, took: Duration) {
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        let Some(sample) = took.checked_div(records) else { return };
        let weight = records.min(RECORDS_OF_MEAN);
        let smoothed = |mean: Duration| (mean * (RECORDS_OF_MEAN - weight) + sample * weight) / RECORDS_OF_MEAN;
        self.of_each = Some(self.of_each.map_or(sample, smoothed));
    }

    /// Records behind what was read, of all sources.
    pub(crate) fn records(&self) -> u64 {
        self.records.iter().fold(0, |sum, records| sum.saturating_add(*records))
    }

    /// How long the task would process them if it did nothing else: reads, commits and other tasks come on top. Zero before
    /// anything was processed.
    pub(crate) fn time(&self) -> Duration {
        let Some(of_each) = self.of_each else { return Duration::ZERO };
        u32::try_from(self.records()).map_or(Duration::MAX, |records| of_each.saturating_mul(records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_count_each_by_its_last_read() {
        let mut lag = Lag::new(2);
        lag.processed(100, Duration::from_micros(200));
        lag.saw(0, 500);
        lag.saw(1, 70);
        lag.saw(0, 30);
        assert_eq!((lag.records(), lag.time()), (100, Duration::from_micros(200)));
        lag.saw(7, 1);
        assert_eq!(lag.records(), 100, "a source that the task does not have");
    }

    #[test]
    fn a_record_takes_what_the_last_ones_took() {
        let mut lag = Lag::new(1);
        lag.saw(0, 1_000);
        assert_eq!(lag.time(), Duration::ZERO, "nothing is known yet");
        lag.processed(0, Duration::from_secs(1));
        assert_eq!(lag.time(), Duration::ZERO, "no record, no sample");
        lag.processed(10, Duration::from_millis(10));
        assert_eq!(lag.time(), Duration::from_secs(1));
        lag.processed(1, Duration::from_millis(100));
        assert!(lag.time() < Duration::from_millis(1_100), "one slow record: {:?}", lag.time());
        (0..500).for_each(|_| lag.processed(10, Duration::from_millis(20)));
        assert!(lag.time().abs_diff(Duration::from_secs(2)) < Duration::from_millis(20), "{:?}", lag.time());
        lag.processed(5_000, Duration::from_secs(15));
        assert_eq!(lag.time(), Duration::from_secs(3), "nothing is left of those before");
    }

    #[test]
    fn more_than_can_be_said_is_as_long_as_can_be_said() {
        let mut lag = Lag::new(2);
        lag.processed(1, Duration::from_nanos(1));
        lag.saw(0, u64::MAX);
        lag.saw(1, u64::MAX);
        assert_eq!((lag.records(), lag.time()), (u64::MAX, Duration::MAX));
    }
}
