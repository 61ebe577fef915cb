//! How fast the embedded log appends and is read: messages of 100 bytes, batches of 1,000, as a pipeline's output.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark is not an interface and stops at the first error")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use onceflow_log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow_log::{End, Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow_types::{Offset, Partition};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

const BODY_BYTES: usize = 100;
const BATCH_LEN: usize = 1_000;
/// Records in the log that is scanned.
const SCANNED: usize = 2_000_000;

struct Bench {
    runtime: Runtime,
    log: EmbeddedLog,
    queue: Partition,
    _directory: TempDir,
}

impl Bench {
    fn new(sync: Sync) -> Bench {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let log = EmbeddedLog::open(directory.path(), EmbeddedOptions { sync, ..EmbeddedOptions::default() }).unwrap();
        let spec = TopicSpec { topic: "bench".into(), queues: Queues::PerBroker(1) };
        runtime.block_on(log.create_topic(&spec)).unwrap();
        let queue = runtime.block_on(log.partitions("bench")).unwrap().remove(0);
        Bench { runtime, log, queue, _directory: directory }
    }

    fn append(&self, batch: &MessageBatch) {
        self.runtime.block_on(self.log.append(&self.queue, batch)).unwrap();
    }

    /// Reads all there is and adds up the bodies' bytes.
    fn scan(&self, records_max: usize) -> usize {
        let limit = ReadLimit { records_max, bytes_max: 4 << 20, wait_max: Duration::ZERO };
        let (mut next, mut bytes) = (Offset::ZERO, 0);
        loop {
            let records = self.runtime.block_on(self.log.read(&self.queue, next, limit)).unwrap();
            let Some(after) = records.next_offset() else { return bytes };
            bytes += records.iter().map(|record| record.body().unwrap().len()).sum::<usize>();
            next = after;
        }
    }
}

fn batch_of(len: usize) -> MessageBatch {
    let mut batch = MessageBatch::default();
    for number in 0..len {
        let body = format!("{number:0>BODY_BYTES$}");
        batch.push(b"", body.as_bytes()).unwrap();
    }
    batch
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group.sample_size(20).throughput(Throughput::Elements(BATCH_LEN as u64));
    let batch = batch_of(BATCH_LEN);
    for (name, sync) in [("never", Sync::Never), ("each_append", Sync::EachAppend)] {
        let bench = Bench::new(sync);
        group.bench_function(name, |bencher| bencher.iter(|| bench.append(&batch)));
    }
    group.finish();
}

fn scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scan");
    group.sample_size(10).throughput(Throughput::Elements(SCANNED as u64));
    let bench = Bench::new(Sync::Never);
    let batch = batch_of(BATCH_LEN);
    for _ in 0..SCANNED / BATCH_LEN {
        bench.append(&batch);
    }
    for records_max in [4_096, 500] {
        group.bench_function(format!("{records_max}_a_read"), |bencher| {
            bencher.iter(|| assert_eq!(bench.scan(records_max), SCANNED * BODY_BYTES));
        });
    }
    group.finish();
}

fn halves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("half");
    group.sample_size(20).throughput(Throughput::Elements(1));
    let bench = Bench::new(Sync::Never);
    let one = batch_of(1);
    group.bench_function("prepare_and_commit", |bencher| {
        bencher.iter_batched(
            || (),
            |()| {
                let half = bench.runtime.block_on(bench.log.prepare(&bench.queue, &one)).unwrap();
                bench.runtime.block_on(bench.log.end(&half.handle, End::Commit)).unwrap();
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, append, scan, halves);
criterion_main!(benches);
