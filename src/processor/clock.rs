//! The time of an operator: the smallest watermark of its inputs.

use crate::time::{Input, Progress, Watermark};
use onceflow_types::Timestamp;

/// What an operator has heard from the inputs that reach it. Its time never goes back.
#[derive(Clone, Debug)]
pub(crate) struct InputClock {
    inputs: Vec<(Input, Watermark)>,
    time: Timestamp,
}

impl InputClock {
    /// A clock over these inputs, which have said nothing yet.
    pub(crate) fn new(inputs: impl IntoIterator<Item = Input>) -> Self {
        let inputs = inputs.into_iter().map(|input| (input, Watermark::NONE)).collect();
        InputClock { inputs, time: Timestamp::MIN }
    }

    /// Goes on from a time that was acted on before.
    pub(crate) fn restore(&mut self, time: Timestamp) {
        self.time = self.time.max(time);
    }

    /// An input has come further, or fallen silent. Returns whether time has moved.
    pub(crate) fn hear(&mut self, progress: Progress) -> bool {
        let Some((_, heard)) = self.inputs.iter_mut().find(|(input, _)| *input == progress.input) else {
            return false;
        };
        let time = heard.time.max(progress.watermark.time);
        *heard = Watermark { time, idle: progress.watermark.idle };
        self.update()
    }

    /// A record of an input came, with the watermark before it. Returns whether time has moved.
    #[inline]
    pub(crate) fn hear_record(&mut self, input: Input, watermark: Timestamp) -> bool {
        // Most records tell nothing new, and most operators have one input.
        if watermark <= self.time {
            return false;
        }
        self.hear(Progress { input, watermark: Watermark { time: watermark, idle: false } })
    }

    fn update(&mut self) -> bool {
        let waited_for = self.inputs.iter().filter(|(_, watermark)| !watermark.idle);
        match waited_for.map(|(_, watermark)| watermark.time).min() {
            Some(time) if time > self.time => {
                self.time = time;
                true
            }
            _ => false,
        }
    }

    /// No record that comes later and is older is on time.
    #[inline]
    pub(crate) fn time(&self) -> Timestamp {
        self.time
    }

    /// The time, and whether all inputs are silent.
    pub(crate) fn watermark(&self) -> Watermark {
        Watermark { time: self.time, idle: self.inputs.iter().all(|(_, watermark)| watermark.idle) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(input: Input, millis: i64, idle: bool) -> Progress {
        Progress { input, watermark: Watermark { time: Timestamp::from_millis(millis), idle } }
    }

    #[test]
    fn time_is_the_smallest_of_those_that_are_not_idle_and_never_goes_back() {
        let mut clock = InputClock::new([0, 1]);
        assert!(!clock.hear(progress(0, 100, false)), "the other one has said nothing");
        assert!(clock.hear(progress(1, 30, false)));
        assert_eq!(clock.time(), Timestamp::from_millis(30));
        assert!(clock.hear(progress(1, 30, true)), "an idle one is left out");
        assert_eq!(clock.time(), Timestamp::from_millis(100));
        assert!(!clock.hear(progress(1, 40, false)), "back again, and behind");
        assert_eq!(clock.time(), Timestamp::from_millis(100));
        assert!(!clock.hear(progress(0, 200, false)));
        assert!(clock.hear(progress(1, 150, false)));
        assert_eq!(clock.watermark(), Watermark { time: Timestamp::from_millis(150), idle: false });
        clock.hear(progress(0, 0, true));
        clock.hear(progress(1, 0, true));
        assert_eq!(clock.watermark(), Watermark { time: Timestamp::from_millis(150), idle: true });
        assert!(!clock.hear(progress(9, 900, false)), "not an input of this operator");
    }
}
