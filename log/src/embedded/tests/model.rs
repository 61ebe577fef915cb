//! The log against a plain model under random operations and reopenings.

use super::{quick, topic};
use crate::embedded::{EmbeddedLog, EmbeddedOptions};
use crate::{End, Log, MessageBatch, ReadLimit};
use onceflow_types::{ErrorKind, HalfHandle, Offset, Partition};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Step {
    Append { queue: usize, sizes: Vec<usize> },
    Prepare { queue: usize, size: usize },
    End { half: usize, end: End },
    Read { queue: usize, from: usize, records_max: usize, bytes_max: usize },
    Reopen,
}

/// What the log must hold.
#[derive(Default)]
struct Model {
    queues: [Vec<Vec<u8>>; 2],
    halves: Vec<(HalfHandle, usize, Vec<u8>)>,
    made: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || 0..300usize;
    let step = prop_oneof![
        5 => (0..2usize, prop::collection::vec(size(), 1..12)).prop_map(|(queue, sizes)| Step::Append { queue, sizes }),
        2 => (0..2usize, size()).prop_map(|(queue, size)| Step::Prepare { queue, size }),
        3 => (any::<usize>(), prop_oneof![Just(End::Commit), Just(End::Rollback)])
            .prop_map(|(half, end)| Step::End { half, end }),
        5 => (0..2usize, 0..80usize, 1..40usize, 1..4_000usize)
            .prop_map(|(queue, from, records_max, bytes_max)| Step::Read { queue, from, records_max, bytes_max }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

impl Model {
    fn body(&mut self, size: usize) -> Vec<u8> {
        self.made = self.made.wrapping_add(1);
        vec![self.made; size]
    }
}

async fn run(path: &Path, options: &EmbeddedOptions, steps: Vec<Step>) {
    let mut log = EmbeddedLog::open(path, options.clone()).unwrap();
    let queues = topic(&log, 2).await;
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Append { queue, sizes } => {
                let mut batch = MessageBatch::default();
                let first = model.queues[queue].len() as u64;
                for size in sizes {
                    let body = model.body(size);
                    batch.push(b"p\x01q\x02", &body).unwrap();
                    model.queues[queue].push(body);
                }
                assert_eq!(log.append(&queues[queue], &batch).await.unwrap().first, Offset::new(first));
            }
            Step::Prepare { queue, size } => {
                let mut batch = MessageBatch::default();
                let body = model.body(size);
                batch.push(b"p\x01q\x02", &body).unwrap();
                let handle = log.prepare(&queues[queue], &batch).await.unwrap().handle;
                model.halves.push((handle, queue, body));
            }
            Step::End { half, end } => {
                let Some((handle, queue, body)) = model.halves.get(half % model.halves.len().max(1)) else { continue };
                log.end(handle, end).await.unwrap();
                if end == End::Commit {
                    model.queues[*queue].push(body.clone());
                }
            }
            Step::Read { queue, from, records_max, bytes_max } => {
                let limit = ReadLimit { records_max, bytes_max, wait_max: Duration::ZERO };
                read(&log, &queues[queue], &model.queues[queue], from, limit).await;
            }
            Step::Reopen => {
                drop(log);
                log = EmbeddedLog::open(path, options.clone()).unwrap();
            }
        }
    }
    for (queue, expected) in queues.iter().zip(&model.queues) {
        let range = log.offsets(queue).await.unwrap();
        assert_eq!((range.first.get(), range.next.get()), (0, expected.len() as u64));
        let limit = ReadLimit { records_max: usize::MAX, bytes_max: usize::MAX, wait_max: Duration::ZERO };
        let records = log.read(queue, Offset::ZERO, limit).await.unwrap();
        assert_eq!(records.iter().map(|record| record.body().unwrap()).collect::<Vec<_>>(), *expected);
    }
}

async fn read(log: &EmbeddedLog, queue: &Partition, expected: &[Vec<u8>], from: usize, limit: ReadLimit) {
    let result = log.read(queue, Offset::new(from as u64), limit).await;
    let Some(expected) = expected.get(from..) else {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::DataLoss);
        return;
    };
    let records = result.unwrap();
    assert_eq!(records.is_empty(), expected.is_empty(), "what is there is read");
    assert!(records.len() <= limit.records_max);
    assert!(records.len() == 1 || records.bytes() <= limit.bytes_max || records.is_empty());
    // A read that stopped early stopped at a limit.
    let full = records.len() == expected.len().min(limit.records_max);
    let next_bytes = expected.get(records.len()).map_or(0, |body| body.len() + 22 + 64);
    assert!(full || records.bytes() + next_bytes > limit.bytes_max, "{} of {}", records.len(), expected.len());
    for (number, (record, body)) in records.iter().zip(expected).enumerate() {
        assert_eq!(record.offset(), Offset::new((from + number) as u64));
        assert_eq!(record.body().unwrap(), body);
        assert_eq!(record.property("p"), Some(b"q".as_slice()));
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_vec_with_halves(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        block_on(run(directory.path(), &quick(), steps));
    }
}
