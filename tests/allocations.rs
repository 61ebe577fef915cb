//! Aim: in steady state a record costs no allocation. Method: the whole job on one thread, on the embedded log with the
//! memory store; what that thread allocates is counted by a counting allocator while the job works off an input, after it
//! has worked off another one. What batches, frames and epochs need is shared by thousands of records.
//!
//! What is not a task's is counted, too: the log's reads and appends. Epochs end by their records, so that a slow machine
//! does not count more of them.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests, as in the tests themselves")]

use onceflow::codec::{Decode, Encode};
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::storage::{Backend, StoreOptions};
use onceflow::topology::{Delivery, StartPolicy, Stream, StreamBuilder, Topology};
use onceflow::types::{Error, Name, Result, Timestamp};
use onceflow::{Config, Runtime, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

const JOB: &str = "allocations";
const QUEUES: u32 = 2;
const KEYS: u64 = 1_000;
const RECORDS: u64 = 200_000;
/// Records of a task in an epoch, and a time that is longer than it takes to work on them.
const EPOCH_RECORDS: usize = 50_000;
const EPOCH_TIME: Duration = Duration::from_secs(3);
const LOOK_TIME: Duration = Duration::from_millis(200);
const LOOKS_MAX: u32 = 600;
/// The most that a record may cost, on average: what batches, frames and epochs take.
const PER_RECORD_MAX: f64 = 0.05;
/// The most that a window of one key may cost, from its first record to its result.
const PER_WINDOW_MAX: f64 = 1.5;
/// Records of one key in a window.
const WINDOW_RECORDS: u64 = 10;
const PATIENCE: Duration = Duration::from_mins(2);

type Key = [u8; 8];

/// 64 bytes: key, number, event time, filler. Reading and writing allocate nothing.
#[derive(Clone, Copy)]
struct Record {
    key: Key,
    number: u64,
    time: i64,
}

struct Bytes;

impl Record {
    /// A hundred records a second of event time, of each key in turn.
    fn new(number: u64) -> Record {
        let time = i64::try_from(number * 10).unwrap();
        Record { key: (number % KEYS).to_be_bytes(), number, time }
    }

    fn encode(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&self.key);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }
}

fn number_at(bytes: &[u8], at: usize) -> Result<[u8; 8]> {
    let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    number.ok_or_else(|| Error::record("too short"))
}

impl Decode<Record> for Bytes {
    fn decode(&self, bytes: &[u8]) -> Result<Record> {
        Ok(Record {
            key: number_at(bytes, 0)?,
            number: u64::from_le_bytes(number_at(bytes, 8)?),
            time: i64::from_le_bytes(number_at(bytes, 16)?),
        })
    }
}

