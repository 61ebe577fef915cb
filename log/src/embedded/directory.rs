//! The log's directory: who may use it, and whose it is.
//!
//! | file | holds |
//! | --- | --- |
//! | `FORMAT` | `onceflow-log`, a space, the version in decimal, a newline |
//! | `LOCK` | nothing; locked while the log is open |
//! | `CLOSED` | see [`closing`](super::closing) |
//! | `CREATING` | nothing; from the directory's beginning until the database has been made: if that is cut short it starts over |
//! | `data/` | fjall's database |

use super::closing::CLOSED_FILE;
use super::fault::advice;
use super::journal::sync_directory;
use onceflow_types::{Error, Result};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_FILE_NEW: &str = "FORMAT.new";
const LOCK_FILE: &str = "LOCK";
const CREATING_FILE: &str = "CREATING";
const DATA_FOLDER: &str = "data";
const FORMAT_NAME: &str = "onceflow-log";
const FORMAT_VERSION: u32 = 1;

/// A locked directory; dropping it unlocks.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory, if there is none, checks that it is ours, and locks it.
    pub(super) fn open(path: &Path) -> Result<Directory> {
        // Looked at before anything is written: what is not ours stays as it is. A path that is too long is refused before
        // a part of it is made.
        check_names(path)?;
        create_private(path).map_err(|e| failed(path, e))?;
        let fresh = is_fresh(path)?;
        let lock = lock(path)?;
        if fresh && is_fresh(path)? {
            write_format(path).map_err(|e| failed(path, e))?;
        }
        let directory = Directory { path: path.to_owned(), _lock: lock };
        directory.prepare_data().map_err(|e| failed(path, e))?;
        Ok(directory)
    }

    /// fjall does not finish a creation that was cut short. Until there is a whole database nothing was acknowledged.
    fn prepare_data(&self) -> io::Result<()> {
        let data = self.data();
        if self.path.join(CREATING_FILE).exists() && data.exists() {
            fs::remove_dir_all(&data)?;
        }
        create_private(&data)
    }

    /// Removes what says how the log was left, before its first write: from now on the database is whole, what it lacks is
    /// damage, and the log is open. Synced also when there is nothing to remove: an earlier opening may have removed it and
    /// failed to sync, and what comes back after loss of power would speak of another time.
    pub(super) fn begin(&self) -> Result<()> {
        let remove = |name| match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let removed =
            remove(CREATING_FILE).and_then(|()| remove(CLOSED_FILE)).and_then(|()| sync_directory(&self.path));
        removed.map_err(|e| failed(&self.path, e))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the database lies.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA_FOLDER)
    }
}

/// Makes a directory and what is missing above it, durably: what is acknowledged is there after loss of power only if the
/// names above it are.
fn create_private(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.is_dir()).collect();
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        match private_directories().create(path) {
            // Another opening was quicker; the lock decides between the two.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or(Path::new("."))).inspect_err(|_| {
            // Or the next opening would find it and trust it. A failure leaves it as it is.
            let _ = fs::remove_dir(path);
        })?;
    }
    Ok(())
}

/// `Invalid` when one of our names is a link or no file: whoever made it could choose what we write to. The directory
/// itself may be reached by a link, as it is the user's choice.
fn check_names(path: &Path) -> Result<()> {
    for name in [FORMAT_FILE, LOCK_FILE, CREATING_FILE, CLOSED_FILE, DATA_FOLDER] {
        let path = path.join(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path, error)),
        };
        let wrong = match name {
            _ if found.is_symlink() => "a symbolic link, remove it",
            DATA_FOLDER if !found.is_dir() => "not a directory, remove it",
            DATA_FOLDER if anybody_writes(&found) => {
                "a directory in which every user may write, make it private (chmod 0700)"
            }
            DATA_FOLDER => continue,
            _ if !found.is_file() => "not a file, remove it",
            _ if has_other_names(&found) => "a hard link, copy the directory and use the copy",
            _ => continue,
        };
        return Err(Error::invalid(format!("a part of the log is {wrong}: path={}", path.display())));
    }
    Ok(())
}

#[cfg(unix)]
fn anybody_writes(found: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o002 != 0
}

#[cfg(unix)]
fn has_other_names(found: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(found) > 1
}

#[cfg(not(unix))]
fn anybody_writes(_: &fs::Metadata) -> bool {
    false
}

#[cfg(not(unix))]
fn has_other_names(_: &fs::Metadata) -> bool {
    false
}

/// A new file that only this user can read. What an earlier try has left under its name is removed, not written to: by
/// now it may be a link to something else.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private_files().create_new(true).open(path)
}

