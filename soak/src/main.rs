//! A long run on a real broker under kills, pauses and network faults: `cargo xtask soak`.
//!
//! One program, two parts. `process` is the processor under test: an ordinary job that knows nothing of the run.
//! `drive` writes input, starts processors, breaks things from a printed seed, waits until all input is processed once
//! it stops breaking, and has the auditor judge what lies in the topics. The verdict is not taken here: the auditor is
//! another crate that shares no code with the engine.
//!
//! ```text
//!                    ┌─► name-server proxy ─► name server
//!   processors ──────┤                                            producer, tail and Java consumer: straight to both
//!                    └─► broker proxy ──────► broker
//! ```

mod dice;
mod drive;
mod faults;
mod job;
mod ledger;
mod plan;
mod process;
mod producer;
mod proxy;
mod seats;
mod servers;
mod tail;
mod watch;

use clap::{Parser, Subcommand};
use onceflow::types::{ErrorKind, Result};
use std::process::ExitCode;

/// Exit code of a processor that the driver starts again: the log was away for too long.
pub(crate) const AWAY: u8 = 3;
/// Exit code of anything that must not happen.
pub(crate) const WRONG: u8 = 4;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The processor under test; runs until SIGTERM (drains) or until its standard input ends (stops at once)
    Process(process::Args),
    /// The whole run against a broker that `cargo xtask broker` started
    Drive(Box<drive::Args>),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter(filter()).with_ansi(false).with_writer(std::io::stderr).init();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::from(if error.kind() == ErrorKind::Retry { AWAY } else { WRONG })
        }
    }
}

fn filter() -> tracing_subscriber::EnvFilter {
    let wanted = std::env::var("RUST_LOG");
    tracing_subscriber::EnvFilter::new(wanted.as_deref().unwrap_or("onceflow=info,error"))
}

fn run(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| onceflow::types::Error::invalid("no runtime").with_source(e))?;
    runtime.block_on(async {
        match command {
            Command::Process(args) => process::run(args).await,
            Command::Drive(args) => drive::run(*args).await,
        }
    })
}
