//! One name server and one broker in a folder: start, stop, kill.
//!
//! ```text
//! DIR/settings.json                     what the last start asked for
//! DIR/{name-server,broker}.conf         made from it
//! DIR/{name-server,broker}.{pid,out,log,logback.xml}
//! DIR/conf/tools.yml                    credentials of the admin tool, when access control is on
//! DIR/store                             the broker's data
//! ```

use super::server::{self, Role, Server};
use super::settings::{self, Ports, Settings};
use super::{guard, jars, probe};
use crate::{Outcome, paths, wait};
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest start of both servers; some seconds on an idle machine.
const START_TIME_MAX: Duration = Duration::from_mins(2);
/// Longest clean stop of one server.
const STOP_TIME_MAX: Duration = Duration::from_secs(90);
/// A killed process is gone at once, but a busy machine may need to free its memory first.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);
/// A killed process is gone before the last of its threads, and with it its sockets; on a busy machine long before.
const PORTS_TIME_MAX: Duration = Duration::from_mins(1);

/// Settings of a start. What is not given stays as in the last start in the same folder.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StartOptions {
    /// RocketMQ's version [default: 5.5.0]
    #[arg(long)]
    pub(crate) version: Option<String>,
    /// A broker property; may be repeated
    #[arg(long = "prop", value_name = "NAME=VALUE")]
    pub(crate) properties: Vec<String>,
    /// Age at which a half message is first checked back [RocketMQ's default: 6000]
    #[arg(long, value_name = "MS")]
    pub(crate) tx_timeout_ms: Option<u64>,
    /// Time between two rounds of check-backs [RocketMQ's default: 30000]
    #[arg(long, value_name = "MS")]
    pub(crate) tx_check_interval_ms: Option<u64>,
    /// Check-backs of one half message before the broker drops it [RocketMQ's default: 15]
    #[arg(long, value_name = "N")]
    pub(crate) tx_check_max: Option<u32>,
    /// Refuse sends to topics that were not created
    #[arg(long)]
    pub(crate) no_auto_create: bool,
    /// Switch access control on, with this super user
    #[arg(long, requires = "acl_password", value_name = "USER")]
    pub(crate) acl_user: Option<String>,
    /// The super user's password
    #[arg(long, requires = "acl_user", value_name = "PASSWORD")]
    pub(crate) acl_password: Option<String>,
    /// For this start: a JVM that serves fast (all compilers, 1 GiB of heap), not one that starts fast and stays small
    #[arg(long)]
    pub(crate) full_jvm: bool,
    /// Kill the servers when this process ends, however it ends
    #[arg(long, value_name = "PID")]
    pub(crate) bound_to: Option<u32>,
}

impl StartOptions {
    fn apply(&self, settings: &mut Settings) -> Outcome {
        if let Some(version) = &self.version {
            settings.version.clone_from(version);
        }
        if let (Some(user), Some(password)) = (&self.acl_user, &self.acl_password) {
            settings.acl = Some((user.clone(), password.clone()));
        }
        let mut set = |name: &str, value: String| settings.properties.insert(name.to_owned(), value);
        let numbers = [
            ("transactionTimeOut", self.tx_timeout_ms),
            ("transactionCheckInterval", self.tx_check_interval_ms),
            ("transactionCheckMax", self.tx_check_max.map(u64::from)),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                set(name, value.to_string());
            }
        }
        if self.no_auto_create {
            set("autoCreateTopicEnable", "false".to_owned());
        }
        for property in &self.properties {
            let (name, value) = property.split_once('=').ok_or_else(|| format!("not NAME=VALUE: given={property}"))?;
            set(name.trim(), value.trim().to_owned());
        }
        Ok(())
    }
}

/// An instance; it may or may not run.
pub(crate) struct Instance {
    dir: PathBuf,
}

impl Instance {
    /// The instance in `dir`; the folder is made if there is none.
    pub(crate) fn open(dir: &Path) -> Outcome<Self> {
        Ok(Self { dir: paths::make(dir)? })
    }

