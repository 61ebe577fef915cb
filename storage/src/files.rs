//! Small files, and what a failed file operation means to the caller.

use onceflow_types::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const FORMAT_FILE: &str = "FORMAT";
pub(crate) const STATUS_FILE: &str = "STATUS";

/// The largest small file. Ours take some hundred bytes; a larger one is not ours.
const SMALL_FILE_BYTES_MAX: u64 = 4096;

/// The error for a failed file operation: what was tried, where, and what to do where we know it.
pub(crate) fn failure(what: &str, path: &Path, error: io::Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ", make it writable for this user or choose another directory"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ", free space and start again",
        ErrorKind::NotADirectory => ", a part of the path is a file",
        _ => "",
    };
    Error::invalid(format!("cannot {what} state file{advice}: path={}", path.display())).with_source(error)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryKind {
    Missing,
    Directory,
    Symlink,
    Other,
}

/// What lies at a path; a link is a link, not what it points to.
pub(crate) fn entry_kind(path: &Path) -> Result<EntryKind> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Ok(EntryKind::Symlink),
        Ok(found) if found.is_dir() => Ok(EntryKind::Directory),
        Ok(_) => Ok(EntryKind::Other),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(EntryKind::Missing),
        Err(e) => Err(failure("read", path, e)),
    }
}

/// The bytes of a small file; `None` when there is none. One that is larger than ours ever are is cut off, so that its
/// checksum fails.
pub(crate) fn read_small(path: &Path) -> Result<Option<Vec<u8>>> {
    match entry_kind(path)? {
        EntryKind::Missing => return Ok(None),
        EntryKind::Other => {}
        EntryKind::Directory | EntryKind::Symlink => {
            return Err(Error::invalid(format!("not a file, remove it: path={}", path.display())));
        }
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| failure("open", path, e))?;
    file.take(SMALL_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| failure("read", path, e))?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole: write beside it, sync, rename, sync the directory. After a crash at any moment the file
/// is the old or the new one.
pub(crate) fn write_atomically(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let beside = directory.join(format!("{name}.tmp"));
    let target = directory.join(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside).map_err(|e| failure("create", &beside, e))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|e| failure("write", &beside, e))?;
    fs::rename(&beside, &target).map_err(|e| failure("replace", &target, e))?;
    sync_directory(directory)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    // Windows cannot open a directory as a file, and needs no sync of one.
    if cfg!(unix) {
        File::open(path).and_then(|directory| directory.sync_all()).map_err(|e| failure("sync", path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_operation_says_what_to_do() {
        for (kind, advice) in [
            (ErrorKind::StorageFull, "free space"),
            (ErrorKind::PermissionDenied, "writable"),
            (ErrorKind::ReadOnlyFilesystem, "writable"),
            (ErrorKind::NotADirectory, "is a file"),
        ] {
            let error = failure("write", Path::new("/a/b"), io::Error::from(kind));
            assert_eq!(error.kind(), onceflow_types::ErrorKind::Invalid);
            assert!(error.to_string().contains(advice) && error.to_string().ends_with("path=/a/b"), "{error}");
        }
    }

    #[test]
    fn a_full_disk_is_a_typed_error() {
        // A device on which every write fails with "no space left".
        if let Ok(mut full) = OpenOptions::new().write(true).open("/dev/full") {
            let error = full.write_all(b"x").and_then(|()| full.sync_all()).unwrap_err();
            assert!(failure("write", Path::new("/dev/full"), error).to_string().contains("free space"));
        }
    }
}
