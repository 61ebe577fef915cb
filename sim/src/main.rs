//! Runs seeds of the simulation and prints one summary line.

use clap::Parser;
use onceflow_sim::{Counts, Fault, Report, Wish, Workload, run};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Failed seeds that are printed in full.
const SHOWN_MAX: usize = 20;

/// Simulates jobs under faults, one run a seed.
#[derive(Parser)]
struct Args {
    /// The seeds, `A..B` without B, or a single one
    #[arg(long, value_parser = seeds)]
    seeds: Range<u64>,
    /// Only this workload: counts, transfers, chain, windows, joins
    #[arg(long)]
    workload: Option<Workload>,
    /// Only these kinds of faults, separated by commas
    #[arg(long, value_delimiter = ',')]
    faults: Option<Vec<Fault>>,
    /// Runs at the same time; 0: one for each core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Prints every run
    #[arg(long)]
    verbose: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

#[derive(Default)]
struct Summary {
    runs: u64,
    failed: Vec<u64>,
    counts: Counts,
    records: u64,
    epochs: u64,
    claims: u64,
    raw_duplicates: u64,
    drain_seconds_max: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    let next = AtomicU64::new(args.seeds.start);
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    };
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let (sender, reports) = mpsc::channel();
        for _ in 0..threads {
            let (sender, next, args) = (sender.clone(), &next, &args);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        return;
                    }
                    let faults = args.faults.clone().unwrap_or_else(|| Fault::ALL.to_vec());
                    let _ = sender.send(run(&Wish { seed, workload: args.workload, faults, plant: None }));
                }
            });
        }
        drop(sender);
        for report in reports {
            summary.take(&report, &args);
        }
    });
    summary.print(&args);
    if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Summary {
    fn take(&mut self, report: &Report, args: &Args) {
        self.runs += 1;
        self.counts.add(&report.counts);
        self.records += report.records;
        self.epochs += report.epochs;
        self.claims += report.claims;
        self.raw_duplicates += report.raw_duplicates;
        self.drain_seconds_max = self.drain_seconds_max.max(report.drain_time.as_secs());
        if args.verbose {
            println!(
                "seed={} workload={} records={} epochs={} claims={} faults={} raw_duplicates={} drain_ms={} trace={:016x}",
                report.seed,
                report.workload,
                report.records,
                report.epochs,
                report.claims,
                report.counts.faults(),
                report.raw_duplicates,
                report.drain_time.as_millis(),
                report.trace
            );
        }
        if report.violations.is_empty() {
            return;
        }
        self.failed.push(report.seed);
        if self.failed.len() <= SHOWN_MAX {
            println!("FAILED seed={} workload={}", report.seed, report.workload);
            report.violations.iter().rev().take(8).for_each(|violation| println!("    {violation}"));
            println!("    replay: cargo xtask sim --seeds {}{}", report.seed, args.wishes());
        }
    }

    fn print(&self, args: &Args) {
        println!(
            "sim: seeds={}..{} runs={} failed={} faults={} calls={} records={} epochs={} claims={} commits={} check_backs={} \
             entries_lost={} raw_duplicates={} drain_s_max={}",
            args.seeds.start,
            args.seeds.end,
            self.runs,
            self.failed.len(),
            self.counts.faults(),
            self.counts.calls,
            self.records,
            self.epochs,
            self.claims,
            self.counts.commits,
            self.counts.check_backs,
            self.counts.entries_lost,
            self.raw_duplicates,
            self.drain_seconds_max
        );
        let kinds = Fault::ALL.iter().map(|fault| format!("{fault}={}", self.counts.of(*fault)));
        println!("sim: {}", kinds.collect::<Vec<_>>().join(" "));
    }
}

impl Args {
    /// The other options of a replay.
    fn wishes(&self) -> String {
        let workload = self.workload.map(|workload| format!(" --workload {workload}")).unwrap_or_default();
        let faults = self.faults.as_ref().map(|faults| {
            let words: Vec<&str> = faults.iter().map(|fault| fault.word()).collect();
            format!(" --faults {}", words.join(","))
        });
        workload + &faults.unwrap_or_default()
    }
}
