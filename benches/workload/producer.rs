//! Sends records when they are due.

use crate::latency::Timed;
use crate::load::Input;
use crate::measure::now_us;
use crate::programs::{Names, Workload};
use onceflow::log::Log;
use onceflow::types::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long it sleeps when nothing is due: what is due by then goes in one batch for each queue.
const PAUSE: Duration = Duration::from_millis(1);

/// What the producer says of itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Produced {
    /// By how much a record was sent later than it was due, at most. It counts against the system under test: the
    /// latency runs from when the record was due.
    pub lag_max_ms: f64,
}

/// Sends all records, then what closes the windows. An append without an acknowledgement fails the run.
pub async fn produce(log: &dyn Log, names: &Names, timed: Timed) -> Result<Produced> {
    let mut input = Input::open(log, names).await?;
    let (mut next, mut lag_max_us) = (0, 0);
    while next < timed.records {
        let (now, first) = (now_us(), next);
        while next < timed.records && timed.pace.due_us(next) <= now {
            input.push(timed.generator, next)?;
            next += 1;
        }
        if next == first {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        lag_max_us = lag_max_us.max(now - timed.pace.due_us(first));
        input.send().await?;
    }
    if timed.workload == Workload::W2 {
        input.close_windows(timed.generator, timed.records)?;
        input.send().await?;
    }
    Ok(Produced { lag_max_ms: lag_max_us as f64 / 1_000.0 })
}
