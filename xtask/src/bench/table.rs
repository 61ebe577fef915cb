//! Results as Markdown: a table for each kind of measurement, a row for each thing measured, with the median of its rounds.

use serde_json::Value;

/// What tells the rows apart.
const IDENTITY: [&str; 14] = [
    "kind",
    "system",
    "workload",
    "log",
    "store",
    "delivery",
    "records",
    "keys",
    "threads",
    "epoch_ms",
    "rate",
    "sync",
    "frames_plain",
    "latency_target_ms",
];
/// The columns, where any row has a value.
const COLUMNS: [&str; 35] = [
    "system",
    "workload",
    "log",
    "store",
    "delivery",
    "records",
    "rate",
    "keys",
    "threads",
    "epoch_ms",
    "latency_target_ms",
    "records_per_s",
    "pump_per_s",
    "of_pump",
    "cpu_s_per_million",
    "broker_cpu_s_per_million",
    "pump_cpu_s_per_million",
    "pump_broker_cpu_s_per_million",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "samples",
    "producer_lag_max_ms",
    "restore_empty_s",
    "restore_empty_cpu_s",
    "restore_present_s",
    "restore_killed_empty_s",
    "restore_killed_present_s",
    "rss_peak_mb",
    "messages",
    "raw_duplicates",
    "failed",
    "other_cpu_share",
    "exact",
];
/// The kinds and what their tables are called.
const KINDS: [(&str, &str); 3] = [("throughput", "Throughput"), ("latency", "Latency"), ("restore", "Restoring state")];

/// All rounds of one thing.
pub(super) struct Row<'r> {
    pub(super) rounds: Vec<&'r Value>,
}

impl<'r> Row<'r> {
    /// The rows, in the order in which they were first measured.
    pub(super) fn all(results: &'r [Value]) -> Vec<Row<'r>> {
        let mut rows: Vec<Row<'r>> = Vec::new();
        for result in results {
            let same = |row: &&mut Row<'r>| {
                IDENTITY.iter().all(|key| row.rounds.iter().all(|of| of.get(key) == result.get(key)))
            };
            match rows.iter_mut().find(same) {
                Some(row) => row.rounds.push(result),
                None => rows.push(Row { rounds: vec![result] }),
            }
        }
        rows
    }

    /// What all rounds have in common.
    pub(super) fn text(&self, key: &str) -> &'r str {
        self.rounds.first().and_then(|result| result.get(key)?.as_str()).unwrap_or_default()
    }

    /// ... of numbers.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.rounds.first()?.get(key)?.as_f64()
    }

    fn values(&self, key: &str) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().filter_map(|result| result.get(key)?.as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// Of the rounds' figures.
    pub(super) fn median(&self, key: &str) -> Option<f64> {
        let values = self.values(key);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(*values.get(middle - 1)?, upper) })
    }

    fn exact(&self) -> String {
        let exact = self.rounds.iter().filter(|result| result.get("exact") == Some(&Value::Bool(true))).count();
        // Some measurements have no output to check.
        let checked = self.rounds.iter().filter(|result| result.get("exact").is_some_and(Value::is_boolean)).count();
        if checked == 0 { String::new() } else { format!("{exact} of {checked}") }
    }

    fn cell(&self, key: &str) -> String {
        if key == "exact" {
            return self.exact();
        }
        if let Some(Value::String(text)) = self.rounds.first().and_then(|result| result.get(key)) {
            return text.clone();
        }
        let (values, Some(median)) = (self.values(key), self.median(key)) else { return String::new() };
        let (Some(lowest), Some(highest)) = (values.first(), values.last()) else { return String::new() };
        let [median, lowest, highest] = [median, *lowest, *highest].map(|value| shown(key, value));
        if lowest == highest { median } else { format!("{median} ({lowest} to {highest})") }
    }
}

/// All tables.
pub(super) fn tables(results: &[Value]) -> String {
    let rows = Row::all(results);
    let of = |(kind, title): (&str, &str)| {
        let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.kind() == kind).collect();
        if rows.is_empty() { String::new() } else { format!("**{title}**\n\n{}\n", table(&rows)) }
    };
    KINDS.map(of).concat()
}

impl Row<'_> {
    /// A run that failed does not say of which kind it was.
    pub(super) fn kind(&self) -> &str {
        match self.text("kind") {
            "" => "throughput",
            kind => kind,
        }
    }
}

fn table(rows: &[&Row<'_>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let filled = |column: &&str| rows.iter().any(|row| !row.cell(column).is_empty());
    let columns: Vec<&str> = COLUMNS.into_iter().filter(filled).collect();
    let head = columns.iter().map(|column| (*column).to_owned()).collect();
    let body = rows.iter().map(|row| line(columns.iter().map(|column| row.cell(column)).collect()));
    line(head) + &line(vec!["---".to_owned(); columns.len()]) + &body.collect::<String>()
}

/// A figure with as many digits as it deserves.
pub(super) fn shown(key: &str, value: f64) -> String {
    let whole = [
        "records",
        "keys",
        "threads",
        "epoch_ms",
        "latency_target_ms",
        "rate",
        "samples",
        "messages",
        "raw_duplicates",
        "failed",
    ];
    let rounded =
        if key.ends_with("_per_s") && value >= 10_000.0 { (value / 1_000.0).round() * 1_000.0 } else { value };
    if whole.contains(&key) || value.abs() >= 100.0 {
        thousands(&format!("{rounded:.0}"))
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// With a comma before each group of three digits.
fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(records_per_s: u64, exact: bool) -> Value {
        json!({"kind": "throughput", "system": "onceflow", "workload": "w1", "records": 1_000_000,
            "records_per_s": records_per_s, "cpu_s_per_million": 0.6543, "exact": exact})
    }

    #[test]
    fn the_rounds_of_one_thing_are_one_row_with_median_and_spread() {
        let results = [run(900_000, true), run(1_200_400, true), run(1_000_000, false)];
        let rows = Row::all(&results);
        assert_eq!((rows.len(), rows[0].median("records_per_s")), (1, Some(1_000_000.0)));
        let text = tables(&results);
        assert!(text.contains("| 1,000,000 (900,000 to 1,200,000) | 0.65 | 2 of 3 |"), "{text}");
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        assert_eq!(Row::all(&[run(1, true), run(4, true)])[0].median("records_per_s"), Some(2.5));
        assert_eq!(Row::all(&[run(1, true)])[0].median("p50_ms"), None);
    }

    #[test]
    fn a_run_that_failed_is_in_the_table() {
        let text = tables(&[run(1, true), json!({"workload": "w2", "exact": false})]);
        assert!(text.lines().any(|line| line.contains("| w2 |") && line.ends_with("| 0 of 1 |")), "{text}");
        assert!(!text.contains("p50_ms"), "columns that nobody fills are left out: {text}");
    }

    #[test]
    fn figures_have_the_digits_they_deserve() {
        assert_eq!(shown("records_per_s", 1_234_567.0), "1,235,000");
        assert_eq!(shown("records", 20_000.0), "20,000");
        assert_eq!(
            [shown("p50_ms", 71.84), shown("p50_ms", 3.146), shown("rss_peak_mb", 134.6)],
            ["71.8", "3.15", "135"]
        );
    }
}
