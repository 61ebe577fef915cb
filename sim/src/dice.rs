//! Random numbers from one seed.
//!
//! SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), written out here on purpose: a seed
//! in the ledger must mean the same schedule for ever, and a generator of a library may change with its version.

use onceflow::Entropy;
use onceflow::types::Result;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A generator. Forks are independent of each other.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Another generator, which this one knows nothing of afterwards.
    pub const fn fork(&mut self) -> Dice {
        Dice(self.next())
    }

    /// A number below `bound`; 0 for the bound 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A number from `from` to `to`, both included.
    pub const fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Whether something of `per_mille` thousandths happens.
    pub const fn happens(&mut self, per_mille: u32) -> bool {
        self.below(1_000) < per_mille as u64
    }

    /// A time from `from` to `to` milliseconds.
    pub const fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.within(from, to))
    }

    /// One of `items`; `None` when there is none.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> Option<&'i T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).unwrap_or(0))
    }
}

/// The engine's random numbers.
#[derive(Debug)]
pub(crate) struct DiceEntropy(Mutex<Dice>);

impl DiceEntropy {
    /// Draws from `dice`.
    pub(crate) fn new(dice: Dice) -> Self {
        DiceEntropy(Mutex::new(dice))
    }
}

impl Entropy for DiceEntropy {
    fn draw(&self) -> Result<u128> {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(u128::from(dice.next()) << 64 | u128::from(dice.next()))
    }
}
