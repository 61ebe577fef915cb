//! Directories that somebody else prepared (S6): no file outside is written, emptied or removed through them, and a place
//! that cannot be used is an error of kind `Invalid`.
#![cfg(all(unix, feature = "fjall"))]

use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
use onceflow::storage::{Backend, StoreFactory, StoreOptions, task_directory};
use onceflow::types::{Error, ErrorKind, Name, TaskId};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const MINE: &[u8] = b"somebody's file, longer than any of ours: it would be seen if it were cut";

fn job() -> Name {
    Name::job("payments").unwrap()
}

fn task() -> TaskId {
    TaskId { subtopology: Name::new("sums").unwrap(), broker: "broker-a".into(), queue: 3 }
}

fn open_store(root: &Path) -> Result<(), Error> {
    StoreOptions::new(Backend::Fjall, root).open(&job(), &task()).map(drop)
}

fn open_log(root: &Path) -> Result<(), Error> {
    EmbeddedLog::open(root, EmbeddedOptions::default()).map(drop)
}

fn hard_link(target: &Path, link: &Path) {
    fs::hard_link(target, link).unwrap();
}

fn soft_link(target: &Path, link: &Path) {
    symlink(target, link).unwrap();
}

/// Opens after `name` in `folder` was made another name of a file elsewhere; the file must stay as it is.
fn planted(folder: &Path, name: &str, link: fn(&Path, &Path), open: impl Fn() -> Result<(), Error>) {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("accounts");
    fs::write(&file, MINE).unwrap();
    fs::create_dir_all(folder).unwrap();
    link(&file, &folder.join(name));
    if let Err(error) = open() {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {}", error.report());
    }
    assert_eq!(fs::read(&file).unwrap(), MINE, "{name}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1, "{name}");
}

#[test]
fn links_in_a_prepared_state_directory_lead_nowhere() {
    for link in [hard_link, soft_link] {
        for name in ["FORMAT", "FORMAT.tmp", "STATUS", "STATUS.tmp", "LOCK", "LOCK.tmp"] {
            let root = tempfile::tempdir().unwrap();
            planted(&task_directory(root.path(), &job(), &task()), name, link, || open_store(root.path()));
        }
    }
}

#[test]
fn links_in_a_prepared_log_directory_lead_nowhere() {
    for link in [hard_link, soft_link] {
        for name in ["FORMAT", "FORMAT.new", "CREATING", "LOCK", "CLOSED"] {
            let root = tempfile::tempdir().unwrap();
            planted(root.path(), name, link, || open_log(root.path()));
        }
    }
}

#[test]
fn places_that_cannot_be_used_are_typed_errors() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, MINE).unwrap();
    let long = root.path().join(vec!["a".repeat(200); 21].join("/"));
    let name = root.path().join("n".repeat(300));
    for place in [&file, &file.join("below"), &long, &name, Path::new("/proc/self/state"), Path::new("/dev/null")] {
        for error in [open_store(place).unwrap_err(), open_log(place).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{}: {}", place.display(), error.report());
        }
    }
    assert_eq!(fs::read(&file).unwrap(), MINE);
}

/// A file system in memory forgets everything at a restart, but until then it is as good as another.
#[test]
fn a_file_system_in_memory_will_do() {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() {
        eprintln!("NOT RUN: this machine has no /dev/shm");
        return;
    }
    let root = tempfile::tempdir_in(shared).unwrap();
    for _ in 0..2 {
        open_store(&root.path().join("state")).unwrap();
        open_log(&root.path().join("log")).unwrap();
    }
}
