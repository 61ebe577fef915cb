//! S6: the directories of state and of the embedded log, as somebody else may leave them. Each time a typed error that says
//! what to do, and what is not ours stays as it is.

#[allow(unreachable_pub, reason = "a test helper of another crate")]
#[path = "../../storage/tests/common/point.rs"]
mod point;

use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
use onceflow::storage::{Backend, Delta, MemoryBudget, StateStore, StoreFactory, StoreOptions, task_directory};
use onceflow::types::{Error, ErrorKind, Name, Result, TaskId};
pub(crate) use point::point;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use tempfile::TempDir;

/// What keeps data in a directory.
#[derive(Clone, Copy, Debug)]
enum Keeper {
    Store(Backend),
    Log,
}

impl Keeper {
    fn all() -> impl Iterator<Item = Keeper> {
        let disk =
            [Backend::Fjall, Backend::RocksDb, Backend::Sled].into_iter().filter(|backend| backend.is_available());
        disk.map(Keeper::Store).chain([Keeper::Log])
    }

    /// The directory in which its files lie.
    fn directory(self, root: &Path) -> PathBuf {
        match self {
            Keeper::Store(_) => task_directory(root, &job(), &task()),
            Keeper::Log => root.join("log"),
        }
    }

    /// Its small files, and those that it writes before it gives them their names.
    fn names(self) -> ([&'static str; 3], [&'static str; 2]) {
        match self {
            Keeper::Store(_) => (["LOCK", "FORMAT", "STATUS"], ["FORMAT.tmp", "STATUS.tmp"]),
            Keeper::Log => (["LOCK", "FORMAT", "CLOSED"], ["FORMAT.new", "CLOSED.new"]),
        }
    }

    /// Opens, writes a little, and closes.
    fn live(self, root: &Path) -> Result<()> {
        match self {
            Keeper::Store(backend) => {
                let mut store = open_store(backend, root)?;
                let epoch = epoch_of(&*store) + 1;
                let mut delta = Delta::default();
                delta.put(b"key", b"value");
                store.commit(&delta, &point(epoch))
            }
            Keeper::Log => open_log(root).map(drop),
        }
    }

    /// The error of an opening, which must be of the kind that stops the job for an operator, and say what to do.
    #[track_caller]
    fn refused(self, root: &Path, advice: &str) -> Error {
        let error = self.live(root).expect_err("it must be refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{self:?}: {}", error.report());
        assert!(error.report().contains(advice), "{self:?}: {advice}: {}", error.report());
        error
    }

    /// A root in which it has lived.
    fn lived(self) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        self.live(root.path()).unwrap();
        root
    }
}

fn job() -> Name {
    Name::job("disk").unwrap()
}

fn task() -> TaskId {
    TaskId { subtopology: Name::new("subject").unwrap(), broker: "broker-a".into(), queue: 0 }
}

pub(crate) fn open_store(backend: Backend, root: &Path) -> Result<Box<dyn StateStore>> {
    let mut options = StoreOptions::new(backend, root);
    let bytes = MemoryBudget::BYTES_MIN;
    options.memory = MemoryBudget { write_buffer_bytes: bytes, cache_bytes: bytes };
    options.open(&job(), &task())
}

pub(crate) fn open_log(root: &Path) -> Result<EmbeddedLog> {
    let options = EmbeddedOptions { write_buffer_bytes: 1 << 20, cache_bytes: 1 << 20, ..EmbeddedOptions::default() };
    EmbeddedLog::open(root.join("log"), options)
}

