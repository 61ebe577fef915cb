//! Wrong engines, each with a crash that must show it: a matrix that finds nothing wrong says little otherwise.

use crate::job::Shape;
use onceflow::planted::{Bug, plant};
use onceflow_sim::{Cut, Moment, Step, Victim};

/// A wrong engine and where it is cut.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    bug: Bug,
    pub shape: Shape,
    pub cut: Cut,
}

const fn planted(bug: Bug, shape: Shape, (step, moment, nth): (Step, Moment, u32), victim: Victim) -> Planted {
    Planted { bug, shape, cut: Cut { step, moment, nth, victim } }
}

/// Those that one crash shows; the simulation has all of them.
pub const ALL: [Planted; 7] = {
    use Bug::{
        CacheNotSealed, EndsBeforeDecided, ForgetsUnpublished, NoDedup, OffsetsOneEpochBehind, SequencesStartAgain,
        UnansweredAppendIsDone,
    };
    use Moment::{After, Before};
    use Shape::{Kept, Moved};
    use Victim::{Broker, Processor};
    [
        planted(EndsBeforeDecided, Moved, (Step::Commit, Before, 6), Processor),
        planted(OffsetsOneEpochBehind, Moved, (Step::Commit, After, 6), Processor),
        planted(SequencesStartAgain, Moved, (Step::Commit, After, 6), Processor),
        planted(ForgetsUnpublished, Kept, (Step::End, Before, 3), Processor),
        planted(NoDedup, Moved, (Step::Send, After, 2), Processor),
        planted(CacheNotSealed, Moved, (Step::Apply, After, 6), Processor),
        planted(UnansweredAppendIsDone, Kept, (Step::Commit, Before, 3), Broker),
    ]
};

/// Plants one of them in this thread.
pub fn begin(index: usize) {
    plant(ALL.get(index).map(|planted| planted.bug));
}
