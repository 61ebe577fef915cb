//! Finding the brokers: at the start, where a cluster that is away is waited for, and from then on with every keep-alive.

use super::Shared;
use super::brokers::Lane;
use super::secure::Security;
use onceflow_types::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Pause after the first try that found nobody; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl Shared {
    /// Goes on once one broker has answered well.
    pub(super) async fn start(self: &Arc<Self>) -> Result<()> {
        self.find_brokers().await?;
        let weak = Arc::downgrade(self);
        let pause = self.options.keep_alive;
        self.client.runtime().spawn(async move {
            loop {
                sleep(pause).await;
                let Some(shared) = weak.upgrade() else { return };
                shared.keep_alive().await;
            }
        });
        Ok(())
    }

    /// Whatever another try may cure is tried again, up to the bound; a refusal ends it at once.
    async fn find_brokers(&self) -> Result<()> {
        let (began, time_max) = (Instant::now(), self.options.start_time_max);
        let mut pause = PAUSE_FIRST;
        loop {
            match self.try_start().await {
                Err(error) if error.kind() == ErrorKind::Retry => {
                    let left = time_max.saturating_sub(began.elapsed());
                    if left.is_zero() {
                        let waited = time_max.as_millis();
                        return Err(error.context(format_args!("the cluster cannot be reached: waited_ms={waited}")));
                    }
                    tracing::warn!(error = error.report(), "the cluster is away; trying again");
                    sleep(pause.min(left)).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                other => return other,
            }
        }
    }

    async fn try_start(&self) -> Result<()> {
        self.check_name_servers().await?;
        self.client.start().await?;
        self.refresh().await?;
        self.hello().await
    }

    /// The client library does not tell a refused certificate from a server that is away, so with TLS each name server is
    /// asked for its certificate here first. One that is away is left to the library.
    async fn check_name_servers(&self) -> Result<()> {
        if self.options.tls.is_none() {
            return Ok(());
        }
        let addresses = self.options.name_server.split(';').map(str::trim).filter(|address| !address.is_empty());
        for address in addresses {
            let shaking_hands = shake_hands(self.security.clone(), address.to_owned());
            // On the log's own runtime: the caller's may have no sockets.
            let shaking_hands = self.client.runtime().spawn(shaking_hands);
            match timeout(self.options.connect_timeout, shaking_hands).await {
                Ok(Ok(Err(error))) if error.kind() != ErrorKind::Retry => return Err(error.context("name server")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Asks the name server anew who the brokers are.
    pub(super) async fn refresh(&self) -> Result<()> {
        let masters = self.client.masters().await?;
        if masters.is_empty() {
            let name_server = &self.options.name_server;
            return Err(Error::retry(format!("name server knows no master broker: name_server={name_server}")));
        }
        self.brokers.update(masters);
        Ok(())
    }

    /// Sends each broker a heartbeat: it must carry a good signature to be answered well.
    async fn hello(&self) -> Result<()> {
        let mut away = None;
        let mut greeted = 0;
        for (name, address) in self.brokers.addresses() {
            match self.heartbeat(&name, Lane::Write).await {
                Ok(()) => greeted += 1,
                Err(error) if error.kind() == ErrorKind::Retry => {
                    tracing::warn!(broker = &*name, address = &*address, error = error.report(), "broker is away");
                    away = Some(error.context(format_args!("no broker can be reached: name={name} address={address}")));
                }
                Err(error) => return Err(error),
            }
        }
        match away {
            Some(error) if greeted == 0 => Err(error),
            _ => Ok(()),
        }
    }

    async fn keep_alive(&self) {
        if let Err(error) = self.refresh().await {
            tracing::debug!(error = error.report(), "brokers not asked for");
        }
        for (broker, lane) in self.brokers.lanes() {
            if let Err(error) = self.heartbeat(&broker, lane).await {
                tracing::debug!(broker = &*broker, error = error.report(), "keep-alive failed");
            }
        }
    }
}

async fn shake_hands(security: Security, address: String) -> Result<()> {
    let unreachable = |error| Error::retry(format!("no connection: address={address}")).with_source(error);
    let socket = TcpStream::connect(&address).await.map_err(unreachable)?;
    security.secure(&address, socket).await.map(drop)
}
