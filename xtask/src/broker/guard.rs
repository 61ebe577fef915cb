//! A small process that kills the servers of an instance when the process they were started for ends.
//!
//! A test that is killed cannot tidy up, and a signal handler does not see SIGKILL; somebody else has to look.

use super::instance::Instance;
use super::server;
use crate::{Outcome, wait};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A guard gives up after this time; nothing bound to a process runs for so long.
const WATCH_TIME_MAX: Duration = Duration::from_hours(24);

/// Starts a guard that outlives this program.
pub(super) fn spawn(dir: &Path, pid: u32) -> Outcome {
    // This path works even when the program's file was replaced by a build in the meantime.
    let mut guard = Command::new("/proc/self/exe");
    guard.args(["broker", "guard", "--dir"]).arg(dir).args(["--pid", &pid.to_string()]);
    guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    guard.spawn().map_err(|error| format!("cannot start the guard: {error}")).map(|_| ())
}

/// Waits until process `pid` or the servers that run now are gone, then kills those servers that are left. Servers
/// started later have a guard of their own, or none.
pub(super) fn watch(instance: &Instance, pid: u32) -> Outcome {
    let servers = instance.alive();
    let born = birth(pid);
    let left = || instance.alive().into_iter().filter(|server| servers.contains(server)).map(|(_, pid)| pid);
    wait::until(WATCH_TIME_MAX, || birth(pid) != born || born.is_none() || left().next().is_none());
    let left: Vec<u32> = left().collect();
    if left.is_empty() { Ok(()) } else { server::signal("KILL", &left) }
}

/// When a process was started, in clock ticks since boot: field 22 of its `stat`, which tells it from a later process
/// with the same pid. None if there is no such process, or it has ended and only waits to be collected.
fn birth(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name, is in brackets and may hold anything; the third is the state.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_birth_until_it_ends() {
        assert!(birth(std::process::id()).is_some());
        let mut child = Command::new("sh").args(["-c", "read line"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert!(birth(pid) >= birth(std::process::id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(birth(pid), None);
    }
}