impl Encode<Record> for Bytes {
    fn encode(&self, record: &Record, to: &mut Vec<u8>) -> Result<()> {
        to.extend_from_slice(&record.encode());
        Ok(())
    }
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Sums {
    count: u64,
    sum: u64,
}

impl Sums {
    fn add(&mut self, record: &Record) {
        self.count += 1;
        self.sum += record.number;
    }
}

fn put(to: &mut Vec<u8>, key: Key, sums: Sums) {
    to.extend_from_slice(&key);
    to.extend_from_slice(&sums.count.to_le_bytes());
    to.extend_from_slice(&sums.sum.to_le_bytes());
}

impl Encode<(Key, Sums)> for Bytes {
    fn encode(&self, (key, sums): &(Key, Sums), to: &mut Vec<u8>) -> Result<()> {
        put(to, *key, *sums);
        Ok(())
    }
}

impl Encode<(Key, Windowed<Sums>)> for Bytes {
    fn encode(&self, (key, window): &(Key, Windowed<Sums>), to: &mut Vec<u8>) -> Result<()> {
        put(to, *key, window.value);
        Ok(())
    }
}

const FRAMED: Delivery = Delivery::Outbox { framed: true };

fn topology(of: impl FnOnce(&Stream<Record>)) -> Topology {
    let builder = StreamBuilder::new(JOB).unwrap();
    of(&builder.source("in", Bytes).start(StartPolicy::Earliest).out_of_orderness(Duration::ZERO).idle_timeout(None));
    builder.build().unwrap()
}

async fn produce(log: &dyn Log, from: u64, to: u64) {
    let queues = log.partitions("in").await.unwrap();
    for (number, queue) in (0..).zip(&queues) {
        let mut batch = MessageBatch::default();
        for record in (from..to).filter(|record| record % KEYS % queues.len() as u64 == number) {
            batch.push(&[], &Record::new(record).encode()).unwrap();
            if batch.len() == 1_000 {
                log.append(queue, &batch).await.unwrap();
                batch.clear();
            }
        }
        if !batch.is_empty() {
            log.append(queue, &batch).await.unwrap();
        }
    }
}

fn records_in(job: &Runtime) -> u64 {
    job.status().values().map(|status| status.stages.records_in).sum()
}

/// Allocations per record, after a first input of the same size.
fn allocations_per_record(topology: Topology) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    let group = onceflow::topics::producer_group(&Name::job(JOB).unwrap()).into();
    let options = EmbeddedOptions { group, sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options).unwrap());
    let mut job = tasks.block_on(&runtime, async {
        for topic in ["in", "out"] {
            let spec = TopicSpec { topic: topic.into(), queues: Queues::PerBroker(QUEUES) };
            log.create_topic(&spec).await.unwrap();
        }
        produce(&*log, 0, RECORDS).await;
        let stores = Arc::new(StoreOptions::new(Backend::Memory, directory.path().join("state")));
        let config = Config {
            members_look_time: PATIENCE,
            epoch_time: EPOCH_TIME,
            epoch_records_max: EPOCH_RECORDS,
            ..Config::default()
        };
        let mut job =
            Runtime::builder(topology, log.clone(), stores).config(config).on_this_thread().start().await.unwrap();
        assert!(job.wait_caught_up(PATIENCE).await.unwrap());
        produce(&*log, RECORDS, 2 * RECORDS).await;
        job
    });
    let counted = allocation_counter::measure(|| {
        tasks.block_on(&runtime, async {
            for _ in 0..LOOKS_MAX {
                if records_in(&job) >= 2 * RECORDS {
                    break;
                }
                tokio::time::sleep(LOOK_TIME).await;
            }
        });
    });
    assert!(tasks.block_on(&runtime, job.wait_caught_up(PATIENCE)).unwrap());
    assert_eq!(records_in(&job), 2 * RECORDS, "each of them was worked on once");
    tasks.block_on(&runtime, job.drain()).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let per_record = counted.count_total as f64 / RECORDS as f64;
    println!("{per_record:.4} allocations per record, {} bytes", counted.bytes_total / RECORDS);
    per_record
}

fn check(topology: Topology, per_record_max: f64) {
    let per_record = allocations_per_record(topology);
    assert!(per_record > 0.0, "nothing was counted, so the test shows nothing");
    assert!(per_record < per_record_max, "{per_record} allocations per record");
}

#[test]
fn a_stateless_pipeline_allocates_nothing_per_record() {
    let topology = topology(|records| {
        let kept = records.filter(|record| record.number % 10 != 0);
        kept.map(|record| Record { number: record.number + 1, ..record }).sink("out", "out", Bytes).delivery(FRAMED);
    });
    check(topology, PER_RECORD_MAX);
}

#[test]
fn a_running_sum_allocates_nothing_per_record() {
    let topology = topology(|records| {
        let keyed = records.key_by(|record| record.key).partitioned_by_key();
        keyed.aggregate("running", Sums::default, Sums::add).sink("out", "out", Bytes).delivery(FRAMED);
    });
    check(topology, PER_RECORD_MAX);
}

#[test]
fn a_windowed_sum_allocates_nothing_per_record() {
    let topology = topology(|records| {
        let timed = records.select_timestamp(|record| Timestamp::from_millis(record.time));
        let windows = timed.key_by(|record| record.key).partitioned_by_key();
        // A key has a record every 10 s.
        let windows = windows.window("sums", Windows::tumbling(Duration::from_secs(10 * WINDOW_RECORDS)));
        let merge = |_: &mut Sums, _: &Sums| unreachable!("only sessions are merged");
        windows.aggregate(Sums::default, Sums::add, merge).sink("out", "out", Bytes).delivery(FRAMED);
    });
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    check(topology, PER_RECORD_MAX + PER_WINDOW_MAX / WINDOW_RECORDS as f64);
}
