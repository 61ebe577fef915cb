//! `cargo xtask test`: every test that CI runs.
//!
//! Tests that need a broker are marked `#[ignore = "needs a broker: cargo xtask test"]`, and nothing else is. They find
//! in their environment:
//!
//! | variable | is |
//! | --- | --- |
//! | `ONCEFLOW_NAME_SERVER` | a broker's name server; half messages are checked back after 3 s, every 2 s |
//! | `ONCEFLOW_CHECK_BACK_SECONDS`, `ONCEFLOW_CHECKS_MAX` | how long one check-back may take there, and how many there are |
//! | `ONCEFLOW_BROKER_RESTART` | a shell command that restarts that broker and waits until it serves |
//! | `ONCEFLOW_BROKER_CRASH` | one that kills it with SIGKILL, starts it again and waits until it serves |
//! | `ONCEFLOW_BROKER_KILL`, `ONCEFLOW_BROKER_START` | the two halves of that |
//! | `ONCEFLOW_ROCKETMQ_VERSION` | the version of the brokers |
//! | `ONCEFLOW_ACL_NAME_SERVER`, `ONCEFLOW_ACL_USER`, `ONCEFLOW_ACL_PASSWORD` | one with access control |
//! | `ONCEFLOW_ACL_ADMIN` | the beginning of a shell command: RocketMQ's admin tool on that one, as the super user |
//! | `ONCEFLOW_XTASK` | this program, to start brokers of their own (`broker`) and to run the Java clients (`java`) |
//! | `ONCEFLOW_LONG` | `1` with `--long`: more records, more kills |
//! | `ONCEFLOW_LONG_DONE` | the folder where parts of a long run that are done are noted, so that it can be broken off |

use crate::bench::guard;
use crate::broker::{Instance, StartOptions, VERSION, VERSION_OLDEST, scratch};
use crate::machine::{BROKER, JAVA_CLIENTS, Need, ROCKSDB};
use crate::steps::Steps;
use crate::{Outcome, book, containers, java, run, sim, soak};
use std::process::{Command, ExitCode};

/// The cases of the protocol model that are searched to their end in under a minute together.
const MODEL_CASES: [&str; 10] = ["P11", "P12", "P13", "P14", "P15", "P16", "P17", "P18", "R2", "R4"];
/// The tests that show whether a version behaves as the rules assume.
const CALIBRATION: [&str; 4] = ["--test", "calibration", "--test", "rocketmq"];
/// A crash at every step of the protocol.
const CRASH_MATRIX: [&str; 2] = ["--test", "broker_crash"];
/// Rights on the broker with access control: most of their time goes by in starting RocketMQ's admin tool, and RocketMQ keeps a
/// core busy when such a broker has ended half messages.
const ACCESS_CONTROL: [&str; 4] = ["--test", "rocketmq_acl", "--test", "security_broker"];
/// The name of their step.
const ACCESS_CONTROL_STEP: &str = "access control on a real broker";
/// How the names of those tests begin.
const ACCESS_CONTROL_TESTS: &str = "access_control_";
/// How often the open broker asks about a half message.
const CHECKS_MAX: u32 = 3;
/// What the broker with access control lets in. Not a secret: it listens on loopback, and only while tests run.
const ACL: (&str, &str) = ("onceflow", "onceflow-test");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also the long runs: more records, more kills
    #[arg(long)]
    long: bool,
    /// Leave out the tests that need a real broker
    #[arg(long)]
    no_broker: bool,
}

pub(crate) fn main(args: &Args) -> ExitCode {
    let mut steps = Steps::default();
    add(&mut steps, args);
    steps.finish()
}

/// `cargo xtask crash`: the crash matrix alone.
#[derive(clap::Args)]
pub(crate) struct CrashArgs {
    /// Every step with every victim on every store; a run that was broken off goes on where it was
    #[arg(long)]
    long: bool,
    /// RocketMQ's version
    #[arg(long = "version", value_name = "VERSION", default_value = VERSION)]
    broker_version: String,
}

pub(crate) fn crash(args: &CrashArgs) -> ExitCode {
    let mut steps = Steps::default();
    let needs: Vec<Need> = [ROCKSDB, BROKER, JAVA_CLIENTS].concat();
    let tests = Args { long: args.long, no_broker: false };
    steps.run("crash matrix on a real broker", &needs, || {
        on_broker(&tests, &args.broker_version, (&CRASH_MATRIX, &[]), run::check)
    });
    steps.finish()
}

/// Adds the steps to those of another command.
pub(crate) fn add(steps: &mut Steps, args: &Args) {
    steps.run("tests, default features", &[], || run::check(&mut tests(&[], args)?));
    // In release: the broker client takes minutes to compile, so it is done in one profile only.
    steps.run("tests, all features", ROCKSDB, || run::check(&mut tests(&["--release", "--all-features"], args)?));
    steps.run("protocol model, complete cases", &[], model);
    steps.run("guide, built by mdBook", &[], book::step);
    steps.run("dimensions from databases", &[], || run::check(&mut run::cargo_of("sqlx", "test")?));
    steps.run("simulation", ROCKSDB, || sim::step(args.long));
    steps.run("CPU time per record, against a baseline", ROCKSDB, guard::step);
    let oldest = format!("calibration and contract on RocketMQ {VERSION_OLDEST}");
    if args.no_broker {
        for step in ["tests on a real broker", &oldest, containers::STEP, ACCESS_CONTROL_STEP, "soak"] {
            steps.skip(step, "left out by --no-broker");
        }
        return;
    }
    let needs: Vec<Need> = [ROCKSDB, BROKER, JAVA_CLIENTS].concat();
    let others = ["--skip", ACCESS_CONTROL_TESTS];
    steps.run("tests on a real broker", &needs, || on_broker(args, VERSION, (&["--tests"], &others), run::check));
    let calibrated = || on_broker(args, VERSION_OLDEST, (&CALIBRATION, &[]), run::check_later);
    steps.run_beside(&oldest, &needs, calibrated, |steps| containers::add(steps, &[], args.long));
    let (name, minutes) = if args.long { ("soak, an hour, 240 kills", 60) } else { ("soak, 3 minutes, 12 kills", 3) };
    let controlled = || on_broker(args, VERSION, (&ACCESS_CONTROL, &[ACCESS_CONTROL_TESTS]), run::check_later);
    steps.run_beside(ACCESS_CONTROL_STEP, &needs, controlled, |steps| {
        steps.run(name, &needs, || soak::soak(&soak::Args::of(minutes)));
    });
}

