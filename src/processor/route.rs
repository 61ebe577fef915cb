//! Which queue a message goes to.

use crate::stage::Context;

/// A hash that never changes: the queue of a key, and so the task that holds its state, hangs on it. FNV-1a of 64 bits
/// (the Internet Draft by Fowler, Noll, Vo and Eastlake), then the finaliser of SplitMix64 (Steele, Lea, Flood 2014),
/// as FNV's low bits alone spread short keys badly.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The queue of a key among `queues`; 0 when there is none.
pub(crate) fn queue_of_key(key: &[u8], queues: u32) -> u32 {
    let queue = stable_hash(key).checked_rem(u64::from(queues)).unwrap_or(0);
    // Below `queues`, a `u32`.
    u32::try_from(queue).unwrap_or(0)
}

/// The queue for messages without a key: each task has its own, so that its output stays in order.
pub(super) fn queue_of_task(sink: usize, cx: &Context<'_>) -> u32 {
    cx.task_index().checked_rem(cx.output.queues_of(sink)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, keys move to other queues and no longer find their state.
    #[test]
    fn the_hash_never_changes() {
        let hashes = [&b""[..], b"a", b"c000000000000042", &[0; 8]].map(stable_hash);
        assert_eq!(hashes, HASHES);
    }

    #[test]
    fn short_keys_spread_over_the_queues() {
        let mut counts = [0u32; 8];
        for key in 0..8_000u32 {
            counts[queue_of_key(&key.to_be_bytes(), 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    /// Computed with another implementation.
    const HASHES: [u64; 4] =
        [0xf52a_15e9_a9b5_e89b, 0x02c0_bdbf_4814_20f8, 0xc0fb_d396_4654_6ca4, 0x813f_0174_a236_7c13];
}
