//! What the operating system says about processes. Linux; elsewhere the figures are missing, not invented.

use std::time::Duration;

/// Kernel clock ticks per second (`USER_HZ`, 100 on every Linux that Rust runs on).
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time so far: of this process, and of the broker. What ended before is in neither.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    own: Option<Duration>,
    broker: Option<Duration>,
}

impl Usage {
    pub fn now(broker: Option<u32>) -> Usage {
        Usage { own: cpu_of("self"), broker: broker.and_then(|pid| cpu_of(&pid.to_string())) }
    }

    pub fn since(self, before: Usage) -> Usage {
        let between = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Usage { own: between(self.own, before.own), broker: between(self.broker, before.broker) }
    }

    /// CPU seconds per million of so many records, of this process and of the broker.
    pub fn per_million(self, records: u64) -> [Option<f64>; 2] {
        [self.own, self.broker].map(|cpu| Some(cpu?.as_secs_f64() * 1e6 / records as f64))
    }

    pub fn seconds(self) -> [Option<f64>; 2] {
        [self.own, self.broker].map(|cpu| cpu.map(|cpu| cpu.as_secs_f64()))
    }
}

/// User and system time of a process so far.
pub fn cpu_of(process: &str) -> Option<Duration> {
    cpu_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn cpu_in(stat: &str) -> Option<Duration> {
    // Behind the command in parentheses; fields 14 and 15 of the whole line.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// The largest resident size since the start, in MB.
pub fn rss_peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}
