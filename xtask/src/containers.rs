//! `cargo xtask containers`: RocketMQ in Docker under a small exactly-once job, killed, restarted, wiped and cut off.
//!
//! The tests are those of the crate `containers`, a workspace of its own. They find in their environment:
//!
//! | variable | is |
//! | --- | --- |
//! | `ONCEFLOW_IMAGE` | the repository of the images, without a version |
//! | `ONCEFLOW_CONTAINER_OWNER` | `HOST/PID` of this program: the label of all containers |
//! | `ONCEFLOW_LONG` | `1` with `--long` |
//! | `TMPDIR` | where the volumes and the state lie, removed at the end |
//!
//! A test removes what it has started, also when it fails. What a killed run has left behind is found by the label and
//! removed by the next one, its folder too.

use crate::broker::{VERSION, VERSION_OLDEST, scratch};
use crate::docker::{Engine, docker, printed};
use crate::machine::BROKER;
use crate::steps::{Steps, Trouble};
use crate::{Outcome, image, paths, run};
use std::path::Path;
use std::process::ExitCode;

/// The name of the step.
pub(crate) const STEP: &str = "RocketMQ in containers";
/// The label of all containers of the tests; its value is the owner.
const LABEL: &str = "onceflow.owner";
/// How the names of their networks begin; the owner's pid follows.
const NETWORK: &str = "onceflow-test-";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the tests whose name contains one of these
    filters: Vec<String>,
    /// Also the long ones
    #[arg(long)]
    long: bool,
}

pub(crate) fn main(args: &Args) -> ExitCode {
    let mut steps = Steps::default();
    add(&mut steps, &args.filters, args.long);
    steps.finish()
}

/// Adds the step to those of another command. Where no engine can be started, or none that runs containers, it is a
/// skipped one. The image is made of this machine's Java and of jars that Maven brings.
pub(crate) fn add(steps: &mut Steps, filters: &[String], long: bool) {
    steps.run_if_able(STEP, BROKER, || {
        let _engine = Engine::ensure()?;
        clear(&left_behind)?;
        let mut repository = "";
        for version in [VERSION, VERSION_OLDEST] {
            repository = image::ensure(version)?;
            image::usable(&format!("{repository}:{version}"))?;
        }
        Ok::<(), Trouble>(tested(repository, filters, long)?)
    });
}

fn tested(repository: &str, filters: &[String], long: bool) -> Outcome {
    let folder = scratch("containers")?;
    let me = std::process::id();
    let mut cargo = run::cargo(["test", "--manifest-path"])?;
    cargo.arg(paths::root().join("containers/Cargo.toml")).args(["--test", "containers", "--"]).args(filters);
    // Three at a time: each has a name server and a broker of its own, and most of its time goes by in waiting for them.
    cargo.args(["--ignored", "--test-threads=3", "--show-output"]);
    cargo.env("ONCEFLOW_IMAGE", repository).env("ONCEFLOW_CONTAINER_OWNER", format!("{}/{me}", host()));
    if long {
        cargo.env("ONCEFLOW_LONG", "1");
    }
    let result = run::check(cargo.env("TMPDIR", &folder));
    let cleared = clear(&|pid| pid == me);
    let _ = std::fs::remove_dir_all(folder);
    result.and(cleared)
}

/// The name of this machine. An engine may be another machine's, too, where the pids mean nothing.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn left_behind(pid: u32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Removes the containers of those owners on this machine, and then their networks.
fn clear(whose: &dyn Fn(u32) -> bool) -> Outcome {
    let format = format!("{{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}");
    let listed = printed(&mut docker(["ps", "--all", "--filter", &format!("label={LABEL}"), "--format", &format]))?;
    for container in listed.lines().filter_map(|line| owned(line, &host(), whose)) {
        printed(&mut docker(["rm", "--force", "--volumes", container]))?;
    }
    let listed =
        printed(&mut docker(["network", "ls", "--filter", &format!("name={NETWORK}"), "--format", "{{.Name}}"]))?;
    for network in listed.lines().filter(|network| owner(network).is_some_and(whose)) {
        // That of another machine has containers, and stays.
        let _ = printed(&mut docker(["network", "rm", network]));
    }
    Ok(())
}

/// The container in a line `ID HOST/PID`, if its owner is one of those.
fn owned<'a>(line: &'a str, host: &str, whose: &dyn Fn(u32) -> bool) -> Option<&'a str> {
    let (container, owner) = line.split_once(' ')?;
    let (its_host, pid) = owner.rsplit_once('/')?;
    (its_host == host && whose(pid.parse().ok()?)).then_some(container)
}

/// The pid in the name of a network.
fn owner(network: &str) -> Option<u32> {
    network.strip_prefix(NETWORK)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_its_owner_left_behind_is_removed() {
        let dead = |pid: u32| pid == 7;
        assert_eq!(owned("abc here/7", "here", &dead), Some("abc"));
        assert_eq!(owned("abc here/8", "here", &dead), None, "its owner lives");
        assert_eq!(owned("abc there/7", "here", &dead), None, "its owner is on another machine");
        assert_eq!(owned("abc ", "here", &dead), None);
        assert_eq!(owner("onceflow-test-7-9-0"), Some(7));
        assert_eq!(owner("onceflow-test-x"), None);
        assert!(!left_behind(std::process::id()));
    }
}
