//! Running a job until all its input is processed, or somebody stops it.

use super::input::Input;
use super::progress::{Figures, Progress};
use super::{Place, grouped};
use onceflow::types::{Error, ErrorKind, Result};
use onceflow::{Runtime, Topology};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often the job is looked at.
const LOOK_TIME: Duration = Duration::from_millis(50);

/// Writes `input`, runs `topology` until it has processed all of it, and drains. `None` when somebody stopped it with
/// Ctrl-C; then it was drained, too.
pub async fn run(place: &Arc<Place>, topology: Topology, input: Input, output_topic: &str) -> Result<Option<Figures>> {
    let mut stop = stop_signal()?;
    let mut progress = Progress::new(&topology, input.topic, output_topic, input.records);
    let builder = Runtime::builder(topology, place.log.clone(), place.stores.clone());
    let mut runtime = builder.config(place.config.clone()).start().await?;
    let mut writer = tokio::spawn(input.write(place.clone()));
    let mut written = None;
    loop {
        tokio::select! {
            failed = runtime.wait() => return Err(ended(failed)),
            _ = stop.changed() => break,
            result = &mut writer, if written.is_none() => written = Some(joined(result)?),
            () = tokio::time::sleep(LOOK_TIME) => {}
        }
        progress.show(&runtime);
        if written.is_some() && caught_up(&runtime).await? {
            break;
        }
    }
    let stopped = *stop.borrow();
    stop_writing(writer, stopped).await;
    let figures = progress.look(&runtime);
    progress.end();
    runtime.drain().await?;
    if stopped {
        return Ok(None);
    }
    match (written, figures.epochs) {
        (Some(0), 0) => println!("nothing to do: earlier runs have processed all of the input"),
        _ => println!(
            "this run             {:.1} s, {} records/s, {} epochs",
            progress.elapsed().as_secs_f64(),
            grouped(progress.rate(figures)),
            grouped(figures.epochs),
        ),
    }
    Ok(Some(figures))
}

async fn caught_up(runtime: &Runtime) -> Result<bool> {
    match runtime.caught_up().await {
        // The log is away for a moment; the job itself waits for it, too.
        Err(error) if error.kind() == ErrorKind::Retry => Ok(false),
        other => other,
    }
}

/// A job that ends before it was asked to has failed.
fn ended(result: Result<()>) -> Error {
    result.err().unwrap_or_else(|| Error::bug("the job ended by itself"))
}

fn joined(result: Result<Result<u64>, tokio::task::JoinError>) -> Result<u64> {
    result.map_err(|e| Error::bug("writing the input ended").with_source(e))?
}

async fn stop_writing(writer: JoinHandle<Result<u64>>, stopped: bool) {
    if stopped {
        writer.abort();
        let _ = writer.await;
    }
}

/// Becomes true with the first Ctrl-C (or SIGTERM); the second ends the program at once, as a crash would.
fn stop_signal() -> Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let handler = move || {
        if sender.send_replace(true) {
            std::process::exit(130);
        }
        eprintln!("\nstopping");
    };
    ctrlc::set_handler(handler).map_err(|e| Error::invalid("cannot listen for Ctrl-C").with_source(e))?;
    Ok(receiver)
}
