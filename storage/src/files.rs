//! Small files, and what a failed file operation means to the caller.

use onceflow_types::{Error, Result};
use std::error::Error as StdError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

pub(crate) const LOCK_FILE: &str = "LOCK";
pub(crate) const FORMAT_FILE: &str = "FORMAT";
pub(crate) const STATUS_FILE: &str = "STATUS";

/// The largest small file. Ours take some hundred bytes; a larger one is not ours.
const SMALL_FILE_BYTES_MAX: u64 = 4096;

/// What an operator can do about a failed file operation, as a part of a message; empty where we do not know it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ", make it writable for this user or choose another directory"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FREE_SPACE,
        ErrorKind::NotADirectory => ", a part of the path is a file",
        ErrorKind::InvalidFilename => SHORTER_PATH,
        _ => "",
    }
}

const FREE_SPACE: &str = ", free space and start again";
const SHORTER_PATH: &str = ", choose a shorter path";

/// The error for a failed file operation: what was tried, where, and what to do where we know it.
pub(crate) fn failure(what: &str, path: &Path, error: io::Error) -> Error {
    let advice = advice(&error);
    Error::invalid(format!("cannot {what} state file{advice}: path={}", path.display())).with_source(error)
}

/// The error for a failed call of an engine.
///
/// `Corrupt`, so that the store is opened again and rebuilt when that fails, too; but `Invalid` when the disk is full or may
/// not be written: that damages nothing, a store rebuilt there would fail in the same way, and the good one would be gone.
pub(crate) fn engine_failure(engine: &str, what: &str, error: impl StdError + Send + Sync + 'static) -> Error {
    let advice = advice_in_chain(&error);
    let text = format!("{engine} {what} failed{advice}");
    if advice.is_empty() { Error::corrupt(text) } else { Error::invalid(text) }.with_source(error)
}

fn advice_in_chain(error: &(dyn StdError + 'static)) -> &'static str {
    let mut next = Some(error);
    while let Some(error) = next {
        let known = error.downcast_ref::<io::Error>().map_or("", advice);
        if !known.is_empty() {
            return known;
        }
        next = error.source();
    }
    advice_in_text(&error.to_string())
}

/// The same for engines that give only the system's words: RocksDB, and those that panic.
pub(crate) fn advice_in_text(text: &str) -> &'static str {
    let known = [
        ("No space left on device", FREE_SPACE),
        ("Disk quota exceeded", FREE_SPACE),
        ("File name too long", SHORTER_PATH),
    ];
    known.into_iter().find(|(words, _)| text.contains(words)).map_or("", |(_, advice)| advice)
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

/// `Invalid` for a file with another name somewhere: whoever made it could choose what we write to, or write to what is
/// ours.
fn check_one_name(path: &Path, file: &File) -> Result<()> {
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(&file.metadata().map_err(|e| failure("read", path, e))?) > 1 {
        return Err(Error::invalid(format!(
            "state file is a hard link, copy the directory and use the copy: path={}",
            path.display()
        )));
    }
    let _ = (path, file);
    Ok(())
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
    check_one_name(path, &file)?;
    file.take(SMALL_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| failure("read", path, e))?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole: write beside it, sync, rename, sync the directory. After a crash at any moment the file
/// is the old or the new one.
pub(crate) fn write_atomically(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let beside = directory.join(format!("{name}.tmp"));
    let target = directory.join(name);
    // What was left there is not opened: it may be a link to, or another name of, somebody's file.
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failure("remove", &beside, e)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
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
            (ErrorKind::InvalidFilename, "shorter path"),
        ] {
            let error = failure("write", Path::new("/a/b"), io::Error::from(kind));
            assert_eq!(error.kind(), onceflow_types::ErrorKind::Invalid);
            assert!(error.to_string().contains(advice) && error.to_string().ends_with("path=/a/b"), "{error}");
        }
    }

    #[test]
    fn a_full_disk_does_not_cost_the_store() {
        let kind = |error: Error| error.kind();
        let full = || io::Error::from(ErrorKind::StorageFull);
        assert_eq!(kind(engine_failure("engine", "commit", full())), onceflow_types::ErrorKind::Invalid);
        // Below another error, and as text only.
        let wrapped = Error::corrupt("table").with_source(full());
        assert_eq!(kind(engine_failure("engine", "open", wrapped)), onceflow_types::ErrorKind::Invalid);
        let text = io::Error::other("IO error: No space left on device: while appending");
        let error = engine_failure("engine", "flush", text);
        assert_eq!(error.to_string(), "engine flush failed, free space and start again");
        let broken = engine_failure("engine", "get", io::Error::other("bad block"));
        assert_eq!(kind(broken), onceflow_types::ErrorKind::Corrupt);
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
