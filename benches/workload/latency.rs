//! How long a record takes from when it is due to be sent until its result reaches a consumer of the output, at a fixed rate.
//!
//! ```text
//! producer ──► input ──► the job, in this process ──► output ──► consumer
//! ```
//! Producer and consumer are processes of their own on a broker, and threads of this one on the embedded log, which only one
//! process has open.

use crate::args::{Args, Role};
use crate::consumer::{self, Consumed};
use crate::load;
use crate::measure::{Usage, now_us, rss_peak_mb};
use crate::place::{Place, failed};
use crate::producer::{self, Produced};
use crate::programs;
use crate::restore::until_running;
use crate::spec::Pace;
use onceflow::Runtime;
use onceflow::log::Log;
use onceflow::types::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// Until the first record is due: producer and consumer have started then.
const LEAD_TIME: Duration = Duration::from_secs(2);
/// Longest wait for what is not processed when the producer is done.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(60);

/// Says whether the output was exact.
pub async fn run(args: &Args, place: &Place) -> Result<(Map<String, Value>, bool)> {
    let log = place.open_log(args).await?;
    load::create(&*log, &place.names).await?;
    let topology = programs::topology(args.workload, &place.names, args.delivery())?;
    let builder = Runtime::builder(topology, log.clone(), place.stores(args)).config(args.config());
    let mut runtime = builder.start().await?;
    until_running(&runtime).await?;
    let begin_us = now_us() + LEAD_TIME.as_micros() as i64;
    let before = Usage::now(args.broker_pid);
    let (produced, consumed) = if args.log == "rocketmq" {
        elsewhere(place, begin_us).await?
    } else {
        beside(args, place, &log, begin_us).await?
    };
    let usage = Usage::now(args.broker_pid).since(before);
    if !runtime.wait_caught_up(CATCH_UP_TIME_MAX).await? {
        return Err(Error::retry("the job did not catch up in time"));
    }
    runtime.drain().await?;
    Ok(report(args, produced, &consumed, usage))
}

/// Producer and consumer as processes.
async fn elsewhere(place: &Place, begin_us: i64) -> Result<(Produced, Consumed)> {
    let start = |role| {
        let mut part = place.part(role)?;
        part.args(["--begin-us", &begin_us.to_string()]).stdout(Stdio::piped());
        let child = part.spawn().map_err(|e| failed(role).with_source(e))?;
        Ok::<_, Error>(tokio::task::spawn_blocking(move || child.wait_with_output()))
    };
    let consumer = start(Role::Consume)?;
    let producer = start(Role::Produce)?;
    Ok((said(Role::Produce, producer).await?, said(Role::Consume, consumer).await?))
}

async fn said<T: DeserializeOwned>(
    role: Role,
    child: tokio::task::JoinHandle<std::io::Result<std::process::Output>>,
) -> Result<T> {
    let output = child.await.map_err(|e| failed(role).with_source(e))?.map_err(|e| failed(role).with_source(e))?;
    if !output.status.success() {
        return Err(failed(role).context(format!("status={}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(role).with_source(e))
}

/// Producer and consumer as threads.
async fn beside(args: &Args, place: &Place, log: &Arc<dyn Log>, begin_us: i64) -> Result<(Produced, Consumed)> {
    let timed = Timed::new(args, begin_us)?;
    let thread = |role: Role| {
        let (names, log) = (place.names.clone(), log.clone());
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|e| failed(role).with_source(e))?;
            match role {
                Role::Produce => runtime.block_on(producer::produce(&*log, &names, timed)).map(serde_json::to_value),
                _ => runtime.block_on(consumer::consume(&*log, &names, timed)).map(serde_json::to_value),
            }
        })
    };
    let (consumer, producer) = (thread(Role::Consume), thread(Role::Produce));
    Ok((joined(Role::Produce, producer).await?, joined(Role::Consume, consumer).await?))
}

async fn joined<T: DeserializeOwned>(
    role: Role,
    thread: tokio::task::JoinHandle<Result<serde_json::Result<Value>>>,
) -> Result<T> {
    let value = thread.await.map_err(|e| failed(role).with_source(e))??;
    value.and_then(serde_json::from_value).map_err(|e| failed(role).with_source(e))
}

/// What producer and consumer know.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    pub workload: programs::Workload,
    pub generator: crate::spec::Generator,
    pub pace: Pace,
    /// Records in all, those of the warm-up included.
    pub records: u64,
    /// Only what was due from here on is measured.
    pub measured_from_us: i64,
    pub end_us: i64,
}

impl Timed {
    pub fn new(args: &Args, begin_us: i64) -> Result<Timed> {
        let rate = args.latency.filter(|rate| *rate > 0).ok_or_else(|| Error::invalid("--latency needs a rate"))?;
        let pace = Pace { begin_us, rate };
        let records = rate * (args.warm + args.seconds);
        Ok(Timed {
            workload: args.workload,
            generator: crate::spec::Generator { pace: Some(pace), ..args.generator() },
            pace,
            records,
            measured_from_us: pace.due_us(rate * args.warm),
            end_us: pace.due_us(records),
        })
    }
}

fn report(args: &Args, produced: Produced, consumed: &Consumed, usage: Usage) -> (Map<String, Value>, bool) {
    let records = args.latency.unwrap_or(0) * (args.warm + args.seconds);
    let [cpu, broker_cpu] = usage.per_million(records);
    println!(
        "{} {} {} {} at {}/s: p50 {:.1} ms, p99 {:.1}, p99.9 {:.1}, {} samples, producer at most {:.1} ms late, exact: {}",
        args.workload,
        args.log,
        args.store,
        args.delivery,
        args.latency.unwrap_or(0),
        consumed.p50_ms,
        consumed.p99_ms,
        consumed.p999_ms,
        consumed.samples,
        produced.lag_max_ms,
        consumed.exact,
    );
    let mut result = args.described("latency");
    result.insert("records".to_owned(), records.into());
    result.extend([
        ("rate".to_owned(), args.latency.into()),
        ("seconds".to_owned(), args.seconds.into()),
        ("warm".to_owned(), args.warm.into()),
        ("p50_ms".to_owned(), consumed.p50_ms.into()),
        ("p99_ms".to_owned(), consumed.p99_ms.into()),
        ("p999_ms".to_owned(), consumed.p999_ms.into()),
        ("max_ms".to_owned(), consumed.max_ms.into()),
        ("samples".to_owned(), consumed.samples.into()),
        ("producer_lag_max_ms".to_owned(), produced.lag_max_ms.into()),
        ("cpu_s_per_million".to_owned(), cpu.into()),
        ("broker_cpu_s_per_million".to_owned(), broker_cpu.into()),
        ("rss_peak_mb".to_owned(), rss_peak_mb().into()),
        ("exact".to_owned(), consumed.exact.into()),
    ]);
    (result, consumed.exact)
}
