//! Looking into a state directory.

use crate::output::{Output, table};
use clap::Args;
use onceflow::storage::{Backend, HeldTask, StoreFactory, StoreOptions, held_tasks};
use onceflow::types::{CommitPoint, Error, Name, Offsets, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The state directory, as given to the job's `StoreOptions`
    #[arg(long)]
    dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct PointArgs {
    /// The state directory, as given to the job's `StoreOptions`
    #[arg(long)]
    dir: PathBuf,
    /// The job id
    #[arg(long)]
    job: String,
    /// Only this task, as subtopology@broker:queue
    #[arg(long)]
    task: Option<String>,
}

/// The tasks under a state directory.
///
/// # Errors
/// `Invalid` when there is no such directory or it holds no state.
pub(crate) fn held(directory: &Path) -> Result<Vec<HeldTask>> {
    let held = held_tasks(directory)?;
    if held.is_empty() {
        return Err(Error::invalid(format!("there is no state of any job here: directory={}", directory.display())));
    }
    Ok(held)
}

/// The tasks of one job under a state directory.
///
/// # Errors
/// `Invalid` when it holds none, naming the jobs of which it holds some.
pub(crate) fn held_of(directory: &Path, job: &Name) -> Result<Vec<HeldTask>> {
    let (ours, others): (Vec<HeldTask>, Vec<HeldTask>) =
        held(directory)?.into_iter().partition(|held| held.job == *job);
    if ours.is_empty() {
        let mut jobs: Vec<&str> = others.iter().map(|held| held.job.as_str()).collect();
        jobs.dedup();
        return Err(Error::invalid(format!(
            "the directory holds no state of this job: job={job} found={} directory={}",
            jobs.join(","),
            directory.display()
        )));
    }
    Ok(ours)
}

pub(crate) fn store(args: &StoreArgs, output: Output) -> Result<()> {
    let held = held(&args.dir)?;
    let mut rows = vec![["job", "task", "store", "directory"].map(str::to_owned).to_vec()];
    let mut objects = vec![];
    for HeldTask { job, task, backend, path } in &held {
        rows.push(vec![job.to_string(), task.to_string(), backend.clone(), path.display().to_string()]);
        objects.push(json!({ "job": job.as_str(), "task": task.to_string(), "store": backend, "directory": path }));
    }
    output.print(&json!({ "tasks": objects }), &table(&rows))
}

pub(crate) fn point(args: &PointArgs, output: Output) -> Result<()> {
    let mut held = held_of(&args.dir, &Name::job(&args.job)?)?;
    if let Some(task) = &args.task {
        held.retain(|held| held.task.to_string() == *task);
        if held.is_empty() {
            return Err(Error::invalid(format!("the directory holds no state of this task: task={task}")));
        }
    }
    let (mut objects, mut text) = (vec![], String::new());
    for held in &held {
        let backend: Backend = held.backend.parse()?;
        let store = StoreOptions::new(backend, &args.dir).open(&held.job, &held.task)?;
        let point = store.commit_point()?;
        text.extend([format!("task {} in {}\n", held.task, held.backend)]);
        text += &point.map_or("  nothing committed\n".into(), point_text);
        objects.push(json!({ "task": held.task.to_string(), "store": held.backend, "point": point.map(point_json) }));
    }
    output.print(&json!({ "job": args.job, "points": objects }), &text)
}

/// Offsets as an object.
pub(crate) fn offsets(offsets: &Offsets) -> Value {
    offsets.iter().map(|(queue, next)| (queue.to_string(), json!(next.get()))).collect::<serde_json::Map<_, _>>().into()
}

fn point_json(point: &CommitPoint) -> Value {
    let channels: Vec<Value> = point
        .channels
        .iter()
        .map(|(channel, next)| {
            json!({ "sink": channel.sink.as_str(), "queue": channel.target.to_string(), "next": next.get() })
        })
        .collect();
    let unpublished: Vec<u64> = point.unpublished.iter().map(|unpublished| unpublished.epoch.get()).collect();
    json!({
        "incarnation": point.incarnation.to_string(),
        "generation": point.generation.get(),
        "epoch": point.epoch.get(),
        "published_through": point.published_through.get(),
        "unpublished_epochs": unpublished,
        "clock_ms": point.clock.as_millis(),
        "commit_offset": point.commit_offset.get(),
        "commit_checksum": point.commit_checksum,
        "journal_next": point.journal_next.get(),
        "offsets": offsets(&point.offsets),
        "channels": channels,
    })
}

fn point_text(point: &CommitPoint) -> String {
    let mut text = format!(
        "  incarnation {}, generation {}, epoch {}, published through {}\n  commit at journal offset {}, journal read up to {}\n",
        point.incarnation,
        point.generation,
        point.epoch,
        point.published_through,
        point.commit_offset,
        point.journal_next,
    );
    let mut rows = vec![];
    for (queue, next) in point.offsets.iter() {
        rows.push(vec!["  next to read".into(), queue.to_string(), next.to_string()]);
    }
    for (channel, next) in &point.channels {
        rows.push(vec![format!("  next of {}", channel.sink), channel.target.to_string(), next.to_string()]);
    }
    text += &table(&rows);
    text
}
