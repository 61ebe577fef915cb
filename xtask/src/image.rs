//! `cargo xtask image`: an image with a RocketMQ of one version, `onceflow-rocketmq:VERSION`.
//!
//! It is made on this machine and needs no registry of images: the Java runtime of this machine, the shared libraries
//! that it links to, and RocketMQ's jars from Maven. There is no shell in it; what runs is `java`. `--official`, or
//! `ONCEFLOW_OFFICIAL_IMAGE=1`, takes `apache/rocketmq:VERSION` instead, and pulls it.
//!
//! ```text
//! /opt/java                     the runtime
//! /opt/rocketmq/lib/*.jar       name server, broker, admin tool
//! /lib..., /usr/lib...          shared libraries, where they lie on this machine
//! /tmp, /etc                    empty
//! ```

use crate::broker::{VERSION, server_jars};
use crate::docker::{Engine, docker, printed, try_java};
use crate::machine::{self, BROKER};
use crate::steps::Trouble;
use crate::{Outcome, paths, run};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The repository of the images made here.
const OWN: &str = "onceflow-rocketmq";
/// The project's own images.
const OFFICIAL: &str = "apache/rocketmq";
/// Changes with the form of the image, so that an older one is made anew.
const RECIPE: u32 = 2;
/// What RocketMQ's jars bring along as native code (RocksDB, compression) links to these; and older C libraries load
/// theirs for host names by name. Those that this machine lacks are built into its C library.
const NATIVE: [&str; 10] = [
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
    "libcrypt.so.1",
    "libnss_dns.so.2",
    "libnss_files.so.2",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// RocketMQ's version
    #[arg(long, default_value = VERSION)]
    version: String,
    /// Pull the project's own image instead of making one
    #[arg(long)]
    official: bool,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    let _engine = Engine::ensure().map_err(|missing| missing.0)?;
    let repository = if args.official { pull(&args.version)? } else { ensure(&args.version)? };
    let image = format!("{repository}:{}", args.version);
    usable(&image).map_err(|(Trouble::Failed(why) | Trouble::Missing(why))| why)?;
    println!("{image}");
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that containers of the image run. One made here whose Java does not start is worse than none, and is removed.
pub(crate) fn usable(image: &str) -> Result<(), Trouble> {
    let tried = try_java(image);
    if matches!(tried, Err(Trouble::Failed(_))) && image.starts_with(OWN) {
        let _ = printed(&mut docker(["image", "rm", "--force", image]));
    }
    tried
}

/// Makes sure that there is an image of that version, and returns its repository.
pub(crate) fn ensure(version: &str) -> Outcome<&'static str> {
    if std::env::var_os("ONCEFLOW_OFFICIAL_IMAGE").is_some_and(|set| set != "0") {
        pull(version)
    } else {
        make(version)
    }
}

fn pull(version: &str) -> Outcome<&'static str> {
    let image = format!("{OFFICIAL}:{version}");
    if printed(&mut docker(["image", "inspect", &image])).is_err() {
        run::check(docker(["pull", &image]).stdout(std::io::stderr()))?;
    }
    Ok(OFFICIAL)
}

fn make(version: &str) -> Outcome<&'static str> {
    machine::ensure(BROKER).map_err(|missing| missing.0)?;
    let jars = server_jars(version)?;
    let java = Java::here()?;
    let image = format!("{OWN}:{version}");
    let inputs = format!("recipe {RECIPE}, java {}", java.version);
    let label = "{{index .Config.Labels \"onceflow.inputs\"}}";
    if printed(&mut docker(["image", "inspect", "--format", label, &image])).is_ok_and(|made_of| made_of == inputs) {
        return Ok(OWN);
    }
    eprintln!("xtask: making the image {image}");
    let folder = paths::make(&paths::cache()?.join("docker"))?.join(format!("image-{}", std::process::id()));
    let made = fill(&folder, &java, &jars).and_then(|()| import(&folder, &image, &inputs));
    let _ = fs::remove_dir_all(&folder);
    made.map(|()| OWN)
}

/// The Java runtime of this machine.
struct Java {
    home: PathBuf,
    version: String,
}

impl Java {
    fn here() -> Outcome<Self> {
        let output = Command::new("java").args(["-XshowSettings:properties", "-version"]).stdin(Stdio::null()).output();
        let text = output.map_err(|error| format!("cannot run java: {error}"))?.stderr;
        let text = String::from_utf8_lossy(&text).into_owned();
        let property = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix('='));
            line.map(|value| value.trim().to_owned()).ok_or_else(|| format!("java does not say its {name}"))
        };
        Ok(Java { home: property("java.home")?.into(), version: property("java.runtime.version")? })
    }

    /// The files of the runtime: what a JDK has beyond one is left out.
    fn copy(&self, to: &Path) -> Outcome {
        for part in ["bin/java", "conf", "lib"] {
            copy(&self.home.join(part), &to.join(part))?;
        }
        Ok(())
    }
}

