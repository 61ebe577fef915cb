//! The broker and its name server, by the repository's own command.

use onceflow::types::{Error, Result};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// The program behind `cargo xtask`.
    pub(crate) xtask: PathBuf,
    /// The folder of the instance.
    pub(crate) directory: PathBuf,
}

impl Servers {
    /// SIGKILL to `broker` or `name-server`; the data stays.
    pub(crate) async fn kill(&self, which: &str) -> Result<()> {
        self.run(&["kill", "--only", which]).await
    }

    /// Starts what does not run, and waits until everything answers.
    pub(crate) async fn start(&self) -> Result<()> {
        self.run(&["start", "--bound-to", &std::process::id().to_string()]).await
    }

    async fn run(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.xtask);
        command.arg("broker").args(words).arg("--dir").arg(&self.directory);
        execute(command).await
    }

    /// Writes all messages of a topic to a file, by an ordinary Java consumer.
    pub(crate) async fn dump(&self, name_server: &str, topic: &str, file: &std::path::Path) -> Result<()> {
        let mut command = Command::new(&self.xtask);
        command.args(["java", "consume", "--name-server", name_server, "--topic", topic, "--out"]).arg(file);
        execute(command).await
    }
}

/// Runs a command to its end beside everything else; anything but success is an error with what it said.
async fn execute(mut command: Command) -> Result<()> {
    let shown = format!("{command:?}");
    command.stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output()).await;
    let output = ended.map_err(|e| Error::bug("a command was not waited for").with_source(e))?;
    let output = output.map_err(|e| Error::invalid(format!("cannot run {shown}")).with_source(e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::invalid(format!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}
