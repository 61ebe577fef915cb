//! UNIQ_KEY, the producer's name for one try of one send.

use onceflow_types::{Error, Result};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes keys of 32 hexadecimal digits, as RocketMQ's own have: 80 random bits of the handle, then a counter. RocketMQ's
/// layout (address, process, time) is not used: containers share addresses and process numbers, and a key must never
/// be that of another try.
#[derive(Debug)]
pub(super) struct UniqueKeys {
    random: String,
    next: AtomicU64,
}

impl UniqueKeys {
    pub(super) fn new() -> Result<Self> {
        let mut bytes = [0; 10];
        getrandom::fill(&mut bytes).map_err(|error| Error::invalid(format!("no random numbers: {error}")))?;
        let mut random = String::with_capacity(20);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(random, "{byte:02X}");
        }
        Ok(UniqueKeys { random, next: AtomicU64::new(0) })
    }

    /// A key that no other try has. The counter's 48 bits last for years at any rate a broker can take.
    pub(super) fn next(&self) -> Arc<str> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff_ffff;
        format!("{}{number:012X}", self.random).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_within_and_between_handles() {
        let (one, two) = (UniqueKeys::new().unwrap(), UniqueKeys::new().unwrap());
        let keys = [one.next(), one.next(), two.next()];
        assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit())));
        assert!(keys[0] != keys[1] && keys[0] != keys[2]);
    }
}
