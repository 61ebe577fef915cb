//! The bare pump: what log and client reach on this machine when nothing is processed. It reads the same input through the
//! same client and sends as many messages of the same size as the job did. For output by half messages: as many halves,
//! each ended by a commit. Its time, as the job's, ends when all of them can be read.

use crate::args::{Args, Role};
use crate::load::until_readable;
use crate::measure::Usage;
use crate::place::{Place, failed};
use crate::throughput::Measured;
use futures_util::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use onceflow::log::{End, Log, MessageBatch, Properties, Queues, ReadLimit, TopicSpec};
use onceflow::types::{Error, Offset, Partition, Result};
use serde_json::{Map, Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// As the engine reads.
const READ: ReadLimit = ReadLimit { records_max: 4_096, bytes_max: 1 << 20, wait_max: Duration::from_secs(1) };
/// Messages of one send; more did not make it faster.
const BATCH: u64 = 2_000;
/// Most bytes of one send, whatever the messages' size; a larger message goes alone.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Sends of one queue under way at once,
const SENDS_MAX: usize = 4;
/// ... and halves and ENDs: as many as a task of the engine may have.
const HALVES_MAX: usize = 256;

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub messages: u64,
    /// Bytes of one message.
    pub body: u64,
    pub properties: u64,
}

impl Load {
    /// As many messages as there are, of the size that the first ones of each queue have.
    pub async fn like(log: &dyn Log, topic: &str, messages: u64) -> Result<Load> {
        let (mut count, mut body, mut properties) = (0, 0, 0);
        for partition in log.partitions(topic).await? {
            let range = log.offsets(&partition).await?;
            if range.first == range.next {
                continue;
            }
            let batch = log.read(&partition, range.first, READ).await?;
            for record in batch.iter() {
                count += 1;
                body += record.body().map_or(0, |body| body.len() as u64);
                properties += record.properties().len() as u64;
            }
        }
        let count = count.max(1);
        Ok(Load { messages, body: body / count, properties: properties / count })
    }

