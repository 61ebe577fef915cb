//! `cargo xtask fuzz`: every target of `fuzz/` under libFuzzer, on the stable toolchain.
//!
//! The targets are instrumented for coverage by the compiler's own pass (`sancov-module`), which stable has; without a
//! sanitizer, which it has not, and which code without `unsafe` does not need. Each run begins with the committed corpus
//! (`fuzz/corpus/<target>`) and with what earlier runs on this machine found. An input that panics, takes longer than
//! [`INPUT_SECONDS_MAX`] or more memory than [`MEMORY_MIB_MAX`] is kept under `fuzz/artifacts/<target>` and makes the command
//! fail. `--keep` takes what adds coverage over into the committed corpus, minimised.

use crate::machine::{self, Missing, Need};
use crate::{Outcome, paths, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Longest time that one input may take. It is wall time, and the machine does other things meanwhile; an input that does
/// not end takes longer on any.
const INPUT_SECONDS_MAX: u32 = 30;
/// Most memory of one target's process.
const MEMORY_MIB_MAX: u32 = 512;
/// Longest input.
const INPUT_BYTES_MAX: u32 = 16 << 10;
/// Longest input that is taken over into the committed corpus, and how many of one target.
const KEPT_BYTES_MAX: u64 = 2 << 10;
const KEPT_MAX: usize = 40;
/// Files of this name are written by `tests/hostile_bytes.rs`.
const VALID_PREFIX: &str = "valid-";
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Only these targets
    #[arg(long)]
    target: Vec<String>,
    /// How many targets run at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Take new inputs that add coverage over into the committed corpus
    #[arg(long)]
    keep: bool,
}

pub(crate) fn main(args: &Args) -> Outcome {
    machine::ensure(&[Need::CxxCompiler]).map_err(|Missing(what)| what)?;
    let targets = chosen(&args.target)?;
    let program = build()?;
    let queue = Mutex::new(targets.iter());
    let failed = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = next(&queue) {
                    match fuzz(&program, target, args) {
                        Ok(line) => println!("{line}"),
                        Err(why) => {
                            println!("{target:<24} FAILED: {why}");
                            failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(target.clone());
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("targets failed: {}", failed.join(", "))) }
}

fn next<'t>(queue: &Mutex<std::slice::Iter<'t, String>>) -> Option<&'t String> {
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next()
}

fn corpus() -> PathBuf {
    paths::root().join("fuzz/corpus")
}

/// The targets to run: each has a folder in the corpus, which `tests/hostile_bytes.rs` sees to.
fn chosen(wanted: &[String]) -> Outcome<Vec<String>> {
    let entries = fs::read_dir(corpus()).map_err(|error| format!("fuzz/corpus: {error}"))?;
    let mut known: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    known.sort();
    if let Some(unknown) = wanted.iter().find(|wanted| !known.contains(wanted)) {
        return Err(format!("no such target: {unknown}; there are: {}", known.join(", ")));
    }
    known.retain(|target| wanted.is_empty() || wanted.contains(target));
    Ok(known)
}

/// Builds the program of all targets and returns its path.
fn build() -> Outcome<PathBuf> {
    let folder = paths::target()?.join("fuzz");
    let host = host()?;
    let words = ["build", "--release", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target", &host];
    let mut instrumented = run::cargo(words)?;
    // With a target named, cargo does not instrument build scripts and macros.
    instrumented.env("CARGO_TARGET_DIR", &folder).env("RUSTFLAGS", COVERAGE);
    if let Err(why) = run::check(&mut instrumented) {
        println!("NO COVERAGE: this compiler does not instrument ({why}); the targets run without guidance");
        run::check(run::cargo(words)?.env("CARGO_TARGET_DIR", &folder).env("RUSTFLAGS", ""))?;
    }
    Ok(folder.join(host).join("release/onceflow-fuzz"))
}

fn host() -> Outcome<String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The program for one target, without inputs.
fn program(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command.env("ONCEFLOW_FUZZ_TARGET", target).stdin(Stdio::null());
    command.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}")).arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command
}

