#![cfg(unix)]

use super::*;
use crate::contract::{Scratch, copy_directory};
use onceflow_types::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};

fn wanted(broker: &str) -> Format {
    let task = TaskId { subtopology: Name::new("sums").unwrap(), broker: broker.into(), queue: 3 };
    Format::new("fjall", &Name::job("payments").unwrap(), &task)
}

/// A created directory, closed again.
fn created(root: &Path) -> PathBuf {
    let directory = Directory::open(root, &wanted("broker-a")).unwrap();
    directory.empty_data().unwrap();
    directory.path().to_owned()
}

/// Names, kinds and contents of everything below a path.
fn picture(path: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut seen = vec![];
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            seen.push((entry.clone(), None));
            seen.extend(picture(&entry));
        } else {
            seen.push((entry.clone(), fs::read(&entry).ok()));
        }
    }
    seen.sort();
    seen
}

fn refused(root: &Path, wanted: &Format) -> Error {
    let before = picture(root);
    let error = Directory::open(root, wanted).unwrap_err();
    assert_eq!(picture(root), before, "untouched by open: {error}");
    if error.kind() == ErrorKind::Invalid {
        assert_eq!(Directory::destroy(root, wanted).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(picture(root), before, "untouched by destroy: {error}");
    }
    error
}

#[test]
fn no_broker_name_escapes_or_meets_another() {
    let root = Path::new("/state");
    let job = Name::job("payments").unwrap();
    let long = "é/".repeat(100);
    let brokers = ["a", "A", "a.b", "a-b", "..", "../../etc", "/", "a/b", "a\\b", "a\0b", "a%b", "a%2fb", "", &long];
    let mut paths = vec![];
    for broker in brokers {
        let path = task_directory(root, &job, &wanted(broker).task);
        assert_eq!(path.parent(), Some(Path::new("/state/payments")), "{broker:?}");
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.len() < 200 && name.starts_with("sums.") && name.ends_with(".3"), "{name}");
        paths.push(name);
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), brokers.len());
}

#[test]
fn directories_and_files_are_private() {
    let root = Scratch::new();
    let path = created(&root.path().join("new"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for directory in [&path, &path.join(DATA_FOLDER), path.parent().unwrap(), &root.path().join("new")] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    for file in [LOCK_FILE, FORMAT_FILE, STATUS_FILE] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
}

#[test]
fn a_directory_of_another_job_task_or_backend_is_refused_untouched() {
    let root = Scratch::new();
    let path = created(root.path());
    let other_backend = Format { backend: "sled".into(), ..wanted("broker-a") };
    let error = refused(root.path(), &other_backend);
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("another backend, choose that backend"), "{error}");

    let other_task = wanted("broker-b");
    copy_directory(&path, &task_directory(root.path(), &other_task.job, &other_task.task)).unwrap();
    assert!(refused(root.path(), &other_task).to_string().contains("another task"));

    let other_job = Format { job: Name::job("ledger").unwrap(), ..wanted("broker-a") };
    copy_directory(&path, &task_directory(root.path(), &other_job.job, &other_job.task)).unwrap();
    assert!(refused(root.path(), &other_job).to_string().contains("another job"));
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let root = Scratch::new();
    let path = created(root.path());
    let mut newer = wanted("broker-a").encode();
    newer[8] += 1;
    let body = newer.len() - 4;
    let sum = onceflow_types::wire::checksum(&newer[..body]).to_le_bytes();
    newer[body..].copy_from_slice(&sum);
    fs::write(path.join(FORMAT_FILE), newer).unwrap();
    assert!(refused(root.path(), &wanted("broker-a")).to_string().contains("another format"));
}

#[test]
fn files_that_are_not_a_store_are_refused_untouched() {
    let root = Scratch::new();
    let path = task_directory(root.path(), &wanted("broker-a").job, &wanted("broker-a").task);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("holiday.jpg"), b"picture").unwrap();
    assert_eq!(refused(root.path(), &wanted("broker-a")).kind(), ErrorKind::Invalid);
    fs::write(path.join(FORMAT_FILE), b"somebody else's format file").unwrap();
    assert_eq!(refused(root.path(), &wanted("broker-a")).kind(), ErrorKind::Invalid);
    fs::remove_dir_all(&path).unwrap();
    fs::write(&path, b"a file").unwrap();
    assert_eq!(refused(root.path(), &wanted("broker-a")).kind(), ErrorKind::Invalid);
}

