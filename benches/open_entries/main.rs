//! What many open windows, sessions or join rows cost: `--open` keys get one each, `--records` more records go to a few of
//! these keys, and then all close. Prints the cost of the records in the middle, of closing, and the memory of each part.
//! Exit code 1 when the output is not exact.
//!
//! `cargo bench --workspace --all-features --bench open_entries -- --operator session --open 10000000 --store rocksdb`
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "a program for people, not an API"
)]

#[allow(dead_code, reason = "the workloads use more of it")]
#[path = "../workload/measure.rs"]
mod measure;

use clap::Parser;
use onceflow::codec::{Decode, Encode};
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::topology::{Delivery, StartPolicy, Stream, StreamBuilder, Topology};
use onceflow::types::{Error, Name, Result, Timestamp};
use onceflow::{Config, JoinWindow, Runtime, TopicReader, Windowed, Windows};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const JOB: &str = "open";
const INPUT: &str = "open-in";
const OUTPUT: &str = "open-out";
/// Nothing closes before a record that lies behind it.
const DAY: Duration = Duration::from_secs(24 * 3_600);
const END: i64 = 30 * 24 * 3_600_000;
/// Event time lets so many records share a millisecond.
const RECORDS_PER_MILLI: u64 = 1_000;
const PART_TIME_MAX: Duration = Duration::from_secs(3_600);

#[derive(Parser, Debug)]
struct Args {
    /// What is open.
    #[arg(long, value_parser = ["tumbling", "session", "join"])]
    operator: String,
    /// How many of them.
    #[arg(long)]
    open: u64,
    /// Records that are measured.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// The keys that they go to.
    #[arg(long, default_value_t = 10)]
    keys: u64,
    #[arg(long, default_value = "rocksdb")]
    store: Backend,
    // Cargo passes this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Key and event time; of a join, whether it is a right row. 17 bytes, little-endian.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Entry {
    key: u64,
    time: i64,
    right: bool,
}

#[derive(Clone, Copy, Debug)]
struct EntryCodec;

impl Decode<Entry> for EntryCodec {
    fn decode(&self, bytes: &[u8]) -> Result<Entry> {
        let bytes: &[u8; 17] = bytes.try_into().map_err(|_| Error::record("not an entry"))?;
        let (key, time) = (bytes[..8].try_into(), bytes[8..16].try_into());
        let (key, time) = (key.expect("eight bytes"), time.expect("eight bytes"));
        Ok(Entry { key: u64::from_le_bytes(key), time: i64::from_le_bytes(time), right: bytes[16] == 1 })
    }
}

/// The number of records that a result stands for.
#[derive(Clone, Copy, Debug)]
struct CountCodec;

impl Encode<u64> for CountCodec {
    fn encode(&self, count: &u64, to: &mut Vec<u8>) -> Result<()> {
        to.extend_from_slice(&count.to_le_bytes());
        Ok(())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(run(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::FAILURE
        }
    }
}

fn topology(operator: &str) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    let entries = builder.source(INPUT, EntryCodec).start(StartPolicy::Earliest);
    let entries = entries.out_of_orderness(Duration::ZERO).idle_timeout(None);
    let entries = entries.select_timestamp(|entry| Timestamp::from_millis(entry.time));
    let counts: Stream<u64> = match operator {
        "join" => {
            let side = |right| {
                let some = entries.filter(move |entry: &Entry| entry.right == right);
                some.key_by(|entry| entry.key).partitioned_by_key()
            };
            side(false).join("open", &side(true), JoinWindow::within(DAY)).inner(|_, _| 1).values()
        }
        operator => {
            let windows = if operator == "session" { Windows::session(DAY) } else { Windows::tumbling(DAY) };
            let keyed = entries.key_by(|entry| entry.key).partitioned_by_key();
            keyed.window("open", windows).count().map(|_, count: Windowed<u64>| count.value)
        }
    };
    counts.sink("out", OUTPUT, CountCodec).delivery(Delivery::Outbox { framed: true });
    builder.build()
}

/// Job, log and store of a run.
struct Bench<'a> {
    args: &'a Args,
    log: Arc<dyn Log>,
    stores: Arc<dyn StoreFactory>,
    sent: u64,
}

