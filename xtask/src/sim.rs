//! `cargo xtask sim`: runs seeds of the simulation and prints one summary line.

use crate::machine::{self, ROCKSDB};
use crate::{Outcome, paths, rocksdb, run};
use std::process::{Command, ExitCode};

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

/// The simulation, built with the features of the tests so that nothing is built twice.
pub(crate) fn program() -> Outcome<Command> {
    run::check(&mut run::cargo(["build", "--release", "--workspace", "--all-features", "--bin", "onceflow-sim"])?)?;
    let mut program = Command::new(paths::target()?.join("release/onceflow-sim"));
    program.current_dir(paths::root());
    Ok(program)
}
