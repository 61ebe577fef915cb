//! Where things lie: the checkout, and one cache folder outside it that survives the checkout.

use crate::Outcome;
use std::env;
use std::path::{Path, PathBuf};

/// The root of the checkout this program was built from.
///
/// Not taken from the environment: a test that calls this program carries the `CARGO_MANIFEST_DIR` of its own package.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// `$ONCEFLOW_CACHE`, or `onceflow` under `$XDG_CACHE_HOME` or `~/.cache`: server jars, Java classes, build output.
pub(crate) fn cache() -> Outcome<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("ONCEFLOW_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("onceflow")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/onceflow")))
        .ok_or_else(|| "no place for the cache: set HOME or ONCEFLOW_CACHE".to_owned())
}

/// The build output that all checkouts share, so that a fresh clone does not compile RocksDB and the broker client
/// again: `$CARGO_TARGET_DIR`, or a folder in the cache.
pub(crate) fn target() -> Outcome<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
        Some(set) => Ok(root().join(set)),
        None => Ok(cache()?.join("target")),
    }
}

/// Creates `dir` with its parents and returns its absolute path without links.
pub(crate) fn make(dir: &Path) -> Outcome<PathBuf> {
    std::fs::create_dir_all(dir)
        .and_then(|()| dir.canonicalize())
        .map_err(|error| format!("cannot create {}: {error}", dir.display()))
}

/// Writes a whole file.
pub(crate) fn write(file: &Path, text: &str) -> Outcome {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
