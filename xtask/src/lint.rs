//! `cargo xtask lint`: formatting, lints, licences and advisories, as CI checks them.

use crate::machine::ROCKSDB;
use crate::steps::Steps;
use crate::{deny, run};
use std::process::ExitCode;

pub(crate) fn main() -> ExitCode {
    let mut steps = Steps::default();
    add(&mut steps);
    steps.finish()
}

/// Adds the steps to those of another command.
pub(crate) fn add(steps: &mut Steps) {
    steps.run("formatting", &[], || {
        run::check(&mut run::cargo(["fmt", "--all", "--check"])?)?;
        // Workspaces of their own.
        ["book/Cargo.toml", "containers/Cargo.toml", "sqlx/Cargo.toml"]
            .into_iter()
            .try_for_each(|manifest| run::check(&mut run::cargo(["fmt", "--manifest-path", manifest, "--check"])?))
    });
    steps.run("lints, default features", &[], || {
        run::check(&mut run::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?)
    });
    // In release, because that is where RocksDB and the broker client are built anyway.
    steps.run("lints, all features", ROCKSDB, || {
        let words = ["clippy", "--release", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
        run::check(&mut run::cargo(words)?)
    });
    deny::add(steps);
}
