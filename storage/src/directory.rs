//! The directory of a task: its name, its lock, and whether it is ours.
//!
//! ```text
//! <root>/<job>/<subtopology>.<broker, escaped>.<queue>/     0700
//!     LOCK      magic; locked (flock) while a handle is open
//!     FORMAT    backend, job and task that the directory belongs to
//!     STATUS    whether a commit was made, and whether the last close was clean
//!     data/     the backend's files
//! ```
//!
//! A directory is judged by reading alone; it is changed only once it is known to be ours and locked.

use crate::files::{
    EntryKind, FORMAT_FILE, LOCK_FILE, STATUS_FILE, entry_kind, failure, read_small, sync_directory, write_atomically,
};
use crate::format::{Format, LOCK_MAGIC, Status};
use onceflow_types::{Error, Name, Result, TaskId};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// The backend's folder inside a task's directory.
const DATA_FOLDER: &str = "data";
/// Longest escaped broker name inside a folder name. A longer one is cut and gets a checksum; the name in `FORMAT`
/// decides.
const BROKER_FOLDER_BYTES_MAX: usize = 120;

/// Where the state of a task lies under `root`. Nothing in a job or task can lead outside of `root`: a broker's name
/// may hold any character, so all but letters, digits, `_` and `-` are escaped.
///
/// ```
/// use onceflow_storage::task_directory;
/// use onceflow_types::{Name, TaskId};
///
/// let task = TaskId { subtopology: Name::new("sums")?, broker: "../a".into(), queue: 3 };
/// let path = task_directory("/var/lib/onceflow".as_ref(), &Name::job("payments")?, &task);
/// assert_eq!(path.to_str(), Some("/var/lib/onceflow/payments/sums.%2e%2e%2fa.3"));
/// # Ok::<(), onceflow_types::Error>(())
/// ```
pub fn task_directory(root: &Path, job: &Name, task: &TaskId) -> PathBuf {
    let folder = format!("{}.{}.{}", task.subtopology, escape(&task.broker), task.queue);
    root.join(job.as_str()).join(folder)
}

fn escape(broker: &str) -> String {
    let mut escaped = String::with_capacity(broker.len());
    for byte in broker.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => {
                let _ = write!(escaped, "%{byte:02x}");
            }
        }
    }
    if escaped.len() > BROKER_FOLDER_BYTES_MAX {
        // The escaped name is ASCII, so it can be cut anywhere.
        escaped.truncate(BROKER_FOLDER_BYTES_MAX);
        let _ = write!(escaped, "~{:08x}", onceflow_types::wire::checksum(broker.as_bytes()));
    }
    escaped
}

/// A task's directory, locked. The lock ends with this value.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    status: Status,
    _lock: File,
}

impl Directory {
    /// Opens or creates the directory of a task for one backend.
    ///
    /// Errors: `Invalid` for a directory that is not this backend's for this task, or cannot be used; `Fenced` when it
    /// is open elsewhere; `Corrupt` when it is ours and damaged.
    pub(crate) fn open(root: &Path, wanted: &Format) -> Result<Directory> {
        let path = task_directory(root, &wanted.job, &wanted.task);
        make_directories(root, &path)?;
        look(&path, wanted)?;
        let lock = lock(&path)?;
        // Again, as another owner may have worked between the look and the lock.
        let seen = look(&path, wanted)?;
        let status = match seen {
            Seen::New => {
                let status = Status::Fresh;
                write_atomically(&path, STATUS_FILE, &status.encode())?;
                write_atomically(&path, FORMAT_FILE, &wanted.encode())?;
                status
            }
            Seen::Ours => read_status(&path)?,
            Seen::Damaged(error) => return Err(error),
        };
        Ok(Directory { path, status, _lock: lock })
    }

