//! The processor under test: what any user's program is, with its settings on the command line.

use crate::job::{self, Mode};
use onceflow::log::Log;
use onceflow::log::rocketmq::{RocketLog, RocketOptions};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::types::{Error, Name, Result};
use onceflow::{Config, Runtime};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The name server
    #[arg(long)]
    name_server: String,
    /// Where the state is kept
    #[arg(long)]
    directory: PathBuf,
    /// The state backend
    #[arg(long)]
    store: Backend,
    /// How output reaches its readers
    #[arg(long, value_enum)]
    delivery: Mode,
    /// The publish lease
    #[arg(long)]
    lease_ms: u64,
}

/// Runs until the job fails or is told to stop.
pub(crate) async fn run(args: Args) -> Result<()> {
    end_with_the_driver();
    let mut runtime = start(&args).await?;
    let mut stop = signal(SignalKind::terminate()).map_err(|e| Error::invalid("no signals").with_source(e))?;
    let ended = tokio::select! {
        ended = runtime.wait() => Some(ended),
        _ = stop.recv() => None,
    };
    match ended {
        Some(ended) => ended.and_then(|()| Err(Error::bug("the job ended by itself"))),
        None => runtime.drain().await,
    }
}

/// The driver holds the other end of our standard input: when that ends, the driver is gone, and nobody would stop us.
fn end_with_the_driver() {
    std::thread::spawn(|| {
        let mut nothing = [0; 64];
        while std::io::stdin().read(&mut nothing).is_ok_and(|bytes| bytes > 0) {}
        std::process::exit(i32::from(crate::WRONG));
    });
}

async fn start(args: &Args) -> Result<Runtime> {
    let group = onceflow::topics::producer_group(&Name::job(job::JOB)?);
    let instance = format!("soak-{}", std::process::id());
    let options = RocketOptions { instance, ..RocketOptions::new(args.name_server.as_str(), group) };
    let log: Arc<dyn Log> = Arc::new(RocketLog::open(options).await?);
    let stores: Arc<dyn StoreFactory> = Arc::new(StoreOptions::new(args.store, args.directory.join("state")));
    let config = Config {
        threads: 2,
        publish_lease: Duration::from_millis(args.lease_ms),
        // A broker that was killed is away for some 10 s.
        start_time_max: Duration::from_secs(90),
        // Far more often than anybody would, so that snapshots are cut, too.
        snapshot_time: Duration::from_mins(1),
        ..Config::default()
    };
    Runtime::builder(job::topology(args.delivery)?, log, stores).config(config).start().await
}
