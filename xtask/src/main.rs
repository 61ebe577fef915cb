//! The commands of this repository, for people and for CI: `cargo xtask help`.
//!
//! One file per command. The modules without a command of their own: [`paths`] (where things lie), [`machine`] (what a
//! step needs from the operating system), [`docker`] (an engine for containers), [`steps`] (several steps and one table), [`run`] (child processes) and
//! [`wait`] (the only place that reads a clock or sleeps).

mod bench;
mod book;
mod broker;
mod ci;
mod containers;
mod demo;
mod deny;
mod docker;
mod fuzz;
mod image;
mod java;
mod lint;
mod machine;
mod paths;
mod rocksdb;
mod run;
mod sim;
mod soak;
mod steps;
mod test;
mod wait;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// What a command ends with: its exit code, or a message for people (exit code 1).
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The commands of the Onceflow repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the fraud detection example
    Demo(demo::Args),
    /// Run every test that CI runs
    Test(test::Args),
    /// Check formatting, lints, licences and advisories
    Lint,
    /// Run everything CI runs: lints, tests, docs, features one by one
    Ci(test::Args),
    /// Fuzz every decoder of foreign bytes, on the stable toolchain
    Fuzz(fuzz::Args),
    /// Build the guide as HTML, and check its links
    Book,
    /// Simulate jobs under faults, one run a seed
    Sim(sim::Args),
    /// Kill a process, a broker or both at every step of the protocol, and audit what is left
    Crash(test::CrashArgs),
    /// Measure a workload from end to end
    Bench(bench::Args),
    /// Run a job on a real broker under kills and other faults, and audit what it wrote
    Soak(soak::Args),
    /// Run RocketMQ name servers and brokers as plain JVMs on this machine
    Broker(broker::Args),
    /// Make the image with a RocketMQ that the container tests use
    Image(image::Args),
    /// Run the container tests: RocketMQ in Docker, killed, wiped and cut off
    Containers(containers::Args),
    /// Run a Java test client against a broker
    Java(java::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::main(&args),
        Command::Test(args) => Ok(test::main(&args)),
        Command::Lint => Ok(lint::main()),
        Command::Ci(args) => Ok(ci::main(&args)),
        Command::Fuzz(args) => fuzz::main(&args).map(|()| ExitCode::SUCCESS),
        Command::Book => book::step().map(|()| ExitCode::SUCCESS),
        Command::Sim(args) => sim::main(&args),
        Command::Crash(args) => Ok(test::crash(&args)),
        Command::Bench(args) => bench::main(&args),
        Command::Soak(args) => soak::main(&args),
        Command::Broker(args) => broker::main(args),
        Command::Image(args) => image::main(&args),
        Command::Containers(args) => Ok(containers::main(&args)),
        Command::Java(args) => java::main(&args),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("xtask: error: {message}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
