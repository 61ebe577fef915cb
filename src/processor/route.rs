//! Which queue a message goes to.

use onceflow_types::{Partition, TaskId};

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

/// The queue of `targets` for a task's messages without a key, by where the task is alone: it stays the same when other tasks
/// come, so the output stays in order. One on the task's own broker if there is one.
pub(crate) fn queue_of_task(task: &TaskId, targets: &[Partition]) -> u32 {
    let place = |(at, _): (usize, &Partition)| u32::try_from(at).ok();
    let own: Vec<u32> =
        targets.iter().enumerate().filter(|(_, target)| target.broker == task.broker).filter_map(place).collect();
    let at =
        |count: usize, shift: u64| usize::try_from((u64::from(task.queue) + shift).checked_rem(count as u64)?).ok();
    if let Some(queue) = at(own.len(), 0).and_then(|at| own.get(at)) {
        return *queue;
    }
    // Half of the hash: the sum stays within a `u64`.
    let shift = stable_hash(task.broker.as_bytes()) >> 1;
    at(targets.len(), shift).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::Name;

    /// If this fails, keys move to other queues and no longer find their state.
    #[test]
    fn the_hash_never_changes() {
        let hashes = [&b""[..], b"a", b"c000000000000042", &[0; 8]].map(stable_hash);
        assert_eq!(hashes, HASHES);
    }

    #[test]
    fn a_task_writes_to_its_own_broker_and_stays_with_its_queue_when_others_come() {
        let task = |broker: &str, queue| TaskId { subtopology: Name::new("s").unwrap(), broker: broker.into(), queue };
        let targets: Vec<Partition> = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
            .map(|(broker, queue)| Partition::new("out", broker, queue))
            .to_vec();
        let of = |broker, queue| queue_of_task(&task(broker, queue), &targets);
        assert_eq!([of("a", 0), of("a", 1), of("b", 0), of("b", 1), of("b", 2)], [0, 1, 2, 3, 2]);
        let elsewhere: Vec<u32> = (0..4).map(|queue| of("c", queue)).collect();
        assert_eq!(elsewhere.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{elsewhere:?}");
        assert_eq!(queue_of_task(&task("a", 3), &[]), 0);
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
