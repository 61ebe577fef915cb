//! End-to-end benchmark: one workload, one log, one store, one delivery. Prints a line and, with `--json`, writes one
//! JSON object. Exit code 1 when the output is not exact.
//!
//! `cargo xtask bench` calls it; see `docs/benchmarks.md`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::indexing_slicing,
    reason = "a program for people, not an API"
)]

mod args;
mod consumer;
mod expected;
mod guard;
mod latency;
mod load;
mod measure;
mod place;
mod producer;
mod programs;
mod pump;
mod restore;
mod spec;
mod throughput;

use args::{Args, Role};
use clap::Parser;
use latency::Timed;
use onceflow::types::{Error, Result};
use place::Place;
use serde_json::Value;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let temporary = tempfile::tempdir().map_err(|e| Error::invalid("no temporary directory").with_source(e))?;
    let place = Place::new(args, args.dir.clone().unwrap_or_else(|| temporary.path().to_path_buf()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::retry("no runtime").with_source(e))?;
    runtime.block_on(async {
        match args.role {
            None => measure(args, &place).await,
            Some(role) => part(args, &place, role).await.map(|()| true),
        }
    })
}

async fn measure(args: &Args, place: &Place) -> Result<bool> {
    let (result, exact) = match args {
        Args { restore: Some(_), .. } => restore::run(args, place).await?,
        Args { latency: Some(_), .. } => latency::run(args, place).await?,
        Args { guard: Some(ratio_max), .. } => guard::run(args, place, *ratio_max).await?,
        _ => throughput::run(args, place).await?,
    };
    let Some(path) = &args.json else { return Ok(exact) };
    let text = format!("{}\n", Value::Object(result));
    std::fs::write(path, text)
        .map_err(|e| Error::invalid(format!("cannot write {}", path.display())).with_source(e))?;
    Ok(exact)
}

async fn part(args: &Args, place: &Place, role: Role) -> Result<()> {
    match role {
        Role::Load => {
            // Here, so that its memory is not counted.
            expected::self_check(args.workload).map_err(Error::bug)?;
            let log = place.open_log(args).await?;
            load::load(&*log, args.workload, &place.names, args.generator(), args.records()).await
        }
        Role::Pump => pump::part(args, place).await,
        Role::Produce => {
            let log = place.open_log(args).await?;
            say(producer::produce(&*log, &place.names, Timed::new(args, args.begin_us)?).await?)
        }
        Role::Consume => {
            let log = place.open_log(args).await?;
            say(consumer::consume(&*log, &place.names, Timed::new(args, args.begin_us)?).await?)
        }
        Role::StartDrain => restore::start(args, place, restore::Ending::Drain).await,
        Role::StartKill => restore::start(args, place, restore::Ending::Kill).await,
    }
}

/// To the process that started this one.
fn say(what: impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(&what).map_err(|e| Error::bug("a result cannot be written").with_source(e))?;
    println!("{text}");
    Ok(())
}
