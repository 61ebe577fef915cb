//! From kept results to the tables and charts of `docs/benchmarks.md`.

use super::chart::{Bar, Colour, Group, svg};
use super::ratios;
use super::table::{self, Row, shown};
use crate::{Outcome, paths};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What is between these lines is made by this program.
const BEGIN: &str = "<!-- Made by `cargo xtask bench --report`: begin -->";
const END: &str = "<!-- Made by `cargo xtask bench --report`: end -->";

/// A chart: its file, which results it shows, and what of them.
struct Picture {
    file: &'static str,
    title: &'static str,
    kind: &'static str,
    /// Whether of the embedded log, or of a broker and the peers.
    embedded: bool,
    figures: &'static [&'static str],
}

const PICTURES: [Picture; 7] = [
    Picture {
        file: "throughput-broker.svg",
        title: "Records a second, with a broker",
        kind: "throughput",
        embedded: false,
        figures: &["records_per_s"],
    },
    Picture {
        file: "cpu-broker.svg",
        title: "CPU seconds of the application per million records, with a broker (less is better)",
        kind: "throughput",
        embedded: false,
        figures: &["cpu_s_per_million"],
    },
    Picture {
        file: "memory-broker.svg",
        title: "Peak memory of the application in MB, with a broker (less is better)",
        kind: "throughput",
        embedded: false,
        figures: &["rss_peak_mb"],
    },
    Picture {
        file: "throughput-embedded.svg",
        title: "Records a second, embedded log",
        kind: "throughput",
        embedded: true,
        figures: &["records_per_s"],
    },
    Picture {
        file: "latency-broker.svg",
        title: "Latency in ms, with a broker (less is better)",
        kind: "latency",
        embedded: false,
        figures: &["p50_ms", "p99_ms"],
    },
    Picture {
        file: "latency-embedded.svg",
        title: "Latency in ms, embedded log (less is better)",
        kind: "latency",
        embedded: true,
        figures: &["p50_ms", "p99_ms"],
    },
    Picture {
        file: "restore.svg",
        title: "Seconds from process start to running, with a broker and an empty state folder (less is better)",
        kind: "restore",
        embedded: false,
        figures: &["restore_empty_s"],
    },
];

/// Writes tables and charts of all results in these files.
pub(super) fn write(files: &[PathBuf]) -> Outcome {
    let mut results = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        results.extend(parsed(&text).map_err(|why| format!("{}: {why}", file.display()))?);
    }
    let docs = paths::root().join("docs");
    let pictures = draw(&results, &docs.join("benchmarks"))?;
    let page = docs.join("benchmarks.md");
    let text = std::fs::read_to_string(&page).map_err(|error| format!("cannot read {}: {error}", page.display()))?;
    let text = replaced(&text, &section(&results, &pictures)).ok_or("docs/benchmarks.md lacks the marked lines")?;
    paths::write(&page, &text)?;
    eprintln!("docs/benchmarks.md: {} results, {} charts", results.len(), pictures.len());
    Ok(())
}

fn parsed(text: &str) -> Outcome<Vec<Value>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).map_err(|error| format!("not a result: {error}: {line}"))).collect()
}

/// Draws what there are figures for; the files and titles of the charts.
fn draw(results: &[Value], folder: &Path) -> Outcome<Vec<(&'static str, &'static str)>> {
    let rows = Row::all(results);
    let mut drawn = Vec::new();
    paths::make(folder)?;
    for picture in &PICTURES {
        let groups = picture.groups(&rows);
        let file = folder.join(picture.file);
        if !groups.is_empty() {
            paths::write(&file, &svg(picture.title, &groups))?;
            drawn.push((picture.file, picture.title));
        } else if file.exists() {
            std::fs::remove_file(&file).map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
        }
    }
    Ok(drawn)
}

fn section(results: &[Value], pictures: &[(&str, &str)]) -> String {
    let all = |key: &str| -> BTreeSet<&str> { results.iter().filter_map(|result| result.get(key)?.as_str()).collect() };
    let joined = |key: &str| all(key).into_iter().collect::<Vec<_>>().join("; ");
    let mut text = format!("Measured {} on: {}.\n\n", joined("date"), joined("machine"));
    for (file, title) in pictures {
        let _ = write!(text, "![{title}](benchmarks/{file})\n\n");
    }
    text += &table::tables(results);
    let ratios = ratios::ratios(results);
    if !ratios.is_empty() {
        let _ = write!(text, "**Ours against the peers** (medians)\n\n{ratios}\n");
    }
    text
}

