//! Appends, prepares and ends. One try each: whether to send again is the caller's decision.

use super::Shared;
use super::brokers::{Lane, Way};
use super::check_back::PRODUCER_GROUP;
use super::code::{self, Request, refusal, refusal_as};
use super::frame::Fields;
use crate::remoting::{Reply, UNIQUE_KEY};
use crate::{
    Acked, CheckBack, End, Link, Message, MessageBatch, PROPERTIES_BYTES_MAX, Prepared, Verdict, find_property,
};
use onceflow_types::{Clock, Error, ErrorKind, HalfHandle, Partition, Result};
use std::sync::Arc;

/// Marks a half message (`MessageConst.PROPERTY_TRANSACTION_PREPARED`).
const TRANSACTION_PREPARED: &str = "TRAN_MSG";
/// Properties by which a message would land somewhere else, or an end be refused (RELIABILITY F13); never let through.
const FORBIDDEN: [&str; 7] = [
    TRANSACTION_PREPARED,
    PRODUCER_GROUP,
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "DELAY",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
];
/// Transaction types in system flag and END (`MessageSysFlag`).
const FLAG_PREPARED: i32 = 0x1 << 2;
const END_COMMIT: i32 = 0x2 << 2;
const END_ROLLBACK: i32 = 0x3 << 2;
/// Hexadecimal digits of a commit-log offset at the end of a message id (`MessageDecoder.createMessageId`).
const OFFSET_DIGITS: usize = 16;

impl Shared {
    /// Appends over the given link only, or over any.
    pub(super) async fn append(
        &self,
        partition: &Partition,
        batch: &MessageBatch,
        over: Option<&Link>,
    ) -> Result<Acked> {
        let way = over.map_or(Way::Any(Lane::Write), Way::Over);
        let deadline = self.brokers.deadline();
        let (reply, link) = match self.only_message(batch)? {
            Some(message) => {
                let properties = self.properties(&message, None)?.0;
                let fields = self.send_fields(partition, &properties, message.flag, 0, false);
                self.call_until(partition, way, Request::SendV2, fields, message.body, deadline).await?
            }
            None => {
                let fields = self.send_fields(partition, "", 0, 0, true);
                self.call_until(partition, way, Request::SendBatch, fields, batch.as_bytes(), deadline).await?
            }
        };
        let reply = sent("append", partition, reply)?;
        Ok(Acked { first: reply.offset("queueOffset")?, link })
    }

    pub(super) async fn prepare(&self, target: &Partition, batch: &MessageBatch) -> Result<Prepared> {
        let Some(message) = self.only_message(batch)? else {
            return Err(Error::invalid(format!("a half is one message: messages={}", batch.len())));
        };
        let (properties, unique_key) = self.properties(&message, Some(&self.options.group))?;
        let fields = self.send_fields(target, &properties, message.flag, FLAG_PREPARED, false);
        let (reply, link) = self.call(target, Lane::Write, Request::SendV2, fields, message.body).await?;
        let reply = sent("prepare", target, reply)?;
        let handle = HalfHandle {
            target: target.clone(),
            commit_log_offset: commit_log_offset(&reply)?,
            half_queue_offset: reply.offset("queueOffset")?.get(),
            unique_key,
        };
        Ok(Prepared { handle, link })
    }

    pub(super) async fn end(&self, handle: &HalfHandle, end: End) -> Result<Link> {
        let how = if end == End::Commit { END_COMMIT } else { END_ROLLBACK };
        let places = (handle.commit_log_offset, handle.half_queue_offset);
        let fields = self.end_fields(&handle.target, places, &handle.unique_key, how, false);
        let (reply, link) = self.call(&handle.target, Lane::Write, Request::EndTransaction, fields, &[]).await?;
        ended(&reply).map_err(|error| error.context(format_args!("half {}", handle.unique_key)))?;
        Ok(link)
    }

    pub(super) async fn answer_check_back(&self, check: &CheckBack, verdict: Verdict) -> Result<()> {
        match verdict {
            // The same to a broker as no answer, which is what it gets; it would answer such an END with silence.
            Verdict::Unknown => Ok(()),
            Verdict::Rollback => {
                let ticket = &check.ticket;
                let places = (ticket.commit_log_offset, ticket.half_queue_offset);
                let fields = self.end_fields(&ticket.target, places, &ticket.transaction_id, END_ROLLBACK, true);
                let (reply, _) = self.call(&ticket.target, Lane::Write, Request::EndTransaction, fields, &[]).await?;
                ended(&reply)
            }
        }
    }