pub(crate) fn epoch_of(store: &dyn StateStore) -> u64 {
    store.commit_point().unwrap().map_or(0, |point| point.epoch.get())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_path_that_is_too_long_is_refused_before_a_part_of_it_is_made() {
    let long = "d".repeat(250);
    let deep: PathBuf = std::iter::repeat_n(&long, 17).collect();
    for keeper in Keeper::all() {
        for path in [deep.clone(), "d".repeat(300).into()] {
            let root = tempfile::tempdir().unwrap();
            keeper.refused(&root.path().join(path), "choose a shorter path");
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{keeper:?}");
        }
    }
}

// A path that is long enough for the directory, and too long for what an engine makes in it.
#[test]
fn a_path_that_is_too_long_for_an_engines_files_is_no_damage() {
    const PATH_BYTES_MAX: usize = 4_095;
    for keeper in Keeper::all() {
        for left in (0..80).step_by(4) {
            let root = tempfile::tempdir().unwrap();
            let own = keeper.directory(root.path()).as_os_str().len();
            let mut missing = PATH_BYTES_MAX - own - left;
            let mut path = root.path().to_owned();
            while missing > 0 {
                // Never one byte less than a name and its slash.
                let take = if missing > 202 { 200 } else { missing };
                path.push("d".repeat(take - 1));
                missing -= take;
            }
            assert_eq!(keeper.directory(&path).as_os_str().len(), PATH_BYTES_MAX - left);
            // With enough left it works; an error is never one that costs the data.
            if left == 0 || keeper.live(&path).is_err() {
                keeper.refused(&path, "choose a shorter path");
            }
        }
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused_and_not_followed() {
    for keeper in Keeper::all() {
        for name in keeper.names().0 {
            for hard in [false, true] {
                let (root, elsewhere) = (keeper.lived(), tempfile::tempdir().unwrap());
                let (file, other) = (keeper.directory(root.path()).join(name), elsewhere.path().join("other"));
                fs::rename(&file, &other).unwrap();
                let bytes = fs::read(&other).unwrap();
                if hard {
                    fs::hard_link(&other, &file).unwrap()
                } else {
                    symlink(&other, &file).unwrap()
                }
                keeper.refused(root.path(), if hard { "hard link, copy the directory" } else { "remove it" });
                assert_eq!(fs::read(&other).unwrap(), bytes, "{keeper:?} {name}");
            }
        }
    }
}

#[test]
fn a_link_under_the_name_of_an_unfinished_file_is_not_followed() {
    for keeper in Keeper::all() {
        for (name, hard) in keeper.names().1.into_iter().flat_map(|name| [(name, false), (name, true)]) {
            let (fresh, lived, elsewhere) =
                (tempfile::tempdir().unwrap(), keeper.lived(), tempfile::tempdir().unwrap());
            let other = elsewhere.path().join("other");
            fs::write(&other, b"somebody's").unwrap();
            for root in [fresh.path(), lived.path()] {
                let link = keeper.directory(root).join(name);
                fs::create_dir_all(keeper.directory(root)).unwrap();
                if hard {
                    fs::hard_link(&other, &link).unwrap()
                } else {
                    symlink(&other, &link).unwrap()
                }
                let outcome = keeper.live(root);
                assert_eq!(fs::read(&other).unwrap(), b"somebody's", "{keeper:?} {name} hard={hard}");
                // A directory that holds such a name alone may be called foreign.
                let may_refuse = root == fresh.path();
                assert!(outcome.is_ok() || may_refuse && outcome.is_err_and(|e| e.kind() == ErrorKind::Invalid));
            }
        }
    }
}

#[test]
fn a_link_in_the_place_of_the_data_is_refused() {
    for keeper in Keeper::all() {
        let (root, elsewhere) = (keeper.lived(), tempfile::tempdir().unwrap());
        let data = keeper.directory(root.path()).join("data");
        let moved = elsewhere.path().join("data");
        fs::rename(&data, &moved).unwrap();
        symlink(&moved, &data).unwrap();
        let before = fs::read_dir(&moved).unwrap().count();
        keeper.refused(root.path(), "a symbolic link, remove it");
        assert_eq!(fs::read_dir(&moved).unwrap().count(), before, "{keeper:?}");
    }
}

#[test]
fn a_directory_in_which_everybody_may_write_is_refused() {
    for keeper in Keeper::all() {
        let root = keeper.lived();
        let directory = keeper.directory(root.path());
        let ours = match keeper {
            Keeper::Store(_) => vec![directory.parent().unwrap().to_owned(), directory.clone(), directory.join("data")],
            Keeper::Log => vec![directory.join("data")],
        };
        for path in ours {
            set_mode(&path, 0o777);
            keeper.refused(root.path(), "chmod 0700");
            set_mode(&path, 0o700);
        }
        keeper.live(root.path()).unwrap();
    }
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_is() {
    for keeper in Keeper::all() {
        let root = tempfile::tempdir().unwrap();
        let directory = keeper.directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("letter.txt"), b"mine").unwrap();
        keeper.refused(root.path(), "holds");
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["letter.txt"], "{keeper:?}");
        assert_eq!(fs::read(directory.join("letter.txt")).unwrap(), b"mine");
    }
}

#[test]
fn of_openings_at_the_same_time_one_gets_the_directory() {
    const THREADS: usize = 8;
    for keeper in Keeper::all() {
        let (root, start) = (tempfile::tempdir().unwrap(), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    loop {
                        match keeper.live(root.path()) {
                            Ok(()) => return,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{keeper:?}: {}", error.report()),
                        }
                        std::thread::yield_now();
                    }
                });
            }
        });
        if let Keeper::Store(backend) = keeper {
            assert_eq!(epoch_of(&*open_store(backend, root.path()).unwrap()), THREADS as u64);
        }
    }
}

/// Set for the process of another user: the root that it is to open.
const ROOT_OF_ANOTHER: &str = "ONCEFLOW_SECURITY_ROOT";
/// `nobody` on most systems; any user but this one will do.
const ANOTHER_USER: u32 = 65_534;

/// The process of another user. Does nothing in an ordinary test run.
#[test]
fn the_process_of_another_user() {
    let Ok(root) = std::env::var(ROOT_OF_ANOTHER) else { return };
    Keeper::all().for_each(|keeper| drop(keeper.refused(Path::new(&root), "make it writable for this user")));
}

#[test]
fn a_directory_of_another_user_is_a_typed_error() {
    let root = tempfile::tempdir().unwrap();
    // One backend after the other in the same place would meet each other's.
    for keeper in Keeper::all() {
        let _ = fs::remove_dir_all(root.path().join(job().as_str()));
        keeper.live(root.path()).unwrap();
        let directory = keeper.directory(root.path());
        set_mode(&directory, 0o000);
        // Root may do everything: then another user tries.
        let is_root = fs::metadata(root.path()).unwrap().uid() == 0;
        if !is_root {
            keeper.refused(root.path(), "make it writable for this user");
        }
        set_mode(&directory, 0o700);
    }
    if fs::metadata(root.path()).unwrap().uid() == 0 {
        set_mode(root.path(), 0o755);
        // Where this program lies another user may not look.
        let program = root.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        set_mode(&program, 0o755);
        let output = Command::new(&program)
            .args(["--exact", "local_disk::the_process_of_another_user", "--nocapture"])
            .env(ROOT_OF_ANOTHER, root.path())
            .current_dir(root.path())
            .uid(ANOTHER_USER)
            .gid(ANOTHER_USER)
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }
}
