//! RocketMQ's server jars, resolved by Maven once per version, into the cache; afterwards no network is used.

use crate::{Outcome, paths, run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name server, broker and admin tool; everything they need comes with them.
const ARTIFACTS: [&str; 3] = ["rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools"];

/// The folder with all jars of that version.
pub(crate) fn resolve(version: &str) -> Outcome<PathBuf> {
    if version.is_empty() || !version.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-".contains(letter)) {
        return Err(format!("odd RocketMQ version: given={version:?}"));
    }
    let cache = paths::make(&paths::cache()?.join("rocketmq"))?;
    let lib = cache.join(version);
    // Another start may be resolving the same version just now.
    let lock = File::create(cache.join(format!("{version}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| format!("cannot lock the jars: {error}"))?;
    if !lib.is_dir() {
        download(version, &cache, &lib)?;
    }
    Ok(lib)
}

/// Fills a folder beside the wanted one and renames it, so that a half filled one is never taken for a whole.
fn download(version: &str, cache: &Path, lib: &Path) -> Outcome {
    eprintln!("xtask: resolving RocketMQ {version} with Maven (once)");
    let part = cache.join(format!("{version}.part"));
    let _ = std::fs::remove_dir_all(&part);
    let part = paths::make(&part)?;
    let project = part.join("pom.xml");
    paths::write(&project, &pom(version))?;
    let mut maven = Command::new("mvn");
    maven.args(["-B", "-q", "-f"]).arg(&project).arg("dependency:copy-dependencies");
    maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", part.join("lib").display()));
    maven.stdin(Stdio::null()).stdout(std::io::stderr());
    run::check(&mut maven)?;
    if !part.join("lib").join(format!("rocketmq-broker-{version}.jar")).is_file() {
        return Err(format!("Maven brought no broker of that version: given={version}"));
    }
    std::fs::rename(part.join("lib"), lib).map_err(|error| format!("cannot fill {}: {error}", lib.display()))?;
    let _ = std::fs::remove_dir_all(&part);
    Ok(())
}

fn pom(version: &str) -> String {
    let dependency = |artifact| {
        format!(
            "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>onceflow</groupId><artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{}</dependencies></project>\n",
        ARTIFACTS.map(dependency).concat()
    )
}
