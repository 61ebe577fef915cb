//! What an epoch costs on each backend: a commit of 10,000 changed keys, and point look-ups.
//!
//! `cargo bench -p onceflow-storage --features fjall,rocksdb,sled`

#[path = "../tests/common/point.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod point;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use onceflow_storage::{Backend, Delta, StateStore, StoreFactory, StoreOptions};
use onceflow_types::{Name, TaskId};
use point::point;
use std::hint::black_box;

/// Keys of the store; an epoch changes a tenth of them.
const KEYS: u64 = 100_000;
const CHANGES: u64 = 10_000;
const LOOKUPS: u64 = 10_000;
/// A stride without a common factor with `KEYS`: visits all keys in an order that no backend likes.
const STRIDE: u64 = 7919;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"sum\0card\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn epoch_of_changes(epoch: u64) -> Delta {
    let mut delta = Delta::default();
    for number in 0..CHANGES {
        delta.put(&key((epoch * CHANGES + number) * STRIDE % KEYS), &[epoch.to_le_bytes(); 4].concat());
    }
    delta
}

fn filled(options: &StoreOptions) -> (Box<dyn StateStore>, u64) {
    let task = TaskId { subtopology: Name::new("bench").expect("a name"), broker: "b".into(), queue: 0 };
    let mut store = options.open(&Name::job("bench").expect("a job"), &task).expect("a new directory");
    let epochs = KEYS / CHANGES;
    for epoch in 1..=epochs {
        store.commit(&epoch_of_changes(epoch), &point(epoch)).expect("commit");
    }
    (store, epochs)
}

fn backends(c: &mut Criterion) {
    for backend in Backend::ALL.into_iter().filter(|backend| backend.is_available()) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (mut store, mut epoch) = filled(&StoreOptions::new(backend, root.path()));
        let mut group = c.benchmark_group(backend.as_str());
        group.throughput(Throughput::Elements(CHANGES)).sample_size(20);
        group.bench_function("commit 10000 changed keys", |b| {
            let mut next = epoch;
            b.iter_batched(
                || {
                    next += 1;
                    (epoch_of_changes(next), point(next))
                },
                |(delta, point)| {
                    store.commit(&delta, &point).expect("commit");
                    epoch = point.epoch.get();
                },
                BatchSize::PerIteration,
            );
        });
        group.throughput(Throughput::Elements(LOOKUPS));
        group.bench_function("get 10000 keys", |b| {
            let mut value = Vec::new();
            b.iter(|| {
                for number in 0..LOOKUPS {
                    assert!(store.get(black_box(&key(number * STRIDE % KEYS)), &mut value).expect("get"));
                }
            });
        });
        group.finish();
    }
}

fn deltas(c: &mut Criterion) {
    let mut group = c.benchmark_group("delta");
    group.throughput(Throughput::Elements(CHANGES));
    group.bench_function("put 10000 keys", |b| {
        let mut delta = Delta::default();
        b.iter(|| {
            delta.clear();
            for number in 0..CHANGES {
                delta.put(&key(number * STRIDE % KEYS), black_box(&[7; 32]));
            }
        });
    });
    let (delta, mut bytes) = (epoch_of_changes(1), Vec::new());
    group.bench_function("encode 10000 changes", |b| {
        b.iter(|| {
            bytes.clear();
            delta.encode(&mut bytes);
        });
    });
    group.bench_function("decode 10000 changes", |b| b.iter(|| Delta::decode(black_box(&bytes)).expect("our own")));
    group.finish();
}

criterion_group!(benches, deltas, backends);
criterion_main!(benches);
