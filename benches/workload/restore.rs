//! How long a job takes from the start of its process until it runs, with the state of many keys: from its journal, when the
//! folder of its state is empty, and from that folder.

use crate::args::{Args, Role};
use crate::expected::expected;
use crate::measure::{Usage, rss_peak_mb};
use crate::place::{Place, failed};
use crate::programs::{self, RUNNING, Sums, Workload};
use crate::spec::{Key, key_bytes};
use crate::throughput::verify;
use onceflow::types::{Error, Result};
use onceflow::{Runtime, Standing};
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::Instant;

/// Longest start.
const START_TIME_MAX: Duration = Duration::from_secs(600);
/// How often the state of the tasks is looked at: the grain of the figures.
const LOOK_TIME: Duration = Duration::from_millis(2);
/// Keys whose values are asked for behind each start.
const KEYS_ASKED: u64 = 200;

/// How a start ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Drain,
    /// At once, without a word to anybody.
    Kill,
}

/// What a start said.
struct Started {
    seconds: f64,
    said: Value,
}

/// Says whether output and state were exact.
pub async fn run(args: &Args, place: &Place) -> Result<(Map<String, Value>, bool)> {
    if args.workload != Workload::W1 {
        return Err(Error::invalid("--restore is measured with w1"));
    }
    place.run_part(Role::Load)?;
    let filled = start_elsewhere(place, Role::StartDrain)?;
    forget(place)?;
    let empty = start_elsewhere(place, Role::StartDrain)?;
    let present = start_elsewhere(place, Role::StartKill)?;
    let killed_present = start_elsewhere(place, Role::StartKill)?;
    forget(place)?;
    let killed_empty = start_elsewhere(place, Role::StartDrain)?;
    let starts = [&filled, &empty, &present, &killed_present, &killed_empty];
    let values_right = starts.iter().all(|start| start.said["values_right"] == Value::Bool(true));
    if !values_right {
        eprintln!("a value of the state is wrong or missing");
    }
    let check = expected(args.workload, args.generator(), args.records());
    let verified = verify(place.open_log(args).await?, &place.names, check).await?;
    let exact = verified.exact && values_right;
    let mut result = args.described("restore");
    result.extend([
        ("restore_empty_s".to_owned(), empty.seconds.into()),
        ("restore_empty_cpu_s".to_owned(), empty.said["cpu_s"].clone()),
        ("restore_present_s".to_owned(), present.seconds.into()),
        ("restore_killed_empty_s".to_owned(), killed_empty.seconds.into()),
        ("restore_killed_present_s".to_owned(), killed_present.seconds.into()),
        ("rss_peak_mb".to_owned(), empty.said["rss_peak_mb"].clone()),
        ("exact".to_owned(), exact.into()),
    ]);
    println!(
        "restore of {} keys, {} {} {}: state empty {:.2} s ({} CPU s), present {:.2} s; after a kill: empty {:.2} s, present {:.2} s, exact: {exact}",
        args.keys(),
        args.log,
        args.store,
        args.delivery,
        empty.seconds,
        empty.said["cpu_s"],
        present.seconds,
        killed_empty.seconds,
        killed_present.seconds,
    );
    Ok((result, exact))
}

/// Removes the local state.
fn forget(place: &Place) -> Result<()> {
    std::fs::remove_dir_all(place.state()).map_err(|e| Error::invalid("cannot remove the state").with_source(e))
}

/// Starts the job in a process of its own: the time until it says that all its tasks run.
fn start_elsewhere(place: &Place, role: Role) -> Result<Started> {
    let broken = |e: std::io::Error| failed(role).with_source(e);
    let mut command = place.part(role)?;
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(broken)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(|| failed(role))?).lines();
    let running = lines.next().ok_or_else(|| failed(role))?.map_err(broken)?;
    let seconds = begin.elapsed().as_secs_f64();
    let said = lines.next().unwrap_or(Ok(running)).map_err(broken)?;
    let status = child.wait().map_err(broken)?;
    if !status.success() {
        return Err(failed(role).context(format!("status={status}")));
    }
    let said = serde_json::from_str(&said).map_err(|e| failed(role).with_source(e))?;
    Ok(Started { seconds, said })
}

/// A start of the job in this process. The first line that it prints says that all tasks run, the second one what was found.
pub async fn start(args: &Args, place: &Place, ending: Ending) -> Result<()> {
    let before = Usage::now(None);
    let log = place.open_log(args).await?;
    let topology = programs::topology(args.workload, &place.names, args.delivery())?;
    let builder = Runtime::builder(topology, log, place.stores(args)).config(args.config());
    let mut runtime = builder.start().await?;
    until_running(&runtime).await?;
    say(&"running");
    let [cpu_s, _] = Usage::now(None).since(before).seconds();
    let rss_peak_mb = rss_peak_mb();
    // The first start has its work still before it, the others have none.
    if !runtime.wait_caught_up(START_TIME_MAX).await? {
        return Err(Error::retry("the job did not catch up in time"));
    }
    let values_right = values_right(args, &runtime).await?;
    say(&json!({ "cpu_s": cpu_s, "rss_peak_mb": rss_peak_mb, "values_right": values_right }));
    if ending == Ending::Kill {
        std::process::exit(0);
    }
    runtime.drain().await
}

fn say(what: &impl ToString) {
    println!("{}", what.to_string());
    _ = std::io::stdout().flush();
}

/// Waits until all tasks of the job run.
pub async fn until_running(runtime: &Runtime) -> Result<()> {
    let deadline = Instant::now() + START_TIME_MAX;
    while Instant::now() < deadline {
        let status = runtime.status();
        if !status.is_empty() && status.values().all(|task| task.state == Standing::Running) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_TIME).await;
    }
    Err(Error::retry(format!("the job does not run: status={:?}", runtime.status())))
}

/// Whether some keys, from all over, have the value that their one record made.
async fn values_right(args: &Args, runtime: &Runtime) -> Result<bool> {
    let values = runtime.query::<Key, Sums>(RUNNING)?;
    let generator = args.generator();
    for key in (0..args.keys()).step_by((args.keys() / KEYS_ASKED).max(1) as usize) {
        let value = values.get(&key_bytes(key)).await?;
        let amount = generator.amount(key) as i64;
        if value.map(|sums| (sums.seq, sums.count, sums.sum)) != Some((key as i64, 1, amount)) {
            eprintln!("wrong value: key={key} amount={amount} value={value:?}");
            return Ok(false);
        }
    }
    Ok(true)
}
