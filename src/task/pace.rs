//! How long an epoch lasts: fixed, or as long as a latency target leaves room for.
//!
//! A record waits for the loop to come back from the commit before (at most `commit`), for the end of its own epoch (at
//! most the epoch's length), for the commit of that one (`commit`), and until its output is acknowledged (`publish`). So
//!
//! ```text
//! length = latency target - bound(2 x commit + publish)      within EPOCH_TIME_MIN ..= Config::epoch_time
//! ```
//!
//! `commit` is S1 to S4 as one measured time, back-pressure included; `publish` the time from the decision to the last
//! acknowledgement of S5. The bound is that of TCP for round trips (Jacobson 1988, "Congestion Avoidance and Control";
//! RFC 6298, section 2): a smoothed mean and four times the smoothed mean deviation, with gains of 1/8 and 1/4. It takes
//! the place of a p99: a cost above it is as rare as a needless resend of TCP, it follows a slower broker within some epochs,
//! and it needs two numbers.
//!
//! **In a backlog** the target is given up: what lies at the end of it is late whatever the epochs are, and short ones make
//! it later. A task that would process what is behind its reads for longer than its target ([`Lag::time`]) makes its epochs
//! as long as they may be. So a load that only long epochs can carry does not fall back for ever. Reads, commits and other
//! tasks of the thread are not in that time, so on the clock the lag is longer than the target before it counts.
//!
//! **Why it settles.** A longer epoch has more to commit. With a cost of `a + b x length` the mean moves by an eighth of
//! the way to its place each time, so the length goes to `(target - a) / (1 + b)`, without swinging as long as `b < 7`:
//! as long as a commit is less than seven times as long as the epoch that it commits. One that is longer than its epoch is
//! no longer within reach of a target anyway; the minimum holds then.

use super::lag::Lag;
use crate::Config;
use crate::topology::{Subtopology, Topology};
use onceflow_log::RecordBatch;
use onceflow_types::Epoch;
use std::collections::VecDeque;
use std::time::Duration;

/// The shortest epoch that a latency target leads to: below it a task does little else than commit.
pub(crate) const EPOCH_TIME_MIN: Duration = Duration::from_millis(5);

/// Decided epochs whose publishing is measured. More than there can be unpublished ones.
const PUBLISHING_MAX: usize = 64;

/// A bound on what comes next, from what was: mean and mean deviation as in RFC 6298.
#[derive(Clone, Copy, Default, Debug)]
struct Bound {
    /// Smoothed mean and deviation; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
}

impl Bound {
    fn add(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, deviation)) => ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4),
        });
    }

    fn get(&self) -> Duration {
        self.smoothed.map_or(Duration::ZERO, |(mean, deviation)| mean + deviation * 4)
    }
}

/// How long the epochs of one task last.
#[derive(Debug)]
pub(crate) struct Pace {
    epoch_time_max: Duration,
    /// This task's part of the latency target.
    target: Option<Duration>,
    lag: Lag,
    commit: Bound,
    publish: Bound,
    /// In order of their epochs.
    publishing: VecDeque<Decided>,
}

/// A decided epoch on its way out.
#[derive(Debug)]
struct Decided {
    epoch: Epoch,
    at: Duration,
    unanswered: usize,
}

impl Pace {
    /// For a task of `plan`: of the target it has the part of one in as many as a record passes on the longest way through.
    pub(crate) fn of(config: &Config, topology: &Topology, plan: &Subtopology) -> Pace {
        let part = |target: Duration| target / longest_way(topology, plan);
        Pace::new(config.epoch_time, config.latency_target.map(part), plan.sources.len())
    }

    fn new(epoch_time_max: Duration, target: Option<Duration>, sources: usize) -> Pace {
        let (commit, publish) = (Bound::default(), Bound::default());
        Pace { epoch_time_max, target, lag: Lag::new(sources), commit, publish, publishing: VecDeque::new() }
    }

    /// How long after its first record an epoch is sealed. The only place that decides it.
    pub(crate) fn epoch_time(&self) -> Duration {
        let Some(target) = self.target.filter(|target| self.lag.time() <= *target) else { return self.epoch_time_max };
        let costs = self.commit.get() * 2 + self.publish.get();
        target.saturating_sub(costs).max(EPOCH_TIME_MIN).min(self.epoch_time_max)
    }

    /// A batch of a source was processed, in this time.
    pub(crate) fn processed(&mut self, source: usize, batch: &RecordBatch, took: Duration) {
        self.lag.saw(source, batch.remaining());
        self.lag.processed(batch.len(), took);
    }

    /// Records that lie behind what was read.
    pub(crate) fn lag(&self) -> u64 {
        self.lag.records()
    }

    /// An epoch was committed, in this time.
    pub(crate) fn committed(&mut self, took: Duration) {
        self.commit.add(took);
    }

