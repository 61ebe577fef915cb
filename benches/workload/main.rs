//! End-to-end benchmark: one workload, one log, one store, one delivery. Prints a line and, with `--json`, writes one
//! JSON object. Exit code 1 when the output is not exact.
//!
//! `cargo xtask bench` calls it; see `docs/benchmarks.md`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "a program for people, not an API"
)]

mod expected;
mod load;
mod measure;
mod programs;
mod spec;

use clap::Parser;
use onceflow::log::Log;
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::topology::Delivery;
use onceflow::types::{Error, Name, Result};
use onceflow::{Config, Runtime, TopicReader};
use programs::{Names, Workload};
use spec::{Check, Generator};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Parser, Debug)]
struct Args {
    #[arg(long, default_value = "w1")]
    workload: Workload,
    #[arg(long, default_value = "embedded", value_parser = ["embedded", "rocketmq"])]
    log: String,
    #[arg(long, default_value = "fjall")]
    store: Backend,
    #[arg(long, default_value = "framed", value_parser = ["transactional", "outbox", "framed"])]
    delivery: String,
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Different keys [default: 10000; w4: 100000].
    #[arg(long)]
    keys: Option<u64>,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Write the result here.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The name server of a running broker, for `--log rocketmq`.
    #[arg(long)]
    name_server: Option<String>,
    /// Where log and state go; a temporary directory by default.
    #[arg(long, overrides_with = "dir")]
    dir: Option<PathBuf>,
    /// Time between commits, in ms.
    #[arg(long, default_value_t = 200)]
    epoch_ms: u64,
    /// Ask the disk to sync each append of the embedded log.
    #[arg(long)]
    sync: bool,
    /// Tells the topics of this run apart on a broker.
    #[arg(long, hide = true)]
    run: Option<u32>,
    /// Only write the input: in a process of its own, so that its memory is not counted.
    #[arg(long, hide = true)]
    load_only: bool,
    // Cargo passes this to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    expected::self_check(args.workload).map_err(Error::bug)?;
    let temporary = tempfile::tempdir().map_err(|e| Error::invalid("no temporary directory").with_source(e))?;
    let directory = args.dir.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::retry("no runtime").with_source(e))?;
    runtime.block_on(async {
        let run = args.run.unwrap_or_else(std::process::id);
        let names = Names::new(args.workload, &if args.log == "rocketmq" { format!("-{run}") } else { String::new() });
        let generator = Generator { seed: 42, keys: args.keys() };
        if args.load_only {
            let log = open_log(args, &directory, &names).await?;
            return load::load(&*log, args.workload, &names, generator, args.records).await.map(|()| true);
        }
        load_elsewhere(&directory, run)?;
        let log = open_log(args, &directory, &names).await?;
        let result = measure_run(args, log.clone(), &names, &directory).await?;
        let exact = verify(log, &names, expected::expected(args.workload, generator, args.records)).await?;
        report(args, &result, exact)?;
        Ok(exact.exact)
    })
}

impl Args {
    fn keys(&self) -> u64 {
        self.keys.unwrap_or(self.workload.keys())
    }

    fn delivery(&self) -> Delivery {
        match self.delivery.as_str() {
            "transactional" => Delivery::Transactional,
            "outbox" => Delivery::Outbox { framed: false },
            _ => Delivery::Outbox { framed: true },
        }
    }
}

async fn open_log(args: &Args, directory: &Path, names: &Names) -> Result<Arc<dyn Log>> {
    let group = onceflow::topics::producer_group(&Name::job(&names.job)?);
    match (args.log.as_str(), &args.name_server) {
        ("rocketmq", Some(address)) => open_rocketmq(address, &group).await,
        ("rocketmq", None) => Err(Error::invalid("--log rocketmq needs --name-server")),
        _ => open_embedded(args, directory, &group),
    }
}

fn open_embedded(args: &Args, directory: &Path, group: &str) -> Result<Arc<dyn Log>> {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
    let sync = if args.sync { Sync::EachAppend } else { Sync::Never };
    let options = EmbeddedOptions { group: group.into(), sync, ..EmbeddedOptions::default() };
    Ok(Arc::new(EmbeddedLog::open(directory.join("log"), options)?))
}

