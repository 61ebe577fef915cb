//! The locks, channels and threads that the interleaving tests (`interleave`) replace: they compile the embedded log's
//! `committer` and a connection's `waiting` with others in their place.

pub(crate) use std::sync::Mutex;
#[cfg(feature = "embedded")]
pub(crate) use std::{sync::mpsc, thread};
