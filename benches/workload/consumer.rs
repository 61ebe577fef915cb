//! An ordinary consumer of the output: reads its queues as messages come, and looks at the clock for each batch.

use crate::expected::expected;
use crate::latency::Timed;
use crate::measure::now_us;
use crate::programs::{Names, Workload};
use crate::spec::{Check, number_at};
use futures_util::future::try_join_all;
use onceflow::log::{Log, MessageIter, ReadLimit, RecordRef};
use onceflow::txn::Frame;
use onceflow::types::{Error, Partition, Result};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::time::Duration;

/// The consumer waits for messages at the log, not by asking again and again.
const READ: ReadLimit = ReadLimit { records_max: 4_096, bytes_max: 1 << 20, wait_max: Duration::from_millis(500) };
/// How long behind the last record the output may still come.
const LATE_TIME_MAX_US: i64 = 15_000_000;
/// Most that a frame may inflate to.
const INFLATED_BYTES_MAX: usize = 16 << 20;

/// What the consumer saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consumed {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub samples: usize,
    /// Whether all output came, once, and was right, that of the warm-up included.
    pub exact: bool,
}

#[derive(Default)]
struct Seen {
    check: Check,
    latencies_us: Vec<i64>,
}

/// Reads until all output is there, or it is late.
pub async fn consume(log: &dyn Log, names: &Names, timed: Timed) -> Result<Consumed> {
    let expected = expected(timed.workload, timed.generator, timed.records);
    let seen = RefCell::new(Seen::default());
    let queues = log.partitions(&names.output).await?;
    try_join_all(queues.iter().map(|queue| follow(log, queue, timed, expected.count, &seen))).await?;
    let Seen { check, mut latencies_us } = seen.into_inner();
    if check != expected {
        eprintln!("not exact: expected={expected:x?} found={check:x?}");
    }
    latencies_us.sort_unstable();
    let ms = |part: f64| percentile(&latencies_us, part).unwrap_or(0) as f64 / 1_000.0;
    Ok(Consumed {
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        p999_ms: ms(0.999),
        max_ms: ms(1.0),
        samples: latencies_us.len(),
        exact: check == expected,
    })
}

/// The smallest value that at least this part of the values does not exceed.
fn percentile(sorted: &[i64], part: f64) -> Option<i64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

async fn follow(log: &dyn Log, queue: &Partition, timed: Timed, outputs: u64, seen: &RefCell<Seen>) -> Result<()> {
    let mut at = log.offsets(queue).await?.first;
    while seen.borrow().check.count < outputs && now_us() < timed.end_us + LATE_TIME_MAX_US {
        let batch = log.read(queue, at, READ).await?;
        let now = now_us();
        for record in batch.iter() {
            outputs_of(record, |output| seen.borrow_mut().add(output, now, timed))?;
        }
        at = batch.next_offset().unwrap_or(at);
    }
    Ok(())
}

/// Takes a message apart: it is a frame of outputs, or one.
fn outputs_of(record: RecordRef<'_>, mut take: impl FnMut(&[u8])) -> Result<()> {
    let body = record.body().map_err(Error::data_loss)?;
    if !Frame::is_frame(body) {
        take(body);
        return Ok(());
    }
    let mut scratch = Vec::new();
    let frame = Frame::decode(body, INFLATED_BYTES_MAX)?;
    for message in MessageIter::new(frame.messages(&mut scratch)?) {
        take(message?.body);
    }
    Ok(())
}

impl Seen {
    fn add(&mut self, output: &[u8], now: i64, timed: Timed) {
        self.check.add_output(output);
        // Of a window: from when it was to close.
        let from = match timed.workload {
            Workload::W2 => (number_at(output, 0) + 12_000) * 1_000,
            _ => number_at(output, 8),
        };
        if (timed.measured_from_us..timed.end_us).contains(&from) {
            self.latencies_us.push(now - from);
        }
    }
}
