//! Where a run takes place: its log, its folders, and its other processes.

use crate::args::{Args, Role};
use crate::programs::Names;
use onceflow::log::Log;
use onceflow::storage::{StoreFactory, StoreOptions};
use onceflow::types::{Error, Name, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub struct Place {
    pub directory: PathBuf,
    /// Tells the runs on one broker apart.
    pub run: u32,
    pub names: Names,
}

impl Place {
    pub fn new(args: &Args, directory: PathBuf) -> Place {
        let run = args.run.unwrap_or_else(std::process::id);
        let suffix = if args.log == "rocketmq" { format!("-{run}") } else { String::new() };
        Place { directory, run, names: Names::new(args.workload, &suffix) }
    }

    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub fn stores(&self, args: &Args) -> Arc<dyn StoreFactory> {
        Arc::new(StoreOptions::new(args.store, self.state()))
    }

    pub async fn open_log(&self, args: &Args) -> Result<Arc<dyn Log>> {
        let group = onceflow::topics::producer_group(&Name::job(&self.names.job)?);
        match (args.log.as_str(), &args.name_server) {
            ("rocketmq", Some(address)) => open_rocketmq(address, &group).await,
            ("rocketmq", None) => Err(Error::invalid("--log rocketmq needs --name-server")),
            _ => open_embedded(args, &self.directory, &group),
        }
    }

    /// This program again, for a part of this run.
    pub fn part(&self, role: Role) -> Result<Command> {
        let program = std::env::current_exe().map_err(|e| Error::invalid("own program is gone").with_source(e))?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1));
        command.args(["--role", role.word(), "--run", &self.run.to_string(), "--dir"]).arg(&self.directory);
        Ok(command)
    }

    /// Runs a part to its end.
    pub fn run_part(&self, role: Role) -> Result<()> {
        let status = self.part(role)?.status().map_err(|e| failed(role).with_source(e))?;
        if status.success() { Ok(()) } else { Err(failed(role).context(format!("status={status}"))) }
    }
}

pub fn failed(role: Role) -> Error {
    Error::retry(format!("a part of the run failed: part={}", role.word()))
}

fn open_embedded(args: &Args, directory: &Path, group: &str) -> Result<Arc<dyn Log>> {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
    let sync = if args.sync { Sync::EachAppend } else { Sync::Never };
    let options = EmbeddedOptions { group: group.into(), sync, ..EmbeddedOptions::default() };
    Ok(Arc::new(EmbeddedLog::open(directory.join("log"), options)?))
}

#[cfg(feature = "rocketmq")]
async fn open_rocketmq(address: &str, group: &str) -> Result<Arc<dyn Log>> {
    use onceflow::log::rocketmq::{RocketLog, RocketOptions};
    Ok(Arc::new(RocketLog::open(RocketOptions::new(address, group)).await?))
}

#[cfg(not(feature = "rocketmq"))]
async fn open_rocketmq(_: &str, _: &str) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("built without the feature rocketmq"))
}
