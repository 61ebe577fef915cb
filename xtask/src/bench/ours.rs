//! Runs our own program.

use super::Args;
use super::plan::Run;
use crate::broker::{Instance, StartOptions};
use crate::{Outcome, run};
use serde_json::Value;
use std::path::Path;

/// Runs the program once. A broker is started for the run alone, so that no run meets another one's data.
pub(super) fn measure(args: &Args, planned: &Run, scratch: &Path) -> Outcome<Value> {
    if !planned.on_broker {
        return program(args, &planned.words, scratch, &[]);
    }
    let instance = Instance::open(&scratch.join("broker"))?;
    let options = StartOptions { bound_to: Some(std::process::id()), full_jvm: true, ..StartOptions::default() };
    let result = instance.start(Some(0), &options).and_then(|address| {
        if planned.warm_up > 0 {
            program(args, &planned.warm_up_words(), scratch, &["--name-server", &address])?;
        }
        let pid = instance.broker_pid().ok_or("the broker has ended")?.to_string();
        program(args, &planned.words, scratch, &["--name-server", &address, "--broker-pid", &pid])
    });
    instance.destroy()?;
    result
}

/// A run that fails counts as not exact, and the others are run all the same.
fn program(args: &Args, words: &[String], scratch: &Path, more: &[&str]) -> Outcome<Value> {
    let file = scratch.join("result.json");
    if file.exists() {
        std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
    }
    let mut bench = run::cargo(args.cargo())?;
    run::status(bench.arg("--").args(words).args(more).arg("--json").arg(&file))?;
    Ok(std::fs::read_to_string(&file).map_or_else(|_| failed(words), |text| result(&text, words)))
}

fn result(text: &str, words: &[String]) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| failed(words))
}

/// What is known of a run that ended without a result.
fn failed(words: &[String]) -> Value {
    let given = words.chunks_exact(2).filter_map(|pair| Some((pair.first()?.strip_prefix("--")?, pair.get(1)?)));
    let number = |value: &str| value.parse::<u64>().map_or_else(|_| Value::from(value), Value::from);
    let given = given.map(|(name, value)| (name.replace('-', "_"), number(value)));
    given.chain([("exact".to_owned(), Value::Bool(false)), ("system".to_owned(), "onceflow".into())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_result_is_not_exact_and_says_what_it_was() {
        let words = ["--workload", "w2", "--records", "1000", "--epoch-ms", "50"].map(str::to_owned);
        let bad = result("half a li", &words);
        assert_eq!(bad["exact"], Value::Bool(false));
        assert_eq!((&bad["workload"], &bad["records"], &bad["epoch_ms"]), (&"w2".into(), &1000.into(), &50.into()));
        assert_eq!(result("{\"exact\":true}", &words)["exact"], Value::Bool(true));
    }
}
