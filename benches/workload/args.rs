//! What a run is told.

use crate::programs::Workload;
use crate::spec::{Arrival, Generator};
use clap::Parser;
use onceflow::Config;
use onceflow::storage::Backend;
use onceflow::topology::Delivery;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser, Debug)]
pub struct Args {
    #[arg(long, default_value = "w1")]
    pub workload: Workload,
    #[arg(long, default_value = "embedded", value_parser = ["embedded", "rocketmq"])]
    pub log: String,
    #[arg(long, default_value = "fjall")]
    pub store: Backend,
    #[arg(long, default_value = "framed", value_parser = ["transactional", "outbox", "framed"])]
    pub delivery: String,
    #[arg(long, default_value_t = 1_000_000, overrides_with = "records")]
    pub records: u64,
    /// Different keys [default: 10000; w4: 100000].
    #[arg(long)]
    pub keys: Option<u64>,
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Write the result here.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The name server of a running broker, for `--log rocketmq`,
    #[arg(long)]
    pub name_server: Option<String>,
    /// ... and the broker's process, whose CPU time is told apart.
    #[arg(long)]
    pub broker_pid: Option<u32>,
    /// Where log and state go; a temporary directory by default.
    #[arg(long, overrides_with = "dir")]
    pub dir: Option<PathBuf>,
    /// Time between commits, in ms.
    #[arg(long, default_value_t = 200)]
    pub epoch_ms: u64,
    /// How long a record may take, in ms: epochs are as long as that leaves room for, at most `epoch_ms`.
    #[arg(long)]
    pub latency_target_ms: Option<u64>,
    /// Put frames out uncompressed
    #[arg(long)]
    pub frames_plain: bool,
    /// Ask the disk to sync each append of the embedded log.
    #[arg(long)]
    pub sync: bool,
    /// Then run the bare pump, and compare.
    #[arg(long)]
    pub pump: bool,
    #[arg(long, hide = true, value_delimiter = ',')]
    pub pump_load: Vec<u64>,
    /// Measure the latency at this many records a second instead,
    #[arg(long, value_name = "RATE")]
    pub latency: Option<u64>,
    /// ... for so many seconds,
    #[arg(long, default_value_t = 30)]
    pub seconds: u64,
    /// ... after so many.
    #[arg(long, default_value_t = 15)]
    pub warm: u64,
    /// When the first record is due, in microseconds since 1970.
    #[arg(long, hide = true, default_value_t = 0)]
    pub begin_us: i64,
    /// Measure the time to restore this many keys instead (the work is W1, each key once).
    #[arg(long, value_name = "KEYS")]
    pub restore: Option<u64>,
    /// Measure CPU time in parts of a baseline's instead, and fail above this ratio.
    #[arg(long, value_name = "RATIO")]
    pub guard: Option<f64>,
    /// Tells the topics of this run apart on a broker.
    #[arg(long, hide = true)]
    pub run: Option<u32>,
    /// Do only this part, in a process of its own, so that its memory and CPU time are not counted.
    #[arg(long, hide = true, overrides_with = "role")]
    pub role: Option<Role>,
    // Cargo passes this to every benchmark.
    #[arg(long, hide = true)]
    pub bench: bool,
}

/// The parts that are processes of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Role {
    /// Writes the input.
    Load,
    /// The bare pump.
    Pump,
    /// Sends records as they are due.
    Produce,
    /// Reads the output as it comes.
    Consume,
    /// A start of the job, which ends with a drain,
    StartDrain,
    /// ... or as if it were killed.
    StartKill,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Load => "load",
            Role::Pump => "pump",
            Role::Produce => "produce",
            Role::Consume => "consume",
            Role::StartDrain => "start-drain",
            Role::StartKill => "start-kill",
        }
    }
}

impl Args {
    pub fn keys(&self) -> u64 {
        self.restore.or(self.keys).unwrap_or(self.workload.keys())
    }

    pub fn records(&self) -> u64 {
        self.restore.unwrap_or(self.records)
    }

    pub fn generator(&self) -> Generator {
        let arrival = if self.restore.is_some() { Arrival::EachKeyOnce } else { Arrival::Uniform };
        Generator { seed: 42, keys: self.keys(), arrival, pace: None }
    }

    pub fn delivery(&self) -> Delivery {
        match self.delivery.as_str() {
            "transactional" => Delivery::Transactional,
            "outbox" => Delivery::Outbox { framed: false },
            _ => Delivery::Outbox { framed: true },
        }
    }

    pub fn config(&self) -> Config {
        Config {
            threads: self.threads,
            epoch_time: Duration::from_millis(self.epoch_ms),
            latency_target: self.latency_target_ms.map(Duration::from_millis),
            frame_compression: !self.frames_plain,
            ..Config::default()
        }
    }

    /// What every result says of its run.
    pub fn described(&self, kind: &str) -> serde_json::Map<String, serde_json::Value> {
        let object = serde_json::json!({
            "kind": kind,
            "system": "onceflow",
            "workload": self.workload.to_string(),
            "log": self.log,
            "store": self.store.to_string(),
            "delivery": self.delivery,
            "records": self.records(),
            "keys": self.keys(),
            "threads": self.threads,
            "epoch_ms": self.epoch_ms,
            "latency_target_ms": self.latency_target_ms,
            "frames_plain": self.frames_plain,
            "sync": self.sync,
        });
        object.as_object().cloned().unwrap_or_default()
    }
}
