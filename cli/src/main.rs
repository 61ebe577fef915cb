//! The `onceflow` command: looks into a job's journals and state, audits a topic, drops local state. It changes nothing
//! but what `reset` is told to. See `onceflow help`.

mod channels;
mod inspect;
mod journal;
mod open;
mod output;
mod reset;
mod state;
mod verify;

use clap::{Parser, Subcommand};
use onceflow::types::{ErrorKind, Result};
use output::Output;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
A log is named by --log DIR (an embedded log; the job must not be running, as a directory is open in one process at a
time) or by --name-server ADDR (RocketMQ, while the job runs or not).

What a job looks like is known to its program alone: print Topology::describe() or Topology::mermaid() there. It also
names the subtopologies that `inspect journal` asks for.

Errors go to stderr as `error: <kind>: <message>`. Exit codes: 0 all is well; 1 something failed or is missing; 2 an
option, a name or a place is wrong.";

#[derive(Parser)]
#[command(name = "onceflow", version, about = "Looks into the jobs of Onceflow", after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Look into what a job keeps
    #[command(subcommand)]
    Inspect(inspect::Inspect),
    /// Audit what a job wrote to a topic: is every message there, and how often
    Verify(verify::Args),
    /// Drop the local state of a job; its next start builds it again from the journal
    Reset(reset::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output { json: cli.json };
    match run(cli.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::from(if error.kind() == ErrorKind::Invalid { 2 } else { 1 })
        }
    }
}

fn run(command: Command, output: Output) -> Result<()> {
    match command {
        Command::Inspect(what) => inspect::run(what, output),
        Command::Verify(args) => open::block_on(verify::run(args, output)),
        Command::Reset(args) => reset::run(&args, output),
    }
}
