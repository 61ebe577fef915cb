//! `cargo xtask soak`: a long run on a real broker under kills, pauses and network faults, judged by the auditor.
//!
//! Builds the run's programs, copies them (and this one) aside so that later builds do not disturb it, starts a broker,
//! and hands over to `onceflow-soak drive`. A run that found something keeps its folder: topics, journals, state, logs.

use crate::broker::{Instance, StartOptions, scratch};
use crate::machine::{self, BROKER, JAVA_CLIENTS, ROCKSDB};
use crate::{Outcome, java, paths, rocksdb, run};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PROGRAMS: [&str; 2] = ["onceflow-soak", "onceflow-audit"];

/// The defaults are the gate: three minutes with a dozen kills.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// How long faults go on
    #[arg(long, value_name = "N", default_value_t = 3)]
    minutes: u64,
    /// SIGKILLs of processors [default: 4 a minute]
    #[arg(long, value_name = "K")]
    processor_kills: Option<u64>,
    /// SIGKILLs of the broker [default: one in three minutes]
    #[arg(long, value_name = "B")]
    broker_kills: Option<u64>,
    /// SIGKILLs of the name server [default: one in six minutes]
    #[arg(long, value_name = "S")]
    name_server_kills: Option<u64>,
    /// Processors stopped for 10 to 20 s while another one takes over [default: one in three minutes]
    #[arg(long, value_name = "P")]
    pauses: Option<u64>,
    /// Times at which the network misbehaves for 1 to 10 s [default: one a minute]
    #[arg(long, value_name = "F")]
    network_faults: Option<u64>,
    /// Plans the faults [default: from the time of day]
    #[arg(long, value_name = "X")]
    seed: Option<u64>,
    /// How output reaches its readers; both: two output topics of one job
    #[arg(long, value_parser = ["transactional", "outbox", "both"], default_value = "both")]
    delivery: String,
    /// Where the state is kept
    #[arg(long, value_parser = ["fjall", "rocksdb", "sled"], default_value = "fjall")]
    store: String,
    /// Processors at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    processes: u32,
    /// Input records a second
    #[arg(long, value_name = "R", default_value_t = 1_000)]
    rate: u64,
    /// Different keys
    #[arg(long, value_name = "C", default_value_t = 5_000)]
    cards: u64,
    /// The publish lease of the processors
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    lease_ms: u64,
    /// Keep topics, journals, state and logs also when nothing was found
    #[arg(long)]
    keep: bool,
    /// RocketMQ's version
    #[arg(long = "version", value_name = "VERSION", default_value = "5.5.0")]
    broker_version: String,
}

impl Args {
    /// The run of so many minutes with everything else as by default.
    pub(crate) fn of(minutes: u64) -> Self {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("soak"));
        let matches = command.get_matches_from(["soak"]);
        let args = <Self as clap::FromArgMatches>::from_arg_matches(&matches).expect("every option has a default");
        Args { minutes, ..args }
    }

    /// The words that say what to do; where everything is comes on top.
    fn words(&self) -> Vec<String> {
        let numbers = [
            ("minutes", self.minutes),
            ("processor-kills", self.processor_kills.unwrap_or(4 * self.minutes)),
            ("broker-kills", self.broker_kills.unwrap_or(self.minutes.div_ceil(3))),
            ("name-server-kills", self.name_server_kills.unwrap_or(self.minutes.div_ceil(6))),
            ("pauses", self.pauses.unwrap_or(self.minutes.div_ceil(3))),
            ("network-faults", self.network_faults.unwrap_or(self.minutes)),
            ("processes", u64::from(self.processes)),
            ("rate", self.rate),
            ("cards", self.cards),
            ("lease-ms", self.lease_ms),
        ];
        let texts = [("delivery", &self.delivery), ("store", &self.store), ("version", &self.broker_version)];
        let numbers = numbers.into_iter().map(|(name, value)| (name, value.to_string()));
        let texts = texts.into_iter().map(|(name, value)| (name, value.clone()));
        let seed = self.seed.map(|seed| ("seed", seed.to_string()));
        numbers.chain(texts).chain(seed).flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    let needs = [ROCKSDB, BROKER, JAVA_CLIENTS].concat();
    machine::ensure(&needs).map_err(|missing| missing.0)?;
    rocksdb::ensure()?;
    soak(args).map(|()| ExitCode::SUCCESS)
}

/// The run; its needs are there.
pub(crate) fn soak(args: &Args) -> Outcome {
    java::compile()?;
    let mut build = run::cargo(["build", "--release", "--workspace", "--all-features"])?;
    run::check(build.args(PROGRAMS.iter().flat_map(|program| ["--bin", program])))?;
    let folder = scratch("soak")?;
    let programs = copies(&folder)?;
    let instance = Instance::open(&folder.join("broker"))?;
    let result = driven(args, &folder, &programs, &instance);
    if args.keep || result.is_err() {
        instance.kill(None)?;
        // Under another name, so that the next run does not tidy it away.
        let kept = folder.with_file_name(format!("soak-kept-{}", std::process::id()));
        std::fs::rename(&folder, &kept).map_err(|error| format!("cannot keep {}: {error}", folder.display()))?;
        eprintln!("xtask: everything is kept in {}", kept.display());
        return result;
    }
    instance.destroy()?;
    std::fs::remove_dir_all(&folder).map_err(|error| format!("cannot remove {}: {error}", folder.display()))
}

/// Copies of the programs, the one behind `cargo xtask` included.
fn copies(folder: &Path) -> Outcome<PathBuf> {
    let programs = paths::make(&folder.join("programs"))?;
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, programs.join(name)).map_err(|error| format!("cannot copy {}: {error}", from.display()))
    };
    let built = paths::target()?.join("release");
    for program in PROGRAMS {
        copy(&built.join(program), program)?;
    }
    copy(Path::new("/proc/self/exe"), "xtask")?;
    Ok(programs)
}

fn driven(args: &Args, folder: &Path, programs: &Path, instance: &Instance) -> Outcome {
    let options = StartOptions {
        version: Some(args.broker_version.clone()),
        bound_to: Some(std::process::id()),
        // A name server that was killed learns of the broker within this time instead of 30 s, the shortest there is.
        properties: vec!["registerNameServerPeriod=10000".to_owned()],
        ..StartOptions::default()
    };
    let name_server = instance.start(Some(0), &options)?;
    let mut drive = Command::new(programs.join("onceflow-soak"));
    drive.arg("drive").args(args.words()).args(["--name-server", &name_server]);
    drive.args(["--broker", &instance.broker_address()?, "--commit", &commit()]);
    drive.arg("--instance").arg(instance.dir()).arg("--xtask").arg(programs.join("xtask"));
    drive.arg("--auditor").arg(programs.join("onceflow-audit"));
    drive.arg("--folder").arg(paths::make(&folder.join("run"))?);
    run::check(&mut drive)
}

/// The commit that was built, marked when there are changes beside it.
fn commit() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=10"])
        .current_dir(paths::root())
        .output();
    let text = git.ok().filter(|git| git.status.success()).and_then(|git| String::from_utf8(git.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_has_its_dozen_kills() {
        let words = Args::of(3).words().join(" ");
        assert!(words.contains("--minutes 3 --processor-kills 12 --broker-kills 1 --name-server-kills 1 --pauses 1"));
        assert!(!words.contains("--seed"), "{words}");
    }
}
