//! `cargo xtask bench`: measure workloads from end to end. Builds `benches/workload` with what the runs need, starts a
//! broker of its own when the log is one, runs the program once for each combination, and prints tables.

mod chart;
pub(crate) mod guard;
mod host;
mod ours;
mod peers;
mod plan;
mod ratios;
mod report;
mod table;

use crate::broker::scratch;
use crate::machine::{self, Need};
use crate::{Outcome, rocksdb};
use plan::Step;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do with the records; several with commas, or all
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["report", "guard"], value_parser = ["w1", "w2", "w3", "w4", "all"])]
    workload: Vec<String>,
    /// Where the records come from and go to; several with commas, or all
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["report", "guard"], value_parser = ["embedded", "rocketmq", "all"])]
    log: Vec<String>,
    /// Where the state is kept; several with commas, or all
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["report", "guard"], value_parser = ["memory", "fjall", "rocksdb", "sled", "all"])]
    store: Vec<String>,
    /// How output reaches its readers; several with commas, or all
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["report", "guard"], value_parser = ["transactional", "outbox", "framed", "all"])]
    delivery: Vec<String>,
    /// Number of input records
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Number of different keys
    #[arg(long, value_name = "K")]
    keys: Option<u64>,
    /// Number of worker threads
    #[arg(long, value_name = "T")]
    threads: Option<u32>,
    /// Time between commits, in ms
    #[arg(long, value_name = "MS")]
    epoch_ms: Option<u64>,
    /// Behind each run, run the bare pump: the same input and output without processing
    #[arg(long, conflicts_with = "restore")]
    pump: bool,
    /// How long a record may take, in ms (`Config::latency_target`): it sets the time between commits, up to that one
    #[arg(long, value_name = "MS")]
    latency_target_ms: Option<u64>,
    /// Measure the latency at so many records a second instead,
    #[arg(long, value_name = "RATE", conflicts_with_all = ["records", "restore", "pump"])]
    latency: Option<u64>,
    /// ... for so many seconds [default: 30],
    #[arg(long, value_name = "S", requires = "latency")]
    seconds: Option<u64>,
    /// ... after so many that are not measured [default: 15]
    #[arg(long, value_name = "S", requires = "latency")]
    warm: Option<u64>,
    /// Measure how long a job takes to start with the state of so many keys instead (w1 only)
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["records", "keys"])]
    restore: Option<u64>,
    /// Runs of each combination, one after the other; the table has their medians
    #[arg(long, value_name = "R", default_value_t = 1)]
    rounds: u32,
    /// Measure these other systems, too, after ours on each workload: the folder of their project, which is not part of this
    /// one. Records are then of w1; w2 gets half of them, w3 three halves, w4 a quarter [default then: 4,000,000]
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Which of them; several with commas
    #[arg(long, value_delimiter = ',', default_value = "kstreams,flink", value_parser = ["kstreams", "flink", "rmqstreams"])]
    peer: Vec<String>,
    /// Measure nothing: make the tables and charts of `docs/benchmarks.md` from files that `--json` wrote; several with commas
    #[arg(long, value_name = "FILE", value_delimiter = ',', exclusive = true)]
    report: Vec<PathBuf>,
    /// Measure only what a step of `cargo xtask test` does: CPU time per record in parts of a baseline's
    #[arg(long, exclusive = true)]
    guard: bool,
    /// Also append each result to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    if !args.report.is_empty() {
        return report::write(&args.report).map(|()| ExitCode::SUCCESS);
    }
    if args.guard {
        return guard::step().map(|()| ExitCode::SUCCESS);
    }
    machine::ensure(&args.needs()).map_err(|missing| missing.0)?;
    if !args.is_plain() {
        rocksdb::ensure()?;
    }
    // Built before a broker starts, so that compiling and serving do not share the machine.
    let program = ours::build(&args.cargo())?;
    args.peers.as_deref().map_or(Ok(()), peers::build)?;
    let scratch = scratch("bench")?;
    let results = measure_all(args, &program, &scratch);
    std::fs::remove_dir_all(&scratch).map_err(|error| format!("cannot remove {}: {error}", scratch.display()))?;
    let results = results?;
    println!("{}\n{}", table::tables(&results), ratios::ratios(&results));
    let results: Vec<Value> =
        results.into_iter().filter(|result| result.get("system") == Some(&"onceflow".into())).collect();
    let exact = results.iter().filter(|result| result.get("exact") == Some(&Value::Bool(true))).count();
    println!("{exact} of our {} runs exact", results.len());
    Ok(if exact == results.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure_all(args: &Args, program: &Path, scratch: &Path) -> Outcome<Vec<Value>> {
    let mut results = Vec::new();
    let (date, machine) = (host::date(), host::machine());
    for _ in 0..args.rounds {
        for step in plan::round(args) {
            let mut result = match (&step, &args.peers) {
                (Step::Ours(planned), _) => ours::measure(program, planned, scratch)?,
                (Step::Peer(planned), Some(folder)) => planned.measure(folder)?,
                (Step::Peer(_), None) => continue,
            };
            if let Some(result) = result.as_object_mut() {
                result.extend(
                    [("date", &date), ("machine", &machine)].map(|(key, text)| (key.to_owned(), text.as_str().into())),
                );
            }
            args.keep(&result)?;
            results.push(result);
        }
    }
    Ok(results)
}

impl Args {
    fn workloads(&self) -> Vec<&str> {
        plan::chosen(&self.workload, &["w1", "w2", "w3", "w4"])
    }

    fn logs(&self) -> Vec<&str> {
        plan::chosen(&self.log, &["embedded", "rocketmq"])
    }

    fn stores(&self) -> Vec<&str> {
        plan::chosen(&self.store, &["memory", "fjall", "rocksdb", "sled"])
    }

    fn deliveries(&self) -> Vec<&str> {
        plan::chosen(&self.delivery, &["framed", "outbox", "transactional"])
    }

    /// Records of a run of ours, if anything is said of them. With peers they are in the proportions in which the peers'
    /// own scripts have them: below these their start-up would be measured.
    fn records_of(&self, workload: &str) -> Option<u64> {
        const RECORDS: u64 = 4_000_000;
        if self.peers.is_none() || self.restore.or(self.latency).is_some() {
            return self.records;
        }
        let records = self.records.unwrap_or(RECORDS);
        Some(match workload {
            "w2" => records / 2,
            "w3" => records * 3 / 2,
            "w4" => records / 4,
            _ => records,
        })
    }

    fn on_broker(&self) -> bool {
        self.logs().contains(&"rocketmq")
    }

    /// Whether the default features will do. Else all are taken: their build is shared with the tests.
    fn is_plain(&self) -> bool {
        !self.on_broker() && self.stores().iter().all(|store| matches!(*store, "memory" | "fjall"))
    }

    fn needs(&self) -> Vec<Need> {
        let store = if self.is_plain() { &[] } else { machine::ROCKSDB };
        let log = if self.on_broker() { machine::BROKER } else { &[] };
        [store, log].concat()
    }

    fn cargo(&self) -> Vec<&'static str> {
        let scope: &[&str] =
            if self.is_plain() { &["--package", "onceflow"] } else { &["--workspace", "--all-features"] };
        [&["bench", "--bench", "workload"], scope].concat()
    }

    /// Written at once, so that a long measurement that is broken off has not been for nothing.
    fn keep(&self, result: &Value) -> Outcome {
        let Some(path) = &self.json else { return Ok(()) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{result}"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).map(|line| line.args)
    }

    #[test]
    fn the_default_stores_need_nothing() {
        let args = parse("--workload all --log embedded --store fjall,memory --delivery framed").unwrap();
        assert!(args.is_plain() && args.needs().is_empty());
        assert!(parse("--workload w1 --log embedded --store paper --delivery framed").is_err());
        assert!(parse("--log embedded --store fjall --delivery framed").is_err());
        assert!(!parse("--workload w1 --log embedded --store all --delivery framed").unwrap().is_plain());
        let broker = parse("--workload w1 --log all --store memory --delivery framed").unwrap();
        assert!(broker.needs().contains(&Need::Libclang) && broker.needs().contains(&Need::Java));
    }
}
