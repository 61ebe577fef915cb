//! An explicit-state model of the epoch protocol: every reachable state of a small system is visited, and the
//! invariants are checked in each. It shares no code with the production crates, so that a mistake in one is not a
//! mistake in both; the tests beside it hold the two against each other. A rule is changed here first. README.md has the
//! command line and what is modelled.
//!
//! | module | holds |
//! | --- | --- |
//! | [`rules`] | each rule of the protocol as a switch, and the bounds of a run |
//! | [`world`] | the state: journal, sink queue, network, owners; the fold; the dedup reader |
//! | [`step`] | all next states |
//! | [`check`] | search, invariants, recovery check, random walks, traces |
//! | [`cases`] | which rules are run under which bounds |
#![allow(missing_docs, reason = "an unpublished tool: module docs, comments and the README say what there is")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_lossless,
    clippy::indexing_slicing,
    reason = "small numbers in small states; an index out of range is a bug of the model, and a panic the right answer"
)]
#![allow(clippy::struct_excessive_bools, reason = "a rule is on or off")]
#![allow(
    clippy::many_single_char_names,
    reason = "w is the world, n the next one, o an owner, m a message, b the bounds"
)]

pub mod cases;
pub mod check;
pub mod rules;
pub mod step;
pub mod world;
