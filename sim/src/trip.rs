//! What happens to one request on its way.

use crate::fault::Fault;
use crate::log::{DEADLINE, Kind};
use crate::world::World;
use std::time::Duration;

/// The plan of one request, drawn before it sets out.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that may happen, independent of the others")]
pub(crate) struct Trip {
    /// When it reaches the broker; `None`: never.
    pub(crate) there: Option<Duration>,
    /// When a copy of it reaches the broker.
    pub(crate) again: Option<Duration>,
    /// How long the reply takes.
    pub(crate) back: Duration,
    /// Whether the reply arrives.
    pub(crate) answered: bool,
    /// Whether the reply says that the disk is late.
    pub(crate) weak: bool,
    /// Whether it arrives when nobody waits any more, and whichever process listens there then.
    pub(crate) late: bool,
    /// Whether the connection breaks behind it.
    pub(crate) reset: bool,
    /// Whether what it stores is kept.
    pub(crate) kept: bool,
    /// When the caller learns that there is no reply.
    pub(crate) error_after: Duration,
    /// The broker process that it was sent to.
    pub(crate) life: u64,
}

/// How much later than its sender waits a late request arrives.
const LATE_MAX_MILLIS: u64 = 15_000;
/// How much later than the request a copy arrives.
const COPY_MAX_MILLIS: u64 = 20_000;

impl Trip {
    pub(crate) fn plan(world: &mut World, kind: Kind, life: u64, cut: bool) -> Trip {
        let changes = kind != Kind::Look;
        let mut draw = |fault: Fault, possible: bool| {
            let happens = possible && world.dice.happens(world.rates.of(fault));
            if happens {
                world.counts.fault(fault);
            }
            happens
        };
        let lost = draw(Fault::RequestLost, true) || cut;
        let reply_lost = draw(Fault::ReplyLost, changes);
        let late = draw(Fault::Late, changes && !lost);
        let twice = draw(Fault::Twice, changes);
        let weak = draw(Fault::Weak, kind == Kind::Store);
        let slow = draw(Fault::Slow, true);
        let reset = draw(Fault::Reset, true);
        let dice = &mut world.dice;
        let there = dice.millis(0, if slow { 2_500 } else { 3 });
        let back = dice.millis(0, if slow { 1_000 } else { 3 });
        let late_by = dice.millis(1, LATE_MAX_MILLIS);
        let copy_by = dice.millis(1, COPY_MAX_MILLIS);
        let noticed = dice.happens(500);
        // A process that stood still beyond its deadline may find the late reply when it goes on.
        let unheard = late && dice.happens(500);
        let answered = !reply_lost && !unheard;
        Trip {
            there: match (lost, late) {
                (true, _) => None,
                (false, true) => Some(DEADLINE + late_by),
                (false, false) => Some(there),
            },
            again: twice.then(|| there + copy_by),
            back,
            answered,
            weak,
            late,
            reset,
            kept: answered && !weak,
            error_after: if noticed { there } else { DEADLINE },
            life,
        }
    }
}

impl World {
    /// How much later than it is stored a message is shown.
    pub(crate) fn lag(&mut self) -> Duration {
        if self.dice.happens(self.rates.of(Fault::Lag)) {
            self.counts.fault(Fault::Lag);
            return self.dice.millis(50, 1_500);
        }
        self.dice.millis(0, 4)
    }
}