    /// An epoch was decided and has this many requests to publish.
    pub(crate) fn decided(&mut self, epoch: Epoch, requests: usize, now: Duration) {
        if self.target.is_none() || requests == 0 {
            return;
        }
        if self.publishing.len() == PUBLISHING_MAX {
            // Settled in another way: found by a scan, for example.
            self.publishing.pop_front();
        }
        self.publishing.push_back(Decided { epoch, at: now, unanswered: requests });
    }

    /// A request of an epoch was acknowledged.
    pub(crate) fn acknowledged(&mut self, epoch: Epoch, now: Duration) {
        let Some(place) = self.publishing.iter().position(|decided| decided.epoch == epoch) else { return };
        let Some(decided) = self.publishing.get_mut(place) else { return };
        decided.unanswered = decided.unanswered.saturating_sub(1);
        if decided.unanswered == 0 {
            self.publish.add(now.saturating_sub(decided.at));
            self.publishing.remove(place);
        }
    }
}

/// How many subtopologies the longest way through the job has that leads through this one.
fn longest_way(topology: &Topology, plan: &Subtopology) -> u32 {
    let parts = &topology.subtopologies;
    let leads = |from: &Subtopology, to: &Subtopology| {
        from.sinks.iter().any(|sink| to.sources.iter().any(|source| source.topic == sink.topic))
    };
    // The longest ways to each, and from each. As many rounds as there are parts are enough; they also end where somebody
    // has led a topic back.
    let (mut to, mut from) = (vec![1; parts.len()], vec![1; parts.len()]);
    for _ in parts {
        to = lengths(parts, &to, |part, other| leads(other, part));
        from = lengths(parts, &from, |part, other| leads(part, other));
    }
    let ways = parts.iter().zip(to.iter().zip(&from));
    ways.filter(|(part, _)| part.name == plan.name).map(|(_, (to, from))| to + from - 1).max().unwrap_or(1)
}