fn tests(words: &[&str], args: &Args) -> Outcome<Command> {
    let mut cargo = run::cargo(["test", "--workspace"])?;
    cargo.args(words);
    if args.long {
        cargo.env("ONCEFLOW_LONG", "1").env("ONCEFLOW_LONG_DONE", sim::done_folder()?);
    }
    Ok(cargo)
}

/// Runs the cases and reads the verdicts: a case that is left out or stops at a limit proves nothing.
fn model() -> Outcome {
    let mut cargo = run::cargo(["run", "--release", "--quiet", "-p", "onceflow-model", "--", "-q"])?;
    cargo.args(MODEL_CASES);
    eprintln!("$ {}", run::shown(&cargo));
    let output = cargo.stderr(std::process::Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    eprint!("{text}");
    let complete = |case: &&str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(*case)).unwrap_or_default();
        line.trim_end().ends_with(" ok complete")
    };
    let open: Vec<&str> = MODEL_CASES.iter().copied().filter(|case| !complete(case)).collect();
    match (output.status.success(), open.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("not `ok complete`: cases={open:?}")),
        (false, _) => Err(format!("the model failed: {}", output.status)),
    }
}

/// How a command is run, and its output shown.
type Check = fn(&mut Command) -> Outcome;

/// Which tests: words for cargo, and words for the tests' programs.
type Which<'w> = (&'w [&'w str], &'w [&'w str]);

/// Starts two brokers, runs the tests, and removes the brokers whatever happened. If this program is killed, the guard
/// kills them.
fn on_broker(args: &Args, version: &str, which: Which<'_>, check: Check) -> Outcome {
    java::compile()?;
    let folder = scratch("test")?;
    let open = Instance::open(&folder.join("open"))?;
    let closed = Instance::open(&folder.join("acl"))?;
    let result = tested(args, version, which, [&open, &closed], check);
    let removed = open.destroy().and(closed.destroy());
    let _ = std::fs::remove_dir(&folder);
    result.and(removed)
}

fn tested(args: &Args, version: &str, which: Which<'_>, [open, closed]: [&Instance; 2], check: Check) -> Outcome {
    let (version, bound_to) = (Some(version.to_owned()), Some(std::process::id()));
    let bound = StartOptions { version: version.clone(), bound_to, ..StartOptions::default() };
    let checks = StartOptions {
        tx_timeout_ms: Some(3000),
        tx_check_interval_ms: Some(2000),
        tx_check_max: Some(CHECKS_MAX),
        ..bound.clone()
    };
    let acl = StartOptions { acl_user: Some(ACL.0.to_owned()), acl_password: Some(ACL.1.to_owned()), ..bound };
    let mut cargo = tests(&["--release", "--all-features"], args)?;
    cargo.env("ONCEFLOW_NAME_SERVER", open.start(Some(0), &checks)?);
    cargo.env("ONCEFLOW_ACL_NAME_SERVER", closed.start(Some(0), &acl)?);
    cargo.env("ONCEFLOW_ACL_USER", ACL.0).env("ONCEFLOW_ACL_PASSWORD", ACL.1);
    let xtask = std::env::current_exe().map_err(|error| error.to_string())?;
    let of = |instance: &Instance, action: &str| {
        format!("'{}' broker {action} --dir '{}'", xtask.display(), instance.dir().display())
    };
    let broker = |action: &str| of(open, action);
    cargo.env("ONCEFLOW_ACL_ADMIN", of(closed, "admin"));
    let kill = format!("{} --only broker", broker("kill"));
    let start = format!("{} --bound-to {}", broker("start"), std::process::id());
    let crash = format!("{kill} && {start}");
    let restart = format!("{} --bound-to {}", broker("restart"), std::process::id());
    cargo.env("ONCEFLOW_CHECK_BACK_SECONDS", "15").env("ONCEFLOW_CHECKS_MAX", CHECKS_MAX.to_string());
    cargo.env("ONCEFLOW_BROKER_RESTART", restart).env("ONCEFLOW_BROKER_CRASH", crash);
    cargo.env("ONCEFLOW_BROKER_KILL", kill).env("ONCEFLOW_BROKER_START", start);
    cargo.env("ONCEFLOW_XTASK", xtask).envs(version.map(|version| ("ONCEFLOW_ROCKETMQ_VERSION", version)));
    // One at a time: they kill and restart brokers, and two cores hold no more.
    check(cargo.args(which.0).args(["--", "--ignored", "--test-threads=1", "--show-output"]).args(which.1))
}
