//! A RocketMQ in containers that a test may kill, restart, wipe and cut off: one name server and one broker, each in a
//! container of its own, on one network, with one folder of this machine as their volume.
//!
//! Clients reach both through ports that Docker publishes on loopback, under the same numbers inside and outside: so the
//! address that the broker tells its clients is good for all of them, itself included, and stays good over a restart.
//!
//! The images are those of `cargo xtask image`; `cargo xtask containers` makes them, starts a Docker engine if there is
//! none, and runs the tests of this crate.

mod files;
mod server;

use files::Layout;
use server::{Role, Server};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

/// The label of all containers, and the variable from which it is taken.
const LABEL: &str = "onceflow.owner";
const OWNER: &str = "ONCEFLOW_CONTAINER_OWNER";
/// How the names of all containers and networks begin; the owner's pid follows.
const PREFIX: &str = "onceflow-test-";

/// What every function here ends with; a test has nothing better to do with an error than to show it.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a test may choose.
#[derive(Clone, Debug)]
pub struct Setup {
    /// RocketMQ's version.
    pub version: String,
    /// Broker properties beyond ours; they win.
    pub properties: Vec<(String, String)>,
    /// Name and password of the super user; with them access control is on.
    pub acl: Option<(String, String)>,
}

impl Setup {
    /// A broker of that version with fast check-backs and nothing special.
    pub fn version(version: &str) -> Self {
        Setup { version: version.to_owned(), properties: vec![], acl: None }
    }

    /// Adds a broker property.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running RocketMQ. Its containers, network and data go with it.
#[derive(Debug)]
pub struct RocketMq {
    // Dropped in this order: the network can only be removed when no container is in it.
    broker: Server,
    name_server: Server,
    folder: tempfile::TempDir,
    layout: Layout,
}

impl RocketMq {
    /// Starts both servers and waits until they serve.
    pub async fn start(setup: Setup) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let layout = Layout::new(unique(), [free_port()?, free_port()?]);
        layout.write(folder.path(), &setup)?;
        let image = server::Image::find(&setup.version).await?;
        let name_server = Server::start(Role::NameServer, &image, &layout, folder.path()).await?;
        let broker = Server::start(Role::Broker, &image, &layout, folder.path()).await?;
        Ok(RocketMq { broker, name_server, folder, layout })
    }

    /// The name server's address, as clients use it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.layout.ports[0])
    }

    /// SIGKILL to the broker; its volume stays.
    pub async fn kill_broker(&self) -> Outcome {
        self.broker.kill().await
    }

    /// Freezes the broker: what is connected stays connected, and gets no answer.
    pub async fn freeze_broker(&self) -> Outcome {
        self.broker.freeze().await
    }

    /// Ends that.
    pub async fn thaw_broker(&self) -> Outcome {
        self.broker.thaw().await
    }

    /// Takes the broker, which goes on, out of its network: its connections end, and new ones are refused.
    pub async fn cut_off_broker(&self) -> Outcome {
        self.broker.cut_off(&self.layout.name).await
    }

    /// Puts it back.
    pub async fn connect_broker(&self) -> Outcome {
        self.broker.connect(&self.layout.name).await
    }

    /// A clean stop of the broker, as long as it takes.
    pub async fn stop_broker(&self) -> Outcome {
        self.broker.stop().await
    }

    /// Starts the broker again on its volume and waits until it serves.
    pub async fn start_broker(&self) -> Outcome {
        self.broker.restart().await
    }

    /// SIGKILL to the name server.
    pub async fn kill_name_server(&self) -> Outcome {
        self.name_server.kill().await
    }

    /// Starts the name server again, which then knows no broker until one reports.
    pub async fn start_name_server(&self) -> Outcome {
        self.name_server.restart().await
    }

    /// The broker's store on this machine: `commitlog`, `consumequeue`, `config` and so on.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Removes all that the broker, which does not run, has stored: topics, messages, half messages.
    pub fn wipe(&self) -> Outcome {
        Ok(std::fs::remove_dir_all(self.store())?)
    }

    /// Runs RocketMQ's admin tool beside the broker, and returns what it printed.
    pub async fn admin(&self, words: &[&str]) -> Outcome<String> {
        self.broker.admin(&self.layout, words).await
    }

    /// What the broker wrote to its log, for a test that failed.
    pub fn broker_log(&self) -> String {
        read(&self.folder.path().join("broker.log"))
    }
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Who the containers belong to: `HOST/PID` of `cargo xtask containers`, or of this process. It is their label, so that
/// the next run finds what a killed one has left behind.
fn owner() -> String {
    std::env::var(OWNER).unwrap_or_else(|_| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}/{}", host.trim(), std::process::id())
    })
}

/// A name that no other run uses at this time.
fn unique() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let owner = owner();
    let pid = owner.rsplit('/').next().unwrap_or_default();
    // A number a test: with the owner's pid it tells this network from those of runs at the same time.
    format!("{PREFIX}{pid}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A port that is free, and below those that the system gives to outgoing connections: a killed container frees its port,
/// and such a connection might take it before the restart.
fn free_port() -> Outcome<u16> {
    const RANGE: std::ops::Range<u16> = 20_000..29_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 400)? * 20;
    for _ in 0..RANGE.len() {
        let port = RANGE.start + (start + NEXT.fetch_add(3, Ordering::Relaxed)) % 9_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no free port".into())
}