/// One more than the longest of those that are next to each part.
fn lengths(parts: &[Subtopology], before: &[u32], is_next: impl Fn(&Subtopology, &Subtopology) -> bool) -> Vec<u32> {
    let longest = |part: &Subtopology| {
        let next = parts.iter().zip(before).filter(|(other, _)| is_next(part, other));
        next.map(|(_, length)| *length).max().unwrap_or(0)
    };
    parts.iter().map(|part| 1 + longest(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Utf8;
    use crate::topology::StreamBuilder;
    use onceflow_log::{Body, Entry};
    use onceflow_types::{Offset, Partition, Timestamp};
    use proptest::prelude::*;

    const MAX: Duration = Duration::from_millis(200);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Lets epochs pass whose costs are a fixed part and a part that grows with the epoch, both in microseconds, with noise.
    /// Returns the lengths.
    fn run(target: u64, fixed: u64, per_mille: u64, noise: &[u64]) -> Vec<Duration> {
        let mut pace = Pace::new(MAX, Some(millis(target)), 1);
        let mut lengths = vec![];
        for (number, noise) in (1..).zip(noise) {
            let length = pace.epoch_time();
            let cost = Duration::from_micros(fixed + noise) + length * u32::try_from(per_mille).unwrap() / 1_000;
            pace.committed(cost);
            pace.decided(Epoch::new(number), 2, Duration::ZERO);
            pace.acknowledged(Epoch::new(number), cost / 2);
            pace.acknowledged(Epoch::new(number), cost);
            lengths.push(length);
        }
        lengths
    }

    proptest! {
        #[test]
        fn an_epoch_is_never_above_its_bound_nor_below_the_minimum(
            target in 1u64..1_000, fixed in 0u64..100_000, per_mille in 0u64..3_000,
            noise in proptest::collection::vec(0u64..50_000, 1..200)
        ) {
            for length in run(target, fixed, per_mille, &noise) {
                prop_assert!((EPOCH_TIME_MIN..=MAX).contains(&length), "{length:?}");
            }
        }

        // Of a cost `a + b x length` each, a record waits for 3 (a + b x length) and the length itself.
        #[test]
        fn with_steady_costs_it_settles_where_the_target_is_met(
            target in 20u64..200, fixed in 0u64..5_000, per_mille in 0u64..500
        ) {
            let lengths = run(target, fixed, per_mille, &[0; 300]);
            let expected = (target * 1_000).saturating_sub(3 * fixed) * 1_000 / (1_000 + 3 * per_mille);
            let expected = Duration::from_micros(expected).clamp(EPOCH_TIME_MIN, MAX);
            for length in &lengths[200..] {
                prop_assert!(length.abs_diff(expected) <= expected / 50, "length={length:?} expected={expected:?}");
            }
        }

        // Noise of up to `noise` moves a bound by at most its mean and four times its deviation.
        #[test]
        fn noise_moves_it_no_further_than_the_noise_is_large(
            target in 100u64..200, fixed in 0u64..5_000, per_mille in 0u64..200,
            noise in proptest::collection::vec(0u64..2_000, 300)
        ) {
            let lengths = &run(target, fixed, per_mille, &noise)[200..];
            let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            // Three costs, each with a mean and four deviations of at most the noise.
            prop_assert!(most.abs_diff(*least) <= millis(3 * (1 + 4) * 2), "{least:?} to {most:?}");
        }

        #[test]
        fn records_stay_below_the_target_while_costs_are_noisy(
            target in 60u64..200, fixed in 0u64..3_000, per_mille in 0u64..200,
            noise in proptest::collection::vec(0u64..2_000, 500)
        ) {
            let lengths = run(target, fixed, per_mille, &noise);
            let costs = lengths.iter().zip(&noise).map(|(length, noise)| {
                Duration::from_micros(fixed + noise) + *length * u32::try_from(per_mille).unwrap() / 1_000
            });
            let costs: Vec<Duration> = costs.collect();
            let late = (100..500).filter(|epoch| {
                costs[epoch - 1] + lengths[*epoch] + costs[*epoch] * 2 > millis(target)
            });
            prop_assert!(late.count() <= 4, "of 400 epochs");
        }
    }

    #[test]
    fn a_slower_broker_is_followed_and_so_is_one_that_is_quick_again() {
        let mut pace = Pace::new(MAX, Some(millis(100)), 1);
        let mut after = |cost, epochs| {
            (0..epochs).for_each(|_| pace.committed(millis(cost)));
            pace.epoch_time()
        };
        assert!(after(2, 50) > millis(90));
        assert!(after(30, 8) < millis(40));
        assert!(after(200, 8) == EPOCH_TIME_MIN);
        assert!(after(2, 60) > millis(90));
    }

    #[test]
    fn a_backlog_is_worked_off_in_long_epochs_and_its_end_in_short_ones() {
        let mut pace = Pace::new(MAX, Some(millis(100)), 1);
        (0..50).for_each(|_| pace.committed(millis(10)));
        let short = pace.epoch_time();
        assert!(short < millis(90), "{short:?}");
        let entry = Entry {
            offset: Offset::ZERO,
            born: Timestamp::MIN,
            stored: Timestamp::MIN,
            body: Body::Plain(0..0),
            properties: 0..0,
        };
        let read = |end| {
            let queue = Partition::new("in", "broker", 0);
            RecordBatch::new(queue, "".into(), "".into(), vec![entry.clone()]).with_end(Offset::new(end))
        };
        // A millisecond each: a hundred records are a target.
        pace.processed(0, &read(102), millis(1));
        assert_eq!((pace.lag(), pace.epoch_time()), (101, MAX));
        pace.processed(0, &read(101), millis(1));
        assert_eq!((pace.lag(), pace.epoch_time()), (100, short));
        pace.processed(0, &read(1_000), millis(1));
        assert_eq!(pace.epoch_time(), MAX);
        pace.processed(0, &RecordBatch::empty(Partition::new("in", "broker", 0)), millis(0));
        assert_eq!((pace.lag(), pace.epoch_time()), (0, short), "a read that found the end");
    }

    #[test]
    fn without_a_target_nothing_is_changed() {
        let mut pace = Pace::new(MAX, None, 1);
        pace.committed(millis(500));
        pace.decided(Epoch::new(1), 1, Duration::ZERO);
        assert_eq!(pace.epoch_time(), MAX);
        assert!(pace.publishing.is_empty());
    }

    #[test]
    fn epochs_that_are_never_answered_are_forgotten() {
        let mut pace = Pace::new(MAX, Some(millis(100)), 1);
        (1..1_000).for_each(|epoch| pace.decided(Epoch::new(epoch), 1, Duration::ZERO));
        assert_eq!(pace.publishing.len(), PUBLISHING_MAX);
        pace.acknowledged(Epoch::new(1), millis(50));
        assert_eq!(pace.epoch_time(), millis(100), "it was forgotten");
        pace.acknowledged(Epoch::new(999), millis(20));
        assert_eq!(pace.epoch_time(), millis(40), "a first sample counts three times");
    }

    #[test]
    fn tasks_that_a_record_passes_in_turn_share_the_target() {
        let builder = StreamBuilder::new("job").unwrap();
        let lines = builder.source("lines", Utf8);
        lines.map(|line: String| line).sink("raw", "raw", Utf8);
        let words = lines.key_by(|line: &String| line.clone()).repartition("words").queues(2);
        words
            .aggregate("counts", || 0u64, |count, _: &String| *count += 1)
            .map(|word, _| word)
            .sink("out", "counts", Utf8);
        builder.source("other", Utf8).sink("copied", "copied", Utf8);
        let topology = builder.build().unwrap();
        let config = Config { latency_target: Some(millis(90)), ..Config::default() };
        let mut times: Vec<Duration> =
            topology.subtopologies.iter().map(|plan| Pace::of(&config, &topology, plan).epoch_time()).collect();
        times.sort();
        assert_eq!(times, [millis(45), millis(45), millis(90)]);
    }
}
