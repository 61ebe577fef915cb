//! A payment job on RocketMQ in containers. See `cargo xtask containers`.
#![recursion_limit = "512"]

#[path = "../../../tests/common/mod.rs"]
mod common;
mod contract;
mod job;
mod kill;
mod loss;
mod outage;
