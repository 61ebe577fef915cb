//! Runs a process under `shim.c`.

use crate::recording::{self, Call};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::Duration;
use tempfile::TempDir;

/// Set for the process: whose life it lives, its seed and how many steps.
pub const CHILD: &str = "ONCEFLOW_POWER_CHILD";
/// The test that the process runs.
pub const CHILD_TEST: &str = "the_process";
/// The directory that is watched.
pub const WATCH: &str = "ONCEFLOW_POWER_WATCH";
/// No run takes longer than seconds; one that hangs is a finding.
const RUN_TIME_MAX: Duration = Duration::from_secs(240);

pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;

/// What is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// See `classes` in the shim.
    pub class: char,
    pub number: usize,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// This call answers EIO, later ones work.
    Once,
    /// This call, and all later ones that need space, answer ENOSPC.
    Full,
    /// This write writes its first half.
    Short,
    /// This sync works, and takes 10 s.
    Slow,
}

/// A new directory, in memory where that is possible: what a sync would wait for is in the recording.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// The compiled shim; `None`, loudly, where there is no C compiler or it cannot work.
pub fn shim() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    LIBRARY.get_or_init(build).as_ref().map(|(_, library)| &**library)
}

fn build() -> Option<(TempDir, PathBuf)> {
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        eprintln!("NOT RUN: power loss and faulty storage need Linux on x86-64 or arm64");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/shim.c");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    match compiled {
        Ok(status) if status.success() => Some((folder, library)),
        Ok(status) => panic!("shim.c does not compile: {status}"),
        Err(error) => {
            eprintln!("NOT RUN: power loss and faulty storage: there is no C compiler `cc`: {error}");
            None
        }
    }
}

static LOOKING: RwLock<()> = RwLock::new(());

/// To be held while something is open in this process.
pub fn looking() -> RwLockReadGuard<'static, ()> {
    LOOKING.read().unwrap_or_else(PoisonError::into_inner)
}

/// What a process was and did.
pub struct Run {
    pub calls: Vec<Call>,
    pub success: bool,
    /// What it printed
    pub output: String,
}

/// Runs this program's [`CHILD_TEST`] with `order`, and returns what it did below `watched`.
pub fn run(library: &Path, order: &str, watched: &Path, fault: Option<Fault>) -> Run {
    let folder = scratch();
    let log = folder.path().join("calls");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads=1"])
        .env(CHILD, order)
        .env(WATCH, watched)
        .env("ONCEFLOW_POWER_LOG", &log)
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(fault) = fault {
        let (errno, sticky) = match fault.how {
            How::Once => (EIO, 0),
            How::Full => (ENOSPC, 1),
            How::Short => (0, 0),
            How::Slow => (-2, 0),
        };
        command.env("ONCEFLOW_POWER_FAULT", format!("{} {} {errno} {sticky}", fault.class, fault.number));
    }
    let mut child = {
        // Between its fork and its exec the process holds all our files, and with them the locks of what is looked at.
        let _alone = LOOKING.write().unwrap_or_else(PoisonError::into_inner);
        command.spawn().unwrap()
    };
    let mut errors = child.stderr.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    // Reads to the end, which comes with the process.
    let reader = std::thread::spawn(move || {
        let mut text = vec![];
        std::io::Read::read_to_end(&mut errors, &mut text).unwrap();
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    let output = receiver.recv_timeout(RUN_TIME_MAX);
    if output.is_err() {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    reader.join().unwrap();
    let output = output.unwrap_or_else(|_| format!("hangs: {fault:?}\n{}", receiver.recv().unwrap_or_default()));
    Run { calls: recording::read(&log), success: status.success(), output }
}