    fn batch(self, messages: u64) -> Result<MessageBatch> {
        let mut properties = Properties::default();
        // A property of three bytes and its value.
        if self.properties > 3 {
            properties.push("P", &"p".repeat(self.properties as usize - 3))?;
        }
        // Bytes that do not compress, as frames do not either.
        let body: Vec<u8> = (0..self.body).map(|byte| (byte.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        let mut batch = MessageBatch::default();
        for _ in 0..messages {
            batch.push(properties.as_bytes(), &body)?;
        }
        Ok(batch)
    }

    fn per_batch(self) -> u64 {
        (BATCH_BYTES_MAX / (self.body + self.properties).max(1)).clamp(1, BATCH)
    }
}

/// Runs the pump in a process of its own; adds its figures to the result of the job.
pub fn compare(args: &Args, place: &Place, load: Load, ours: &Measured, to: &mut Map<String, Value>) -> Result<()> {
    let mut command = place.part(Role::Pump)?;
    let words = [load.messages, load.body, load.properties].map(|number| number.to_string());
    let output = command.args(["--pump-load", &words.join(",")]).stdout(Stdio::piped()).spawn();
    let output =
        output.and_then(std::process::Child::wait_with_output).map_err(|e| failed(Role::Pump).with_source(e))?;
    if !output.status.success() {
        return Err(failed(Role::Pump).context(format!("status={}", output.status)));
    }
    let said: Value = serde_json::from_slice(&output.stdout).map_err(|e| failed(Role::Pump).with_source(e))?;
    let of = |key: &str| said[key].as_f64();
    let per_million = |key: &str| of(key).map(|seconds| seconds * 1e6 / args.records as f64);
    let seconds = of("seconds").ok_or_else(|| failed(Role::Pump))?;
    println!(
        "  bare pump: {:.0} records/s, ours are {:.2} of it",
        args.records as f64 / seconds,
        seconds / ours.seconds
    );
    to.extend([
        ("pump_per_s".to_owned(), (args.records as f64 / seconds).into()),
        ("of_pump".to_owned(), (seconds / ours.seconds).into()),
        ("pump_cpu_s_per_million".to_owned(), per_million("cpu_s").into()),
        ("pump_broker_cpu_s_per_million".to_owned(), per_million("broker_cpu_s").into()),
        ("message_body_bytes".to_owned(), load.body.into()),
        ("message_properties_bytes".to_owned(), load.properties.into()),
    ]);
    Ok(())
}

/// The pump itself; prints what it measured.
pub async fn part(args: &Args, place: &Place) -> Result<()> {
    let [messages, body, properties] = args.pump_load[..] else { return Err(Error::invalid("--pump-load: 3 numbers")) };
    let load = Load { messages, body, properties };
    let log = place.open_log(args).await?;
    let topic = format!("{}-pump", place.names.output);
    let queues = Queues::SameAs(place.names.output.as_str().into());
    log.create_topic(&TopicSpec { topic: topic.as_str().into(), queues }).await?;
    let outputs = log.partitions(&topic).await?;
    let before = Usage::now(args.broker_pid);
    let start = tokio::time::Instant::now();
    let sent = if args.delivery == "transactional" {
        halves(&*log, &outputs, load).await?
    } else {
        pump(&log, place, &outputs, load).await?
    };
    until_readable(&*log, &[topic], sent).await?;
    let seconds = start.elapsed().as_secs_f64();
    let [cpu_s, broker_cpu_s] = Usage::now(args.broker_pid).since(before).seconds();
    println!("{}", json!({ "seconds": seconds, "cpu_s": cpu_s, "broker_cpu_s": broker_cpu_s }));
    Ok(())
}

/// How many messages were sent: a few less than asked for, where the queues' shares are rounded.
async fn pump(log: &Arc<dyn Log>, place: &Place, outputs: &[Partition], load: Load) -> Result<u64> {
    let mut inputs = Vec::new();
    for topic in &place.names.inputs {
        for partition in log.partitions(topic).await? {
            let end = log.offsets(&partition).await?.next;
            inputs.push((partition, end));
        }
    }
    let all: u64 = inputs.iter().map(|(_, end)| end.get()).sum();
    let full = Arc::new(load.batch(load.per_batch())?);
    let mut pipes: Vec<tokio::task::JoinHandle<Result<u64>>> = Vec::new();
    for (number, (input, end)) in inputs.into_iter().enumerate() {
        let output = outputs[number % outputs.len()].clone();
        let pipe = Pipe { log: log.clone(), input, end, output, load, full: full.clone(), all };
        pipes.push(tokio::spawn(async move { pipe.run().await }));
    }
    let mut sent = 0;
    for pipe in pipes {
        sent += pipe.await.map_err(|e| Error::bug("the pump broke").with_source(e))??;
    }
    Ok(sent)
}

/// One queue of the input, pumped into one queue of the output.
struct Pipe {
    log: Arc<dyn Log>,
    input: Partition,
    end: Offset,
    output: Partition,
    load: Load,
    full: Arc<MessageBatch>,
    /// Records of the whole input.
    all: u64,
}

impl Pipe {
    async fn run(&self) -> Result<u64> {
        let (mut at, mut sent) = (Offset::ZERO, 0);
        let mut sends = FuturesUnordered::new();
        while at < self.end {
            let batch = self.log.read(&self.input, at, READ).await?;
            at = batch.next_offset().unwrap_or(at);
            // Messages come out in step with the records that went in.
            let due = (u128::from(self.load.messages) * u128::from(at.get()) / u128::from(self.all)) as u64;
            while due - sent >= self.load.per_batch() || (at >= self.end && due > sent) {
                let count = (due - sent).min(self.load.per_batch());
                sent += count;
                while sends.len() >= SENDS_MAX {
                    if let Some(done) = sends.next().await {
                        finished(done)?;
                    }
                }
                sends.push(self.send(count)?);
            }
        }
        while let Some(done) = sends.next().await {
            finished(done)?;
        }
        Ok(sent)
    }

    fn send(&self, count: u64) -> Result<tokio::task::JoinHandle<Result<()>>> {
        let whole = count == self.load.per_batch();
        let batch = if whole { self.full.clone() } else { Arc::new(self.load.batch(count)?) };
        let (log, output) = (self.log.clone(), self.output.clone());
        Ok(tokio::spawn(async move { log.append(&output, &batch).await.map(|_| ()) }))
    }
}

fn finished(done: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    done.map_err(|e| Error::bug("the pump broke").with_source(e))?
}

/// Half messages, each ended as soon as it is there.
async fn halves(log: &dyn Log, outputs: &[Partition], load: Load) -> Result<u64> {
    let half = load.batch(1)?;
    let all = stream::iter((0..load.messages).map(|number| {
        let (half, output) = (&half, &outputs[number as usize % outputs.len()]);
        async move {
            let prepared = log.prepare(output, half).await?;
            log.end(&prepared.handle, End::Commit).await.map(|_| ())
        }
    }));
    all.buffer_unordered(HALVES_MAX).try_collect::<()>().await?;
    Ok(load.messages)
}
