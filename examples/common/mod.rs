//! What the examples share: options, opening a log and a state store, writing the input once, running the job with a
//! progress line, and reading topics again to check the result. The programs themselves are in the example files.

pub mod input;
pub mod options;
pub mod place;
pub mod progress;
pub mod run;
pub mod topic;

use onceflow::types::{ErrorKind, Result};
pub use options::Options;
pub use place::Place;
use std::process::ExitCode;

/// How an example ended.
pub enum Ending {
    /// The output was checked against the input, and is right or not.
    Checked(bool),
    /// Somebody stopped it before all was done.
    Stopped,
}

/// Runs an example to its end: the summary's last line and the exit code. 0: verified; 1: not verified, or an error;
/// 2: the input or an option is wrong; 130: stopped.
pub fn main(example: impl AsyncFnOnce(Options) -> Result<Ending>) -> ExitCode {
    let options = <Options as clap::Parser>::parse();
    let ending = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| onceflow::types::Error::invalid("async runtime cannot be started").with_source(e))
        .and_then(|runtime| runtime.block_on(example(options)));
    match ending {
        Ok(Ending::Checked(true)) => {
            println!("verified: ok");
            ExitCode::SUCCESS
        }
        Ok(Ending::Checked(false)) => {
            println!("verified: FAILED");
            ExitCode::FAILURE
        }
        Ok(Ending::Stopped) => {
            println!("stopped: run it again to go on");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {}: {}", error.kind().as_str(), error.report());
            ExitCode::from(if error.kind() == ErrorKind::Invalid { 2 } else { 1 })
        }
    }
}

/// A number with commas: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
