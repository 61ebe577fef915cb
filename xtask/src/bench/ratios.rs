//! How ours compares with the peers: the medians of the same workload, divided.

use super::table::Row;
use serde_json::Value;
use std::fmt::Write as _;

/// What is compared: the figure, what to say of it, and whether more of it is better.
const FIGURES: [(&str, &str, &str, bool); 5] = [
    ("throughput", "records_per_s", "records a second", true),
    ("throughput", "cpu_s_per_million", "CPU of the application", false),
    ("throughput", "rss_peak_mb", "peak memory of the application", false),
    ("latency", "p99_ms", "p99", false),
    ("restore", "restore_empty_s", "start with empty state", false),
];

/// Each of our rows against each peer's row of the same workload, a line a row. Empty when no peer was measured.
pub(super) fn ratios(results: &[Value]) -> String {
    let rows = Row::all(results);
    let (ours, peers): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rows.iter().partition(|row| row.text("system") == "onceflow");
    let mut text = String::new();
    for row in ours {
        let same = |peer: &&&Row<'_>| is_same_work(row, peer);
        for peer in peers.iter().filter(same) {
            let figures = FIGURES.iter().filter(|figure| figure.0 == row.kind());
            let said: Vec<String> = figures.filter_map(|figure| said(row, peer, figure)).collect();
            if !said.is_empty() {
                let _ = writeln!(text, "- {} against {}: {}", name(row), peer.text("system"), said.join(", "));
            }
        }
    }
    text
}

/// RocketMQ Streams does not bear as many records or keys: less work is held against it.
fn is_same_work(ours: &Row<'_>, peer: &Row<'_>) -> bool {
    let texts = ["workload", "kind"].iter().all(|key| peer.text(key) == ours.text(key));
    let numbers = ["records", "keys", "rate"].iter().all(|key| peer.number(key) == ours.number(key));
    texts && (numbers || peer.text("system") == "rmqstreams")
}

fn said(ours: &Row<'_>, peer: &Row<'_>, figure: &(&str, &str, &str, bool)) -> Option<String> {
    let (_, key, word, more_is_better) = figure;
    let ratio = ours.median(key)? / peer.median(key)?;
    let number = if *more_is_better { format!("{ratio:.1} times") } else { format!("{ratio:.3} of") };
    Some(format!("{number} its {word}"))
}

fn name(row: &Row<'_>) -> String {
    let settings = ["epoch_ms", "latency_target_ms"].map(|key| Some(format!("{key}={}", row.number(key)?)));
    let words = ["workload", "log", "store", "delivery"].map(|key| row.text(key).to_owned());
    words.into_iter().chain(settings.into_iter().flatten()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn medians_of_the_same_workload_are_divided() {
        let run = |system: &str, workload: &str, per_s: u64, cpu: f64| {
            json!({"kind": "throughput", "system": system, "workload": workload, "log": "rocketmq", "store": "rocksdb",
                "delivery": "framed", "epoch_ms": 200, "records_per_s": per_s, "cpu_s_per_million": cpu})
        };
        let mut more_keys = run("kstreams", "w1", 1, 1.0);
        more_keys["keys"] = json!(100_000);
        let results = [
            run("onceflow", "w1", 300, 1.0),
            run("onceflow", "w1", 400, 1.0),
            run("flink", "w1", 140, 5.0),
            run("flink", "w2", 1, 1.0),
            more_keys,
        ];
        let text = "- w1 rocketmq rocksdb framed epoch_ms=200 against flink: 2.5 times its records a second, 0.200 of its CPU of the application\n";
        assert_eq!(ratios(&results), text);
        assert_eq!(ratios(&results[..2]), "");
    }
}
