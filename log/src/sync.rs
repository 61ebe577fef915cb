//! The locks, channels and threads of the embedded log. The interleaving tests (`interleave`) compile `committer` with
//! others in their place.

pub(crate) use std::sync::{Mutex, mpsc};
pub(crate) use std::thread;
