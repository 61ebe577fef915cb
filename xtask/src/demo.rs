//! `cargo xtask demo`: the fraud detection example, in release, with default features.

use crate::{Outcome, run};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Options of the example, for instance `--name-server 127.0.0.1:9876`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn main(args: &Args) -> Outcome<ExitCode> {
    let mut words = vec!["run", "--release", "--example", "fraud_detection"];
    // A broker needs its client compiled in; the default build has none.
    if args.options.iter().any(|option| option.starts_with("--name-server")) {
        words.extend(["--features", "rocketmq"]);
    }
    words.push("--");
    run::status(run::cargo(words)?.args(&args.options)).map(run::code)
}
