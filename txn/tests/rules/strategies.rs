//! Random values of every type that has a format.

use onceflow_txn::*;
use onceflow_types::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

pub(crate) fn name() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9_-]{1,12}".prop_map(|text| Name::new(text).unwrap())
}

/// Broker names hold any character but cannot be too long.
pub(crate) fn partition() -> impl Strategy<Value = Partition> {
    ("[A-Za-z0-9_%|-]{1,20}", ".{0,20}", any::<u32>())
        .prop_map(|(topic, broker, queue)| Partition::new(topic, broker, queue))
}

pub(crate) fn channel() -> impl Strategy<Value = Channel> {
    (name(), partition()).prop_map(|(sink, target)| Channel { sink, target })
}

fn offsets() -> impl Strategy<Value = Offsets> {
    vec((partition(), any::<u64>().prop_map(Offset::new)), 0..4).prop_map(|items| items.into_iter().collect())
}

fn place() -> impl Strategy<Value = (Incarnation, Generation, Epoch)> {
    (any::<u128>(), any::<u64>(), 1..u64::MAX).prop_map(|(incarnation, generation, epoch)| {
        (Incarnation::new(incarnation), Generation::new(generation), Epoch::new(epoch))
    })
}

fn claim() -> impl Strategy<Value = Claim> {
    (any::<u128>(), any::<u128>(), any::<Option<u64>>(), ".{0,20}", ".{0,40}", any::<u64>()).prop_map(
        |(incarnation, nonce, replaces, host, directory, topology_hash)| Claim {
            incarnation: Incarnation::new(incarnation),
            nonce: Nonce::new(nonce),
            replaces: replaces.map(Generation::new),
            owner: Owner { host, directory },
            topology_hash,
        },
    )
}

fn delta() -> impl Strategy<Value = DeltaPart> {
    (place(), 1..=PARTS_MAX, any::<prop::sample::Index>(), vec(any::<u8>(), 0..60)).prop_map(
        |((incarnation, generation, epoch), parts, part, bytes)| {
            let part = u32::try_from(part.index(parts as usize)).unwrap();
            DeltaPart { incarnation, generation, epoch, part, parts, bytes }
        },
    )
}

fn commit_body() -> impl Strategy<Value = CommitBody> {
    prop_oneof![
        vec(any::<u8>(), 0..60).prop_map(CommitBody::Inline),
        (1..=PARTS_MAX, any::<u32>()).prop_map(|(parts, checksum)| CommitBody::Parts { parts, checksum }),
    ]
}

fn commit() -> impl Strategy<Value = Commit> {
    (
        place(),
        offsets(),
        btree_map(partition(), any::<i64>().prop_map(Timestamp::from_millis), 0..4),
        any::<i64>(),
        btree_map(channel(), any::<u64>().prop_map(Sequence::new), 0..4),
        offsets(),
        any::<prop::sample::Index>(),
        commit_body(),
    )
        .prop_map(|(place, offsets, watermarks, clock, channels, tails, published, body)| Commit {
            incarnation: place.0,
            generation: place.1,
            epoch: place.2,
            offsets,
            watermarks,
            clock: Timestamp::from_millis(clock),
            channels,
            tails,
            published_through: Epoch::new(published.index(usize::try_from(place.2.get()).unwrap()) as u64),
            body,
        })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    (place(), 0..u64::MAX, 1..1000u64, any::<u32>(), partition(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
        |(place, commit_offset, ahead, commit_checksum, partition, first, chunks, checksum)| Snapshot {
            incarnation: place.0,
            generation: place.1,
            epoch: place.2,
            through: Offset::new(commit_offset.saturating_add(ahead)),
            commit_offset: Offset::new(commit_offset),
            commit_checksum,
            location: SnapshotLocation { partition, first: Offset::new(first), chunks, checksum },
        },
    )
}

pub(crate) fn record() -> impl Strategy<Value = JournalRecord> {
    prop_oneof![
        claim().prop_map(JournalRecord::Claim),
        delta().prop_map(JournalRecord::Delta),
        commit().prop_map(|commit| JournalRecord::Commit(Box::new(commit))),
        snapshot().prop_map(|snapshot| JournalRecord::Snapshot(Box::new(snapshot))),
        place().prop_map(|(incarnation, generation, epoch)| JournalRecord::Release(Release {
            incarnation,
            generation,
            epoch
        })),
    ]
}

fn listed_half() -> impl Strategy<Value = ListedHalf> {
    (channel(), any::<u64>(), any::<u64>(), any::<u64>(), "[0-9A-F]{0,32}").prop_map(
        |(channel, sequence, commit_log_offset, half_queue_offset, key)| ListedHalf {
            handle: HalfHandle {
                target: channel.target.clone(),
                commit_log_offset,
                half_queue_offset,
                unique_key: key.into(),
            },
            channel,
            sequence: Sequence::new(sequence),
        },
    )
}

fn outbox_batch() -> impl Strategy<Value = OutboxBatch> {
    (channel(), any::<u64>(), any::<u32>(), vec(any::<u8>(), 0..80)).prop_map(|(channel, first, count, messages)| {
        OutboxBatch { channel, first: Sequence::new(first), count, messages }
    })
}

/// Bodies whose halves and batches share few channels, as real ones do.
pub(crate) fn body() -> impl Strategy<Value = EpochBody> {
    (vec(0u8..4, 0..200), vec(channel(), 1..4), vec(listed_half(), 0..6), vec(outbox_batch(), 0..6)).prop_map(
        |(changes, channels, mut halves, mut outbox)| {
            for (index, half) in halves.iter_mut().enumerate() {
                half.channel = channels[index % channels.len()].clone();
                half.handle.target = half.channel.target.clone();
            }
            for (index, batch) in outbox.iter_mut().enumerate().skip(1) {
                batch.channel = channels[index % channels.len()].clone();
            }
            EpochBody { changes, halves, outbox }
        },
    )
}

pub(crate) fn identity() -> impl Strategy<Value = Identity> {
    (
        ("[A-Za-z0-9_-]{1,64}", any::<u128>(), name(), ".{0,20}", any::<u32>()),
        (any::<u64>(), any::<u64>(), name(), 0..=SEQUENCE_MAX.get(), any::<prop::sample::Index>()),
        prop::option::of((partition(), any::<u64>().prop_map(Offset::new))),
    )
        .prop_map(
            |((job, incarnation, subtopology, broker, queue), (generation, epoch, sink, sequence, floor), source)| {
                Identity {
                    job: Name::job(job).unwrap(),
                    incarnation: Incarnation::new(incarnation),
                    task: TaskId { subtopology, broker: broker.into(), queue },
                    generation: Generation::new(generation),
                    epoch: Epoch::new(epoch),
                    sink,
                    sequence: Sequence::new(sequence),
                    floor: Sequence::new(floor.index(usize::try_from(sequence).unwrap() + 1) as u64),
                    source,
                }
            },
        )
}
