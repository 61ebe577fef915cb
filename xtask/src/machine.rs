//! What a step needs from the operating system. It is installed through apt when that is allowed (root, Debian or
//! Ubuntu); otherwise the exact command to run is named. This, Maven and cargo's own downloads are the only ways this program
//! uses the network.

use crate::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something a step cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// libclang with its headers: the bindings of RocksDB are generated while it is built.
    Libclang,
    /// A C++ compiler: RocksDB is built from source, once.
    CxxCompiler,
    /// A Java runtime: RocketMQ's servers.
    Java,
    /// A Java compiler: the Java test clients.
    Javac,
    /// Maven: resolves the jars, once.
    Maven,
    /// A Docker engine and its command, installed; whether it runs is another matter (`docker.rs`).
    Docker,
}

/// What a build with the feature `rocksdb` needs.
pub(crate) const ROCKSDB: &[Need] = &[Need::CxxCompiler, Need::Libclang];
/// What a broker on this machine needs.
pub(crate) const BROKER: &[Need] = &[Need::Java, Need::Maven];
/// What the Java test clients need the first time.
pub(crate) const JAVA_CLIENTS: &[Need] = &[Need::Java, Need::Javac, Need::Maven];

/// What the machine lacks, and the command that installs it.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

/// Makes sure that everything in `needs` is there.
pub(crate) fn ensure(needs: &[Need]) -> Result<(), Missing> {
    let lacking = |needs: &[Need]| needs.iter().copied().filter(|need| !present(*need)).collect::<Vec<_>>();
    let before = lacking(needs);
    if before.is_empty() {
        return Ok(());
    }
    if !(is_root() && on_path("apt-get")) {
        return Err(missing(&before, ""));
    }
    install(&before).map_err(|why| missing(&before, &why))?;
    let after = lacking(needs);
    if after.is_empty() { Ok(()) } else { Err(missing(&after, "apt-get installed the packages, but they do not help")) }
}

/// Whether a program is on the search path.
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn present(need: Need) -> bool {
    match need {
        Need::Libclang => libclang(),
        Need::CxxCompiler => std::env::var_os("CXX").is_some() || on_path("c++") || on_path("g++"),
        Need::Java => on_path("java"),
        Need::Javac => on_path("javac"),
        Need::Maven => on_path("mvn"),
        Need::Docker => on_path("docker") && on_path("dockerd"),
    }
}

/// The library and, in a folder of its own, the compiler's headers (`stddef.h`), both of which the generator reads.
fn libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let mut libraries: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from).into();
    libraries.extend(folders("/usr/lib").filter(|dir| name(dir).ends_with("-linux-gnu")));
    let llvm: Vec<PathBuf> = folders("/usr/lib").filter(|dir| name(dir).starts_with("llvm-")).collect();
    libraries.extend(llvm.iter().map(|dir| dir.join("lib")));
    let library = libraries.iter().any(|dir| {
        std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            file.starts_with("libclang.so") || file.starts_with("libclang-") && file.contains(".so")
        })
    });
    let headers = llvm.iter().map(|dir| dir.join("lib/clang")).chain([PathBuf::from("/usr/lib/clang")]);
    let header = |versions: PathBuf| folders(versions).any(|dir| dir.join("include/stddef.h").is_file());
    library && headers.into_iter().any(header)
}

fn folders(dir: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn packages(needs: &[Need], clang: u32) -> Vec<String> {
    let of = |need: &Need| match need {
        Need::Libclang => vec![format!("libclang1-{clang}"), format!("libclang-common-{clang}-dev")],
        Need::CxxCompiler => vec!["g++".to_owned()],
        Need::Java => vec!["default-jre-headless".to_owned()],
        Need::Javac => vec!["default-jdk-headless".to_owned()],
        Need::Maven => vec!["maven".to_owned()],
        // The engine cannot publish a port without iptables, and only recommends it.
        Need::Docker => vec!["docker.io".to_owned(), "iptables".to_owned()],
    };
    needs.iter().flat_map(of).collect()
}

fn missing(needs: &[Need], why: &str) -> Missing {
    let command = format!("apt-get install -y --no-install-recommends {}", packages(needs, clang_version()).join(" "));
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    Missing(format!("this machine lacks {needs:?}{why}; run: {command}"))
}

/// The oldest libclang that the package lists offer and the generator accepts: the newer, the larger.
fn clang_version() -> u32 {
    const OLDEST: u32 = 14;
    let listed = Command::new("apt-cache").args(["search", "--names-only", "^libclang1-[0-9]+$"]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let numbers =
        text.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("libclang1-")?.parse().ok());
    numbers.filter(|version| *version >= OLDEST).min().unwrap_or(OLDEST)
}

fn install(needs: &[Need]) -> Result<(), String> {
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        // Standard output belongs to the command that was asked for.
        apt.stdout(std::io::stderr());
        apt
    };
    run::check(apt().args(["update", "-qq"]))?;
    let packages = packages(needs, clang_version());
    run::check(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_command_that_installs_it() {
        let Missing(text) = missing(&[Need::Maven, Need::Java], "");
        assert!(text.contains("[Maven, Java]"), "{text}");
        assert!(text.ends_with("install -y --no-install-recommends maven default-jre-headless"), "{text}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-of-onceflow"));
    }
}
