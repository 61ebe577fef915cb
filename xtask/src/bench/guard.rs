//! The regression guard: a step of `cargo xtask test`. What a record costs the engine, in parts of what the least work costs
//! in the same process (`benches/workload/guard.rs`). CPU time, not time: a busy machine does not fail it.

use super::ours;
use crate::{Outcome, run};
use std::process::Command;

/// The workload, its records and keys, and the largest ratio: 2.5 times what was measured when the limit was set, so that
/// only a real regression breaks it.
const LIMITS: [(&str, u64, u64, f64); 4] = [
    ("w1", 1_000_000, 10_000, 170.0),
    ("w2", 1_000_000, 10_000, 170.0),
    ("w3", 2_000_000, 10_000, 45.0),
    ("w4", 200_000, 100_000, 300.0),
];

/// Measures all workloads; every one that is too expensive is named.
pub(crate) fn step() -> Outcome {
    // All features: that build is there, from the tests.
    let program = ours::build(&["bench", "--bench", "workload", "--workspace", "--all-features"])?;
    let mut broken = Vec::new();
    for (workload, records, keys, ratio_max) in LIMITS {
        let mut guard = Command::new(&program);
        guard.args(["--workload", workload, "--log", "embedded", "--store", "memory", "--delivery", "framed"]);
        guard.args(["--records", &records.to_string(), "--keys", &keys.to_string(), "--guard", &ratio_max.to_string()]);
        if !run::status(&mut guard)?.success() {
            broken.push(workload);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("too expensive, or not exact: {}", broken.join(" "))) }
}
