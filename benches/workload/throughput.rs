//! As many records a second as it can: the input is there, the job is started, and time runs until all is published.

use crate::args::{Args, Role};
use crate::expected::expected;
use crate::measure::{Usage, rss_peak_mb};
use crate::place::Place;
use crate::programs::{self, Names};
use crate::pump::{self, Load};
use crate::spec::Check;
use onceflow::log::Log;
use onceflow::types::{Error, Name, Result};
use onceflow::{Runtime, TopicReader};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Longest run.
const RUN_TIME_MAX: Duration = Duration::from_secs(1_800);

/// Says whether the output was exact.
pub async fn run(args: &Args, place: &Place) -> Result<(Map<String, Value>, bool)> {
    place.run_part(Role::Load)?;
    let log = place.open_log(args).await?;
    let measured = measured(args, log.clone(), place).await?;
    let check = expected(args.workload, args.generator(), args.records());
    let verified = verify(log.clone(), &place.names, check).await?;
    let mut result = report(args, &measured, verified);
    if args.pump {
        let load = Load::like(&*log, &place.names.output, verified.messages).await?;
        // One process at a time has the embedded log.
        drop(log);
        pump::compare(args, place, load, &measured, &mut result)?;
    }
    Ok((result, verified.exact))
}

pub struct Measured {
    pub seconds: f64,
    pub usage: Usage,
    pub rss_peak_mb: Option<f64>,
}

/// Runs the job until all is published.
pub async fn measured(args: &Args, log: Arc<dyn Log>, place: &Place) -> Result<Measured> {
    let topology = programs::topology(args.workload, &place.names, args.delivery())?;
    let builder = Runtime::builder(topology, log, place.stores(args)).config(args.config());
    let before = Usage::now(args.broker_pid);
    let start = tokio::time::Instant::now();
    let mut runtime = builder.start().await?;
    if !runtime.wait_caught_up(RUN_TIME_MAX).await? {
        return Err(Error::retry("the run did not end in time"));
    }
    let seconds = start.elapsed().as_secs_f64();
    let usage = Usage::now(args.broker_pid).since(before);
    let rss_peak_mb = rss_peak_mb();
    if std::env::var_os("ONCEFLOW_BENCH_STATUS").is_some() {
        eprintln!("{:#?}", runtime.status());
    }
    runtime.drain().await?;
    Ok(Measured { seconds, usage, rss_peak_mb })
}

#[derive(Clone, Copy)]
pub struct Verified {
    pub exact: bool,
    pub messages: u64,
    pub duplicates: u64,
}

/// Reads the whole output through the dedup reader.
pub async fn verify(log: Arc<dyn Log>, names: &Names, expected: Check) -> Result<Verified> {
    let mut reader = TopicReader::open(log, &names.output, Name::job(&names.job)?).await?;
    let mut check = Check::default();
    reader.for_each(|record| check.add_output(&record.body)).await?;
    let counts = reader.counts();
    let exact = check == expected && reader.held() == 0;
    if !exact {
        eprintln!("not exact: expected={expected:x?} found={check:x?} held={}", reader.held());
    }
    Ok(Verified { exact, messages: counts.messages, duplicates: counts.dedup.duplicates })
}

fn report(args: &Args, measured: &Measured, verified: Verified) -> Map<String, Value> {
    let records_per_s = args.records as f64 / measured.seconds;
    let [cpu, broker_cpu] = measured.usage.per_million(args.records);
    println!(
        "{} {} {} {}: {:.0} records/s, {:.2} CPU s per million, broker {}, {:.0} MB peak, {} messages, {} raw duplicates, exact: {}",
        args.workload,
        args.log,
        args.store,
        args.delivery,
        records_per_s,
        cpu.unwrap_or(f64::NAN),
        broker_cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.2}")),
        measured.rss_peak_mb.unwrap_or(f64::NAN),
        verified.messages,
        verified.duplicates,
        verified.exact,
    );
    let mut result = args.described("throughput");
    result.extend([
        ("seconds".to_owned(), measured.seconds.into()),
        ("records_per_s".to_owned(), records_per_s.into()),
        ("cpu_s_per_million".to_owned(), cpu.into()),
        ("broker_cpu_s_per_million".to_owned(), broker_cpu.into()),
        ("rss_peak_mb".to_owned(), measured.rss_peak_mb.into()),
        ("other_cpu_share".to_owned(), measured.usage.other_share(measured.seconds).into()),
        ("messages".to_owned(), verified.messages.into()),
        ("raw_duplicates".to_owned(), verified.duplicates.into()),
        ("exact".to_owned(), verified.exact.into()),
    ]);
    result
}
