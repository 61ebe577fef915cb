//! Who made an output message, and its place in its channel.
//!
//! A plain message carries its identity as one property, text without RocketMQ's separators (bytes 1 and 2):
//!
//! ```text
//! ONCEFLOW = 1;job;incarnation;subtopology;broker;queue;generation;epoch;sink;floor;SOURCE;sequence;OFFSET;crc
//!
//!   incarnation   32 hexadecimal digits, lower case
//!   SOURCE        topic;broker;queue of the record that it was made from, or -;-;- when there is none
//!   OFFSET        its offset, or -
//!   crc           CRC32C of everything before it, the last ; included: 8 hexadecimal digits, lower case
//!   broker, topic letters, digits, _ - . as they are, every other byte as %XX
//!   numbers       decimal
//! ```
//!
//! What changes from message to message stands at the end, so that a writer renders the rest once. A framed message
//! carries the same fields in binary, see [`Frame`](crate::Frame):
//!
//! ```text
//! job text · incarnation u128 · subtopology text · broker text · queue count · generation count · epoch count ·
//! sink text · sequence count · floor count · source: u8 0, or 1 · partition · offset count
//! ```
//!
//! A checksum keeps damage out, not malice: whoever may write to a topic can forge an identity. Readers compare the job
//! ([`Identity::is_of`]) and take nothing else from messages of strangers.

use crate::IdentityWriter;
use crate::text::{decimal, hex, unescaped};
use onceflow_types::wire::{Decoder, Encode, checksum};
use onceflow_types::{
    BROKER_BYTES_MAX, Epoch, Error, Generation, Incarnation, JOB_ID_BYTES_MAX, NAME_BYTES_MAX, Name, Offset, Partition,
    Result, Sequence, TOPIC_BYTES_MAX, TaskId, decode_partition, encode_partition,
};
use std::borrow::Cow;

/// The property's name.
pub const IDENTITY_PROPERTY: &str = "ONCEFLOW";
/// The highest sequence of a channel: more than any channel reaches, and far from overflow.
pub const SEQUENCE_MAX: Sequence = Sequence::new(1 << 62);

pub(crate) const IDENTITY_VERSION: u64 = 1;
pub(crate) const CRC_DIGITS: usize = 8;

/// The identity of one output message.
///
/// ```
/// use onceflow_txn::Identity;
/// use onceflow_types::{Epoch, Generation, Incarnation, Name, Sequence, TaskId};
///
/// let identity = Identity {
///     job: Name::job("fraud")?,
///     incarnation: Incarnation::new(9),
///     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
///     generation: Generation::new(12),
///     epoch: Epoch::new(5),
///     sink: Name::new("alerts")?,
///     sequence: Sequence::new(40),
///     floor: Sequence::new(38),
///     source: None,
/// };
/// let text = identity.to_property();
/// assert!(text.starts_with("1;fraud;00000000000000000000000000000009;score;broker-a;3;12;5;alerts;38;-;-;-;40;-;"));
/// let read = Identity::from_property(text.as_bytes())?;
/// assert_eq!(read, identity);
/// assert!(read.is_of(&Name::job("fraud")?) && !read.is_of(&Name::job("other")?));
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The job.
    pub job: Name,
    /// The incarnation of the task's journal.
    pub incarnation: Incarnation,
    /// The task.
    pub task: TaskId,
    /// The owner that made it.
    pub generation: Generation,
    /// The epoch that it belongs to.
    pub epoch: Epoch,
    /// The sink; with incarnation, task and the queue that it was read from it names the channel.
    pub sink: Name,
    /// Its place in the channel, at most [`SEQUENCE_MAX`].
    pub sequence: Sequence,
    /// The channel's first sequence that was not counted as published when the epoch began; at most `sequence`.
    pub floor: Sequence,
    /// The record that it was made from, when there is one.
    pub source: Option<(Partition, Offset)>,
}

impl Identity {
    /// Whether the message was made by this job. A reader takes messages of other jobs for what they are: strangers.
    pub fn is_of(&self, job: &Name) -> bool {
        self.job == *job
    }

    /// The value of the property [`IDENTITY_PROPERTY`].
    ///
    /// # Panics
    /// When `floor` is above `sequence`, or `sequence` above [`SEQUENCE_MAX`].
    pub fn to_property(&self) -> String {
        let mut text = Vec::with_capacity(192);
        let mut writer = IdentityWriter::of(self);
        writer.append(self.sequence, self.source.as_ref().map(|(partition, offset)| (partition, *offset)), &mut text);
        String::from_utf8(text).expect("the writer appends ASCII")
    }

    /// Reads the value of the property [`IDENTITY_PROPERTY`].
    ///
    /// # Errors
    /// `Invalid` for a newer version with a good checksum: an older program must not judge the message. `Record` for
    /// anything else that is not an identity in its only form.
    pub fn from_property(text: &[u8]) -> Result<Identity> {
        let malformed = |e: Error| Error::record("message identity is malformed").with_source(e);
        let (content, version) = checked(text).map_err(malformed)?;
        if version > IDENTITY_VERSION {
            return Err(newer(version, IDENTITY_VERSION));
        }
        parse(content).map_err(malformed)
    }

