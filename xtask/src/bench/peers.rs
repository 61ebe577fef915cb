//! Other stream processors on the same work, beside ours: a project of its own, in a folder that the caller names, whose
//! `peers.py` runs one of them once and prints one JSON object. Nothing of it is part of this repository.

use super::Args;
use crate::{Outcome, run};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// The peers by the names that the project gives them, with the time between their commits, in ms: the defaults of their
/// exactly-once modes. RocketMQ Streams has no such mode.
const COMMITS: [(&str, Option<u64>); 3] = [("kstreams", Some(100)), ("flink", Some(1_000)), ("rmqstreams", None)];
/// RocketMQ Streams handles some hundred records a second.
const RECORDS_SLOW: u64 = 20_000;
/// ... and loses some, or comes to a stop: how long to wait for it, in seconds.
const WAIT_SLOW: u64 = 120;
/// Records a second that RocketMQ Streams bears, and keys.
const RATE_SLOW: (u64, u64) = (200, 100);

/// One run of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    peer: String,
    workload: String,
    /// Milliseconds between commits.
    commit: Option<u64>,
    measured: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Throughput { records: u64, keys: Option<u64> },
    Latency { rate: u64, seconds: u64, warm: u64, keys: Option<u64> },
    Restore { keys: u64 },
}

/// Compiles the peers.
pub(super) fn build(folder: &Path) -> Outcome {
    run::check(
        Command::new("mvn").args(["-q", "-B", "package", "-DskipTests"]).current_dir(folder).stdin(Stdio::null()),
    )
}

/// The runs of the peers on one workload.
pub(super) fn runs(args: &Args, workload: &str) -> Vec<Run> {
    let known = COMMITS.into_iter().filter(|(peer, _)| args.peer.iter().any(|chosen| chosen == peer));
    known
        .filter_map(|(peer, commit)| {
            Some(Run {
                peer: peer.to_owned(),
                workload: workload.to_owned(),
                commit,
                measured: what(args, peer, workload)?,
            })
        })
        .collect()
}

/// What can be measured of a peer.
fn what(args: &Args, peer: &str, workload: &str) -> Option<What> {
    let slow = peer == "rmqstreams";
    if slow && workload == "w4" {
        return None; // It joins only within one window.
    }
    if let Some(keys) = args.restore {
        return (peer == "kstreams" && workload == "w1").then_some(What::Restore { keys });
    }
    if let Some(rate) = args.latency {
        let (rate, keys) = if slow { (RATE_SLOW.0, Some(RATE_SLOW.1)) } else { (rate, args.keys) };
        return Some(What::Latency { rate, seconds: args.seconds.unwrap_or(30), warm: args.warm.unwrap_or(15), keys });
    }
    let records = if slow { RECORDS_SLOW } else { args.records_of(workload)? };
    Some(What::Throughput { records, keys: args.keys })
}

impl Run {
    /// What `peers.py` is told.
    fn words(&self) -> Vec<String> {
        let number = |name: &'static str, value: u64| (name, value.to_string());
        let mut options = vec![number("reps", 1)];
        match self.measured {
            What::Throughput { records, keys } => {
                options.push(number("n", records));
                options.extend(keys.map(|keys| number("keys", keys)));
            }
            What::Latency { rate, seconds, warm, keys } => {
                options.push(("run", "lat".to_owned()));
                options.extend([number("rate", rate), number("secs", seconds), number("warm", warm)]);
                options.extend(keys.map(|keys| number("keys", keys)));
            }
            What::Restore { keys } => {
                options.extend([("run", "restore".to_owned()), ("dist", "seq".to_owned())]);
                options.extend([number("n", keys), number("keys", keys)]);
            }
        }
        options.extend(self.commit.map(|commit| number("commit", commit)));
        options.extend((self.peer == "rmqstreams").then(|| number("limit", WAIT_SLOW)));
        let options = options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
        [self.peer.clone(), self.workload.clone()].into_iter().chain(options).collect()
    }

