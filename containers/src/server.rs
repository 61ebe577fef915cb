//! One server in one container.

use crate::Outcome;
use crate::files::{Layout, VOLUME};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testcontainers::bollard::Docker;
use testcontainers::bollard::models::{NetworkConnectRequest, NetworkDisconnectRequest, PortBinding};
use testcontainers::bollard::query_parameters::KillContainerOptionsBuilder;
use testcontainers::core::{ExecCommand, Mount, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};
use tokio::time::Instant;

/// What both servers print when they serve.
const READY: &str = "boot success";
/// Longest start of one server; some seconds on an idle machine.
const START_TIME_MAX: Duration = Duration::from_mins(2);
/// Longest clean stop of a broker.
const STOP_SECONDS_MAX: i32 = 60;
/// Most memory of one container, the admin tool beside a broker included. The pages of mapped files count, too, and are
/// given back under pressure.
const MEMORY_BYTES_MAX: i64 = 1536 << 20;
/// Packages that RocketMQ reaches by reflection. Read by Java 9 and later; the official image may have an older one.
const OPENED: &str = "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED \
                      --add-exports=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED \
                      --add-opens=java.base/sun.nio.ch=ALL-UNNAMED";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    NameServer,
    Broker,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::NameServer => "name-server",
            Role::Broker => "broker",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Role::NameServer => "org.apache.rocketmq.namesrv.NamesrvStartup",
            Role::Broker => "org.apache.rocketmq.broker.BrokerStartup",
        }
    }

    /// Heap and memory beside it, as Java is told.
    fn memory(self) -> [&'static str; 2] {
        match self {
            Role::NameServer => ["-Xmx128m", "-XX:MaxDirectMemorySize=64m"],
            Role::Broker => ["-Xmx512m", "-XX:MaxDirectMemorySize=256m"],
        }
    }
}

/// An image with a RocketMQ in it.
pub(crate) struct Image {
    repository: String,
    version: String,
    /// All jars, as Java's class path names them.
    class_path: String,
}

impl Image {
    /// The image of that version, with the place of its jars, which each kind of image has elsewhere.
    pub(crate) async fn find(version: &str) -> Outcome<Self> {
        let repository = std::env::var("ONCEFLOW_IMAGE").unwrap_or_else(|_| "onceflow-rocketmq".to_owned());
        let image = format!("{repository}:{version}");
        let found = Docker::connect_with_defaults()?.inspect_image(&image).await;
        let found = found.map_err(|error| format!("no image {image}, make it with `cargo xtask image`: {error}"))?;
        let variables = found.config.and_then(|config| config.env).unwrap_or_default();
        let home = variables.iter().find_map(|variable| variable.strip_prefix("ROCKETMQ_HOME="));
        let home = home.ok_or_else(|| format!("{image} does not say where its RocketMQ is"))?;
        Ok(Image { class_path: format!("{home}/lib/*"), repository, version: version.to_owned() })
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    role: Role,
    class_path: String,
    container: ContainerAsync<GenericImage>,
    /// How often it was started: each start prints that it serves.
    starts: AtomicUsize,
}

impl Server {
    pub(crate) async fn start(role: Role, image: &Image, layout: &Layout, folder: &Path) -> Outcome<Self> {
        let owner = std::fs::metadata(folder)?;
        let owner = format!("{}:{}", owner.uid(), owner.gid());
        let generic = GenericImage::new(&image.repository, &image.version)
            .with_entrypoint("java")
            .with_wait_for(WaitFor::message_on_stdout(READY));
        let request = generic
            .with_cmd(words(role, &image.class_path))
            .with_env_var("JDK_JAVA_OPTIONS", OPENED)
            .with_env_var("ROCKETMQ_HOME", VOLUME)
            // So that the files on the volume are ours to look at, to cut and to remove.
            .with_user(owner)
            .with_network(&layout.name)
            .with_label(crate::LABEL, crate::owner())
            .with_container_name(format!("{}-{}", layout.name, role.name()))
            .with_mount(Mount::bind_mount(folder.to_string_lossy(), VOLUME))
            .with_startup_timeout(START_TIME_MAX);
        let container = published(request, layout.ports[usize::from(role == Role::Broker)]).start().await?;
        Ok(Server { role, class_path: image.class_path.clone(), container, starts: AtomicUsize::new(1) })
    }

