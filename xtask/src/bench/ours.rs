//! Builds and runs our own program.

use super::plan::Run;
use crate::broker::{Instance, StartOptions};
use crate::{Outcome, paths, run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the program and says where it is: what is measured stays the same, whoever works in the checkout meanwhile.
pub(super) fn build(words: &[&str]) -> Outcome<PathBuf> {
    let mut cargo = run::cargo(words)?;
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
    eprintln!("$ {}", run::shown(&cargo));
    let output = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the build failed: {}", output.status));
    }
    executable(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "the build made no program".to_owned())
}

fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut built = messages.filter_map(|message| message.get("executable")?.as_str().map(PathBuf::from));
    built.next_back()
}

/// Runs the program once. A broker is started for the run alone, so that no run meets another one's data.
pub(super) fn measure(program: &Path, planned: &Run, scratch: &Path) -> Outcome<Value> {
    if !planned.on_broker {
        return once(program, &planned.words, scratch, &[]);
    }
    let instance = Instance::open(&scratch.join("broker"))?;
    let options = StartOptions { bound_to: Some(std::process::id()), full_jvm: true, ..StartOptions::default() };
    let result = instance.start(Some(0), &options).and_then(|address| {
        if planned.warm_up > 0 {
            once(program, &planned.warm_up_words(), scratch, &["--name-server", &address])?;
        }
        let pid = instance.broker_pid().ok_or("the broker has ended")?.to_string();
        once(program, &planned.words, scratch, &["--name-server", &address, "--broker-pid", &pid])
    });
    instance.destroy()?;
    result
}

/// A run that fails counts as not exact, and the others are run all the same.
fn once(program: &Path, words: &[String], scratch: &Path, more: &[&str]) -> Outcome<Value> {
    let file = scratch.join("result.json");
    if file.exists() {
        std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
    }
    let mut bench = Command::new(program);
    run::status(bench.args(words).args(more).arg("--json").arg(&file).current_dir(paths::root()))?;
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
    fn the_program_is_where_cargo_says() {
        let messages =
            "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnoise\n{\"executable\":\"/t/workload-1\"}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/workload-1")));
        assert_eq!(executable("{\"reason\":\"build-finished\"}"), None);
    }

    #[test]
    fn a_run_without_a_result_is_not_exact_and_says_what_it_was() {
        let words = ["--workload", "w2", "--records", "1000", "--epoch-ms", "50"].map(str::to_owned);
        let bad = result("half a li", &words);
        assert_eq!(bad["exact"], Value::Bool(false));
        assert_eq!((&bad["workload"], &bad["records"], &bad["epoch_ms"]), (&"w2".into(), &1000.into(), &50.into()));
        assert_eq!(result("{\"exact\":true}", &words)["exact"], Value::Bool(true));
    }
}
