//! Cases that users of other systems met, each as a test of the whole engine on the embedded log behind a log that
//! misbehaves by rule; and a sweep of single faults over every changing call of a small job.
#![cfg(feature = "embedded")]
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod epochs;
#[path = "../faulty/mod.rs"]
mod faulty;
mod owners;
mod publishing;
mod sizes;
mod sources;
mod sweep;
mod world;
