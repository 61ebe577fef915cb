//! The progress line.

use super::grouped;
use onceflow::{Runtime, Topology};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;
use tokio::time::Instant;

/// Shows how far the job is: on a terminal one line that is redrawn, elsewhere one line a second.
pub struct Progress {
    input_topic: &'static str,
    records: u64,
    /// The subtopologies that write the output.
    writers: BTreeSet<String>,
    started: Instant,
    shown: Instant,
    redraw: bool,
    /// Where the job was when this program first looked at it.
    first: Option<u64>,
}

/// What a look at the job found.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    /// Input records whose effects are committed, by this run and all before it.
    pub processed: u64,
    /// Output records of this run.
    pub output: u64,
    /// Epochs committed by this run.
    pub epochs: u64,
}

impl Progress {
    pub fn new(topology: &Topology, input_topic: &'static str, output_topic: &str, records: u64) -> Progress {
        let writes = topology.subtopologies.iter().filter(|part| part.sinks.iter().any(|s| &*s.topic == output_topic));
        let writers = writes.map(|part| part.name.to_string()).collect();
        let (started, redraw) = (Instant::now(), std::io::stderr().is_terminal());
        Progress { input_topic, records, writers, started, shown: started, redraw, first: None }
    }

    /// What the job has done so far.
    pub fn look(&mut self, runtime: &Runtime) -> Figures {
        let mut figures = Figures::default();
        let status = runtime.status();
        for (task, status) in &status {
            let of_input = status.offsets.iter().filter(|(partition, _)| &*partition.topic == self.input_topic);
            figures.processed += of_input.map(|(_, next)| next.get()).sum::<u64>();
            figures.epochs += status.protocol.epochs;
            if self.writers.contains(task.subtopology.as_str()) {
                figures.output += status.stages.records_out;
            }
        }
        if self.first.is_none() && status.values().all(|task| task.generation.is_some()) {
            self.first = Some(figures.processed);
        }
        figures
    }

    pub fn show(&mut self, runtime: &Runtime) {
        let every = Duration::from_millis(if self.redraw { 100 } else { 1_000 });
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let figures = self.look(runtime);
        let line = format!(
            "{:6.1} s  records {} of {}  output {}  epochs {}  {}/s",
            self.started.elapsed().as_secs_f64(),
            grouped(figures.processed),
            grouped(self.records),
            grouped(figures.output),
            grouped(figures.epochs),
            grouped(self.rate(figures)),
        );
        if self.redraw {
            eprint!("\r{line}\x1b[K");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Records a second of this run.
    pub fn rate(&self, figures: Figures) -> u64 {
        let done = u128::from(figures.processed.saturating_sub(self.first.unwrap_or(figures.processed)));
        u64::try_from(done * 1_000 / self.started.elapsed().as_millis().max(1)).unwrap_or(u64::MAX)
    }

    /// Takes the line away.
    pub fn end(&self) {
        if self.redraw {
            eprint!("\r\x1b[K");
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
