//! RocksDB, compiled once. Cargo compiles the C++ library again for each combination of packages and features, ten
//! minutes each on two cores; its build script takes a library that is there already (`ROCKSDB_LIB_DIR`). So the first
//! build's library is kept in the cache, under the version of the crate that it came from, and every later cargo call
//! links that.

use crate::{Outcome, paths, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const CRATE: &str = "librocksdb-sys";
const LIBRARY: &str = "librocksdb.a";

/// Points a cargo call at the kept library, if there is one and the caller has not chosen another.
pub(crate) fn link_kept(cargo: &mut Command) -> Outcome {
    let kept = place()?;
    if kept.join(LIBRARY).is_file() && std::env::var_os("ROCKSDB_LIB_DIR").is_none() {
        cargo.env("ROCKSDB_LIB_DIR", kept).env("ROCKSDB_STATIC", "1");
    }
    Ok(())
}

/// Compiles the library and keeps it, unless that is done.
pub(crate) fn ensure() -> Outcome {
    let kept = place()?;
    if kept.join(LIBRARY).is_file() || std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        return Ok(());
    }
    eprintln!("compiling RocksDB once; this takes about ten minutes on two cores");
    run::check(&mut run::cargo(["build", "--release", "--package", "onceflow-storage", "--features", "rocksdb"])?)?;
    let built = newest(&paths::target()?.join("release/build"))
        .ok_or_else(|| format!("the build left no {LIBRARY} under its build folder"))?;
    paths::make(&kept)?;
    // Copied beside its place and renamed, so that a killed run leaves no half library.
    let half = kept.join(format!("{LIBRARY}.{}", std::process::id()));
    std::fs::copy(&built, &half)
        .and_then(|_| std::fs::rename(&half, kept.join(LIBRARY)))
        .map_err(|error| format!("cannot keep {}: {error}", built.display()))
}

/// Where the library of the locked crate version is kept.
fn place() -> Outcome<PathBuf> {
    let lock = std::fs::read_to_string(paths::root().join("Cargo.lock")).map_err(|e| format!("Cargo.lock: {e}"))?;
    let version = locked_version(&lock).ok_or_else(|| format!("Cargo.lock names no {CRATE}"))?;
    Ok(paths::cache()?.join(format!("rocksdb-{version}")))
}

fn locked_version(lock: &str) -> Option<&str> {
    let package = lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{CRATE}\"")))?;
    package.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

fn newest(build: &Path) -> Option<PathBuf> {
    let outputs =
        std::fs::read_dir(build).ok()?.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(CRATE));
    let libraries = outputs.map(|entry| entry.path().join("out").join(LIBRARY)).filter(|file| file.is_file());
    let age = |file: &PathBuf| file.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    libraries.max_by_key(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_locked_one() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"librocksdb-sys\"\nversion = \"0.19.0+11.8.1\"\n";
        assert_eq!(locked_version(lock), Some("0.19.0+11.8.1"));
        assert!(place().unwrap().to_string_lossy().contains("rocksdb-"));
    }
}
