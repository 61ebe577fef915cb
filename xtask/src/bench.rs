//! `cargo xtask bench`: measure workloads from end to end. Builds `benches/workload` with what the runs need, starts a
//! broker of its own when the log is one, runs the program once for each combination, and prints one table.

use crate::broker::{Instance, StartOptions, scratch};
use crate::machine::{self, Need};
use crate::{Outcome, rocksdb, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do with the records; several with commas, or all
    #[arg(long, value_delimiter = ',', required = true, value_parser = ["w1", "w2", "w3", "w4", "all"])]
    workload: Vec<String>,
    /// Where the records come from and go to
    #[arg(long, value_parser = ["embedded", "rocketmq"])]
    log: String,
    /// Where the state is kept; several with commas, or all
    #[arg(long, value_delimiter = ',', required = true, value_parser = ["memory", "fjall", "rocksdb", "sled", "all"])]
    store: Vec<String>,
    /// How output reaches its readers; several with commas, or all
    #[arg(long, value_delimiter = ',', required = true, value_parser = ["transactional", "outbox", "framed", "all"])]
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
    /// Runs of each combination, one after the other; the table shows each
    #[arg(long, value_name = "R", default_value_t = 1)]
    rounds: u32,
    /// Also write the results to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The columns of the table: keys of the JSON objects.
const COLUMNS: [&str; 14] = [
    "workload",
    "log",
    "store",
    "delivery",
    "records",
    "keys",
    "threads",
    "epoch_ms",
    "records_per_s",
    "cpu_s_per_million",
    "rss_peak_mb",
    "messages",
    "raw_duplicates",
    "exact",
];

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    machine::ensure(&args.needs()).map_err(|missing| missing.0)?;
    if !args.is_plain() {
        rocksdb::ensure()?;
    }
    // Built before the broker starts, so that compiling and serving do not share the machine.
    run::check(run::cargo(args.cargo())?.arg("--no-run"))?;
    let scratch = scratch("bench")?;
    let results = if args.log == "rocketmq" { on_broker(args, &scratch) } else { args.run_all(&scratch, &[]) };
    std::fs::remove_dir_all(&scratch).map_err(|error| format!("cannot remove {}: {error}", scratch.display()))?;
    let results = results?;
    print!("{}", table(&results));
    if let Some(file) = &args.json {
        let lines: Vec<String> = results.iter().map(Value::to_string).collect();
        std::fs::write(file, lines.join("\n") + "\n")
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let exact = results.iter().filter(|result| result.get("exact") == Some(&Value::Bool(true))).count();
    println!("{exact} of {} runs exact", results.len());
    Ok(if exact == results.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn on_broker(args: &Args, scratch: &Path) -> Outcome<Vec<Value>> {
    let instance = Instance::open(&scratch.join("broker"))?;
    let bound_to = Some(std::process::id());
    let results = instance
        .start(Some(0), &StartOptions { bound_to, ..StartOptions::default() })
        .and_then(|address| args.run_all(scratch, &["--name-server", &address]));
    instance.destroy()?;
    results
}

/// The values that an option names; `all` is all that it may have.
fn chosen<'a>(given: &'a [String], all: &[&'a str]) -> Vec<&'a str> {
    if given.iter().any(|value| value == "all") { all.to_vec() } else { given.iter().map(String::as_str).collect() }
}

impl Args {
    fn workloads(&self) -> Vec<&str> {
        chosen(&self.workload, &["w1", "w2", "w3", "w4"])
    }

    fn stores(&self) -> Vec<&str> {
        chosen(&self.store, &["memory", "fjall", "rocksdb", "sled"])
    }

    fn deliveries(&self) -> Vec<&str> {
        chosen(&self.delivery, &["framed", "outbox", "transactional"])
    }

    /// Whether the default features will do. Else all are taken: their build is shared with the tests.
    fn is_plain(&self) -> bool {
        self.log == "embedded" && self.stores().iter().all(|store| matches!(*store, "memory" | "fjall"))
    }

    fn needs(&self) -> Vec<Need> {
        let store = if self.is_plain() { &[] } else { machine::ROCKSDB };
        let log = if self.log == "rocketmq" { machine::BROKER } else { &[] };
        [store, log].concat()
    }

    fn cargo(&self) -> Vec<&'static str> {
        let scope: &[&str] =
            if self.is_plain() { &["--package", "onceflow"] } else { &["--workspace", "--all-features"] };
        [&["bench", "--bench", "workload"], scope].concat()
    }

    /// The options of each run, in the order in which they are done. A round is all combinations, so that what else goes on
    /// on the machine meets them alike.
    fn runs(&self) -> Vec<Vec<String>> {
        let mut runs = Vec::new();
        for _ in 0..self.rounds {
            for workload in self.workloads() {
                for store in self.stores() {
                    for delivery in self.deliveries() {
                        runs.push(self.words(workload, store, delivery));
                    }
                }
            }
        }
        runs
    }

    fn words(&self, workload: &str, store: &str, delivery: &str) -> Vec<String> {
        let given = [("workload", workload), ("log", &self.log), ("store", store), ("delivery", delivery)];
        let numbers = [("records", self.records), ("keys", self.keys), ("threads", self.threads.map(u64::from))];
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string())));
        let given = given.map(|(name, value)| (name, value.to_owned())).into_iter();
        given.chain(numbers).flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }

    /// Runs the program for each combination. One that fails counts as not exact, and the others are run all the same.
    fn run_all(&self, scratch: &Path, more: &[&str]) -> Outcome<Vec<Value>> {
        let file = scratch.join("result.json");
        let one = |words: Vec<String>| {
            if file.exists() {
                std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
            }
            let mut bench = run::cargo(self.cargo())?;
            run::status(bench.arg("--").args(&words).args(more).arg("--json").arg(&file))?;
            Ok(std::fs::read_to_string(&file).map_or_else(|_| failed(&words), |text| result(&text, &words)))
        };
        self.runs().into_iter().map(one).collect()
    }
}

