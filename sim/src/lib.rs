//! A deterministic simulation of Onceflow: the production engine, single-threaded and in virtual time, on model brokers, a
//! model network and model disks that fail as real ones do. One seed decides everything; the same seed gives the same run.
//!
//! Never published. `cargo xtask sim --seeds 1..1000` runs a range; `docs/reliability.md` keeps the ledger.
//!
//! ```
//! use onceflow_sim::{Wish, run};
//!
//! let report = run(&Wish::new(7));
//! assert!(report.violations.is_empty(), "{:?}", report.violations);
//! assert_eq!(report.trace, run(&Wish::new(7)).trace);
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `clock` | virtual time |
//! | `dice` | random numbers from a seed |
//! | `broker`, `message` | a model of a broker: commit log, queues, halves, check-backs, crashes |
//! | `world` | brokers, requests under way, connections, the trace |
//! | `trip`, `log` | what happens to a request; the `Log` of one process |
//! | `disk` | stores that forget their last commits, fail or vanish |
//! | `process` | a process that can be killed and paused at any step |
//! | `fault` | kinds of faults, their rates and counts |
//! | `plant` | wrong engines, logs and stores, to be found |
//! | `workload` | jobs with a known answer |
//! | `journal`, `check` | what the brokers hold, and what is wrong with it |
//! | `cut` | crashes at named steps of the protocol, here and in a real process on a real broker |
//! | `matrix` | the crash matrix on model brokers |
//! | `run` | one run: faults, then none, then the checks |

mod broker;
mod check;
mod clock;
#[cfg(test)]
mod contract;
mod cut;
mod dice;
mod disk;
mod fault;
mod journal;
mod log;
mod matrix;
mod message;
mod plant;
mod process;
mod run;
mod trip;
mod workload;
mod world;

pub use check::Violation;
pub use cut::{Crash, Cut, CutLog, CutStores, Cuts, Moment, Step, Victim};
pub use dice::Dice;
pub use fault::{Counts, Fault};
pub use matrix::{Outcome, Stores, crash};
pub use plant::{Plant, Search};
pub use run::{Report, Wish, run};
pub use workload::Workload;