    /// SIGKILL, without a warning. The library only stops, which begins with a SIGTERM.
    pub(crate) async fn kill(&self) -> Outcome {
        self.signal("KILL").await?;
        let asked = Instant::now();
        while self.container.is_running().await? {
            if asked.elapsed() > Duration::from_secs(30) {
                return Err(format!("the {} survived SIGKILL", self.role.name()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Not the engine's own pause: that fails on a busy machine, where a thread may wait for its disk.
    pub(crate) async fn freeze(&self) -> Outcome {
        self.signal("STOP").await
    }

    pub(crate) async fn thaw(&self) -> Outcome {
        self.signal("CONT").await
    }

    async fn signal(&self, name: &str) -> Outcome {
        let signal = KillContainerOptionsBuilder::default().signal(name).build();
        Ok(Docker::connect_with_defaults()?.kill_container(self.container.id(), Some(signal)).await?)
    }

    pub(crate) async fn cut_off(&self, network: &str) -> Outcome {
        let request = NetworkDisconnectRequest { container: self.container.id().to_owned(), force: None };
        Ok(Docker::connect_with_defaults()?.disconnect_network(network, request).await?)
    }

    pub(crate) async fn connect(&self, network: &str) -> Outcome {
        let request = NetworkConnectRequest { container: self.container.id().to_owned(), endpoint_config: None };
        Ok(Docker::connect_with_defaults()?.connect_network(network, request).await?)
    }

    pub(crate) async fn stop(&self) -> Outcome {
        Ok(self.container.stop_with_timeout(Some(STOP_SECONDS_MAX)).await?)
    }

    /// Starts the container again and waits until the server serves. An open port is no sign of that: Docker accepts
    /// connections for the container before anything listens in it.
    pub(crate) async fn restart(&self) -> Outcome {
        self.container.start().await?;
        let starts = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        let started = Instant::now();
        loop {
            let printed = self.container.stdout_to_vec().await?;
            if String::from_utf8_lossy(&printed).matches(READY).count() >= starts {
                return Ok(());
            }
            if started.elapsed() > START_TIME_MAX || !self.container.is_running().await? {
                let errors = self.container.stderr_to_vec().await?;
                let errors = String::from_utf8_lossy(&errors).into_owned();
                return Err(format!("the {} did not come back: {errors}", self.role.name()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn admin(&self, layout: &Layout, words: &[&str]) -> Outcome<String> {
        let mut java =
            vec!["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=/data/tmp", "-cp"];
        java.extend([self.class_path.as_str(), "org.apache.rocketmq.tools.command.MQAdminStartup"]);
        java.extend(words);
        let address = layout.name_server();
        java.extend(["-n", &address]);
        let mut ran = self.container.exec(ExecCommand::new(java)).await?;
        let printed = String::from_utf8_lossy(&ran.stdout_to_vec().await?).into_owned();
        let errors = String::from_utf8_lossy(&ran.stderr_to_vec().await?).into_owned();
        match ran.exit_code().await? {
            Some(0) => Ok(printed),
            code => Err(format!("the admin tool failed: words={words:?} code={code:?}\n{printed}{errors}").into()),
        }
    }
}

fn words(role: Role, class_path: &str) -> Vec<String> {
    let (name, [memory, direct_memory]) = (role.name(), role.memory());
    vec![
        "-Xms64m".to_owned(),
        memory.to_owned(),
        direct_memory.to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        // Keys for TLS, which nobody uses here, cost seconds at each start.
        "-Dtls.server.mode=disabled".to_owned(),
        format!("-Djava.io.tmpdir={VOLUME}/tmp"),
        format!("-Duser.home={VOLUME}/tmp"),
        format!("-Drmq.logback.configurationFile={VOLUME}/{name}.logback.xml"),
        "-cp".to_owned(),
        class_path.to_owned(),
        role.class().to_owned(),
        "-c".to_owned(),
        format!("{VOLUME}/{name}.conf"),
    ]
}

/// Publishes the port on loopback under its own number (the library can publish on all addresses only), and bounds the
/// memory.
fn published(request: ContainerRequest<GenericImage>, port: u16) -> ContainerRequest<GenericImage> {
    use testcontainers::core::IntoContainerPort;
    request.with_mapped_port(port, port.tcp()).with_host_config_modifier(move |host| {
        let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: Some(port.to_string()) };
        (host.memory, host.memory_swap) = (Some(MEMORY_BYTES_MAX), Some(MEMORY_BYTES_MAX));
        host.port_bindings = Some([(format!("{port}/tcp"), Some(vec![binding]))].into());
    })
}
