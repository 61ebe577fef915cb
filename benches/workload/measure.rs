//! What the operating system says about processes. Linux; elsewhere the figures are missing, not invented.

use std::time::Duration;

/// Kernel clock ticks per second (`USER_HZ`, 100 on every Linux that Rust runs on).
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time so far: of this process, of the broker, and of the whole machine.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    own: Option<Duration>,
    broker: Option<Duration>,
    /// With guests and stolen time.
    machine: Option<Duration>,
}

impl Usage {
    pub fn now(broker: Option<u32>) -> Usage {
        let machine = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| busy_in(&stat));
        Usage { own: cpu_of("self"), broker: broker.and_then(|pid| cpu_of(&pid.to_string())), machine }
    }

    pub fn since(self, before: Usage) -> Usage {
        let between = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        let machine = between(self.machine, before.machine);
        Usage { own: between(self.own, before.own), broker: between(self.broker, before.broker), machine }
    }

    /// The share of the machine's CPU that others had in so many seconds.
    pub fn other_share(self, seconds: f64) -> Option<f64> {
        let known = self.own? + self.broker.unwrap_or_default();
        let cores = std::thread::available_parallelism().ok()?.get() as f64;
        Some(self.machine?.saturating_sub(known).as_secs_f64() / (seconds * cores))
    }

    /// CPU seconds per million of so many records, of this process and of the broker.
    pub fn per_million(self, records: u64) -> [Option<f64>; 2] {
        [self.own, self.broker].map(|cpu| Some(cpu?.as_secs_f64() * 1e6 / records as f64))
    }

    pub fn seconds(self) -> [Option<f64>; 2] {
        [self.own, self.broker].map(|cpu| cpu.map(|cpu| cpu.as_secs_f64()))
    }
}

/// What all processes had: all fields of the first line but idle and waiting for disks.
fn busy_in(stat: &str) -> Option<Duration> {
    let fields = stat.lines().next()?.split_whitespace().skip(1).take(8);
    let ticks: Vec<f64> = fields.map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(Duration::from_secs_f64((ticks.iter().sum::<f64>() - idle) / TICKS_PER_SECOND))
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

/// Microseconds since 1970: the clock that the processes of a run share.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time, across processes")]
pub fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as i64
}
