//! Request and response codes of RocketMQ's remoting protocol (`RequestCode`, `ResponseCode` of 5.5.0), and what a
//! refusal means to the caller.

use crate::remoting::Reply;
use onceflow_types::{Error, ErrorKind};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    Pull = 11,
    QueryMessage = 12,
    QueryConsumerOffset = 14,
    UpdateConsumerOffset = 15,
    UpdateAndCreateTopic = 17,
    SearchOffsetByTimestamp = 29,
    MaxOffset = 30,
    MinOffset = 31,
    Heartbeat = 34,
    UnregisterClient = 35,
    EndTransaction = 37,
    ConsumersOfGroup = 38,
    SendV2 = 310,
    SendBatch = 320,
    TopicConfig = 351,
}

/// A broker asks what became of a half.
pub(super) const CHECK_TRANSACTION_STATE: i32 = 39;

pub(super) const SUCCESS: i32 = 0;
pub(super) const SYSTEM_ERROR: i32 = 1;
pub(super) const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
pub(super) const MESSAGE_ILLEGAL: i32 = 13;
pub(super) const VERSION_NOT_SUPPORTED: i32 = 15;
pub(super) const NO_PERMISSION: i32 = 16;
pub(super) const TOPIC_NOT_EXIST: i32 = 17;
pub(super) const PULL_NOT_FOUND: i32 = 19;
pub(super) const PULL_RETRY_IMMEDIATELY: i32 = 20;
pub(super) const PULL_OFFSET_MOVED: i32 = 21;
pub(super) const QUERY_NOT_FOUND: i32 = 22;
/// `InvalidParameterException` and the like are told by remark only; these codes are refusals for good.
const REFUSED: [i32; 5] =
    [REQUEST_CODE_NOT_SUPPORTED, MESSAGE_ILLEGAL, VERSION_NOT_SUPPORTED, NO_PERMISSION, TOPIC_NOT_EXIST];
/// The broker says good-bye; it answers nothing more on this connection.
pub(super) const GO_AWAY: i32 = 1500;

/// Longest part of a broker's remark that goes into an error.
const REMARK_CHARS_MAX: usize = 200;

/// The error for a reply that is no success: `Invalid` where the broker says that it did and will do nothing, else
/// `Retry`. That includes every weak send status and every code we do not know.
pub(super) fn refusal(what: &str, reply: &Reply) -> Error {
    let kind = if REFUSED.contains(&reply.code) { ErrorKind::Invalid } else { ErrorKind::Retry };
    refusal_as(kind, what, reply)
}

/// As [`refusal`], with the kind decided by the caller.
pub(super) fn refusal_as(kind: ErrorKind, what: &str, reply: &Reply) -> Error {
    let remark: String = reply.remark.chars().take(REMARK_CHARS_MAX).collect();
    Error::new(kind, format!("{what}: broker answered code={} remark={remark:?}", reply.code))
}