    /// Checks a batch's size; its message when it is the only one.
    fn only_message<'b>(&self, batch: &'b MessageBatch) -> Result<Option<Message<'b>>> {
        let max = self.options.message_bytes_max;
        let bytes = if batch.len() == 1 { batch.largest_bytes() } else { batch.as_bytes().len() };
        if bytes > max {
            let what = if batch.len() == 1 { "message" } else { "batch" };
            return Err(Error::invalid(format!("{what} is too large: bytes={bytes} max={max}")));
        }
        let mut messages = batch.iter();
        match (messages.next(), messages.next()) {
            (None, _) => Err(Error::invalid("batch has no message")),
            (only, None) => Ok(only),
            _ => Ok(None),
        }
    }

    /// The properties to send, with a UNIQ_KEY of this try's own where there is none, and that key. With a group: those
    /// of a half message.
    fn properties(&self, message: &Message<'_>, half_of: Option<&str>) -> Result<(String, Arc<str>)> {
        let given = std::str::from_utf8(message.properties)
            .map_err(|error| Error::invalid("properties are not UTF-8").with_source(error))?;
        if let Some(name) = FORBIDDEN.iter().find(|name| find_property(message.properties, name).is_some()) {
            return Err(Error::invalid(format!("property is reserved: name={name}")));
        }
        let mut properties = given.to_owned();
        if !properties.is_empty() && !properties.ends_with('\u{2}') {
            properties.push('\u{2}');
        }
        let mut push = |name: &str, value: &str| {
            for part in [name, "\u{1}", value, "\u{2}"] {
                properties.push_str(part);
            }
        };
        let given_key = find_property(message.properties, UNIQUE_KEY).and_then(|key| std::str::from_utf8(key).ok());
        let key = if let Some(key) = given_key {
            Arc::from(key)
        } else {
            let key = self.keys.next();
            push(UNIQUE_KEY, &key);
            key
        };
        if let Some(group) = half_of {
            push(TRANSACTION_PREPARED, "true");
            push(PRODUCER_GROUP, group);
        }
        if properties.len() > PROPERTIES_BYTES_MAX {
            let bytes = properties.len();
            return Err(Error::invalid(format!("properties are too long: bytes={bytes} max={PROPERTIES_BYTES_MAX}")));
        }
        Ok((properties, key))
    }

    /// `SendMessageRequestHeaderV2`. The default topic is the topic itself, so that a broker with automatic creation
    /// refuses a topic that is not there.
    fn send_fields<'f>(
        &'f self,
        partition: &'f Partition,
        properties: &'f str,
        flag: i32,
        sys_flag: i32,
        batch: bool,
    ) -> Fields<'f> {
        Fields::default()
            .text("a", &*self.options.group)
            .text("b", &*partition.topic)
            .text("c", &*partition.topic)
            .value("d", 1)
            .value("e", partition.queue)
            .value("f", sys_flag)
            .value("g", self.clock.now().as_millis())
            .value("h", flag)
            .text("i", properties)
            .value("j", 0)
            .value("k", false)
            .value("m", batch)
            .text("n", &*partition.broker)
    }

    /// `EndTransactionRequestHeader`; `places` are commit-log offset and half-queue offset.
    fn end_fields<'f>(
        &'f self,
        target: &'f Partition,
        places: (u64, u64),
        unique_key: &'f str,
        how: i32,
        from_check: bool,
    ) -> Fields<'f> {
        Fields::default()
            .text("topic", &*target.topic)
            .text("producerGroup", &*self.options.group)
            .value("commitLogOffset", places.0)
            .value("tranStateTableOffset", places.1)
            .value("commitOrRollback", how)
            .value("fromTransactionCheck", from_check)
            .text("msgId", unique_key)
            .text("transactionId", unique_key)
            .text("bname", &*target.broker)
    }
}

/// Only SEND_OK, in the queue that was asked for, is success.
fn sent(what: &str, partition: &Partition, reply: Reply) -> Result<Reply> {
    if reply.code != code::SUCCESS {
        return Err(refusal(what, &reply).context(partition));
    }
    let queue: u32 = reply.number("queueId")?;
    if queue == partition.queue { Ok(reply) } else { Err(reply.malformed("queueId", "another queue")) }
}

/// The place in the commit log, which the broker's message id ends with.
fn commit_log_offset(reply: &Reply) -> Result<u64> {
    let id = reply.text("msgId")?;
    let digits = id.len().checked_sub(OFFSET_DIGITS).and_then(|start| id.get(start..));
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let offset = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    offset.ok_or_else(|| reply.malformed("msgId", id))
}

/// What the broker says about an END (`EndTransactionProcessor`): these refusals have one code, only remarks differ.
fn ended(reply: &Reply) -> Result<()> {
    if reply.code == code::SUCCESS {
        return Ok(());
    }
    let remark = reply.remark.as_str();
    let says = |part: &str| reply.code == code::SYSTEM_ERROR && remark.contains(part);
    if says("producer group wrong") {
        return Err(refusal_as(ErrorKind::Invalid, "end: half of another group", reply));
    }
    if says("Find prepared transaction message failed") || says("offset wrong") {
        return Err(refusal_as(ErrorKind::DataLoss, "end: the broker no longer has the half", reply));
    }
    Err(refusal("end", reply))
}
