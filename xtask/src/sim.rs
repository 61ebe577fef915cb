//! `cargo xtask sim`: runs seeds of the simulation and prints one summary line.

use crate::machine::{self, ROCKSDB};
use crate::{Outcome, paths, rocksdb, run};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Seeds of the gate.
const SEEDS: u64 = 3_000;
/// Seeds of a long run, and of each part of it that is done or not.
const LONG_SEEDS: u64 = 200_000;
const PART_SEEDS: u64 = 4_000;

/// Everything is handed on; `--help` shows it.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the simulation: --seeds A..B [--workload NAME] [--faults LIST] [--verbose]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    words: Vec<String>,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    machine::ensure(ROCKSDB).map_err(|missing| missing.0)?;
    rocksdb::ensure()?;
    run::status(program()?.args(&args.words)).map(run::code)
}

/// The seeds of the gate; or those of a long run, part by part. Parts that are done are noted under the commit's name, so
/// that a run that was broken off goes on where it was.
pub(crate) fn step(long: bool) -> Outcome {
    let mut program = program()?;
    if !long {
        return run::check(program.args(["--seeds", &format!("0..{SEEDS}")]));
    }
    let folder = done_folder()?;
    for from in (0..LONG_SEEDS).step_by(usize::try_from(PART_SEEDS).unwrap_or(1)) {
        let seeds = format!("{from}..{}", from + PART_SEEDS);
        let done = folder.join(format!("sim-{seeds}"));
        if done.exists() {
            eprintln!("seeds {seeds} are done");
            continue;
        }
        run::check(again(&program).args(["--seeds", &seeds]))?;
        fs::write(&done, "").map_err(|error| format!("cannot write {}: {error}", done.display()))?;
    }
    Ok(())
}

/// Where the parts of long runs that are done are noted, under the commit's name.
pub(crate) fn done_folder() -> Outcome<PathBuf> {
    paths::make(&paths::cache()?.join("long").join(commit()?))
}

/// The same program without words.
fn again(program: &Command) -> Command {
    let mut again = Command::new(program.get_program());
    again.current_dir(paths::root());
    again
}

/// The commit that is tested.
fn commit() -> Outcome<String> {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(paths::root()).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The simulation, built with the features of the tests so that nothing is built twice.
fn program() -> Outcome<Command> {
    run::check(&mut run::cargo(["build", "--release", "--workspace", "--all-features", "--bin", "onceflow-sim"])?)?;
    let mut program = Command::new(paths::target()?.join("release/onceflow-sim"));
    program.current_dir(paths::root());
    Ok(program)
}
