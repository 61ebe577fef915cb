//! The objects of `rocketmq-client-rust`, behind a trait object: their types are so deep that naming them in a future's
//! type makes every user of the log raise `recursion_limit`.

use super::client::Route;
use super::options::{Credentials, RocketOptions};
use super::secure;
use rocketmq_client_rust::{
    AclClientRPCHook, ClientConfig, ClientError, ClientInstanceHandle, ClientRpcHook, ClientRuntime,
    ClientRuntimeConfig, SessionCredentials, TelemetryHandle,
};
use rocketmq_runtime::ChildServiceContext;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What the client will say.
pub(super) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// Brokers' names and master addresses.
pub(super) type Masters = BTreeMap<Arc<str>, Arc<str>>;

/// What we need of the client library.
pub(super) trait Library: Send + Sync {
    /// Starts the part that asks the name server.
    fn start(self: Arc<Self>) -> Answer<()>;
    /// The brokers of all clusters.
    fn masters(self: Arc<Self>) -> Answer<Masters>;
    /// The queues of a topic, `None` when there is no such topic.
    fn route(self: Arc<Self>, topic: String) -> Answer<Option<Route>>;
    /// Stops all that was started.
    fn stop(self: Arc<Self>) -> Answer<()>;
}

/// Builds the client's objects; sends nothing.
pub(super) fn build(options: Arc<RocketOptions>, scope: ChildServiceContext) -> Result<Arc<dyn Library>, ClientError> {
    let runtime = ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), TelemetryHandle::noop())?;
    let instance = ClientInstanceHandle::get_or_create(&runtime, 0, config_of(&options), hook(&options))?;
    Ok(Arc::new(Client { options, runtime, instance }))
}

struct Client {
    options: Arc<RocketOptions>,
    runtime: Arc<ClientRuntime>,
    instance: ClientInstanceHandle,
}

impl Library for Client {
    fn start(self: Arc<Self>) -> Answer<()> {
        Box::pin(async move { self.instance.start().await })
    }

    fn masters(self: Arc<Self>) -> Answer<Masters> {
        Box::pin(async move {
            let cluster = self.instance.broker_cluster_info(millis(self.options.request_timeout)).await?;
            let mut masters = BTreeMap::new();
            for (name, broker) in cluster.broker_addr_table.unwrap_or_default() {
                // Number 0 is the master; the others are slaves, which are never read.
                if let Some(address) = broker.broker_addrs().get(&0) {
                    masters.insert(Arc::from(name.as_str()), Arc::from(address.as_str()));
                }
            }
            Ok(masters)
        })
    }

    fn route(self: Arc<Self>, topic: String) -> Answer<Option<Route>> {
        Box::pin(async move {
            let route = self.instance.topic_route(&topic, millis(self.options.request_timeout)).await?;
            let Some(route) = route else { return Ok(None) };
            let mut queues = Route::new();
            for data in route.queue_datas {
                queues.insert(data.broker_name.as_str().into(), data.read_queue_nums.max(data.write_queue_nums));
            }
            Ok(Some(queues))
        })
    }

    fn stop(self: Arc<Self>) -> Answer<()> {
        Box::pin(async move {
            self.instance.shutdown_owned().await;
            let report = self.runtime.shutdown().await;
            if !report.is_healthy() {
                tracing::debug!("rocketmq client did not stop cleanly");
            }
            Ok(())
        })
    }
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn config_of(options: &RocketOptions) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.set_namesrv_addr(options.name_server.as_str().into());
    // The client's id is the host's address and this: processes of one machine are told apart.
    config.set_instance_name(format!("{}@{}", options.instance, std::process::id()).into());
    config.set_vip_channel_enabled(false);
    secure::tell(options, &mut config);
    config
}

fn hook(options: &RocketOptions) -> Option<Arc<ClientRpcHook>> {
    let Credentials { access_key, secret_key } = options.credentials.as_ref()?;
    let credentials = SessionCredentials::with_keys(access_key.as_str(), secret_key.as_str());
    Some(Arc::new(AclClientRPCHook::new(credentials)))
}
