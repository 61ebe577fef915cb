//! Dead letters: the original message, with what went wrong and where.

use crate::output::OUTPUT_PROPERTIES_BYTES_MAX;
use crate::record::Origin;
use crate::stage::{Context, SourceRecord};
use onceflow_log::{Properties, find_property};
use onceflow_types::{Error, Partition, Result, Timestamp};

/// Property of a dead letter: the topic of the original record.
pub const DEAD_LETTER_TOPIC: &str = "ONCEFLOW_DEAD_TOPIC";
/// Property of a dead letter: the broker of the original record.
pub const DEAD_LETTER_BROKER: &str = "ONCEFLOW_DEAD_BROKER";
/// Property of a dead letter: the queue of the original record.
pub const DEAD_LETTER_QUEUE: &str = "ONCEFLOW_DEAD_QUEUE";
/// Property of a dead letter: the offset of the original record.
pub const DEAD_LETTER_OFFSET: &str = "ONCEFLOW_DEAD_OFFSET";
/// Property of a dead letter: the UNIQ_KEY of the original record, if it had one; the dead letter has its own.
pub const DEAD_LETTER_UNIQUE_KEY: &str = "ONCEFLOW_DEAD_UNIQ_KEY";
/// Property of a dead letter: the stage that could not work on the record.
pub const DEAD_LETTER_STAGE: &str = "ONCEFLOW_DEAD_STAGE";
/// Property of a dead letter: the error and its causes.
pub const DEAD_LETTER_ERROR: &str = "ONCEFLOW_DEAD_ERROR";
/// Property of a dead letter: what had to be left out of it, `body` or `properties`. The original is still at its offset.
pub const DEAD_LETTER_TRUNCATED: &str = "ONCEFLOW_DEAD_TRUNCATED";

/// Longest value of one of the properties above, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Room for the property that says what was left out.
const TRUNCATED_BYTES_MAX: usize = 64;

/// Properties that steer or describe the broker's handling of the *original* message (`MessageConst`). On the dead letter
/// they would make it a half message of another group, delay it, or name a topic that it is not in.
const NOT_COPIED: [&str; 36] = [
    "TRAN_MSG",
    "PGROUP",
    "UNIQ_KEY",
    "EXTEND_UNIQ_INFO",
    "REAL_TOPIC",
    "REAL_QID",
    "DELAY",
    "WAIT",
    "RETRY_TOPIC",
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "ORIGIN_MESSAGE_ID",
    "CONSUME_START_TIME",
    "TRANSACTION_PREPARED_QUEUE_OFFSET",
    "TRANSACTION_CHECK_TIMES",
    "__transactionId__",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TRANSACTION_ID",
    "INSTANCE_ID",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "MSG_TYPE",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_LABEL",
    "INNER_NUM",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "__SHARDINGKEY",
    "__CRC32#",
];

/// Puts a dead letter into the output of `sink`.
pub(super) fn push(
    sink: usize,
    stage: &str,
    error: &Error,
    origin: Origin,
    timestamp: Timestamp,
    cx: &mut Context<'_>,
) -> Result<()> {
    let source = cx.source_record(origin);
    let reason = printable(&error.report());
    // RocketMQ carries no empty body: where there are no original bytes, the reason stands for them.
    let original = source.and_then(|(_, record)| record.body.ok()).filter(|body| !body.is_empty());
    let body = original.unwrap_or(reason.as_bytes());
    let mut own = Properties::default();
    if let Some((partition, record)) = &source {
        describe_origin(partition, record, &mut own)?;
    }
    own.push(DEAD_LETTER_STAGE, stage)?;
    own.push(DEAD_LETTER_ERROR, &reason)?;
    let mut properties = Vec::new();
    copy_properties(source.map_or(&[][..], |(_, record)| record.properties), &mut properties);
    if properties.len() + own.as_bytes().len() + TRUNCATED_BYTES_MAX > OUTPUT_PROPERTIES_BYTES_MAX {
        properties.clear();
        own.push(DEAD_LETTER_TRUNCATED, "properties")?;
    }
    let others = properties.len() + own.as_bytes().len() + TRUNCATED_BYTES_MAX;
    let kept = body.get(..cx.output.message_bytes_max().saturating_sub(others)).unwrap_or(body);
    if kept.len() < body.len() {
        own.push(DEAD_LETTER_TRUNCATED, "body")?;
    }
    properties.extend_from_slice(own.as_bytes());
    let (queue, position) = (cx.output.task_queue(sink), cx.source_position(origin));
    cx.output.push(sink, queue, &properties, timestamp, position, |to| {
        to.extend_from_slice(kept);
        Ok(())
    })
}

fn describe_origin(partition: &Partition, record: &SourceRecord<'_>, to: &mut Properties) -> Result<()> {
    to.push(DEAD_LETTER_TOPIC, &printable(&partition.topic))?;
    to.push(DEAD_LETTER_BROKER, &printable(&partition.broker))?;
    to.push(DEAD_LETTER_QUEUE, &partition.queue.to_string())?;
    to.push(DEAD_LETTER_OFFSET, &record.offset.to_string())?;
    match find_property(record.properties, "UNIQ_KEY") {
        Some(key) => to.push(DEAD_LETTER_UNIQUE_KEY, &printable(&String::from_utf8_lossy(key))),
        None => Ok(()),
    }
}

fn copy_properties(from: &[u8], to: &mut Vec<u8>) {
    for property in from.split(|byte| *byte == 2).filter(|property| !property.is_empty()) {
        let name = property.split(|byte| *byte == 1).next().unwrap_or_default();
        if !NOT_COPIED.iter().any(|banned| banned.as_bytes() == name) && property.contains(&1) {
            to.extend_from_slice(property);
            to.push(2);
        }
    }
}

/// The text without RocketMQ's separators, cut to a bounded length.
fn printable(text: &str) -> String {
    let mut text = text.replace(['\u{1}', '\u{2}'], " ");
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_own_properties_are_copied() {
        let mut to = vec![];
        copy_properties(b"TAGS\x01a\x02TRAN_MSG\x01true\x02x\x01\x02PGROUP\x01g\x02broken\x02KEYS\x01k", &mut to);
        assert_eq!(to, b"TAGS\x01a\x02x\x01\x02KEYS\x01k\x02");
    }

    #[test]
    fn texts_cannot_forge_a_property_and_are_cut_between_characters() {
        assert_eq!(printable("a\u{1}b\u{2}c"), "a b c");
        let long = printable(&"é".repeat(TEXT_BYTES_MAX));
        assert_eq!(long.len(), TEXT_BYTES_MAX);
        assert_eq!(printable(&format!("x{}", "é".repeat(TEXT_BYTES_MAX))).len(), TEXT_BYTES_MAX - 1);
    }
}
