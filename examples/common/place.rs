//! Where a job runs: its log, its state stores, its settings.

use super::Options;
use onceflow::Config;
use onceflow::log::{Log, Queues, TopicSpec};
use onceflow::storage::{Backend, StoreFactory, StoreOptions};
use onceflow::types::{Error, ErrorKind, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The queues of each topic of an example.
const QUEUES: u32 = 4;
/// Marks a directory as made by an example, so that `--reset` removes nothing else.
const MARKER: &str = "ONCEFLOW_EXAMPLE";

/// An open log with everything that a `Runtime` needs beside a topology.
pub struct Place {
    pub log: Arc<dyn Log>,
    pub stores: Arc<dyn StoreFactory>,
    pub config: Config,
    pub directory: PathBuf,
    /// Whether the log is a RocketMQ cluster.
    pub on_broker: bool,
}

impl Place {
    /// Opens the log that the options name, for `job`.
    ///
    /// # Errors
    /// `Invalid` for a wrong option or a directory of somebody else, `Fenced` when another process runs in it, `Retry`
    /// when there is no broker.
    pub async fn open(example: &str, job: &str, options: &Options) -> Result<Place> {
        let backend: Backend = options.store.parse()?;
        if !backend.is_available() {
            return Err(Error::invalid(format!(
                "this store is not compiled in, build the example with --features {backend}"
            )));
        }
        let directory = options.dir.clone().unwrap_or_else(|| Path::new("target/onceflow").join(example));
        if options.reset {
            reset(&directory)?;
        }
        make(&directory)?;
        // Each store has a folder of its own. State is a copy of what the journal says, so a job that goes on with
        // another store builds it again from the journal.
        let stores = Arc::new(StoreOptions::new(backend, directory.join("state").join(backend.as_str())));
        let mut config = Config { threads: options.threads, ..Config::default() };
        let on_broker = options.name_server.is_some();
        let log = if let Some(name_server) = &options.name_server {
            open_broker(name_server, job, options).await?
        } else {
            // An embedded log is open in one process at a time, so an earlier owner is dead: no need to wait for it.
            config.publish_lease = Duration::from_secs(1);
            open_embedded(&directory.join("log"), job)?
        };
        Ok(Place { log, stores, config, directory, on_broker })
    }

    /// Makes the topics that the job reads and writes; those that exist stay as they are.
    pub async fn create_topics(&self, topics: &[&str]) -> Result<()> {
        for topic in topics {
            let spec = TopicSpec { topic: (*topic).into(), queues: Queues::PerBroker(QUEUES) };
            self.log.create_topic(&spec).await?;
        }
        Ok(())
    }
}

fn make(directory: &Path) -> Result<()> {
    let marker = directory.join(MARKER);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&marker, "made by an example of onceflow; --reset removes log and state\n"))
        .map_err(|e| Error::invalid(format!("cannot write here: directory={}", directory.display())).with_source(e))
}

fn reset(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    if !directory.join(MARKER).is_file() {
        return Err(Error::invalid(format!("not a directory of an example: directory={}", directory.display())));
    }
    // A log that is open in another process must not lose its files.
    match open_embedded(&directory.join("log"), "reset") {
        Err(error) if error.kind() == ErrorKind::Fenced => return Err(error),
        _ => {}
    }
    for part in ["log", "state"] {
        let path = directory.join(part);
        if path.exists() {
            fs::remove_dir_all(&path)
                .map_err(|e| Error::invalid(format!("cannot remove: path={}", path.display())).with_source(e))?;
        }
    }
    Ok(())
}

#[cfg(feature = "embedded")]
fn open_embedded(directory: &Path, job: &str) -> Result<Arc<dyn Log>> {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};

    let group = onceflow::topics::producer_group(&onceflow::types::Name::job(job)?);
    let options = EmbeddedOptions { group: group.into(), ..EmbeddedOptions::default() };
    Ok(Arc::new(EmbeddedLog::open(directory, options)?))
}

#[cfg(not(feature = "embedded"))]
fn open_embedded(_: &Path, _: &str) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("the embedded log is not compiled in, build with --features embedded, or give --name-server"))
}

#[cfg(feature = "rocketmq")]
async fn open_broker(name_server: &str, job: &str, options: &Options) -> Result<Arc<dyn Log>> {
    use onceflow::log::rocketmq::{Credentials, RocketLog, RocketOptions};

    let group = onceflow::topics::producer_group(&onceflow::types::Name::job(job)?);
    let key = |given: &Option<String>, name: &str| given.clone().or_else(|| std::env::var(name).ok());
    let access_key = key(&options.access_key, "ONCEFLOW_ACCESS_KEY");
    let secret_key = key(&options.secret_key, "ONCEFLOW_SECRET_KEY");
    let credentials = access_key.zip(secret_key).map(|(access, secret)| Credentials::new(access, secret));
    let log = RocketLog::open(RocketOptions { credentials, ..RocketOptions::new(name_server, group) }).await?;
    Ok(Arc::new(log))
}

#[cfg(not(feature = "rocketmq"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_broker(_: &str, _: &str, _: &Options) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("the RocketMQ client is not compiled in, build the example with --features rocketmq"))
}