/// Lays out the image's root.
fn fill(root: &Path, java: &Java, jars: &Path) -> Outcome {
    let _ = fs::remove_dir_all(root);
    for folder in ["tmp", "etc", "opt"] {
        paths::make(&root.join(folder))?;
    }
    let all = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(root.join("tmp"), all).map_err(|error| error.to_string())?;
    java.copy(&root.join("opt/java"))?;
    copy(jars, &root.join("opt/rocketmq/lib"))?;
    for library in libraries(&root.join("opt/java"))? {
        copy(&library, &root.join(library.strip_prefix("/").unwrap_or(&library)))?;
    }
    Ok(())
}

/// Copies a file or a folder with all that its links lead to. A link that leads nowhere on this machine is left out.
fn copy(from: &Path, to: &Path) -> Outcome {
    let bad = |error: std::io::Error| format!("cannot copy {}: {error}", from.display());
    let Ok(kind) = fs::metadata(from) else { return Ok(()) };
    if kind.is_dir() {
        paths::make(to)?;
        for entry in fs::read_dir(from).map_err(bad)? {
            let name = entry.map_err(bad)?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    // A JDK's own archives: of no use at run time, and large.
    if from.extension().is_some_and(|extension| extension == "zip") {
        return Ok(());
    }
    paths::make(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map_err(bad).map(|_| ())
}

/// The shared libraries that the runtime links to, by the absolute paths under which the loader looks for them.
fn libraries(java: &Path) -> Outcome<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    // What comes with the runtime names its own libraries relative to itself. Headless: only the core is looked at.
    for program in ["bin/java", "lib/server/libjvm.so", "lib/libnet.so", "lib/libnio.so", "lib/libzip.so"] {
        let output =
            Command::new("ldd").arg(java.join(program)).output().map_err(|e| format!("cannot run ldd: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        found.extend(text.lines().filter_map(linked).filter(|library| !library.starts_with(java)));
    }
    let known = Command::new("/sbin/ldconfig").arg("-p").output().map_err(|e| format!("cannot run ldconfig: {e}"))?;
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    // The first match is the one that the loader would take.
    found.extend(NATIVE.iter().filter_map(|name| known.lines().find_map(|line| located(line, name))));
    Ok(found)
}

/// The path in a line of `ldd`: `name => path (address)`, or `path (address)` for the loader.
fn linked(line: &str) -> Option<PathBuf> {
    let path = line.split("=>").last()?.split_whitespace().next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The path in a line of `ldconfig -p`, `name (kind) => path`, if it is about that library.
fn located(line: &str, library: &str) -> Option<PathBuf> {
    let (name, path) = line.trim().split_once("=>")?;
    (name.split_whitespace().next()? == library).then(|| PathBuf::from(path.trim()))
}

/// Hands the folder to the engine as an image of one layer, which needs no builder.
fn import(root: &Path, image: &str, inputs: &str) -> Outcome {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(root).args(["--owner=0", "--group=0", "-cf", "-", "."]);
    let mut tar = tar.stdout(Stdio::piped()).spawn().map_err(|error| format!("cannot run tar: {error}"))?;
    let stream = tar.stdout.take().ok_or("tar has no output")?;
    let mut docker = docker(["import"]);
    let changes = [
        "ENV PATH=/opt/java/bin JAVA_HOME=/opt/java ROCKETMQ_HOME=/opt/rocketmq LANG=C.UTF-8".to_owned(),
        format!("LABEL onceflow.inputs=\"{inputs}\""),
        "ENTRYPOINT [\"java\"]".to_owned(),
    ];
    for change in changes {
        docker.args(["--change", &change]);
    }
    let imported = printed(docker.args(["-", image]).stdin(stream));
    let packed = tar.wait().map_err(|error| error.to_string())?;
    imported.map_err(|why| format!("docker import failed: {why}"))?;
    if packed.success() { Ok(()) } else { Err(format!("tar failed: {packed}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_what_the_tools_print() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(linked("\tlibz.so.1 => /lib/x/libz.so.1 (0x00007f)"), path("/lib/x/libz.so.1"));
        assert_eq!(linked("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"), path("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(linked("\tlibX11.so.6 => not found"), None);
        assert_eq!(linked("\tlinux-vdso.so.1 (0x00007f)"), None);
        let line = "\tlibm.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x/libm.so.6";
        assert_eq!(located(line, "libm.so.6"), path("/lib/x/libm.so.6"));
        assert_eq!(located(line, "libdl.so.2"), None);
    }
}