    /// Runs the peer once. One that fails has a row without figures.
    pub(super) fn measure(&self, folder: &Path) -> Outcome<Value> {
        let mut python = Command::new("python3");
        python.arg("peers.py").args(self.words()).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::inherit());
        eprintln!("$ {}", run::shown(&python));
        let output = python.output().map_err(|error| format!("cannot run {}: {error}", run::shown(&python)))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = text.lines().rev().find_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object);
        let result = self.result(&said.unwrap_or_default());
        eprintln!("{result}");
        Ok(result)
    }

    /// In the words of our own results.
    fn result(&self, said: &Value) -> Value {
        let mut result = self.described();
        let mut put = |name: &str, path: &[&str]| {
            let found = path.iter().try_fold(said, |value, key| value.get(key));
            if let Some(found) = found.filter(|found| !found.is_null()) {
                result.insert(name.to_owned(), found.clone());
            }
        };
        match self.measured {
            What::Throughput { .. } => {
                put("records_per_s", &["rec_s"]);
                put("records_per_s_cold", &["rec_s_cold"]);
                put("cpu_s_per_million", &["cpu_s_per_m_steady", "app"]);
                put("broker_cpu_s_per_million", &["cpu_s_per_m_steady", "broker"]);
                if self.peer == "rmqstreams" {
                    // It has no steady part; until it stalled, if it did.
                    put("records_per_s", &["out_rec_s_until_stall"]);
                    put("cpu_s_per_million", &["cpu_s_per_m", "app"]);
                    put("broker_cpu_s_per_million", &["cpu_s_per_m", "broker"]);
                }
                put("exact", &["exact"]);
            }
            What::Latency { .. } => {
                for name in ["p50_ms", "p99_ms", "p999_ms", "max_ms", "samples"] {
                    put(name, &["lat", name]);
                }
                put("producer_lag_max_ms", &["producer_max_lag_ms"]);
                put("failed", &["failed"]);
            }
            What::Restore { .. } => {
                put("restore_empty_s", &["restore", "launch_to_running_s"]);
                put("restore_only_s", &["restore", "restore_only_s"]);
                put("exact", &["exact"]);
            }
        }
        put("rss_peak_mb", &["rss_peak_mb", "app"]);
        put("other_cpu_share", &["other_cpu_share"]);
        Value::Object(result)
    }

    fn described(&self) -> Map<String, Value> {
        let usual = if self.workload == "w4" { 100_000 } else { 10_000 };
        let (kind, numbers) = match self.measured {
            What::Throughput { records, keys } => {
                ("throughput", json!({ "records": records, "keys": keys.unwrap_or(usual) }))
            }
            What::Latency { rate, keys, seconds, warm } => {
                ("latency", json!({ "rate": rate, "records": rate * (seconds + warm), "keys": keys.unwrap_or(usual) }))
            }
            What::Restore { keys } => ("restore", json!({ "records": keys, "keys": keys })),
        };
        let log = if self.peer == "rmqstreams" { "rocketmq" } else { "kafka" };
        let common = json!({
            "kind": kind, "system": self.peer, "workload": self.workload, "log": log, "epoch_ms": self.commit, "threads": 1,
        });
        let objects = [common, numbers].into_iter().filter_map(|value| value.as_object().cloned());
        objects.flatten().filter(|(_, value)| !value.is_null()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    const LINE: &str = "--log rocketmq --store rocksdb --delivery framed --peers /p --peer kstreams,flink,rmqstreams";

    fn words(more: &str, workload: &str) -> Vec<String> {
        let args = parse(&format!("--workload {workload} {LINE} {more}")).unwrap();
        runs(&args, workload).iter().map(|run| run.words().join(" ")).collect()
    }

    #[test]
    fn a_peer_gets_as_much_work_as_ours() {
        let w2 = words("--records 4000000", "w2");
        assert_eq!(w2[0], "kstreams w2 --reps 1 --n 2000000 --commit 100");
        assert_eq!(w2[1], "flink w2 --reps 1 --n 2000000 --commit 1000");
        assert_eq!(w2[2], "rmqstreams w2 --reps 1 --n 20000 --limit 120");
        assert_eq!(words("--records 4000000", "w4").len(), 2, "RocketMQ Streams has no such join");
    }

    #[test]
    fn latency_and_restore_are_asked_for_in_its_words() {
        let latency = words("--latency 5000", "w1");
        assert_eq!(latency[1], "flink w1 --reps 1 --run lat --rate 5000 --secs 30 --warm 15 --commit 1000");
        assert!(latency[2].contains("--rate 200") && latency[2].contains("--keys 100"));
        let restore = words("--restore 1000", "w1");
        assert_eq!(restore, ["kstreams w1 --reps 1 --run restore --dist seq --n 1000 --keys 1000 --commit 100"]);
    }

    #[test]
    fn what_a_peer_says_is_put_in_our_words() {
        let args = parse(&format!("--workload w1 {LINE}")).unwrap();
        let said = json!({"rec_s": 136_375, "cpu_s_per_m_steady": {"app": 8.4, "broker": 2.5},
            "rss_peak_mb": {"app": 894, "broker": 1200}, "exact": true});
        let result = runs(&args, "w1")[0].result(&said);
        assert_eq!((&result["records_per_s"], &result["cpu_s_per_million"]), (&json!(136_375), &json!(8.4)));
        assert_eq!((&result["rss_peak_mb"], &result["exact"]), (&json!(894), &json!(true)));
        assert_eq!(runs(&args, "w1")[0].result(&Value::Null).get("records_per_s"), None);
    }
}
