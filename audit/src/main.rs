//! Judges what a run of the soak job left in its topics, from what a plain consumer read there.
//!
//! It shares no code with the engine: it depends on no other crate of this repository, reads identities by its own code,
//! written from `docs/formats.md`, and applies the dedup reader's rule by its own code, written from
//! `docs/commit-protocol.md`. What the job should have done it recomputes from the raw input: for each card, in the
//! order in which the output names the payments, count, sum, least and greatest amount.
//!
//! | figure | counts |
//! | --- | --- |
//! | `lost` | payments of the raw input without an output record in the reader view |
//! | `doubled` | output records in the reader view beyond one for each payment |
//! | `out_of_order` | payments of one card and one input queue whose outputs stand in another order; cards in two queues |
//! | `wrong` | output records whose figures do not follow from the ones before; cards whose last figures are not those of all their payments |
//! | `torn` | epochs of which a part is missing, or of which two generations can be seen, or that are mixed |
//! | `conflicting` | messages that say they are one that is there already, and are another; a second half of one record |
//! | `foreign` | messages without a whole identity of the job, or with a body that is none of its own |
//! | `raw_duplicates` | exact copies of a message, identity and body; no fault, see `ended_again` and `sent_again` |
//! | `ended_again` | of these, copies of one half: its END was carried out more than once |
//! | `sent_again` | of these, plain messages: a send was carried out more than once |
//!
//! The figures are printed as one JSON object, findings before it on standard error. The exit code is 0 only when all
//! figures from `lost` to `foreign` are 0.

mod channel;
mod dump;
mod identity;
mod judge;
mod report;

use clap::Parser;
use dump::Dump;
use judge::Judge;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Judges an output topic of the soak job by the raw input
#[derive(Parser)]
struct Args {
    /// The raw input topic, as `cargo xtask java consume` wrote it
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// The raw output topic, likewise
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// The job whose output it is
    #[arg(long, default_value = "soak")]
    job: String,
}

fn main() -> ExitCode {
    match audited(&Args::parse()) {
        Ok(report) => {
            report.findings().for_each(|finding| eprintln!("audit: {finding}"));
            println!("{}", report.json());
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("audit: error: {why}");
            ExitCode::from(2)
        }
    }
}

fn audited(args: &Args) -> Result<Report, String> {
    let mut judge = Judge::new(&args.job);
    for line in Dump::open(&args.input)? {
        judge.input(&line?)?;
    }
    for line in Dump::open(&args.output)? {
        judge.output(&line?);
    }
    Ok(judge.verdict())
}