#[cfg(feature = "rocketmq")]
async fn open_rocketmq(address: &str, group: &str) -> Result<Arc<dyn Log>> {
    use onceflow::log::rocketmq::{RocketLog, RocketOptions};
    Ok(Arc::new(RocketLog::open(RocketOptions::new(address, group)).await?))
}

#[cfg(not(feature = "rocketmq"))]
async fn open_rocketmq(_: &str, _: &str) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("built without the feature rocketmq"))
}

/// Runs this program again to write the input.
fn load_elsewhere(directory: &Path, run: u32) -> Result<()> {
    let program = std::env::current_exe().map_err(|e| Error::invalid("own program is gone").with_source(e))?;
    let status = std::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--load-only", "--run", &run.to_string(), "--dir"])
        .arg(directory)
        .status()
        .map_err(|e| Error::invalid("cannot load the input").with_source(e))?;
    if status.success() { Ok(()) } else { Err(Error::retry(format!("loading the input failed: {status}"))) }
}

struct Measured {
    seconds: f64,
    cpu_seconds: Option<f64>,
    rss_peak_mb: Option<f64>,
}

async fn measure_run(args: &Args, log: Arc<dyn Log>, names: &Names, directory: &Path) -> Result<Measured> {
    const RUN_TIME_MAX: Duration = Duration::from_secs(1_800);
    let stores: Arc<dyn StoreFactory> = Arc::new(StoreOptions::new(args.store, directory.join("state")));
    let config =
        Config { threads: args.threads, epoch_time: Duration::from_millis(args.epoch_ms), ..Config::default() };
    let topology = programs::topology(args.workload, names, args.delivery())?;
    let cpu = measure::cpu();
    let start = tokio::time::Instant::now();
    let mut runtime = Runtime::builder(topology, log, stores).config(config).start().await?;
    if !runtime.wait_caught_up(RUN_TIME_MAX).await? {
        return Err(Error::retry("the run did not end in time"));
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = measure::cpu().zip(cpu).map(|(after, before)| (after - before).as_secs_f64());
    let rss_peak_mb = measure::rss_peak_mb();
    if std::env::var_os("ONCEFLOW_BENCH_STATUS").is_some() {
        eprintln!("{:#?}", runtime.status());
    }
    runtime.drain().await?;
    Ok(Measured { seconds, cpu_seconds, rss_peak_mb })
}

#[derive(Clone, Copy)]
struct Verified {
    exact: bool,
    messages: u64,
    duplicates: u64,
}

/// Reads the whole output through the dedup reader.
async fn verify(log: Arc<dyn Log>, names: &Names, expected: Check) -> Result<Verified> {
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

fn report(args: &Args, measured: &Measured, verified: Verified) -> Result<()> {
    let records_per_s = args.records as f64 / measured.seconds;
    let cpu_s_per_million = measured.cpu_seconds.map(|cpu| cpu * 1e6 / args.records as f64);
    println!(
        "{} {} {} {}: {:.0} records/s, {:.2} CPU s per million, {:.0} MB peak, {} messages, {} raw duplicates, exact: {}",
        args.workload,
        args.log,
        args.store,
        args.delivery,
        records_per_s,
        cpu_s_per_million.unwrap_or(f64::NAN),
        measured.rss_peak_mb.unwrap_or(f64::NAN),
        verified.messages,
        verified.duplicates,
        verified.exact,
    );
    let Some(path) = &args.json else { return Ok(()) };
    let object = serde_json::json!({
        "workload": args.workload.to_string(),
        "log": args.log,
        "store": args.store.to_string(),
        "delivery": args.delivery,
        "records": args.records,
        "keys": args.keys(),
        "threads": args.threads,
        "epoch_ms": args.epoch_ms,
        "sync": args.sync,
        "seconds": measured.seconds,
        "records_per_s": records_per_s,
        "cpu_s_per_million": cpu_s_per_million,
        "rss_peak_mb": measured.rss_peak_mb,
        "messages": verified.messages,
        "raw_duplicates": verified.duplicates,
        "exact": verified.exact,
    });
    let text = format!("{object}\n");
    std::fs::write(path, text).map_err(|e| Error::invalid(format!("cannot write {}", path.display())).with_source(e))
}
