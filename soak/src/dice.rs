//! Random numbers from a seed that is printed: the same seed plans the same faults. The moments at which they hit the
//! processes depend on the machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The numbers of `seed` for one purpose; purposes do not disturb one another.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Dice(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.draw();
        dice
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to below `high`; `low` when there is none.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).max(1);
        low + self.draw() % span
    }

    /// True in so many of 100 cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.between(0, 100) < chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_purposes_differ() {
        let numbers = |purpose| {
            let mut dice = Dice::new(7, purpose);
            (0..5).map(|_| dice.between(10, 1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        assert!(numbers(1).iter().all(|number| (10..1_000_000).contains(number)));
    }
}