    /// Takes the state of a task away, so that the next opening starts empty. A damaged directory is repaired by it.
    pub(crate) fn destroy(root: &Path, wanted: &Format) -> Result<()> {
        let path = task_directory(root, &wanted.job, &wanted.task);
        for directory in path.parent().into_iter().chain([path.as_path()]) {
            if !is_directory(directory)? {
                return Ok(());
            }
        }
        look(&path, wanted)?;
        let _lock = lock(&path)?;
        look(&path, wanted)?;
        // First the status, so that a crash in the middle leaves a store that is opened as a new one. The files of the
        // directory itself stay: removing a lock that others may wait for would let two of them in.
        write_atomically(&path, STATUS_FILE, &Status::Fresh.encode())?;
        write_atomically(&path, FORMAT_FILE, &wanted.encode())?;
        remove_data(&path.join(DATA_FOLDER))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join(DATA_FOLDER)
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Writes the status, durably: it is on disk when this returns.
    pub(crate) fn set_status(&mut self, status: Status) -> Result<()> {
        write_atomically(&self.path, STATUS_FILE, &status.encode())?;
        self.status = status;
        Ok(())
    }

    /// Makes the data folder empty. For a store without a commit (rule 12).
    pub(crate) fn empty_data(&self) -> Result<()> {
        let data = self.data();
        remove_data(&data)?;
        make_directory(&data)
    }

    /// Whether the data folder exists.
    pub(crate) fn has_data(&self) -> Result<bool> {
        is_directory(&self.data())
    }
}

/// What a directory is found to be.
enum Seen {
    /// Empty, or left by an opening that did not get far.
    New,
    Ours,
    /// Ours, with a damaged or missing `FORMAT`.
    Damaged(Error),
}

/// Judges a directory by reading alone.
fn look(path: &Path, wanted: &Format) -> Result<Seen> {
    let shown = path.display();
    if !is_directory(path)? {
        return Err(Error::invalid(format!("state directory was removed while it was opened: path={shown}")));
    }
    let format = read_small(&path.join(FORMAT_FILE))?;
    let lock = read_small(&path.join(LOCK_FILE))?;
    match format.as_deref().map(Format::decode) {
        Some(Ok(found)) => found.check_wanted(wanted, path).map(|()| Seen::Ours),
        // A newer format is refused also when everything else looks like ours.
        Some(Err(error)) if error.kind() == onceflow_types::ErrorKind::Invalid => {
            if lock.as_deref() == Some(LOCK_MAGIC) && !Format::is_ours(format.as_deref().unwrap_or_default()) {
                return Ok(Seen::Damaged(damaged(path, FORMAT_FILE).with_source(error)));
            }
            Err(error.context(format!("path={shown}")))
        }
        Some(Err(error)) => Ok(Seen::Damaged(damaged(path, FORMAT_FILE).with_source(error))),
        None if only_ours(path)? => Ok(Seen::New),
        None if lock.as_deref() == Some(LOCK_MAGIC) => Ok(Seen::Damaged(damaged(path, FORMAT_FILE))),
        None => Err(Error::invalid(format!(
            "directory holds files that are not a state store, choose another or remove it: path={shown}"
        ))),
    }
}

/// Whether a directory without `FORMAT` holds nothing but what a creation that was cut short leaves.
fn only_ours(path: &Path) -> Result<bool> {
    let entries = fs::read_dir(path).map_err(|e| failure("list", path, e))?;
    for entry in entries {
        let name = entry.map_err(|e| failure("list", path, e))?.file_name();
        let known = [LOCK_FILE, STATUS_FILE]
            .iter()
            .any(|file| name.to_str().is_some_and(|name| name == *file || name.strip_suffix(".tmp") == Some(*file)));
        if !known && name.to_str() != Some("FORMAT.tmp") {
            return Ok(false);
        }
    }
    // `STATUS` is written before `FORMAT`. One that speaks of commits was there together with a `FORMAT` that is lost.
    let status = read_small(&path.join(STATUS_FILE))?;
    Ok(status.is_none_or(|status| matches!(Status::decode(&status), Ok(Status::Fresh))))
}

fn read_status(path: &Path) -> Result<Status> {
    let Some(bytes) = read_small(&path.join(STATUS_FILE))? else {
        return Err(damaged(path, STATUS_FILE));
    };
    Status::decode(&bytes).map_err(|e| match e.kind() {
        onceflow_types::ErrorKind::Invalid => e.context(format!("path={}", path.display())),
        _ => damaged(path, STATUS_FILE).with_source(e),
    })
}

/// The error for a damaged store: what to do, and where.
fn damaged(path: &Path, file: &str) -> Error {
    Error::corrupt(format!(
        "state store is damaged, drop it and rebuild it from the journal: file={file} path={}",
        path.display()
    ))
}

fn lock(path: &Path) -> Result<File> {
    let file_path = path.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&file_path).map_err(|e| failure("open", &file_path, e))?;
    let found = file.metadata().map_err(|e| failure("read", &file_path, e))?;
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(&found) > 1 {
        let shown = file_path.display();
        return Err(Error::invalid(format!("file has another name elsewhere, remove it: path={shown}")));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::fenced(format!(
                "state store is open elsewhere, in this process or another: path={}",
                path.display()
            )));
        }
        Err(TryLockError::Error(e)) => return Err(failure("lock", &file_path, e)),
    }
    if found.len() != LOCK_MAGIC.len() as u64 {
        use std::io::Write as _;
        file.set_len(0).and_then(|()| file.write_all(LOCK_MAGIC)).map_err(|e| failure("write", &file_path, e))?;
    }
    Ok(file)
}

