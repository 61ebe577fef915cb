//! Folders for instances that live no longer than this program.

use crate::{Outcome, paths};
use std::path::{Path, PathBuf};

/// A new folder for this run of `purpose`. Those of runs that were killed are removed first; the guard has ended their
/// servers.
pub(crate) fn scratch(purpose: &str) -> Outcome<PathBuf> {
    let all = paths::make(&paths::cache()?.join("broker"))?;
    for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        if owner(purpose, &entry.file_name().to_string_lossy())
            .is_some_and(|pid| !Path::new("/proc").join(pid).exists())
        {
            // Whoever removed it first is welcome.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    paths::make(&all.join(format!("{purpose}-{}", std::process::id())))
}

/// The pid in the name of a folder for that purpose.
fn owner<'a>(purpose: &str, folder: &'a str) -> Option<&'a str> {
    let pid = folder.strip_prefix(purpose)?.strip_prefix('-')?;
    pid.parse::<u32>().is_ok().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_the_same_purpose_have_an_owner() {
        assert_eq!(owner("test", "test-17"), Some("17"));
        assert_eq!(owner("test", "test"), None);
        assert_eq!(owner("test", "test-mine"), None);
        assert_eq!(owner("test", "bench-17"), None);
        assert_eq!(owner("test", "9876"), None);
    }
}
