//! The production crate against the model: two programs that share no code must agree on every journal and every queue.
//!
//! Small journals and queues are enumerated; long ones come from random walks through the model's own world, which only
//! visits what owners, crashes, late copies and losses of power can lead to.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, reason = "test data is small")]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "records are passed as the model passes them")]

mod journal;
mod owner;
mod queue;
mod walks;

use onceflow_model::rules::{Bounds, Release, Rules};

/// The protocol as it stands.
fn rules() -> Rules {
    Rules { release: Release::Ends, ..Rules::proposed() }
}

fn bounds(parts: u8) -> Bounds {
    Bounds { parts, outputs: 1, halves: false, ..Bounds::base() }
}

/// A small generator of numbers below a bound; the seed is the test's.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}
