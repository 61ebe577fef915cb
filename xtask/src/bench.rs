//! `cargo xtask bench`: measure a workload from end to end. Builds `benches/workload` with what the run needs, starts a
//! broker of its own when the log is one, and hands everything on.

use crate::broker::{Instance, StartOptions, scratch};
use crate::machine::{self, Need};
use crate::{Outcome, rocksdb, run};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to do with the records
    #[arg(long, value_parser = ["w1"])]
    workload: String,
    /// Where the records come from and go to
    #[arg(long, value_parser = ["embedded", "rocketmq"])]
    log: String,
    /// Where the state is kept
    #[arg(long, value_parser = ["memory", "fjall", "rocksdb", "sled"])]
    store: String,
    /// How output reaches its readers
    #[arg(long, value_parser = ["transactional", "outbox", "framed"])]
    delivery: String,
    /// Number of input records
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Number of different keys
    #[arg(long, value_name = "K")]
    keys: Option<u64>,
    /// Number of worker threads
    #[arg(long, value_name = "T")]
    threads: Option<u32>,
    /// Also write the result to this file, as one JSON object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    machine::ensure(&args.needs()).map_err(|missing| missing.0)?;
    if !args.is_plain() {
        rocksdb::ensure()?;
    }
    let words = args.words()?;
    // Built before the broker starts, so that compiling and serving do not share the machine.
    run::check(run::cargo(args.cargo())?.arg("--no-run"))?;
    let mut bench = run::cargo(args.cargo())?;
    bench.arg("--").args(&words);
    if args.log != "rocketmq" {
        return run::status(&mut bench).map(run::code);
    }
    let instance = Instance::open(&scratch("bench")?)?;
    let bound_to = Some(std::process::id());
    let result = instance
        .start(Some(0), &StartOptions { bound_to, ..StartOptions::default() })
        .and_then(|address| run::status(bench.args(["--name-server", &address])));
    instance.destroy()?;
    result.map(run::code)
}

impl Args {
    /// Whether the default features will do. Else all are taken: their build is shared with the tests.
    fn is_plain(&self) -> bool {
        self.log == "embedded" && matches!(self.store.as_str(), "memory" | "fjall")
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

    fn words(&self) -> Outcome<Vec<String>> {
        let mut words = Vec::new();
        let mut add = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        add("workload", self.workload.clone());
        add("log", self.log.clone());
        add("store", self.store.clone());
        add("delivery", self.delivery.clone());
        let numbers = [("records", self.records), ("keys", self.keys), ("threads", self.threads.map(u64::from))];
        for (name, number) in numbers {
            if let Some(number) = number {
                add(name, number.to_string());
            }
        }
        if let Some(file) = &self.json {
            // The program runs in the root of the checkout; a relative path means the caller's folder.
            let file = std::path::absolute(file).map_err(|error| error.to_string())?;
            add("json", file.display().to_string());
        }
        Ok(words)
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

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split_whitespace())).map(|line| line.args)
    }

    #[test]
    fn options_are_handed_on_as_given() {
        let line = "--workload w1 --log rocketmq --store rocksdb --delivery outbox --records 1000 --keys 10 --threads 2 --json /r";
        let args = parse(line).unwrap();
        assert_eq!(args.words().unwrap().join(" "), line);
        assert!(args.needs().contains(&Need::Libclang) && args.needs().contains(&Need::Java));
    }

    #[test]
    fn the_default_stores_need_nothing() {
        let args = parse("--workload w1 --log embedded --store fjall --delivery framed").unwrap();
        assert!(args.is_plain() && args.needs().is_empty());
        assert!(parse("--workload w1 --log embedded --store paper --delivery framed").is_err());
    }
}
