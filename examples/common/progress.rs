//! The progress line.

use super::grouped;
use onceflow::topology::Subtopology;
use onceflow::{Runtime, Topology};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;
use tokio::time::Instant;

/// Shows how far the job is: on a terminal one line that is redrawn, elsewhere one line a second.
pub struct Progress {
    input_topic: &'static str,
    records: u64,
    /// The subtopologies that read the input, and those that write the output.
    readers: BTreeSet<String>,
    writers: BTreeSet<String>,
    started: Instant,
    shown: Instant,
    redraw: bool,
}

/// What a look at the job found.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    /// Input records whose effects are committed, by this run and all before it.
    pub processed: u64,
    /// Input records that this run has read.
    pub read: u64,
    /// Output records of this run.
    pub output: u64,
    /// Epochs committed by this run.
    pub epochs: u64,
}

impl Progress {
    pub fn new(topology: &Topology, input_topic: &'static str, output_topic: &str, records: u64) -> Progress {
        let named = |wanted: &dyn Fn(&Subtopology) -> bool| {
            topology.subtopologies.iter().filter(|part| wanted(part)).map(|part| part.name.to_string()).collect()
        };
        let readers = named(&|part| part.sources.iter().any(|source| &*source.topic == input_topic));
        let writers = named(&|part| part.sinks.iter().any(|sink| &*sink.topic == output_topic));
        let (started, redraw) = (Instant::now(), std::io::stderr().is_terminal());
        Progress { input_topic, records, readers, writers, started, shown: started, redraw }
    }

    /// What the job has done so far.
    pub fn look(&self, runtime: &Runtime) -> Figures {
        let mut figures = Figures::default();
        for (task, status) in &runtime.status() {
            let of_input = status.offsets.iter().filter(|(partition, _)| &*partition.topic == self.input_topic);
            figures.processed += of_input.map(|(_, next)| next.get()).sum::<u64>();
            figures.epochs += status.protocol.epochs;
            if self.readers.contains(task.subtopology.as_str()) {
                figures.read += status.stages.records_in;
            }
            if self.writers.contains(task.subtopology.as_str()) {
                figures.output += status.stages.records_out;
            }
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
        u64::try_from(u128::from(figures.read) * 1_000 / self.started.elapsed().as_millis().max(1)).unwrap_or(u64::MAX)
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
