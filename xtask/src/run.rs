//! Child processes.

use crate::{Outcome, paths, rocksdb};
use std::ffi::OsStr;
use std::process::{Command, ExitCode, ExitStatus};

/// `cargo` in the root of the checkout, with the shared build output.
pub(crate) fn cargo<I, S>(args: I) -> Outcome<Command>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(paths::root()).env("CARGO_TARGET_DIR", paths::target()?);
    // Cargo tells this program about its own package. Build scripts that look at these names would run again whenever that
    // changes, with the checkout's folder for one, and all that depends on them be compiled again.
    let own = |name: &OsStr| {
        name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    };
    std::env::vars_os().filter(|(name, _)| own(name)).for_each(|(name, _)| _ = command.env_remove(name));
    rocksdb::link_kept(&mut command)?;
    Ok(command)
}

/// `cargo word` on the package in `folder`, a workspace of its own: with its lock file, and a part of the target folder of
/// its own.
pub(crate) fn cargo_of(folder: &str, word: &str) -> Outcome<Command> {
    let mut cargo = cargo([word, "--locked", "--quiet", "--manifest-path"])?;
    cargo.arg(paths::root().join(folder).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(paths::target()?.join(folder));
    Ok(cargo)
}

/// The command as one would type it, without the folder of the program.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words: Vec<_> = std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// Runs the command to its end and hands back how it ended.
pub(crate) fn status(command: &mut Command) -> Outcome<ExitStatus> {
    eprintln!("$ {}", shown(command));
    command.status().map_err(|error| cannot_run(command, &error))
}

/// Runs the command; anything but success is an error.
pub(crate) fn check(command: &mut Command) -> Outcome {
    let ended = status(command)?;
    succeeded(command, ended)
}

/// The same, with everything that it prints shown when it has ended: for one that runs beside another.
pub(crate) fn check_later(command: &mut Command) -> Outcome {
    let output = command.output().map_err(|error| cannot_run(command, &error))?;
    eprintln!("$ {}", shown(command));
    for printed in [&output.stdout, &output.stderr] {
        eprint!("{}", String::from_utf8_lossy(printed));
    }
    succeeded(command, output.status)
}

fn cannot_run(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run {}: {error}", shown(command))
}

fn succeeded(command: &Command, ended: ExitStatus) -> Outcome {
    if ended.success() { Ok(()) } else { Err(format!("`{}` failed: {ended}", shown(command))) }
}

/// The exit code of a child, as our own.
pub(crate) fn code(ended: ExitStatus) -> ExitCode {
    // Ended by a signal: shells say 128 + signal, which nobody here needs; it only must not be 0.
    ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
