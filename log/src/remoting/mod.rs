//! What comes from a RocketMQ broker, as values: replies, stored messages, compressed bodies. Decoders only: they need
//! neither a connection nor the client library, so that fuzzing them builds in a minute.
//!
//! | module | holds |
//! | --- | --- |
//! | `reply` | frames and their headers |
//! | `stored` | stored messages, as pulls carry them |
//! | `inflate` | capped inflation of bodies |

#![cfg_attr(
    not(feature = "rocketmq"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "fuzzing alone uses a part of it")
)]

mod inflate;
mod reply;
mod stored;

pub(crate) use reply::{Reply, split_frame};
pub(crate) use stored::{Bounds, UNIQUE_KEY, decode, half, offsets_with};

#[cfg(feature = "fuzzing")]
pub(crate) use inflate::inflate;

pub use inflate::INFLATED_BYTES_MAX;
pub use reply::RocketCounters;