fn make_directories(root: &Path, path: &Path) -> Result<()> {
    // A path that is too long is refused before a part of it is made.
    entry_kind(path)?;
    make_root(root)?;
    for directory in path.parent().into_iter().chain([path]) {
        if !is_directory(directory)? {
            make_directory(directory)?;
        }
    }
    Ok(())
}

/// Makes the root and what is missing above it. Unlike below it, links are followed: the root is the user's choice.
fn make_root(root: &Path) -> Result<()> {
    let missing: Vec<&Path> = root.ancestors().take_while(|path| !path.is_dir()).collect();
    missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()).try_for_each(make_directory)
}

/// Whether there is a directory; `Invalid` when there is something else, a link included: whoever can make one could
/// otherwise choose where we write and remove.
fn is_directory(path: &Path) -> Result<bool> {
    let what = match entry_kind(path)? {
        EntryKind::Missing => return Ok(false),
        EntryKind::Directory => return check_private(path).map(|()| true),
        EntryKind::Symlink => "a symbolic link",
        EntryKind::Other => "not a directory",
    };
    Err(Error::invalid(format!("state directory is {what}, remove it: path={}", path.display())))
}

/// `Invalid` for a directory in which everybody may write: what is in it could be anybody's. A group may, as some
/// platforms give a volume to a group; the root is the user's choice.
fn check_private(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let found = fs::metadata(path).map_err(|e| failure("read", path, e))?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o7777;
        if mode & 0o002 != 0 {
            return Err(Error::invalid(format!(
                "every user may write in the state directory, make it private (chmod 0700): mode={mode:04o} path={}",
                path.display()
            )));
        }
    }
    let _ = path;
    Ok(())
}

/// Makes a directory, durably: a closed store is there after loss of power only if the names above it are.
fn make_directory(path: &Path) -> Result<()> {
    match private_directories().create(path) {
        Ok(()) => {}
        // Another opening was quicker; the lock decides between the two.
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failure("create", path, e)),
    }
    let synced = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    };
    synced.inspect_err(|_| {
        // Or the next opening would find it and trust it. A failure leaves it as it is.
        let _ = fs::remove_dir(path);
    })
}

fn private_directories() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "permissions are set on unix only"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

fn remove_data(data: &Path) -> Result<()> {
    match entry_kind(data)? {
        EntryKind::Missing => return Ok(()),
        EntryKind::Directory => fs::remove_dir_all(data),
        // The link or file itself, never what it points to.
        EntryKind::Symlink | EntryKind::Other => fs::remove_file(data),
    }
    .map_err(|e| failure("remove", data, e))?;
    data.parent().map_or(Ok(()), sync_directory)
}

/// A task whose state lies in a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTask {
    /// The job.
    pub job: Name,
    /// The task.
    pub task: TaskId,
    /// The backend's name.
    pub backend: String,
    /// The task's directory.
    pub path: PathBuf,
}

/// The tasks whose state lies under `root`, in order of their directories. Reads only, and takes no lock. What is not
/// ours, is damaged or was destroyed is left out. An empty list when `root` does not exist.
///
/// # Errors
/// `Invalid` when a directory cannot be read.
pub fn held_tasks(root: &Path) -> Result<Vec<HeldTask>> {
    let mut held = Vec::new();
    for job in folders(root)? {
        for path in folders(&job)? {
            let Some(bytes) = read_small(&path.join(FORMAT_FILE))? else { continue };
            let Ok(format) = Format::decode(&bytes) else { continue };
            if entry_kind(&path.join(DATA_FOLDER))? == EntryKind::Directory {
                held.push(HeldTask { job: format.job, task: format.task, backend: format.backend, path });
            }
        }
    }
    Ok(held)
}

/// The folders in a folder, in order; links are not followed.
fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    if entry_kind(path)? == EntryKind::Missing {
        return Ok(Vec::new());
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| failure("list", path, e))? {
        let entry = entry.map_err(|e| failure("list", path, e))?;
        if entry.file_type().map_err(|e| failure("list", path, e))?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests;