/// Runs one target; its line for the table.
fn fuzz(built: &Path, target: &str, args: &Args) -> Outcome<String> {
    let found = paths::make(&paths::target()?.join("fuzz/found").join(target))?;
    let artifacts = paths::make(&paths::root().join("fuzz/artifacts").join(target))?;
    let log = found.with_extension("log");
    let output = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut command = program(built, target);
    command.arg(format!("-max_total_time={}", args.seconds)).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.args(["-print_final_stats=1", "-reduce_inputs=1"]);
    // A slash at the end: it is a prefix of the file's name.
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&found).arg(corpus().join(target));
    let ended = command.stdout(output).stderr(errors).status().map_err(|error| error.to_string())?;
    let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let seen = Seen::of(&text);
    if !ended.success() {
        let kept = seen.artifact.unwrap_or("none");
        return Err(format!("{} executions, input kept: {kept}, output: {}", seen.executions, log.display()));
    }
    if seen.executions == 0 {
        return Err(format!("nothing was executed, output: {}", log.display()));
    }
    let kept = if args.keep { format!(", {} kept", keep(built, target, &found)?) } else { String::new() };
    let Seen { executions, covered, inputs, peak_mib, .. } = seen;
    Ok(format!("{target:<24} ok: {executions} executions, {covered} edges, corpus {inputs}, {peak_mib} MiB{kept}"))
}

/// What libFuzzer printed.
#[derive(Default, Debug, PartialEq)]
struct Seen<'t> {
    executions: u64,
    covered: u64,
    inputs: u64,
    peak_mib: u64,
    artifact: Option<&'t str>,
}

impl<'t> Seen<'t> {
    fn of(text: &'t str) -> Self {
        let number =
            |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
        let mut seen = Seen::default();
        for line in text.lines() {
            let after = |word: &str| line.split_once(word).and_then(|(_, rest)| number(rest.trim_start()));
            seen.covered = after(" cov: ").unwrap_or(seen.covered);
            seen.inputs = after(" corp: ").unwrap_or(seen.inputs);
            seen.executions = after("number_of_executed_units:").unwrap_or(seen.executions);
            seen.peak_mib = after("peak_rss_mb:").unwrap_or(seen.peak_mib);
            seen.artifact =
                line.split_once("Test unit written to ").map_or(seen.artifact, |(_, path)| Some(path.trim()));
        }
        seen
    }
}

/// Replaces the found part of a target's committed corpus by a minimal set with the same coverage; returns its size.
fn keep(built: &Path, target: &str, found: &Path) -> Outcome<usize> {
    let committed = corpus().join(target);
    let minimal = found.with_extension("minimal");
    let _ = fs::remove_dir_all(&minimal);
    let minimal = paths::make(&minimal)?;
    let mut merge = program(built, target);
    merge.arg("-merge=1").arg(&minimal).arg(&committed).arg(found).stdout(Stdio::null()).stderr(Stdio::null());
    run::check(&mut merge)?;
    let files = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    let is_valid = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(VALID_PREFIX);
    let size = |entry: &fs::DirEntry| entry.metadata().map_or(u64::MAX, |data| data.len());
    for old in files(&committed).iter().filter(|entry| !is_valid(entry)) {
        fs::remove_file(old.path()).map_err(|error| error.to_string())?;
    }
    let mut small: Vec<fs::DirEntry> =
        files(&minimal).into_iter().filter(|entry| size(entry) <= KEPT_BYTES_MAX).collect();
    small.sort_by_key(|entry| (size(entry), entry.file_name()));
    for kept in small.iter().take(KEPT_MAX) {
        fs::copy(kept.path(), committed.join(kept.file_name())).map_err(|error| error.to_string())?;
    }
    Ok(small.len().min(KEPT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_output() {
        let text = "#2\tINITED cov: 17 ft: 18 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #9\tDONE   cov: 170 ft: 18 corp: 12/34b lim: 4 exec/s: 0\n\
             stat::number_of_executed_units: 1234\nstat::peak_rss_mb:              45\n";
        let seen = Seen { executions: 1234, covered: 170, inputs: 12, peak_mib: 45, artifact: None };
        assert_eq!(Seen::of(text), seen);
        let crashed = "artifact_prefix='x/'; Test unit written to x/crash-0a\nBase64: AA==\n";
        assert_eq!(Seen::of(crashed).artifact, Some("x/crash-0a"));
    }

    #[test]
    fn an_unknown_target_is_refused_by_name() {
        let refused = chosen(&["no-such-target".to_owned()]).unwrap_err();
        assert!(refused.contains("no-such-target") && refused.contains("journal_record"), "{refused}");
    }
}
