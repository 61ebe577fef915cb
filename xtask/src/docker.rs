//! A Docker engine: the one that answers, else one that is started here, and installed where that is allowed.
//!
//! An engine started here ends with its last user. Each user holds a shared lock; who can get it alone stops the engine.
//! If this program is killed, the engine stays until the next command that uses one has ended.

use crate::machine::{self, Missing, Need};
use crate::steps::Trouble;
use crate::{Outcome, paths, wait};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest start of an engine; some seconds on an idle machine.
const START_TIME_MAX: Duration = Duration::from_mins(1);
/// Longest clean stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);

/// A running engine, kept running while this lives.
pub(crate) struct Engine {
    folder: PathBuf,
    shared: Option<File>,
}

impl Engine {
    /// Finds an engine or starts one.
    pub(crate) fn ensure() -> Result<Self, Missing> {
        let folder = paths::cache().and_then(|cache| paths::make(&cache.join("docker"))).map_err(Missing)?;
        let shared = opened(&folder.join("users.lock")).map_err(Missing)?;
        shared.lock_shared().map_err(|error| Missing(format!("cannot lock the engine: {error}")))?;
        let engine = Engine { folder, shared: Some(shared) };
        // One starter at a time, and a second look: a rival may just have started it.
        let starting = opened(&engine.folder.join("start.lock")).map_err(Missing)?;
        starting.lock().map_err(|error| Missing(format!("cannot lock the start: {error}")))?;
        if answers() {
            return Ok(engine);
        }
        startable()?;
        engine.start().map_err(Missing)?;
        Ok(engine)
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("engine.pid")
    }

    /// The pid of the engine that was started here, if it lives. A pid alone proves nothing: the program must fit.
    fn own_pid(&self) -> Option<u32> {
        let pid: u32 = std::fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()?;
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (program.file_name()? == "dockerd").then_some(pid)
    }

    fn start(&self) -> Outcome {
        eprintln!("xtask: starting a Docker engine");
        let log = self.folder.join("engine.log");
        let output = File::create(&log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let _ = std::fs::remove_file(self.pid_file());
        // An engine that was killed leaves this one behind, and the next would refuse to start.
        let _ = std::fs::remove_file("/var/run/docker.pid");
        let mut engine = Command::new("dockerd");
        engine.arg("--pidfile").arg(self.pid_file()).stdin(Stdio::null()).stdout(output).stderr(errors);
        // In a process group of its own, so that a Ctrl-C at the terminal does not reach it.
        let mut child = engine.process_group(0).spawn().map_err(|error| format!("cannot run dockerd: {error}"))?;
        let ended = wait::until(START_TIME_MAX, || answers() || !matches!(child.try_wait(), Ok(None)));
        if ended && answers() {
            return Ok(());
        }
        let _ = child.kill();
        let _ = child.wait();
        eprintln!("{}", tail(&log, 10));
        Err(format!("the Docker engine does not start: {}", tail(&log, 1)))
    }

    fn stop(&self) {
        let Some(pid) = self.own_pid() else { return };
        eprintln!("xtask: stopping the Docker engine");
        let _ = Command::new("sh").args(["-c", &format!("kill -TERM {pid}")]).status();
        if !wait::until(STOP_TIME_MAX, || self.own_pid().is_none()) {
            eprintln!("xtask: the Docker engine does not stop: pid={pid}");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Closing a file gives its lock back.
        drop(self.shared.take());
        let alone = opened(&self.folder.join("users.lock")).is_ok_and(|file| {
            let alone = file.try_lock().is_ok();
            if alone {
                self.stop();
            }
            alone
        });
        if !alone && self.own_pid().is_some() {
            eprintln!("xtask: the Docker engine has other users and goes on");
        }
    }
}

/// The `docker` command.
pub(crate) fn docker<const N: usize>(words: [&str; N]) -> Command {
    let mut docker = Command::new("docker");
    docker.args(words).stdin(Stdio::null());
    docker
}

/// What a `docker` command prints, without the line end; an error with what it said if it fails.
pub(crate) fn printed(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|error| format!("cannot run docker: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }
}

/// Runs Java in a container of the image, to its end, on a network of the engine and with a published port and bounded memory. An
/// engine may start where no container can, say inside another container with few rights.
///
/// # Errors
/// `Missing` when the engine cannot run it, which its own exit code tells; `Failed` when what is inside fails.
pub(crate) fn try_java(image: &str) -> Result<(), Trouble> {
    const ENGINE_FAILED: i32 = 125;
    let words = ["run", "--rm", "--publish", "127.0.0.1::9876", "--memory", "512m", "--entrypoint", "java", image];
    let output = docker(words).arg("-version").output().map_err(|error| format!("cannot run docker: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).lines().collect::<Vec<_>>().join(" ");
    match output.status.code() {
        Some(0) => Ok(()),
        Some(ENGINE_FAILED) => {
            Err(Trouble::Missing(format!("a Docker engine is here, but runs no container: {}", said())))
        }
        _ => Err(Trouble::Failed(format!("java does not start in {image}: {}", said()))),
    }
}

/// Whether an engine answers. Without one the command fails at once, but some versions of it end well all the same.
fn answers() -> bool {
    printed(&mut docker(["version", "--format", "{{.Server.Version}}"])).is_ok_and(|version| !version.is_empty())
}

/// Whether an engine can be started here, after it was installed if need be.
fn startable() -> Result<(), Missing> {
    if let Some(host) = std::env::var_os("DOCKER_HOST") {
        return Err(Missing(format!("no Docker engine answers at DOCKER_HOST={}", host.display())));
    }
    if !machine::is_root() {
        return Err(Missing("no Docker engine answers, and only root can start one here: start yours".to_owned()));
    }
    machine::ensure(&[Need::Docker])?;
    cgroups().map_err(Missing)
}

/// A machine without an init system may have no control groups mounted, and the engine needs them.
fn cgroups() -> Outcome {
    let mounted = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    if mounted.contains("cgroup") {
        return Ok(());
    }
    let mount = Command::new("mount").args(["-t", "cgroup2", "none", "/sys/fs/cgroup"]).status();
    if mount.is_ok_and(|ended| ended.success()) { Ok(()) } else { Err("cannot mount control groups".to_owned()) }
}

fn opened(file: &Path) -> Outcome<File> {
    let opened = File::options().create(true).append(true).open(file);
    opened.map_err(|error| format!("cannot open {}: {error}", file.display()))
}

/// The last lines of a log, to explain why its program ended.
fn tail(log: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}
