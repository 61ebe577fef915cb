//! Where event time comes from.

use super::{Push, pass_epoch};
use crate::codec::Data;
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::{Input, Progress, Watermark, is_event_time, millis};
use onceflow_types::{Result, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Makes the watermark of one source: the highest time so far, less the out-of-orderness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generator {
    out_of_orderness: i64,
    watermark: Timestamp,
}

impl Generator {
    pub(crate) fn new(out_of_orderness: Duration) -> Self {
        Generator { out_of_orderness: millis(out_of_orderness), watermark: Timestamp::MIN }
    }

    /// Goes on from a committed watermark.
    pub(crate) fn restore(&mut self, watermark: Timestamp) {
        self.watermark = self.watermark.max(watermark);
    }

    /// Takes the time of the next record; returns the watermark before it. A time that can be none moves nothing.
    #[inline]
    pub(crate) fn take(&mut self, time: Timestamp) -> Timestamp {
        let before = self.watermark;
        if is_event_time(time) {
            self.watermark = before.max(time.saturating_add(-self.out_of_orderness));
        }
        before
    }

    pub(crate) fn watermark(&self) -> Timestamp {
        self.watermark
    }
}

/// The event time of each, from its value. Of a source it makes the watermark anew; elsewhere the watermark stays what it
/// was upstream.
pub(crate) struct SelectTimestamp<T, F> {
    pub(crate) function: Arc<F>,
    /// The sources that reach it, as their topics are.
    pub(crate) generators: Vec<(Input, Generator)>,
    pub(crate) next: Box<dyn Push<T>>,
}

impl<T, F> SelectTimestamp<T, F> {
    fn generator(&mut self, input: Input) -> Option<&mut Generator> {
        self.generators.iter_mut().find(|(own, _)| *own == input).map(|(_, generator)| generator)
    }
}

impl<T: Data, F: Fn(&T) -> Timestamp + Send + Sync> Push<T> for SelectTimestamp<T, F> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        for (input, generator) in &mut self.generators {
            generator.restore(state.times().committed(*input));
        }
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        let function = self.function.clone();
        match self.generator(cx.input()) {
            Some(generator) => {
                for record in &mut *records {
                    record.timestamp = function(&record.value);
                    record.watermark = generator.take(record.timestamp);
                }
            }
            None => records.iter_mut().for_each(|record| record.timestamp = function(&record.value)),
        }
        self.next.push(records, cx)
    }

    fn advance(&mut self, mut progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        let floor = cx.state.times().floor();
        if let Some(generator) = self.generator(progress.input) {
            generator.restore(floor);
            progress.watermark.time = generator.watermark();
        }
        self.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        for (input, generator) in &self.generators {
            cx.state.times_mut().report(*input, generator.watermark());
        }
        self.next.seal(cx)
    }
}

/// Processing time for event time: a record happens when it is worked on, and is never late.
pub(crate) struct ProcessingTime<T> {
    pub(crate) now: Timestamp,
    pub(crate) next: Box<dyn Push<T>>,
}

impl<T> ProcessingTime<T> {
    /// The machine's clock may step back; time here does not.
    fn moved(&mut self, cx: &Context<'_>) -> Timestamp {
        self.now = self.now.max(cx.now());
        self.now
    }
}

impl<T: Data> Push<T> for ProcessingTime<T> {
    pass_epoch!();

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        let now = self.moved(cx);
        for record in &mut *records {
            (record.timestamp, record.watermark) = (now, now);
        }
        self.next.push(records, cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        let watermark = Watermark { time: self.moved(cx), idle: false };
        self.next.advance(Progress { watermark, ..progress }, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_follows_the_highest_time_and_never_goes_back() {
        // The table of DESIGN.md's reference: out-of-orderness 2, times 5, 7, 6, 3.
        let mut generator = Generator::new(Duration::from_millis(2));
        let at = Timestamp::from_millis;
        let before = [5, 7, 6, 3].map(|time| generator.take(at(time)));
        assert_eq!(before, [Timestamp::MIN, at(3), at(5), at(5)]);
        assert_eq!(generator.watermark(), at(5));
        for absurd in [Timestamp::MAX, Timestamp::MIN] {
            generator.take(absurd);
            assert_eq!(generator.watermark(), at(5), "a time that can be none moves nothing");
        }
    }
}
