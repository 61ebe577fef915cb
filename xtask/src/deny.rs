//! `cargo deny`: licences, banned crates, where crates come from, and known vulnerabilities (`deny.toml`).

use crate::steps::Steps;
use crate::{Outcome, machine, paths, run};
use std::path::PathBuf;
use std::process::Command;

/// Adds the steps to those of another command. The program is installed once, into the cache, when it is missing; the
/// list of vulnerabilities is fetched, and that it could not be is said and no failure.
pub(crate) fn add(steps: &mut Steps) {
    let program = match program() {
        Ok(program) => program,
        Err(why) => {
            let why = format!(
                "cargo-deny is missing and cannot be installed ({why}); run: cargo install cargo-deny --locked"
            );
            steps.skip("licences and sources of crates", &why);
            return steps.skip("known vulnerabilities", &why);
        }
    };
    let deny = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--log-level", "error"]).args(words).current_dir(paths::root());
        command
    };
    steps.run("licences and sources of crates", &[], || {
        run::check(&mut deny(&["check", "bans", "licenses", "sources"]))
    });
    if run::check(&mut deny(&["fetch", "db"])).is_err() {
        return steps.skip("known vulnerabilities", "ADVISORIES WERE NOT CHECKED: their list cannot be fetched here");
    }
    steps.run("known vulnerabilities", &[], || run::check(&mut deny(&["check", "--disable-fetch", "advisories"])));
}

/// The installed program, from the search path or the cache.
fn program() -> Outcome<PathBuf> {
    if machine::on_path("cargo-deny") {
        return Ok("cargo-deny".into());
    }
    let root = paths::cache()?.join("tools");
    let kept = root.join("bin/cargo-deny");
    if !kept.is_file() {
        eprintln!("installing cargo-deny once; this takes about five minutes on two cores");
        let words = ["install", "cargo-deny", "--locked", "--quiet", "--root"];
        run::check(run::cargo(words)?.arg(&root))?;
    }
    Ok(kept)
}
