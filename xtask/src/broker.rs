//! `cargo xtask broker`: a RocketMQ name server and broker as plain JVMs on loopback, several side by side.
//!
//! An instance is a folder: settings, logs and data lie in it, and nothing outside it. Tests use this command, too: the
//! environment variable `ONCEFLOW_XTASK` names the program that `cargo xtask test` runs from, and
//!
//! ```text
//! $ONCEFLOW_XTASK broker start --dir DIR --port-base 0 --bound-to PID    the last line of output: 127.0.0.1:PORT
//! $ONCEFLOW_XTASK broker kill --dir DIR                                  SIGKILL, at once; the data stays
//! ```

mod guard;
mod instance;
mod jars;
mod probe;
mod scratch;
mod server;
mod settings;

pub(crate) use instance::{Instance, StartOptions};
pub(crate) use jars::resolve as server_jars;
pub(crate) use scratch::scratch;
pub(crate) use settings::{VERSION, VERSION_OLDEST};

use crate::{Outcome, machine, paths, run};
use server::Role;
use std::path::PathBuf;
use std::process::ExitCode;

/// The port of the first name server, as RocketMQ's own documentation has it.
const PORT_BASE: u16 = 9876;
/// Exit code of `status` when nothing runs.
const STOPPED: u8 = 3;
/// Exit code of `status` when something runs, but does not answer as a whole.
const HALF_UP: u8 = 4;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start what is not running, wait until it answers, print the name server's address as the last line
    Start {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        options: StartOptions,
    },
    /// Stop cleanly: the broker saves its state (10 to 15 s)
    Stop(Which),
    /// Say whether it runs and answers: exit code 0 running, 3 stopped, 4 half up
    Status(Which),
    /// SIGKILL both servers at once, as a crash would; the data stays
    Kill {
        #[command(flatten)]
        which: Which,
        /// Only this server
        #[arg(long, value_enum)]
        only: Option<Role>,
    },
    /// Stop cleanly, then start with the settings of the last start; settings given now win
    Restart {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        options: StartOptions,
    },
    /// Run RocketMQ's admin tool on the instance: `broker admin clusterList`
    Admin {
        #[command(flatten)]
        which: Which,
        /// The admin command and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<String>,
    },
    /// Kill the instance when a process ends (started by `--bound-to`)
    #[command(hide = true)]
    Guard {
        #[command(flatten)]
        which: Which,
        #[arg(long)]
        pid: u32,
    },
}

/// Names an instance.
#[derive(clap::Args)]
struct Which {
    /// The folder of the instance [default: a folder named after the port base, in the cache]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The name server's port; the broker uses +8, +10 and +11; 0: pick free ones [default: of the last start, else 9876]
    #[arg(long)]
    port_base: Option<u16>,
}

impl Which {
    fn open(&self) -> Outcome<Instance> {
        let base = self.port_base.unwrap_or(PORT_BASE);
        match &self.dir {
            Some(dir) => Instance::open(dir),
            None if base == 0 => Err("a picked port needs a folder: give --dir".to_owned()),
            None => Instance::open(&paths::cache()?.join("broker").join(base.to_string())),
        }
    }
}

pub(crate) fn main(args: Args) -> Outcome<ExitCode> {
    match args.action {
        Action::Start { which, options } => start(&which, &options),
        Action::Restart { which, options } => {
            which.open()?.stop()?;
            start(&which, &options)
        }
        Action::Stop(which) => which.open()?.stop().map(|()| ExitCode::SUCCESS),
        Action::Kill { which, only } => which.open()?.kill(only).map(|()| ExitCode::SUCCESS),
        Action::Status(which) => status(&which),
        Action::Admin { which, words } => run::status(&mut which.open()?.admin(&words)?).map(run::code),
        Action::Guard { which, pid } => guard::watch(&which.open()?, pid).map(|()| ExitCode::SUCCESS),
    }
}

fn start(which: &Which, options: &StartOptions) -> Outcome<ExitCode> {
    machine::ensure(machine::BROKER).map_err(|missing| missing.0)?;
    let address = which.open()?.start(which.port_base, options)?;
    println!("{address}");
    Ok(ExitCode::SUCCESS)
}

fn status(which: &Which) -> Outcome<ExitCode> {
    let instance = which.open()?;
    let pids: Vec<String> = instance.alive().iter().map(|(role, pid)| format!("{role}={pid}")).collect();
    if pids.is_empty() {
        println!("stopped");
        return Ok(ExitCode::from(STOPPED));
    }
    let ports = instance.settings()?.ports();
    if let Err(why) = probe::ready(ports) {
        println!("half up: {why} pids: {}", pids.join(" "));
        return Ok(ExitCode::from(HALF_UP));
    }
    println!("running name-server={} broker={} pids: {}", ports.name_server(), ports.broker(), pids.join(" "));
    Ok(ExitCode::SUCCESS)
}
