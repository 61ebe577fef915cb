//! What a run is summed up to: one line.

use crate::faults::Tally;
use crate::watch::{Blow, Watch, percentile};
use onceflow::types::{Error, Result};
use serde::Deserialize;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What the auditor found in one output topic.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) input: u64,
    pub(crate) outputs: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) torn: u64,
    pub(crate) out_of_order: u64,
    pub(crate) wrong: u64,
    pub(crate) conflicting: u64,
    pub(crate) foreign: u64,
    pub(crate) raw_duplicates: u64,
    pub(crate) ended_again: u64,
    pub(crate) sent_again: u64,
}

impl Verdict {
    /// Runs the auditor on two dumps. It says what it found on its standard error, and its figures as the last line of
    /// its standard output.
    pub(crate) fn by(auditor: &Path, input: &Path, output: &Path) -> Result<Verdict> {
        let mut command = Command::new(auditor);
        command.arg("--input").arg(input).arg("--output").arg(output).stderr(std::process::Stdio::inherit());
        let ran = command.output().map_err(|e| Error::invalid("cannot run the auditor").with_source(e))?;
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let line = text.lines().last().unwrap_or_default();
        let bad = |e| Error::invalid(format!("the auditor gave no verdict: {} {text}", ran.status)).with_source(e);
        let verdict: Verdict = serde_json::from_str(line).map_err(bad)?;
        if verdict.is_clean() == ran.status.success() {
            Ok(verdict)
        } else {
            Err(Error::bug(format!("the auditor's figures and its exit code differ: {} {line}", ran.status)))
        }
    }

    /// Nothing lost, doubled, or otherwise wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.torn + self.out_of_order + self.wrong + self.conflicting + self.foreign == 0
    }

    fn add(&mut self, other: &Verdict) {
        self.input = self.input.max(other.input);
        self.outputs += other.outputs;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.torn += other.torn;
        self.out_of_order += other.out_of_order;
        self.wrong += other.wrong;
        self.conflicting += other.conflicting;
        self.foreign += other.foreign;
        self.raw_duplicates += other.raw_duplicates;
        self.ended_again += other.ended_again;
        self.sent_again += other.sent_again;
    }
}

/// Everything that the line says.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) version: String,
    pub(crate) delivery: &'static str,
    pub(crate) store: String,
    pub(crate) processes: u32,
    pub(crate) minutes: u64,
    pub(crate) seed: u64,
    pub(crate) commit: String,
    pub(crate) tally: Tally,
    pub(crate) verdict: Verdict,
    pub(crate) recovery: [(Blow, Duration, Duration); 3],
    /// How long the rest of the input took once nothing was broken any more.
    pub(crate) drain: Duration,
    pub(crate) stop: Duration,
}

/// The sum of the verdicts on all output topics of a run.
pub(crate) fn sum(verdicts: &[Verdict]) -> Verdict {
    let mut sum = Verdict::default();
    for verdict in verdicts {
        sum.add(verdict);
    }
    sum
}

/// Median and 99th percentile of the times to recover.
pub(crate) fn recovery(watch: &Watch) -> [(Blow, Duration, Duration); 3] {
    [Blow::Kill, Blow::Broker, Blow::Pause].map(|blow| {
        let samples = watch.recoveries(blow);
        (blow, percentile(&samples, 50), percentile(&samples, 99))
    })
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ledger { version, delivery, store, processes, minutes, tally, verdict, .. } = self;
        write!(f, "soak: version={version} delivery={delivery} store={store} processes={processes} minutes={minutes}")?;
        write!(f, " records={} outputs={}", verdict.input, verdict.outputs)?;
        write!(f, " processor_kills={} broker_kills={}", tally.processor_kills, tally.broker_kills)?;
        write!(f, " name_server_kills={} pauses={}", tally.name_server_kills, tally.pauses)?;
        write!(f, " network_faults={} gave_up={}", tally.network_faults, tally.gave_up)?;
        write!(f, " lost={} doubled={} torn={}", verdict.lost, verdict.doubled, verdict.torn)?;
        write!(f, " out_of_order={} wrong={}", verdict.out_of_order, verdict.wrong)?;
        write!(f, " conflicting={} foreign={}", verdict.conflicting, verdict.foreign)?;
        write!(f, " raw_duplicates={}", verdict.raw_duplicates)?;
        write!(f, " ended_again={} sent_again={}", verdict.ended_again, verdict.sent_again)?;
        for ((_, half, most), name) in self.recovery.iter().zip(["recovery", "broker_recovery", "takeover"]) {
            write!(f, " {name}_ms_p50={} {name}_ms_p99={}", half.as_millis(), most.as_millis())?;
        }
        write!(f, " drain_ms={} stop_ms={}", self.drain.as_millis(), self.stop.as_millis())?;
        write!(f, " seed={} commit={}", self.seed, self.commit)
    }
}
