//! The locks that threads share. The interleaving tests (`interleave`) compile some modules with others in their place.

pub(crate) use std::sync::{Mutex, MutexGuard};