    /// Its folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The running broker's process.
    pub(crate) fn broker_pid(&self) -> Option<u32> {
        self.server(Role::Broker).pid()
    }

    /// The broker's address, as the name server tells it.
    pub(crate) fn broker_address(&self) -> Outcome<String> {
        Ok(self.settings()?.ports().broker().to_string())
    }

    fn server(&self, role: Role) -> Server<'_> {
        Server { role, dir: &self.dir }
    }

    /// The running servers and their pids.
    pub(super) fn alive(&self) -> Vec<(Role, u32)> {
        Role::ALL.into_iter().filter_map(|role| Some((role, self.server(role).pid()?))).collect()
    }

    /// The settings of the last start.
    pub(super) fn settings(&self) -> Outcome<Settings> {
        let none = || format!("{} was never started", self.dir.display());
        Settings::load(&self.dir.join("settings.json"))?.ok_or_else(none)
    }

    /// One command at a time changes an instance; the lock goes with the returned file.
    fn lock(&self) -> Outcome<File> {
        lock(&self.dir.join("lock"))
    }

    /// Starts what does not run, waits until all of it answers, and returns the name server's address.
    pub(crate) fn start(&self, port_base: Option<u16>, options: &StartOptions) -> Outcome<String> {
        let _lock = self.lock()?;
        // Ports are picked by trying them, so two picks at a time would find the same ones.
        let _picking =
            if port_base == Some(0) { Some(lock(&paths::make(&paths::cache()?)?.join("ports.lock"))?) } else { None };
        let settings = self.wanted(port_base, options)?;
        let ports = settings.ports();
        let lib = jars::resolve(&settings.version)?;
        if self.alive().is_empty() {
            self.write(&settings)?;
        } else if self.settings()? != settings {
            return Err(format!("{} runs with other settings: use restart", self.dir.display()));
        }
        let running = self.alive();
        for role in Role::ALL {
            if !running.iter().any(|(alive, _)| *alive == role) {
                self.launch(role, ports, &lib, options.full_jvm)?;
            }
        }
        // Before the wait: the process may end during it.
        if let Some(pid) = options.bound_to {
            guard::spawn(&self.dir, pid)?;
        }
        self.await_ready(ports)?;
        Ok(ports.name_server().to_string())
    }

    fn wanted(&self, port_base: Option<u16>, options: &StartOptions) -> Outcome<Settings> {
        let last = Settings::load(&self.dir.join("settings.json"))?;
        let mut settings = last.clone().unwrap_or_else(|| Settings::new(super::PORT_BASE));
        settings.port_base = match (port_base, &last) {
            // A picked port stays the instance's own, so that clients find it again after a crash.
            (Some(0), Some(last)) => last.port_base,
            (Some(0), None) => pick()?,
            (Some(base), _) => base,
            (None, _) => settings.port_base,
        };
        if !(1024..=Ports::BASE_MAX).contains(&settings.port_base) {
            return Err(format!("odd port base: given={}", settings.port_base));
        }
        options.apply(&mut settings)?;
        Ok(settings)
    }

    fn write(&self, settings: &Settings) -> Outcome {
        paths::write(&self.dir.join("settings.json"), &format!("{:#}\n", settings.to_json()))?;
        paths::write(&self.server(Role::NameServer).file("conf"), &settings.name_server_file())?;
        paths::write(&self.server(Role::Broker).file("conf"), &settings.broker_file(&self.dir))?;
        for role in Role::ALL {
            let server = self.server(role);
            paths::write(&server.file("logback.xml"), &settings::logging_file(&server.file("log")))?;
        }
        let Some((user, password)) = &settings.acl else { return Ok(()) };
        let credentials = format!("accessKey: {user:?}\nsecretKey: {password:?}\n");
        paths::write(&paths::make(&self.dir.join("conf"))?.join("tools.yml"), &credentials)
    }

    fn launch(&self, role: Role, ports: Ports, lib: &Path, full_jvm: bool) -> Outcome {
        let taken = || ports.of(role).into_iter().find(|port| !free(*port));
        if !wait::until(PORTS_TIME_MAX, || taken().is_none()) {
            return Err(format!("port is taken, choose another --port-base: ports={:?}", ports.of(role)));
        }
        self.server(role).spawn(lib, full_jvm)
    }

    /// Both servers run and answer; if one ends first, or it takes too long, what is left is killed.
    fn await_ready(&self, ports: Ports) -> Outcome {
        let mut state = Err(String::new());
        let dead = || Role::ALL.into_iter().find(|role| self.server(*role).pid().is_none());
        wait::until(START_TIME_MAX, || {
            state = probe::ready(ports);
            state.is_ok() || dead().is_some()
        });
        let why = match (dead(), state) {
            (None, Ok(())) => return Ok(()),
            (Some(role), _) => format!("the {role} ended while starting:\n{}", self.server(role).output()),
            (None, Err(why)) => format!("not ready in {} s: {why}", START_TIME_MAX.as_secs()),
        };
        self.kill_now(&Role::ALL)?;
        Err(format!("{why}\nsee the logs in {}", self.dir.display()))
    }

    /// A clean stop, the broker first; a server that does not end in time is killed.
    pub(crate) fn stop(&self) -> Outcome {
        let _lock = self.lock()?;
        for role in Role::ALL.into_iter().rev() {
            let server = self.server(role);
            let Some(pid) = server.pid() else { continue };
            server::signal("TERM", &[pid])?;
            if !wait::until(STOP_TIME_MAX, || server.pid().is_none()) {
                eprintln!("xtask: the {role} did not stop in {} s: killed", STOP_TIME_MAX.as_secs());
                self.kill_now(&[role])?;
            }
        }
        Ok(())
    }

    /// SIGKILL to one server or both at once; the data stays.
    pub(crate) fn kill(&self, only: Option<Role>) -> Outcome {
        // No lock: a crash waits for nobody, and a start that hangs must be killable.
        match only {
            Some(role) => self.kill_now(&[role]),
            None => self.kill_now(&Role::ALL),
        }
    }

    fn kill_now(&self, roles: &[Role]) -> Outcome {
        let pids = || roles.iter().filter_map(|role| self.server(*role).pid()).collect::<Vec<_>>();
        let gone = wait::until(KILL_TIME_MAX, || {
            let left = pids();
            if !left.is_empty() {
                // A signal that could not be sent shows as a server that is still there.
                let _ = server::signal("KILL", &left);
            }
            left.is_empty()
        });
        if gone { Ok(()) } else { Err(format!("survived SIGKILL: pids={:?}", pids())) }
    }

    /// RocketMQ's admin tool, pointed at this instance.
    pub(super) fn admin(&self, words: &[String]) -> Outcome<Command> {
        let settings = self.settings()?;
        let mut java = server::java(&self.dir, &jars::resolve(&settings.version)?);
        java.arg("org.apache.rocketmq.tools.command.MQAdminStartup").args(words);
        java.arg("-n").arg(settings.ports().name_server().to_string());
        Ok(java)
    }

    /// Kills what runs and removes the folder with all data.
    pub(crate) fn destroy(&self) -> Outcome {
        self.kill_now(&Role::ALL)?;
        std::fs::remove_dir_all(&self.dir).map_err(|error| format!("cannot remove {}: {error}", self.dir.display()))
    }
}

fn lock(file: &Path) -> Outcome<File> {
    let locked = File::create(file).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| format!("cannot lock {}: {error}", file.display()))
}

fn free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The first port base whose ports are all free.
fn pick() -> Outcome<u16> {
    let all_free = |base: &u16| Role::ALL.into_iter().flat_map(|role| Ports(*base).of(role)).all(free);
    (30_000..32_000).step_by(20).find(all_free).ok_or_else(|| "no free ports between 30000 and 32000".to_owned())
}
