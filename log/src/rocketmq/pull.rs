//! Reads: one pull by queue and offset, from the master.

use super::Shared;
use super::brokers::{Lane, Way};
use super::code::{self, Request, refusal};
use super::topics::queue_fields;
use crate::remoting::{Bounds, Reply, decode};
use crate::{ReadLimit, RecordBatch};
use onceflow_types::{Error, Offset, Partition, Result};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// `PullSysFlag`: the broker may hold the request until there is something.
const FLAG_SUSPEND: i32 = 0x1 << 1;
/// `PullSysFlag`: the subscription is in the request.
const FLAG_SUBSCRIPTION: i32 = 0x1 << 2;
/// Longest wait that is left to the broker; longer ones are cut to it.
const SUSPEND_MAX: Duration = Duration::from_secs(30);
/// First pause before a place that the broker should have is asked for again; doubles up to [`LAG_PAUSE_MAX`].
const LAG_PAUSE_MIN: Duration = Duration::from_millis(2);
const LAG_PAUSE_MAX: Duration = Duration::from_millis(100);

enum Pulled {
    Records(RecordBatch),
    Nothing,
    /// The broker does not have the place, but may in a moment: its dispatch lags behind what it acknowledged, also
    /// after a restart.
    NotYet(Error),
}

impl Shared {
    pub(super) async fn read(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<RecordBatch> {
        limit.check()?;
        let give_up = Instant::now() + self.options.dispatch_lag_max;
        let mut pause = LAG_PAUSE_MIN;
        loop {
            match self.pull(partition, from, limit).await? {
                Pulled::Records(records) => return Ok(records),
                Pulled::Nothing => return Ok(RecordBatch::empty(partition.clone())),
                Pulled::NotYet(error) if Instant::now() + pause >= give_up => return Err(error),
                Pulled::NotYet(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAG_PAUSE_MAX);
        }
    }

    async fn pull(&self, partition: &Partition, from: Offset, limit: ReadLimit) -> Result<Pulled> {
        let suspend = limit.wait_max.min(SUSPEND_MAX);
        let flags = if suspend.is_zero() { FLAG_SUBSCRIPTION } else { FLAG_SUBSCRIPTION | FLAG_SUSPEND };
        let fields = queue_fields(partition)
            .text("consumerGroup", &*self.options.group)
            .value("queueOffset", from.get())
            .value("maxMsgNums", limit.records_max.min(i32::MAX as usize))
            .value("maxMsgBytes", limit.bytes_max.min(self.options.frame_bytes_max / 2))
            .value("sysFlag", flags)
            .value("commitOffset", 0)
            .value("suspendTimeoutMillis", suspend.as_millis())
            .text("subscription", "*")
            .value("subVersion", 0)
            .text("expressionType", "TAG");
        let deadline = self.brokers.deadline() + suspend;
        let (reply, _) = self.call_until(partition, Way::Any(Lane::Read), Request::Pull, fields, &[], deadline).await?;
        match reply.code {
            code::SUCCESS => found(partition, from, limit, &reply),
            code::PULL_NOT_FOUND | code::PULL_RETRY_IMMEDIATELY | code::PULL_OFFSET_MOVED => {
                missing(partition, from, &reply)
            }
            _ => Err(refusal("read", &reply).context(partition)),
        }
    }
}

fn found(partition: &Partition, from: Offset, limit: ReadLimit, reply: &Reply) -> Result<Pulled> {
    let next = reply.offset("nextBeginOffset")?;
    let bounds = Bounds { from, records_max: limit.records_max, bytes_max: limit.bytes_max };
    let (records, whole) = decode(partition, reply.body.clone(), bounds)?;
    let Some(decoded) = records.next_offset() else {
        return Err(reply.malformed("body", "empty"));
    };
    // What the broker went past must be here: a message it left out would be lost without a sound.
    if decoded > next || (whole && decoded < next) {
        return Err(Error::data_loss(format!(
            "broker went past messages it did not send: partition={partition} asked={from} sent to={decoded} went to={next}"
        )));
    }
    Ok(Pulled::Records(records.with_end(reply.offset("maxOffset")?)))
}

fn missing(partition: &Partition, from: Offset, reply: &Reply) -> Result<Pulled> {
    let (first, next) = (reply.offset("minOffset")?, reply.offset("maxOffset")?);
    let begin = reply.offset("nextBeginOffset")?;
    if from == next || (begin == from && reply.code == code::PULL_NOT_FOUND) {
        return Ok(Pulled::Nothing);
    }
    let lost = Error::data_loss(format!(
        "offset cannot be read: partition={partition} asked={from} first={first} next={next} code={}",
        reply.code
    ));
    // Below the first there will never be anything again.
    if from < first { Err(lost) } else { Ok(Pulled::NotYet(lost)) }
}