impl Bench<'_> {
    async fn append(&mut self, entries: impl Iterator<Item = (u64, bool)>) -> Result<()> {
        const BATCH: usize = 2_000;
        let queue = self.log.partitions(INPUT).await?.swap_remove(0);
        let mut batch = MessageBatch::default();
        for (key, right) in entries {
            let time = (self.sent / RECORDS_PER_MILLI) as i64;
            self.sent += 1;
            self.push(&mut batch, Entry { key, time, right })?;
            if batch.len() == BATCH {
                self.log.append(&queue, &batch).await?;
                batch.clear();
            }
        }
        if batch.is_empty() { Ok(()) } else { self.log.append(&queue, &batch).await.map(drop) }
    }

    fn push(&self, batch: &mut MessageBatch, entry: Entry) -> Result<()> {
        let mut body = [0; 17];
        body[..8].copy_from_slice(&entry.key.to_le_bytes());
        body[8..16].copy_from_slice(&entry.time.to_le_bytes());
        body[16] = entry.right.into();
        batch.push(&[], &body)
    }

    /// Runs the job over what there is; prints what that cost.
    async fn part(&self, what: &str, records: u64) -> Result<()> {
        let config = Config { threads: 1, ..Config::default() };
        let (start, cpu) = (Instant::now(), measure::cpu_of("self"));
        let runtime = Runtime::builder(topology(&self.args.operator)?, self.log.clone(), self.stores.clone());
        let mut runtime = runtime.config(config).start().await?;
        if !runtime.wait_caught_up(PART_TIME_MAX).await? {
            return Err(Error::retry("the part did not end in time"));
        }
        let seconds = start.elapsed().as_secs_f64();
        let cpu_micros =
            measure::cpu_of("self").zip(cpu).map_or(f64::NAN, |(after, before)| (after - before).as_secs_f64() * 1e6);
        println!(
            "{} {} open={} {what}: records={records} records_per_s={:.0} cpu_us_per_record={:.2} rss_peak_mb={:.0}",
            self.args.operator,
            self.args.store,
            self.args.open,
            records as f64 / seconds,
            cpu_micros / records as f64,
            measure::rss_peak_mb().unwrap_or(f64::NAN),
        );
        runtime.drain().await
    }

    async fn outputs(&self) -> Result<(u64, u64)> {
        let mut reader = TopicReader::open(self.log.clone(), OUTPUT, Name::job(JOB)?).await?;
        let (mut results, mut sum) = (0, 0);
        let mut add = |body: &[u8]| {
            results += 1;
            sum += body.try_into().map_or(0, u64::from_le_bytes);
        };
        reader.for_each(|record| add(&record.body)).await?;
        Ok((results, sum))
    }
}

async fn run(args: &Args) -> Result<bool> {
    let directory = tempfile::tempdir().map_err(|e| Error::invalid("no temporary directory").with_source(e))?;
    let options = EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() };
    let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options)?);
    for topic in [INPUT, OUTPUT] {
        log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(1) }).await?;
    }
    let stores = StoreOptions::new(args.store, directory.path().join("state"));
    let mut bench = Bench { args, log, stores: Arc::new(stores), sent: 0 };
    bench.append((0..args.open).map(|key| (key, false))).await?;
    bench.part("opening", args.open).await?;
    let keys = args.keys.min(args.open);
    // Spread over all keys that there are.
    bench.append((0..args.records).map(|record| (record % keys * (args.open / keys), true))).await?;
    bench.part("records", args.records).await?;
    bench.sent = END as u64 * RECORDS_PER_MILLI;
    bench.append(std::iter::once((u64::MAX, false))).await?;
    bench.part("closing", args.open).await?;
    let expected = match &*args.operator {
        "join" => (args.records, args.records),
        _ => (args.open, args.open + args.records),
    };
    let found = bench.outputs().await?;
    println!(
        "{} open={} exact={} (results, records): expected={expected:?} found={found:?}",
        args.operator,
        args.open,
        found == expected
    );
    Ok(found == expected)
}
