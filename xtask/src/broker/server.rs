//! One JVM: start it, recognise it again, signal it.

use crate::{Outcome, paths, wait};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The variable that marks our servers: a pid alone proves nothing, because pids are used again.
const MARK: &str = "ONCEFLOW_SERVER";
/// Longest time for a new process to carry its mark; a moment, unless the machine is very busy.
const MARK_TIME_MAX: Duration = Duration::from_secs(10);

/// Take back what `java` says to start fast: the collector and compilers are the JVM's own choice again. The later word wins.
const FULL_JVM: [&str; 4] = ["-XX:-UseSerialGC", "-XX:TieredStopAtLevel=4", "-Xms1g", "-Xmx1g"];

/// Which of the two servers of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// The name server
    NameServer,
    /// The broker
    Broker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::NameServer => "name-server",
            Role::Broker => "broker",
        })
    }
}

impl Role {
    /// In the order in which they start; they stop in the other one, so that the broker can sign off.
    pub(super) const ALL: [Role; 2] = [Role::NameServer, Role::Broker];

    fn class(self) -> &'static str {
        match self {
            Role::NameServer => "org.apache.rocketmq.namesrv.NamesrvStartup",
            Role::Broker => "org.apache.rocketmq.broker.BrokerStartup",
        }
    }

    fn heap(self) -> &'static str {
        match self {
            Role::NameServer => "-Xmx128m",
            Role::Broker => "-Xmx512m",
        }
    }
}

/// A server of the instance in `dir`.
pub(super) struct Server<'a> {
    pub(super) role: Role,
    pub(super) dir: &'a Path,
}

impl Server<'_> {
    /// A file of this server.
    pub(super) fn file(&self, extension: &str) -> PathBuf {
        self.dir.join(format!("{}.{extension}", self.role))
    }

    fn mark(&self) -> OsString {
        let mut mark = OsString::from(format!("{}@", self.role));
        mark.push(self.dir);
        mark
    }

    /// Starts the JVM in a process group of its own, so that a Ctrl-C at the terminal does not reach it.
    pub(super) fn spawn(&self, lib: &Path, full_jvm: bool) -> Outcome {
        let output =
            File::create(self.file("out")).map_err(|error| format!("cannot write the server's output: {error}"))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut java = java(self.dir, lib);
        java.args(["-Xms64m", self.role.heap(), "-Xshare:auto", "-Dtls.server.mode=disabled"]);
        if full_jvm && self.role == Role::Broker {
            java.args(FULL_JVM);
        }
        // A killed broker leaves 13 MB of unpacked libraries here each time.
        let _ = std::fs::remove_dir_all(self.file("tmp"));
        java.arg(setting("java.io.tmpdir", &paths::make(&self.file("tmp"))?));
        java.arg(setting("rmq.logback.configurationFile", &self.file("logback.xml")));
        java.arg(self.role.class()).arg("-c").arg(self.file("conf")).env(MARK, self.mark());
        java.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let mut child = java.spawn().map_err(|error| format!("cannot run java: {error}"))?;
        paths::write(&self.file("pid"), &child.id().to_string())?;
        // The new process carries its mark only some moments after `spawn` has returned: until then it would look
        // like somebody else's, and a kill would pass it by.
        let known = |child: &mut Child| self.pid().is_some() || !matches!(child.try_wait(), Ok(None));
        wait::until(MARK_TIME_MAX, || known(&mut child));
        Ok(())
    }

    /// The pid of the running JVM, if it is ours. A process that has ended but was not waited for has no environment,
    /// so it counts as gone.
    pub(super) fn pid(&self) -> Option<u32> {
        let pid: u32 = std::fs::read_to_string(self.file("pid")).ok()?.trim().parse().ok()?;
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut wanted = format!("{MARK}=").into_bytes();
        wanted.extend(self.mark().as_encoded_bytes());
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted).then_some(pid)
    }

    /// The first lines the JVM printed, to explain why it ended.
    pub(super) fn output(&self) -> String {
        const LINES: usize = 15;
        let text = std::fs::read_to_string(self.file("out")).unwrap_or_default();
        text.lines().take(LINES).collect::<Vec<_>>().join("\n")
    }
}

/// A JVM with a small footprint, RocketMQ's jars, and `dir` as its home; the class is still to be named.
pub(super) fn java(dir: &Path, lib: &Path) -> Command {
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    // The servers use these parts of the JDK by reflection.
    java.args([
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
        "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    ]);
    java.args(["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]);
    java.arg(setting("user.home", dir)).arg("-cp").arg(lib.join("*")).env("ROCKETMQ_HOME", dir);
    java
}

fn setting(name: &str, path: &Path) -> OsString {
    let mut setting = OsString::from(format!("-D{name}="));
    setting.push(path);
    setting
}

/// Sends a signal. A process that is already gone is not an error.
pub(super) fn signal(name: &str, pids: &[u32]) -> Outcome {
    // The shell has `kill` built in; the program of that name is not on every machine.
    let words: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let script = format!("kill -{name} {} 2>/dev/null", words.join(" "));
    Command::new("sh").arg("-c").arg(script).status().map_err(|error| format!("cannot run sh: {error}")).map(|_| ())
}
