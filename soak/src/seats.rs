//! The processors: child processes of the driver, each with a state directory of its own.

use onceflow::types::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a process that should end is looked at.
const LOOK_TIME: Duration = Duration::from_millis(50);

/// How each processor is started; the directory comes on top.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The words after the program's name, without the directory.
    pub(crate) words: Vec<String>,
    /// Where directories and logs of the processors lie.
    pub(crate) folder: PathBuf,
}

/// A running processor. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Processor {
    /// Names its directory and its log.
    pub(crate) seat: String,
    child: Child,
}

impl Program {
    /// Starts a processor in the directory of `seat`, which must not be in use.
    pub(crate) fn start(&self, seat: &str) -> Result<Processor> {
        let failed = |error| Error::invalid(format!("cannot start a processor: seat={seat}")).with_source(error);
        let log = self.folder.join(format!("{seat}.log"));
        let errors = File::options().create(true).append(true).open(log).map_err(failed)?;
        // This path works even when the program's file was replaced by a build in the meantime.
        let mut command = Command::new("/proc/self/exe");
        command.arg("process").args(&self.words).arg("--directory").arg(self.folder.join(seat));
        // The other end of its standard input is ours: it ends when we do.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().map_err(failed)?;
        Ok(Processor { seat: seat.to_owned(), child })
    }

    /// Removes the state of a seat that nobody runs in.
    pub(crate) fn wipe(&self, seat: &str) -> Result<()> {
        let directory = self.folder.join(seat);
        if !directory.exists() {
            return Ok(());
        }
        let failed = |error| Error::invalid(format!("cannot remove {}", directory.display())).with_source(error);
        std::fs::remove_dir_all(&directory).map_err(failed)
    }

    /// The end of a seat's log, for a report.
    pub(crate) fn last_words(&self, seat: &str) -> String {
        let text = read(&self.folder.join(format!("{seat}.log")));
        let lines: Vec<&str> = text.lines().rev().take(12).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn read(file: &Path) -> String {
    std::fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

impl Processor {
    /// SIGKILL, and waits until the process is gone: only then is its directory free.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.kill_now()
    }

    fn kill_now(&mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(|_| ())
            .map_err(|e| Error::bug(format!("cannot kill a processor: seat={}", self.seat)).with_source(e))
    }

    /// SIGSTOP, SIGCONT, SIGTERM.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        // The shell has `kill` built in; the program of that name is not on every machine.
        let script = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").arg("-c").arg(script).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(Error::bug(format!("cannot signal a processor: signal={name} outcome={other:?}"))),
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGTERM, and waits for the clean end; the time it took.
    ///
    /// # Errors
    /// `Bug` when it takes longer than `time_max` or ends with an error.
    pub(crate) async fn stop(mut self, time_max: Duration) -> Result<Duration> {
        let began = Instant::now();
        self.signal("TERM")?;
        while began.elapsed() < time_max {
            if let Some(status) = self.ended() {
                let wrong = Error::bug(format!("a processor did not stop cleanly: seat={} status={status}", self.seat));
                return if status.success() { Ok(began.elapsed()) } else { Err(wrong) };
            }
            sleep(LOOK_TIME).await;
        }
        Err(Error::bug(format!("a processor did not stop in time: seat={} limit={time_max:?}", self.seat)))
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        // Already gone is fine; so is an error, as nothing can be done about it here.
        let _ = self.kill_now();
    }
}
