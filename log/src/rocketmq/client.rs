//! What `rocketmq-client-rust` does for us: it asks the name servers.
//!
//! Its futures run on a runtime of their own, which also owns our sockets, so a handle may be used from any runtime. Its
//! telemetry is the no-op one: no global subscriber is installed.

use super::brokers::lock;
use super::library::{self, Answer, Library, Masters};
use super::options::RocketOptions;
use onceflow_types::{Error, Result};
use rocketmq_client_rust::ClientError;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Threads of a handle's runtime: one is kept busy by sockets, one by the client's timers and check-backs.
const WORKER_THREADS: usize = 2;
/// Name under which the threads show up.
const THREAD_NAME: &str = "onceflow-rmq";
/// Longest wait for the client's tasks at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of a topic's queues on each broker that has it.
pub(super) type Route = BTreeMap<Arc<str>, u32>;

/// See the module.
pub(super) struct Client {
    options: Arc<RocketOptions>,
    owner: Mutex<Option<RuntimeOwner>>,
    runtime: Handle,
    library: Arc<dyn Library>,
    started: OnceCell<()>,
}

impl Client {
    /// Makes ready what will ask the name server; nothing is connected or sent yet.
    pub(super) async fn open(options: Arc<RocketOptions>) -> Result<Client> {
        let failed = || Error::invalid("rocketmq client does not start");
        let plan = RuntimeOwner::plan(RuntimeConfig::for_parallelism(THREAD_NAME, WORKER_THREADS));
        let plan = plan.map_err(|error| failed().with_source(error))?;
        let owner = plan.build().map_err(|error| failed().with_source(error))?;
        let scope = owner.root_context().component("onceflow");
        let (tell, runtime) = tokio::sync::oneshot::channel();
        let spawned = scope.spawn_service("onceflow.handle", async move {
            // The receiver waits below.
            let _ = tell.send(Handle::current());
        });
        spawned.map_err(|error| failed().with_source(error))?;
        let runtime = runtime.await.map_err(|error| failed().with_source(error))?;
        let library = library::build(options.clone(), scope).map_err(|error| failed().with_source(error))?;
        Ok(Client { options, owner: Mutex::new(Some(owner)), runtime, library, started: OnceCell::new() })
    }

    /// Starts it, once: from now on the library connects to name servers by itself.
    pub(super) async fn start(&self) -> Result<()> {
        self.started.get_or_try_init(|| self.ask("start", self.library.clone().start())).await.copied()
    }

    /// The runtime that owns everything of this handle.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Waits for an answer of the client, on the client's runtime, within the request time-out; the client takes one
    /// question after the other, so the wait for earlier ones counts.
    async fn ask<T: Send + 'static>(&self, what: &str, answer: Answer<T>) -> Result<T> {
        let asking = self.runtime.spawn(answer);
        let name_server = &self.options.name_server;
        let failed = |how: &str| Error::retry(format!("name server {how}: name_server={name_server} asked={what}"));
        let answered = timeout(self.options.request_timeout, asking).await;
        let joined = answered.map_err(|_| failed("did not answer in time"))?;
        let answer = joined.map_err(|error| Error::retry("log is closed").with_source(error))?;
        answer.map_err(|error: ClientError| failed("cannot be asked").with_source(error))
    }

    /// Names and master addresses of all brokers.
    pub(super) async fn masters(&self) -> Result<Masters> {
        self.ask("brokers", self.library.clone().masters()).await
    }

    /// The queues of a topic; `None` when the name server knows no such topic.
    pub(super) async fn route(&self, topic: &str) -> Result<Option<Route>> {
        self.ask(topic, self.library.clone().route(topic.to_owned())).await
    }

    /// Ends the client's tasks and threads; takes at most twice [`SHUTDOWN_TIMEOUT`].
    pub(super) async fn close(&self) {
        let Some(owner) = lock(&self.owner).take() else { return };
        let stopping = self.runtime.spawn(self.library.clone().stop());
        if timeout(SHUTDOWN_TIMEOUT, stopping).await.is_err() {
            tracing::warn!("rocketmq client did not stop in time");
        }
        if timeout(SHUTDOWN_TIMEOUT, owner.shutdown_tasks()).await.is_err() {
            tracing::warn!("tasks of the rocketmq client did not stop in time");
        }
        owner.shutdown_background();
    }
}
