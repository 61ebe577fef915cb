//! Opening a log that exists. A tool acts for a producer group of its own: it cannot answer a job's check-backs.

use onceflow::log::Log;
use onceflow::types::{Error, Result};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The producer group of this tool; it prepares nothing.
#[cfg(any(feature = "embedded", feature = "rocketmq"))]
const GROUP: &str = "onceflow-cli";

/// Which log.
#[derive(clap::Args)]
pub(crate) struct LogArgs {
    /// The directory of an embedded log
    #[arg(long, value_name = "DIR", required_unless_present = "name_server", conflicts_with = "name_server")]
    log: Option<PathBuf>,
    /// RocketMQ's name servers: host:port, several with `;` between them
    #[arg(long, value_name = "ADDR")]
    name_server: Option<String>,
    /// Access key of RocketMQ's access control [default: $ONCEFLOW_ACCESS_KEY]
    #[arg(long, value_name = "KEY", requires = "secret_key")]
    access_key: Option<String>,
    /// Secret key of RocketMQ's access control [default: $ONCEFLOW_SECRET_KEY]
    #[arg(long, value_name = "KEY", requires = "access_key")]
    secret_key: Option<String>,
}

impl LogArgs {
    /// # Errors
    /// `Invalid` when there is no such log, `Fenced` when it is open elsewhere, `Retry` when no broker answers.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Log>> {
        match (&self.log, &self.name_server) {
            (Some(directory), _) => open_embedded(directory),
            (None, Some(name_server)) => open_broker(name_server, self).await,
            (None, None) => Err(Error::invalid("give --log or --name-server")),
        }
    }
}

/// Runs a command that talks to a log.
pub(crate) fn block_on(command: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::invalid("async runtime cannot be started").with_source(e))?
        .block_on(command)
}

#[cfg(feature = "embedded")]
fn open_embedded(directory: &Path) -> Result<Arc<dyn Log>> {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};

    // Opening makes a log where there is none; looking must not.
    if !directory.join("FORMAT").is_file() {
        return Err(Error::invalid(format!("there is no embedded log here: directory={}", directory.display())));
    }
    let options = EmbeddedOptions { group: GROUP.into(), ..EmbeddedOptions::default() };
    Ok(Arc::new(EmbeddedLog::open(directory, options)?))
}

#[cfg(not(feature = "embedded"))]
fn open_embedded(_: &Path) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("the embedded log is not compiled in, build with --features embedded"))
}

#[cfg(feature = "rocketmq")]
async fn open_broker(name_server: &str, args: &LogArgs) -> Result<Arc<dyn Log>> {
    use onceflow::log::rocketmq::{Credentials, RocketLog, RocketOptions};

    let key = |given: &Option<String>, name: &str| given.clone().or_else(|| std::env::var(name).ok());
    let access_key = key(&args.access_key, "ONCEFLOW_ACCESS_KEY");
    let secret_key = key(&args.secret_key, "ONCEFLOW_SECRET_KEY");
    let credentials = access_key.zip(secret_key).map(|(access, secret)| Credentials::new(access, secret));
    let log = RocketLog::open(RocketOptions { credentials, ..RocketOptions::new(name_server, GROUP) }).await?;
    Ok(Arc::new(log))
}

#[cfg(not(feature = "rocketmq"))]
#[expect(clippy::unused_async, reason = "as with the feature")]
async fn open_broker(_: &str, _: &LogArgs) -> Result<Arc<dyn Log>> {
    Err(Error::invalid("the RocketMQ client is not compiled in, build with --features rocketmq"))
}
