//! How fast a RocketMQ broker takes and gives, through `RocketLog`: one line for each kind of work.
//!
//! `cargo run --release -p onceflow-log --features rocketmq --example rocketmq_speed -- HOST:PORT [SECONDS] [IN_FLIGHT]`
//!
//! It makes a topic of four queues and leaves it behind. The name server and broker should be there for tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_log::{End, Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow_types::{Clock, HalfHandle, Offset, Partition, Result, SystemClock};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

const BODY_BYTES: usize = 100;
const BATCH_MESSAGES: usize = 200;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name_server = arguments.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(4);
    let in_flight = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(64);
    let time = Duration::from_secs(seconds);

    let log = RocketLog::open(RocketOptions::new(name_server, format!("speed-{}", SystemClock.now()))).await?;
    let topic = format!("speed-{}", SystemClock.now());
    log.create_topic(&TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(4) }).await?;
    let queues = log.partitions(&topic).await?;
    let queue = |number: usize| queues.get(number % queues.len()).unwrap_or_else(|| unreachable!("four queues"));

    let (log, one, many) = (&log, &batch(1)?, &batch(BATCH_MESSAGES)?);
    let name = format!("batches of {BATCH_MESSAGES} x {BODY_BYTES} B, 8 in flight");
    let append = |number| {
        let queue = queue(number);
        async move { log.append(queue, many).await.map(drop) }
    };
    measure(&name, time, 8, BATCH_MESSAGES, append).await?;

    let name = format!("single appends, {in_flight} in flight");
    let append = |number| {
        let queue = queue(number);
        async move { log.append(queue, one).await.map(drop) }
    };
    measure(&name, time, in_flight, 1, append).await?;

    let halves: &Mutex<Vec<HalfHandle>> = &Mutex::default();
    let name = format!("halves, {in_flight} in flight");
    let prepare = |number| {
        let queue = queue(number);
        async move {
            let prepared = log.prepare(queue, one).await?;
            halves.lock().map(|mut halves| halves.push(prepared.handle)).unwrap_or_default();
            Ok(())
        }
    };
    measure(&name, time, in_flight, 1, prepare).await?;

    let handles = &halves.lock().map(|halves| halves.clone()).unwrap_or_default();
    let name = format!("ends, {in_flight} in flight");
    let end = |number: usize| async move {
        let handle = handles.get(number % handles.len()).unwrap_or_else(|| unreachable!("some halves"));
        log.end(handle, End::Commit).await.map(drop)
    };
    measure(&name, time, in_flight, 1, end).await?;

    read("reads of one queue", log, &queues[..1]).await?;
    read("reads of four queues at once", log, &queues).await?;
    log.close().await;
    Ok(())
}

fn batch(messages: usize) -> Result<MessageBatch> {
    let mut batch = MessageBatch::default();
    for _ in 0..messages {
        batch.push(b"", &[b'x'; BODY_BYTES])?;
    }
    Ok(batch)
}

/// Keeps `in_flight` calls under way until `time` is over.
async fn measure<F: Future<Output = Result<()>>>(
    name: &str,
    time: Duration,
    in_flight: usize,
    records: usize,
    work: impl Fn(usize) -> F,
) -> Result<()> {
    let start = Instant::now();
    let mut running: FuturesUnordered<F> = (0..in_flight).map(&work).collect();
    let mut done = 0;
    while let Some(result) = running.next().await {
        result?;
        done += 1;
        if start.elapsed() < time {
            running.push(work(done + in_flight));
        }
    }
    print(name, done * records, start.elapsed());
    Ok(())
}

async fn read(name: &str, log: &RocketLog, queues: &[Partition]) -> Result<()> {
    let start = Instant::now();
    let readers = queues.iter().map(|queue| async move {
        let limit = ReadLimit { records_max: 4_096, bytes_max: 8 << 20, wait_max: Duration::ZERO };
        let (mut next, mut bytes, mut reads) = (Offset::ZERO, 0, 0);
        loop {
            let records = log.read(queue, next, limit).await?;
            let Some(after) = records.next_offset() else { return Ok((next.get(), bytes, reads)) };
            bytes += records.iter().map(|record| record.body().map_or(0, <[u8]>::len)).sum::<usize>();
            reads += 1;
            next = after;
        }
    });
    let results: Vec<Result<(u64, usize, usize)>> = futures_util::future::join_all(readers).await;
    let mut total = (0, 0, 0);
    for result in results {
        let (records, bytes, reads) = result?;
        total = (total.0 + records, total.1 + bytes, total.2 + reads);
    }
    let records = usize::try_from(total.0).unwrap_or(usize::MAX);
    print(&format!("{name} ({} records a read)", records / total.2.max(1)), records, start.elapsed());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn print(name: &str, records: usize, took: Duration) {
    let rate = records as f64 / took.as_secs_f64();
    println!("{name:55} {records:>9} in {:>6.2} s = {rate:>9.0} a second", took.as_secs_f64());
}
