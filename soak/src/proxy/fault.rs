//! What a network can do.

use crate::dice::Dice;

/// How a proxy misbehaves. It never changes bytes: TCP's checksums and the kernel see to that in real networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Not at all.
    None,
    /// Each piece waits a random time up to this, in both directions: latency and jitter.
    Latency { ms_max: u64 },
    /// Each piece of one direction waits so long; `up` is towards the server. Above the client's time-out, requests are
    /// carried out whose answers come too late, or that were sent again before.
    OneWay { ms: u64, up: bool },
    /// Pieces of a few bytes.
    Slices,
    /// Open connections are reset, and so are new ones at once.
    Reset,
    /// Nothing passes in any direction and nobody is told. Afterwards half of the connections are reset with what was on
    /// its way, the others go on and deliver it late.
    BlackHole,
    /// A connection is reset when a random number of bytes up to this has passed: in the middle of a frame.
    Cut { bytes_max: u64 },
    /// Connections are reset; new ones send everything to the server twice, over two connections. No network does this
    /// to TCP, but it repeats every request that there is, each END, half and journal record, and finds whoever trusts
    /// that a request is carried out once.
    Duplicate,
}

impl Fault {
    /// One of the faults, and how long it lasts in ms.
    pub(crate) fn draw(dice: &mut Dice) -> (Fault, u64) {
        let fault = match dice.between(0, 8) {
            0 => Fault::Latency { ms_max: dice.between(20, 400) },
            1 => Fault::OneWay { ms: dice.between(500, 7_000), up: true },
            2 => Fault::OneWay { ms: dice.between(500, 7_000), up: false },
            3 => Fault::Slices,
            4 => Fault::Reset,
            5 => Fault::BlackHole,
            6 => Fault::Cut { bytes_max: dice.between(100, 200_000) },
            _ => Fault::Duplicate,
        };
        (fault, dice.between(1_000, 10_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_fault_is_drawn() {
        let mut dice = Dice::new(1, 1);
        let name = |fault: Fault| format!("{fault:?}").split(' ').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = (0..200).map(|_| name(Fault::draw(&mut dice).0)).collect();
        assert_eq!(names.len(), 7, "{names:?}");
    }
}