fn private_files() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn private_directories() -> fs::DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "permissions are set on unix only"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Whether nothing was ever stored here; an error when something else was.
fn is_fresh(path: &Path) -> Result<bool> {
    if has_format(path)? {
        return Ok(false);
    }
    match check_empty(path) {
        Ok(()) => Ok(true),
        // Another opening may have made the log between the two looks.
        Err(error) => {
            if has_format(path)? {
                Ok(false)
            } else {
                Err(error)
            }
        }
    }
}

fn has_format(path: &Path) -> Result<bool> {
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(text) => check_format(path, &text).map(|()| true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(foreign(path)),
        Err(error) => Err(failed(path, error)),
    }
}

fn check_format(path: &Path, text: &str) -> Result<()> {
    let version = text.strip_prefix(FORMAT_NAME).and_then(|rest| rest.trim().parse::<u32>().ok());
    match version {
        Some(FORMAT_VERSION) => Ok(()),
        Some(version) => Err(Error::invalid(format!(
            "log has another format: path={} version={version} known={FORMAT_VERSION}",
            path.display()
        ))),
        None => Err(foreign(path)),
    }
}

/// A crash before `FORMAT` was in place leaves the lock and the unfinished files, which are ours.
fn check_empty(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path).map_err(|e| failed(path, e))? {
        let name = entry.map_err(|e| failed(path, e))?.file_name();
        if name != LOCK_FILE && name != FORMAT_FILE_NEW && name != CREATING_FILE {
            return Err(foreign(path));
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File> {
    let file = private_files().create(true).truncate(false).open(path.join(LOCK_FILE)).map_err(|e| failed(path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::fenced(format!("log is open elsewhere: path={}", path.display()))),
        Err(TryLockError::Error(error)) => Err(failed(path, error)),
    }
}

/// Written beside and renamed, so that a crash leaves either no format or the whole.
fn write_format(path: &Path) -> io::Result<()> {
    // Before `FORMAT`, so that it is there whenever `FORMAT` is.
    create_file(&path.join(CREATING_FILE))?;
    sync_directory(path)?;
    let new = path.join(FORMAT_FILE_NEW);
    let mut file = create_file(&new)?;
    writeln!(file, "{FORMAT_NAME} {FORMAT_VERSION}")?;
    file.sync_all()?;
    fs::rename(&new, path.join(FORMAT_FILE))?;
    sync_directory(path)
}

fn foreign(path: &Path) -> Error {
    Error::invalid(format!("directory holds something that is not a log: path={}", path.display()))
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    let text = format!("log directory cannot be used{}: path={}", advice(&error), path.display());
    Error::invalid(text).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind as Kind;

    fn kind(path: &Path) -> Kind {
        Directory::open(path).expect_err("it must be refused").kind()
    }

    #[test]
    fn a_second_opening_is_fenced_until_the_first_ends() {
        let path = tempfile::tempdir().unwrap();
        let first = Directory::open(path.path()).unwrap();
        assert_eq!(kind(path.path()), Kind::Fenced);
        drop(first);
        Directory::open(path.path()).unwrap();
    }

    #[test]
    fn a_foreign_or_newer_directory_is_refused_and_left_as_it_is() {
        let files = [("notes.txt", "mine"), (FORMAT_FILE, "onceflow-log 2\n"), (FORMAT_FILE, "other 1\n")];
        for (name, text) in files {
            let path = tempfile::tempdir().unwrap();
            fs::write(path.path().join(name), text).unwrap();
            assert_eq!(kind(path.path()), Kind::Invalid, "{name} {text}");
            let left: Vec<_> = fs::read_dir(path.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [name]);
            assert_eq!(fs::read_to_string(path.path().join(name)).unwrap(), text);
        }
    }

    #[test]
    fn a_crash_before_the_format_was_in_place_is_finished() {
        let path = tempfile::tempdir().unwrap();
        fs::write(path.path().join(LOCK_FILE), "").unwrap();
        fs::write(path.path().join(FORMAT_FILE_NEW), "once").unwrap();
        Directory::open(path.path()).unwrap();
        assert_eq!(fs::read_to_string(path.path().join(FORMAT_FILE)).unwrap(), "onceflow-log 1\n");
    }

    #[test]
    fn a_creation_that_was_cut_short_starts_over_and_a_finished_one_never_does() {
        let path = tempfile::tempdir().unwrap();
        let part = path.path().join("data/0.jnl");
        drop(Directory::open(path.path()).unwrap());
        fs::write(&part, "part").unwrap();
        let directory = Directory::open(path.path()).unwrap();
        assert!(!part.exists());
        directory.begin().unwrap();
        drop(directory);
        fs::write(&part, "whole").unwrap();
        Directory::open(path.path()).unwrap().begin().unwrap();
        assert!(part.exists());
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_look_in() {
        use std::os::unix::fs::PermissionsExt;
        let path = tempfile::tempdir().unwrap().path().join("a/b");
        Directory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