/// The page with what is between the marked lines replaced.
fn replaced(page: &str, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{section}{END}{after}"))
}

impl Picture {
    /// The bars of each workload.
    fn groups(&self, rows: &[Row<'_>]) -> Vec<Group> {
        let shown = |row: &&Row<'_>| row.kind() == self.kind && (row.text("log") == "embedded") == self.embedded;
        let rows: Vec<&Row<'_>> = rows.iter().filter(shown).collect();
        let workloads: BTreeSet<&str> = rows.iter().map(|row| row.text("workload")).collect();
        let group = |workload: &str| {
            let of_it = rows.iter().filter(|row| row.text("workload") == workload);
            let bars = of_it.flat_map(|row| self.bars(row)).collect();
            Group { name: workload.to_uppercase(), bars }
        };
        workloads.into_iter().map(group).filter(|group| !group.bars.is_empty()).collect()
    }

    fn bars(&self, row: &Row<'_>) -> Vec<Bar> {
        let ours = row.text("system") == "onceflow";
        let colour = if ours { Colour::Ours } else { Colour::Peer };
        let named = |key: &str| {
            if self.figures.len() > 1 { format!(", {}", key.trim_end_matches("_ms")) } else { String::new() }
        };
        let bar = |key: &&str| bar(row, key, &format!("{}{}", label(row), named(key)), colour);
        let mut bars: Vec<Bar> = self.figures.iter().filter_map(bar).collect();
        if self.figures == ["records_per_s"] {
            bars.extend(super::report::bar(row, "pump_per_s", "its bare pump", Colour::Pump));
        }
        bars
    }
}

fn bar(row: &Row<'_>, key: &str, label: &str, colour: Colour) -> Option<Bar> {
    let value = row.median(key)?;
    Some(Bar { label: label.to_owned(), value, shown: shown(key, value), colour })
}

/// What tells the row from the others of its workload.
fn label(row: &Row<'_>) -> String {
    if row.text("system") != "onceflow" {
        return row.text("system").to_owned();
    }
    let usual_keys = if row.text("workload") == "w4" { 100_000.0 } else { 10_000.0 };
    let unusual = [
        ("keys", usual_keys, "keys"),
        ("threads", 1.0, "threads"),
        ("epoch_ms", 200.0, "ms"),
        ("latency_target_ms", 0.0, "ms target"),
    ];
    let unusual = unusual.into_iter().filter_map(|(key, usual, unit)| {
        let value = row.median(key).filter(|value| (value - usual).abs() > 0.5 && row.kind() != "restore")?;
        Some(format!("{} {unit}", shown(key, value)))
    });
    let words = ["system", "store", "delivery"].map(|key| row.text(key).to_owned());
    words.into_iter().chain(unusual).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn results() -> Vec<Value> {
        let ours = json!({"kind": "throughput", "system": "onceflow", "workload": "w1", "log": "rocketmq", "store": "fjall",
            "delivery": "outbox", "keys": 100_000, "records_per_s": 200_000.0, "pump_per_s": 250_000.0,
            "date": "2026-01-02", "machine": "a machine"});
        let peer = json!({"kind": "throughput", "system": "flink", "workload": "w1", "log": "kafka", "keys": 100_000,
            "records_per_s": 100_000.0});
        vec![ours, peer]
    }

    #[test]
    fn a_chart_has_ours_the_pump_and_the_peers() {
        let results = results();
        let groups = PICTURES[0].groups(&Row::all(&results));
        let labels: Vec<&str> = groups[0].bars.iter().map(|bar| &*bar.label).collect();
        assert_eq!((groups.len(), &*groups[0].name), (1, "W1"));
        assert_eq!(labels, ["onceflow fjall outbox 100,000 keys", "its bare pump", "flink"]);
        assert!(PICTURES[3].groups(&Row::all(&results)).is_empty(), "nothing was measured on the embedded log");
    }

    #[test]
    fn only_what_is_between_the_marked_lines_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let text = replaced(&page, &section(&results(), &[("a.svg", "A")])).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("\nafter\n") && !text.contains("old"));
        assert!(text.contains("Measured 2026-01-02 on: a machine.") && text.contains("![A](benchmarks/a.svg)"));
        assert!(text.contains("- w1 rocketmq fjall outbox against flink: 2.0 times its records a second"));
        assert_eq!(replaced("no such lines", ""), None);
    }

    #[test]
    fn a_line_that_is_no_result_is_named() {
        assert_eq!(parsed("{\"a\":1}\n\n{\"b\":2}\n").unwrap().len(), 2);
        assert!(parsed("half").unwrap_err().contains("half"));
    }
}