fn result(text: &str, words: &[String]) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| failed(words))
}

/// What is known of a run that ended without a result.
fn failed(words: &[String]) -> Value {
    let given = words.chunks_exact(2).filter_map(|pair| Some((pair.first()?.strip_prefix("--")?, pair.get(1)?)));
    let given = given.map(|(name, value)| (name.to_owned(), Value::from(value.clone())));
    given.chain([("exact".to_owned(), Value::Bool(false))]).collect()
}

/// As Markdown, a row for each run.
fn table(results: &[Value]) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(COLUMNS.map(str::to_owned).to_vec()) + &row(vec!["---".to_owned(); COLUMNS.len()]);
    for result in results {
        text += &row(COLUMNS.map(|column| cell(column, result.get(column))).to_vec());
    }
    text
}

fn cell(column: &str, value: Option<&Value>) -> String {
    match (column, value) {
        ("cpu_s_per_million", Some(Value::Number(number))) => format!("{:.2}", number.as_f64().unwrap_or(f64::NAN)),
        (_, Some(Value::Number(number))) => thousands(&format!("{:.0}", number.as_f64().unwrap_or(f64::NAN))),
        (_, Some(Value::String(text))) => text.clone(),
        (_, Some(Value::Bool(truth))) => truth.to_string(),
        _ => String::new(),
    }
}

/// With a comma before each group of three digits.
fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).map(|line| line.args)
    }

    fn runs(args: &Args) -> Vec<String> {
        args.runs().iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn options_are_handed_on_as_given() {
        let line =
            "--workload w1 --log rocketmq --store rocksdb --delivery outbox --records 1000 --keys 10 --threads 2";
        let args = parse(&format!("{line} --json /r")).unwrap();
        assert_eq!(runs(&args), [line]);
        assert!(args.needs().contains(&Need::Libclang) && args.needs().contains(&Need::Java));
    }

    #[test]
    fn the_default_stores_need_nothing() {
        let args = parse("--workload all --log embedded --store fjall,memory --delivery framed").unwrap();
        assert!(args.is_plain() && args.needs().is_empty());
        assert!(parse("--workload w1 --log embedded --store paper --delivery framed").is_err());
        assert!(parse("--log embedded --store fjall --delivery framed").is_err());
        assert!(!parse("--workload w1 --log embedded --store all --delivery framed").unwrap().is_plain());
    }

    #[test]
    fn every_combination_is_run_in_each_round() {
        let args = parse("--workload w4,w2 --log embedded --store fjall --delivery framed,outbox --rounds 2").unwrap();
        let round = ["w4 framed", "w4 outbox", "w2 framed", "w2 outbox"];
        let words = |of: &str| {
            let (workload, delivery) = of.split_once(' ').unwrap();
            format!("--workload {workload} --log embedded --store fjall --delivery {delivery}")
        };
        assert_eq!(runs(&args), [round, round].concat().into_iter().map(words).collect::<Vec<_>>());
        let all = parse("--workload all --log embedded --store all --delivery all").unwrap();
        assert_eq!(all.runs().len(), 4 * 4 * 3);
    }

    #[test]
    fn a_run_without_a_result_is_in_the_table_and_not_exact() {
        let good =
            serde_json::json!({"workload": "w1", "records": 1_000_000, "cpu_s_per_million": 0.6543, "exact": true});
        let bad = result("half a li", &["--workload".to_owned(), "w2".to_owned()]);
        let text = table(&[good, bad]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].starts_with("| w1 |") && lines[0].contains("| 1,000,000 |") && lines[0].contains("| 0.65 |"));
        assert!(lines[0].ends_with("| true |"));
        assert!(lines[1].starts_with("| w2 |") && lines[1].ends_with("| false |"));
    }
}
