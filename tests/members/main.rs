//! Several processes that share one job: on one embedded log, each behind a log handle of its own that can be frozen, with a
//! membership that can be bent. Whatever happens, the reader view is exact and nothing is worked on twice.
#![cfg(feature = "embedded")]
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

#[path = "../faulty/mod.rs"]
mod faulty;
mod growth;
mod moves;
mod queries;
mod random;
mod world;
mod zombies;
