//! Several steps, each printed with its time, and one table at the end.

use crate::machine::{self, Need};
use crate::wait::Stopwatch;
use crate::{Outcome, machine::Missing, rocksdb};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

enum End {
    Passed,
    Failed(String),
    Skipped(String),
}

struct Row {
    name: String,
    time: Duration,
    end: End,
}

/// Why a step did not pass.
pub(crate) enum Trouble {
    /// It ran and failed, or could not run for a reason that somebody must look at.
    Failed(String),
    /// The machine cannot do it: the step is skipped.
    Missing(String),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(why) => End::Failed(why),
            Trouble::Missing(what) => End::Skipped(what),
        }
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble::Failed(why)
    }
}

impl From<Missing> for Trouble {
    fn from(Missing(what): Missing) -> Self {
        Trouble::Missing(what)
    }
}

/// The steps done so far. A failed step does not stop the later ones: one run shows everything that is wrong.
#[derive(Default)]
pub(crate) struct Steps {
    rows: Vec<Row>,
}

impl Steps {
    /// Runs one step, after what it needs is there; what is missing and cannot be installed makes it a skipped one.
    pub(crate) fn run(&mut self, name: &str, needs: &[Need], body: impl FnOnce() -> Outcome) {
        self.run_if_able(name, needs, || Ok(body()?));
    }

    /// The same for a step that finds out by trying whether the machine can do it.
    pub(crate) fn run_if_able(&mut self, name: &str, needs: &[Need], body: impl FnOnce() -> Result<(), Trouble>) {
        eprintln!("\n=== {name}");
        let watch = Stopwatch::start();
        let end = able(needs).and_then(|()| body()).map_or_else(End::from, |()| End::Passed);
        self.end(name, watch.elapsed(), end);
    }

    /// Runs a step while others run, which `meanwhile` adds. For one that mostly waits, and shows what it prints at its end.
    pub(crate) fn run_beside(
        &mut self,
        name: &str,
        needs: &[Need],
        body: impl FnOnce() -> Outcome + Send,
        meanwhile: impl FnOnce(&mut Self),
    ) {
        eprintln!("\n=== {name}, beside the next step");
        if let Err(trouble) = able(needs) {
            self.end(name, Duration::ZERO, trouble.into());
            return meanwhile(self);
        }
        std::thread::scope(|scope| {
            let step = scope.spawn(|| {
                let watch = Stopwatch::start();
                (body(), watch.elapsed())
            });
            meanwhile(self);
            let (end, time) = step.join().unwrap_or_else(|_| (Err("panicked".to_owned()), Duration::ZERO));
            self.end(name, time, end.map_or_else(End::Failed, |()| End::Passed));
        });
    }

    /// Notes a step that was not run, and why.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        eprintln!("\n=== {name}");
        self.end(name, Duration::ZERO, End::Skipped(why.to_owned()));
    }

    fn end(&mut self, name: &str, time: Duration, end: End) {
        match &end {
            End::Passed => eprintln!("=== {name}: passed in {:.1} s", time.as_secs_f64()),
            End::Failed(why) => eprintln!("=== {name}: FAILED after {:.1} s: {why}", time.as_secs_f64()),
            End::Skipped(why) => eprintln!("=== {name}: SKIPPED, DID NOT RUN: {why}"),
        }
        self.rows.push(Row { name: name.to_owned(), time, end });
    }

    /// Prints the table and, as the last line, the counts. Success only if no step failed.
    pub(crate) fn finish(&self) -> ExitCode {
        print!("{}", self.table());
        if self.count(|end| matches!(end, End::Failed(_))) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn count(&self, wanted: impl Fn(&End) -> bool) -> usize {
        self.rows.iter().filter(|row| wanted(&row.end)).count()
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut text = String::from("\n");
        for Row { name, time, end } in &self.rows {
            let (word, why) = match end {
                End::Passed => ("passed", ""),
                End::Failed(why) => ("FAILED", why.as_str()),
                End::Skipped(why) => ("SKIPPED", why.as_str()),
            };
            let line = format!("{name:<width$}  {:>8.1} s  {word:<7}  {why}", time.as_secs_f64());
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let passed = self.count(|end| matches!(end, End::Passed));
        let failed = self.count(|end| matches!(end, End::Failed(_)));
        let skipped = self.count(|end| matches!(end, End::Skipped(_)));
        let _ = write!(text, "{passed} passed, {failed} failed");
        if skipped > 0 {
            let _ = write!(text, ", {skipped} skipped");
        }
        text.push('\n');
        text
    }
}

/// Brings what a step needs. One that builds RocksDB links the library that was compiled before.
fn able(needs: &[Need]) -> Result<(), Trouble> {
    machine::ensure(needs)?;
    if needs.contains(&Need::CxxCompiler) { Ok(rocksdb::ensure()?) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_the_steps() {
        let mut steps = Steps::default();
        steps.run("good", &[], || Ok(()));
        assert!(steps.table().ends_with("\n1 passed, 0 failed\n"));
        steps.run("bad", &[], || Err("why".to_owned()));
        steps.skip("absent", "no broker wanted");
        steps.run_if_able("unable", &[], || Err(Trouble::Missing("no engine".to_owned())));
        assert!(steps.table().ends_with("\n1 passed, 1 failed, 2 skipped\n"));
        steps.run_beside("beside", &[], || Err("late".to_owned()), |steps| steps.run("meanwhile", &[], || Ok(())));
        assert!(steps.table().ends_with("\n2 passed, 2 failed, 2 skipped\n"));
        assert!(steps.table().contains("SKIPPED  no broker wanted"));
        assert!(steps.table().contains("SKIPPED  no engine"));
    }
}