#[test]
fn links_are_refused() {
    let root = Scratch::new();
    let elsewhere = Scratch::new();
    let path = task_directory(root.path(), &wanted("broker-a").job, &wanted("broker-a").task);
    symlink(elsewhere.path(), path.parent().unwrap()).unwrap();
    assert!(refused(root.path(), &wanted("broker-a")).to_string().contains("symbolic link"));
    fs::remove_file(path.parent().unwrap()).unwrap();
    fs::create_dir(path.parent().unwrap()).unwrap();
    symlink(elsewhere.path(), &path).unwrap();
    assert!(refused(root.path(), &wanted("broker-a")).to_string().contains("symbolic link"));
    assert_eq!(picture(elsewhere.path()), []);
}

#[test]
fn a_path_through_a_file_is_a_typed_error() {
    let root = Scratch::new();
    fs::write(root.path().join("file"), b"").unwrap();
    let error = Directory::open(&root.path().join("file/state"), &wanted("broker-a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    // The process file system refuses new directories also for root.
    if Path::new("/proc/self").exists() {
        let error = Directory::open(Path::new("/proc/self/state"), &wanted("broker-a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    }
}

#[test]
fn an_opening_that_was_cut_short_is_taken_up() {
    let root = Scratch::new();
    let path = created(root.path());
    fs::remove_dir(path.join(DATA_FOLDER)).unwrap();
    // The order of creation backwards: at each step the directory is one that a crash can leave.
    let steps: [&dyn Fn(); 4] = [
        &|| fs::rename(path.join(FORMAT_FILE), path.join("FORMAT.tmp")).unwrap(),
        &|| fs::remove_file(path.join(STATUS_FILE)).unwrap(),
        &|| fs::write(path.join(LOCK_FILE), b"").unwrap(),
        &|| fs::remove_file(path.join(LOCK_FILE)).unwrap(),
    ];
    for undo in 1..=steps.len() {
        drop(Directory::open(root.path(), &wanted("broker-a")).unwrap());
        steps[..undo].iter().for_each(|step| step());
    }
    assert_eq!(Directory::open(root.path(), &wanted("broker-a")).unwrap().status(), Status::Fresh);
}

#[test]
fn a_lost_format_is_damage_and_never_a_new_store() {
    let root = Scratch::new();
    let path = created(root.path());
    Directory::open(root.path(), &wanted("broker-a")).unwrap().set_status(Status::Open).unwrap();
    fs::remove_file(path.join(FORMAT_FILE)).unwrap();
    assert_eq!(refused(root.path(), &wanted("broker-a")).kind(), ErrorKind::Corrupt);
    fs::remove_dir(path.join(DATA_FOLDER)).unwrap();
    assert_eq!(refused(root.path(), &wanted("broker-a")).kind(), ErrorKind::Corrupt);
    Directory::destroy(root.path(), &wanted("broker-a")).unwrap();
    assert_eq!(Directory::open(root.path(), &wanted("broker-a")).unwrap().status(), Status::Fresh);
}

#[test]
fn the_held_tasks_are_listed() {
    let root = Scratch::new();
    assert_eq!(held_tasks(&root.path().join("missing")).unwrap(), []);
    let path = created(root.path());
    let second = wanted("a/b");
    Directory::open(root.path(), &second).unwrap().empty_data().unwrap();
    fs::write(root.path().join("payments/stray"), b"").unwrap();
    fs::create_dir(root.path().join("payments/foreign")).unwrap();
    let held = held_tasks(root.path()).unwrap();
    assert_eq!(held.iter().map(|held| &*held.task.broker).collect::<Vec<_>>(), ["a/b", "broker-a"]);
    assert_eq!(held[1].path, path);
    assert_eq!((held[1].job.as_str(), held[1].backend.as_str()), ("payments", "fjall"));
    Directory::destroy(root.path(), &second).unwrap();
    assert_eq!(held_tasks(root.path()).unwrap().len(), 1);
}
