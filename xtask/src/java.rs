//! `cargo xtask java`: the Java test clients in `tests/java`, compiled once by Maven, run by name.
//!
//! They are ordinary clients of a broker: they prove that what Onceflow reads and writes is what others write and read.

use crate::{Outcome, machine, paths, run};
use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tool (`topic`, `produce`, `consume`, `help`) and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    let classes = compile()?;
    let mut java = Command::new("java");
    java.args(["-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    // RocketMQ's client writes its log below the user's home.
    java.arg(format!("-Duser.home={}", classes.display()));
    java.arg("-cp").arg(format!("{0}/classes:{0}/lib/*", classes.display()));
    java.arg("onceflow.tools.Main").args(&args.words);
    // Takes this program's place, so that a signal to it reaches the tool.
    Err(format!("cannot run java: {}", java.exec()))
}

/// The folder with the compiled tools; compiles them unless these very sources were compiled before.
pub(crate) fn compile() -> Outcome<PathBuf> {
    let project = paths::root().join("tests/java");
    let cache = paths::make(&paths::cache()?.join("java"))?;
    let ready = cache.join(fingerprint(&project)?);
    let lock = File::create(cache.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| format!("cannot lock the Java tools: {error}"))?;
    if ready.is_dir() {
        machine::ensure(&[machine::Need::Java]).map_err(|missing| missing.0)?;
        return Ok(ready);
    }
    machine::ensure(machine::JAVA_CLIENTS).map_err(|missing| missing.0)?;
    let part = cache.join("part");
    let _ = std::fs::remove_dir_all(&part);
    let mut maven = Command::new("mvn");
    maven.args(["-B", "-q", "-f"]).arg(project.join("pom.xml")).arg(format!("-Doutput.directory={}", part.display()));
    maven.args(["dependency:copy-dependencies", "compiler:compile"]);
    run::check(maven.stdin(Stdio::null()).stdout(std::io::stderr()))?;
    // Renamed when whole, so that a half built one is never used.
    std::fs::rename(&part, &ready).map_err(|error| format!("cannot fill {}: {error}", ready.display()))?;
    Ok(ready)
}

/// Names the sources by their content.
fn fingerprint(project: &Path) -> Outcome<String> {
    let mut hasher = DefaultHasher::new();
    for file in files(project)? {
        file.strip_prefix(project).unwrap_or(&file).hash(&mut hasher);
        std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn files(dir: &Path) -> Outcome<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let entries = std::fs::read_dir(dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.append(&mut files(&path)?);
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}
