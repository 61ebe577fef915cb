//! `onceflow reset`: drops the local state of a job.

use crate::output::Output;
use crate::state;
use clap::Args as ClapArgs;
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::types::{Error, Name, Result};
use serde_json::json;
use std::path::PathBuf;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The job id
    #[arg(long)]
    job: String,
    /// The state directory, as given to the job's `StoreOptions`; nothing but the state of this job is removed
    #[arg(long)]
    dir: PathBuf,
    /// Do it; without this option nothing is removed
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args, output: Output) -> Result<()> {
    let held = state::held_of(&args.dir, &Name::job(&args.job)?)?;
    let tasks: Vec<String> = held.iter().map(|held| held.task.to_string()).collect();
    if !args.yes {
        return Err(Error::invalid(format!(
            "this drops the state of {} tasks, add --yes: job={} tasks={}",
            tasks.len(),
            args.job,
            tasks.join(",")
        )));
    }
    for held in &held {
        let backend: Backend = held.backend.parse()?;
        StoreOptions::new(backend, &args.dir).destroy(&held.job, &held.task)?;
    }
    let text = format!("dropped the state of {} tasks; the next start builds it again from the journal\n", tasks.len());
    output.print(&json!({ "job": args.job, "dropped": tasks }), &text)
}
