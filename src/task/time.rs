//! How time passes for a task: idle sources, timers, and what is told to the subtopologies behind.

use super::{Control, Task};
use crate::edge;
use crate::signal;
use crate::stage::{Context, Limits};
use crate::time::Watermark;
use onceflow_txn::FrameTime;
use onceflow_types::{Name, Partition, Result, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the queues of timed repartitions have been told. Forgotten with the task: its next owner tells them again.
#[derive(Debug)]
pub(super) struct Tellings {
    /// How many tasks write.
    tasks: u32,
    /// How long a queue without records waits for news, unless it is that nothing comes at all.
    wait: Duration,
    told: BTreeMap<(Name, Partition), (FrameTime, Duration)>,
}

impl Tellings {
    pub(super) fn new(tasks: u32, wait: Duration) -> Self {
        Tellings { tasks, wait, told: BTreeMap::new() }
    }

    /// What there is to say.
    pub(super) fn words(&self, watermark: Watermark) -> FrameTime {
        FrameTime { watermark: watermark.time, idle: watermark.idle, tasks: self.tasks }
    }

    pub(super) fn told(&mut self, sink: &Name, target: &Partition, words: FrameTime, now: Duration) {
        self.told.insert((sink.clone(), target.clone()), (words, now));
    }

    /// Whether a queue that gets no record is to be told, and then counts it as told.
    pub(super) fn tell(&mut self, sink: &Name, target: &Partition, words: FrameTime, now: Duration) -> bool {
        let due = self.due_at(sink, target, words).is_some_and(|due| due <= now);
        if due {
            self.told(sink, target, words, now);
        }
        due
    }

    /// From when on a queue without records is to be told; `None` when there is nothing new.
    fn due_at(&self, sink: &Name, target: &Partition, words: FrameTime) -> Option<Duration> {
        match self.told.get(&(sink.clone(), target.clone())) {
            Some((before, _)) if *before == words => None,
            // A time that nobody knows is no news.
            None if words.watermark == Timestamp::MIN && !words.idle => None,
            None => Some(Duration::ZERO),
            Some((before, _)) if before.idle != words.idle => Some(Duration::ZERO),
            Some((_, at)) => Some(*at + self.wait),
        }
    }
}

impl Task {
    /// When an epoch is full, for the stage.
    pub(super) fn limits(&self) -> Limits {
        let config = &self.job.config;
        Limits {
            output_bytes_max: config.epoch_output_bytes_max,
            output_records_max: config.epoch_halves_max.max(1),
            state_bytes_max: config.epoch_state_bytes_max,
        }
    }

    /// Tells a stage that was just opened what is known of time.
    pub(super) fn begin_time(&mut self) -> Result<()> {
        if !self.plan.timed {
            return Ok(());
        }
        let now = self.job.clock.now();
        let mut cx = Context::new(&mut self.state, &mut self.output, &mut self.counters, now)
            .with_limits(Limits { output_records_max: 0, ..Limits::NONE });
        self.intake.remind(&mut *self.stage, &mut cx)?;
        // Its own sources say what was committed: where inputs meet, time is theirs together, not that of the first to speak.
        self.stage.tick(&mut cx)
    }

    /// Lets processing time pass, and goes on with what an epoch had no room for, until the task is to stop: its next owner
    /// does the rest.
    pub(super) async fn pass_time(&mut self, control: &mut signal::Receiver<Control>) -> Result<()> {
        if !self.plan.timed {
            return Ok(());
        }
        loop {
            self.tick()?;
            if !self.state.times().is_behind() {
                return Ok(());
            }
            self.commit_epoch().await?;
            // Where nothing has to be waited for, nobody else of this thread would have a turn, and nobody could stop us.
            tokio::task::yield_now().await;
            if control.get() != Control::Run {
                return Ok(());
            }
        }
    }

    pub(super) fn tick(&mut self) -> Result<()> {
        let (now, limits) = (self.job.clock.now(), self.limits());
        self.state.times_mut().begin();
        let mut cx = Context::new(&mut self.state, &mut self.output, &mut self.counters, now).with_limits(limits);
        self.stage.tick(&mut cx)?;
        let changed = !self.output.is_empty() || !self.state.overlay().delta().is_empty();
        let news = self.next_telling().is_some_and(|due| due <= self.job.monotonic.now());
        if changed || news {
            self.open.since.get_or_insert(self.job.monotonic.now());
        }
        self.show_progress();
        Ok(())
    }

    /// When a queue is to be told of time, at the earliest.
    fn next_telling(&self) -> Option<Duration> {
        let sinks = self.plan.sinks.iter().zip(&self.targets).zip(self.output.sinks());
        let timed = sinks.filter_map(|((plan, targets), output)| Some((plan, targets, output.watermark()?)));
        let due = timed.filter(|(plan, ..)| plan.timed).flat_map(|(plan, targets, watermark)| {
            let words = self.tellings.words(watermark);
            targets.iter().filter_map(move |target| self.tellings.due_at(&plan.name, target, words))
        });
        due.min()
    }

    /// How long an epoch lasts.
    fn epoch_time(&self) -> Duration {
        self.publishing.pace.borrow().epoch_time()
    }

    /// Whether the open epoch has lasted long enough.
    pub(super) fn epoch_is_due(&self) -> bool {
        self.open.since.is_some_and(|since| since + self.epoch_time() <= self.job.monotonic.now())
    }

    /// When the task has something to do if no record comes.
    pub(super) fn deadline(&self) -> Duration {
        let epoch = self.open.since.map_or(self.snapshot_at, |since| since + self.epoch_time());
        if !self.plan.timed {
            return epoch;
        }
        let now = self.job.monotonic.now();
        let wake = self.state.times().next_wake().map(|time| now + edge::until(time, &*self.job.clock));
        let telling = self.next_telling().filter(|_| self.open.since.is_none());
        [Some(epoch), wake, telling].into_iter().flatten().min().unwrap_or(epoch)
    }

    /// How far each source has come, to be committed.
    pub(super) fn seal_watermarks(&mut self) -> BTreeMap<Partition, Timestamp> {
        let times = self.state.times_mut().seal();
        let sources = self.plan.sources.iter().zip(&self.sources).zip(times).enumerate();
        let watermarks = sources.filter(|(_, ((plan, _), _))| plan.timed).map(|(source, ((plan, partition), time))| {
            let time = if plan.internal { self.intake.upstream_time(source) } else { *time };
            (partition.clone(), time)
        });
        watermarks.filter(|(_, time)| *time > Timestamp::MIN).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_records_hears_of_news_once_in_a_while_and_of_idleness_at_once() {
        let (sink, queue) = (Name::new("by-word").unwrap(), Partition::new("topic", "broker-a", 0));
        let mut tellings = Tellings::new(4, Duration::from_secs(2));
        let words = |tellings: &Tellings, millis, idle| {
            tellings.words(Watermark { time: Timestamp::from_millis(millis), idle })
        };
        let mut tell = |millis, idle, seconds| {
            let words = words(&tellings, millis, idle);
            tellings.tell(&sink, &queue, words, Duration::from_secs(seconds))
        };
        assert!(!tell(i64::MIN, false, 0), "nothing is known");
        assert!(tell(100, false, 0));
        assert!(!tell(100, false, 60), "no news");
        assert!(!tell(200, false, 1), "not yet");
        assert!(tell(200, false, 2));
        assert!(tell(200, true, 2), "idle");
        assert!(!tell(200, true, 90));
        assert!(tell(200, false, 90), "back");
    }
}