    /// Appends the binary form, for frames.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        assert!(self.plausible(), "an identity that contradicts itself");
        to.put_str(self.job.as_str());
        to.put_u128(self.incarnation.get());
        to.put_str(self.task.subtopology.as_str());
        to.put_str(&self.task.broker);
        to.put_count(self.task.queue.into());
        to.put_count(self.generation.get());
        to.put_count(self.epoch.get());
        to.put_str(self.sink.as_str());
        to.put_count(self.sequence.get());
        to.put_count(self.floor.get());
        to.put_u8(u8::from(self.source.is_some()));
        if let Some((partition, offset)) = &self.source {
            encode_partition(partition, to);
            to.put_count(offset.get());
        }
    }

    /// Reads the binary form.
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Identity> {
        let identity = Identity {
            job: Name::job(from.str(JOB_ID_BYTES_MAX)?)?,
            incarnation: Incarnation::new(from.u128()?),
            task: TaskId {
                subtopology: Name::new(from.str(NAME_BYTES_MAX)?)?,
                broker: from.str(BROKER_BYTES_MAX)?.into(),
                queue: u32::try_from(from.count()?).map_err(|_| Error::corrupt("queue number is too large"))?,
            },
            generation: Generation::new(from.count()?),
            epoch: Epoch::new(from.count()?),
            sink: Name::new(from.str(NAME_BYTES_MAX)?)?,
            sequence: Sequence::new(from.count()?),
            floor: Sequence::new(from.count()?),
            source: match from.u8()? {
                0 => None,
                1 => Some((decode_partition(from)?, Offset::new(from.count()?))),
                flag => return Err(Error::corrupt(format!("bad flag: given={flag}"))),
            },
        };
        if identity.plausible() { Ok(identity) } else { Err(Error::corrupt("identity contradicts itself")) }
    }

    pub(crate) fn plausible(&self) -> bool {
        self.floor <= self.sequence && self.sequence <= SEQUENCE_MAX
    }
}

#[cold]
pub(crate) fn newer(version: u64, known: u64) -> Error {
    Error::invalid(format!("message identity of a newer format, upgrade onceflow: version={version} known={known}"))
}

/// The content before the checksum, and the version in front of it.
fn checked(text: &[u8]) -> Result<(&[u8], u64)> {
    let split = text.len().checked_sub(CRC_DIGITS).and_then(|at| text.split_at_checked(at));
    let (content, sum) = split.ok_or_else(|| Error::corrupt("cut off"))?;
    if hex(sum, CRC_DIGITS)? != u128::from(checksum(content)) {
        return Err(Error::corrupt("checksum differs"));
    }
    let version = content.split(|byte| *byte == b';').next().unwrap_or_default();
    Ok((content, decimal(version)?))
}

/// The fields of a text, one after the other.
struct Fields<'t>(std::slice::Split<'t, u8, fn(&u8) -> bool>);

impl<'t> Fields<'t> {
    fn of(text: &'t [u8]) -> Self {
        Fields(text.split(|byte| *byte == b';'))
    }

    fn next(&mut self) -> Result<&'t [u8]> {
        self.0.next().ok_or_else(|| Error::corrupt("field is missing"))
    }

    fn number(&mut self) -> Result<u64> {
        decimal(self.next()?)
    }

    fn queue(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| Error::corrupt("queue number is too large"))
    }

    fn text(&mut self, bytes_max: usize) -> Result<Cow<'t, str>> {
        let text = unescaped(self.next()?)?;
        if text.len() <= bytes_max { Ok(text) } else { Err(Error::corrupt("name is too long")) }
    }

    fn name(&mut self) -> Result<Name> {
        Name::new(self.text(NAME_BYTES_MAX)?)
    }
}

fn parse(content: &[u8]) -> Result<Identity> {
    let mut fields = Fields::of(content);
    if fields.number()? != IDENTITY_VERSION {
        return Err(Error::corrupt("unknown version"));
    }
    let job = Name::job(fields.text(JOB_ID_BYTES_MAX)?)?;
    let incarnation = Incarnation::new(hex(fields.next()?, 32)?);
    let subtopology = fields.name()?;
    let task = TaskId { subtopology, broker: fields.text(BROKER_BYTES_MAX)?.into(), queue: fields.queue()? };
    let (generation, epoch) = (Generation::new(fields.number()?), Epoch::new(fields.number()?));
    let sink = fields.name()?;
    let floor = Sequence::new(fields.number()?);
    let partition = parse_source(&mut fields)?;
    let sequence = Sequence::new(fields.number()?);
    let source = match (partition, fields.next()?) {
        (None, b"-") => None,
        (Some(partition), offset) => Some((partition, Offset::new(decimal(offset)?))),
        (None, _) => return Err(Error::corrupt("offset without a source")),
    };
    if !fields.next()?.is_empty() || fields.next().is_ok() {
        return Err(Error::corrupt("fields left over"));
    }
    let identity = Identity { job, incarnation, task, generation, epoch, sink, sequence, floor, source };
    if identity.plausible() { Ok(identity) } else { Err(Error::corrupt("sequence or floor out of range")) }
}

fn parse_source(fields: &mut Fields<'_>) -> Result<Option<Partition>> {
    let (topic, broker, queue) = (fields.next()?, fields.next()?, fields.next()?);
    if (topic, broker, queue) == (b"-", b"-", b"-") {
        return Ok(None);
    }
    let queue = u32::try_from(decimal(queue)?).map_err(|_| Error::corrupt("queue number is too large"))?;
    let (topic, broker) = (unescaped(topic)?, unescaped(broker)?);
    if topic.len() > TOPIC_BYTES_MAX || broker.len() > BROKER_BYTES_MAX {
        return Err(Error::corrupt("name is too long"));
    }
    Ok(Some(Partition::new(&*topic, &*broker, queue)))
}
