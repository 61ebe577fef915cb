//! Identities as text, many of one channel in a row: what they share is rendered, or parsed, once.

use crate::identity::{CRC_DIGITS, IDENTITY_VERSION, Identity, SEQUENCE_MAX};
use crate::text::{decimal, hex, push_decimal, push_escaped, push_hex};
use onceflow_types::wire::{checksum, checksum_append};
use onceflow_types::{Offset, Partition, Result, Sequence};

/// Writes the identities of one channel in one epoch: what they share is rendered once, and a message costs its
/// sequence, its source offset and the checksum of those; nothing is allocated once the caller's buffer has grown.
///
/// ```
/// use onceflow_txn::{Identity, IdentityWriter};
/// # use onceflow_types::{Epoch, Generation, Incarnation, Name, Offset, Partition, Sequence, TaskId};
/// # let template = Identity {
/// #     job: Name::job("fraud")?, incarnation: Incarnation::new(9),
/// #     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
/// #     generation: Generation::new(12), epoch: Epoch::new(5), sink: Name::new("alerts")?,
/// #     sequence: Sequence::new(40), floor: Sequence::new(38), source: None,
/// # };
/// let mut writer = IdentityWriter::of(&template);
/// let queue = Partition::new("payments", "broker-a", 3);
/// let mut value = Vec::new();
/// writer.append(Sequence::new(41), Some((&queue, Offset::new(7))), &mut value);
/// let read = Identity::from_property(&value)?;
/// assert_eq!(read.sequence, Sequence::new(41));
/// assert_eq!(read.source, Some((queue, Offset::new(7))));
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IdentityWriter {
    floor: Sequence,
    /// Up to the floor, then the source that was written last.
    prefix: Vec<u8>,
    /// How much of it stays when the source changes.
    constant_len: usize,
    /// The checksum of the constant part, and of the whole prefix.
    constant_sum: u32,
    prefix_sum: u32,
    source: Option<Partition>,
}

impl IdentityWriter {
    /// Renders what all messages with the fields of `template` share; its `sequence` and `source` are not looked at.
    pub fn of(template: &Identity) -> Self {
        let mut prefix = Vec::with_capacity(192);
        push_decimal(&mut prefix, IDENTITY_VERSION);
        prefix.push(b';');
        push_escaped(&mut prefix, template.job.as_str());
        prefix.push(b';');
        push_hex(&mut prefix, &template.incarnation.get().to_be_bytes());
        prefix.push(b';');
        push_escaped(&mut prefix, template.task.subtopology.as_str());
        prefix.push(b';');
        push_escaped(&mut prefix, &template.task.broker);
        for number in [template.task.queue.into(), template.generation.get(), template.epoch.get()] {
            prefix.push(b';');
            push_decimal(&mut prefix, number);
        }
        prefix.push(b';');
        push_escaped(&mut prefix, template.sink.as_str());
        prefix.push(b';');
        push_decimal(&mut prefix, template.floor.get());
        prefix.push(b';');
        let mut writer = IdentityWriter {
            floor: template.floor,
            constant_len: prefix.len(),
            constant_sum: checksum(&prefix),
            prefix_sum: 0,
            source: None,
            prefix,
        };
        writer.render_source(None);
        writer
    }

    /// Appends the property's value for one message. Fastest when the source stays the same.
    ///
    /// # Panics
    /// When `sequence` is below the floor or above [`SEQUENCE_MAX`].
    pub fn append(&mut self, sequence: Sequence, source: Option<(&Partition, Offset)>, to: &mut Vec<u8>) {
        assert!(self.floor <= sequence && sequence <= SEQUENCE_MAX, "a sequence out of range");
        let partition = source.map(|(partition, _)| partition);
        if self.source.as_ref() != partition {
            self.render_source(partition);
        }
        to.extend_from_slice(&self.prefix);
        let varying = to.len();
        push_decimal(to, sequence.get());
        to.push(b';');
        match source {
            Some((_, offset)) => push_decimal(to, offset.get()),
            None => to.push(b'-'),
        }
        to.push(b';');
        let sum = checksum_append(self.prefix_sum, to.get(varying..).unwrap_or_default());
        push_hex(to, &sum.to_be_bytes());
    }

    fn render_source(&mut self, source: Option<&Partition>) {
        self.prefix.truncate(self.constant_len);
        match source {
            Some(partition) => {
                push_escaped(&mut self.prefix, &partition.topic);
                self.prefix.push(b';');
                push_escaped(&mut self.prefix, &partition.broker);
                self.prefix.push(b';');
                push_decimal(&mut self.prefix, partition.queue.into());
            }
            None => self.prefix.extend_from_slice(b"-;-;-"),
        }
        self.prefix.push(b';');
        let source_part = self.prefix.get(self.constant_len..).unwrap_or_default();
        self.prefix_sum = checksum_append(self.constant_sum, source_part);
        self.source = source.cloned();
    }
}

/// How many fields stand before the sequence.
const PREFIX_FIELDS: usize = 13;

/// Reads the identities of many messages. One that differs from the last in sequence and source offset only, as those of
/// one channel in one epoch do, costs no allocation.
///
/// ```
/// use onceflow_txn::{Identity, IdentityReader};
/// # use onceflow_types::{Epoch, Generation, Incarnation, Name, Sequence, TaskId};
/// # let identity = Identity {
/// #     job: Name::job("fraud")?, incarnation: Incarnation::new(9),
/// #     task: TaskId { subtopology: Name::new("score")?, broker: "broker-a".into(), queue: 3 },
/// #     generation: Generation::new(12), epoch: Epoch::new(5), sink: Name::new("alerts")?,
/// #     sequence: Sequence::new(40), floor: Sequence::new(38), source: None,
/// # };
/// let text = identity.to_property();
/// let mut reader = IdentityReader::default();
/// assert_eq!(reader.read(text.as_bytes())?, &identity);
/// # Ok::<(), onceflow_types::Error>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct IdentityReader {
    last: Option<Last>,
}

#[derive(Clone, Debug)]
struct Last {
    identity: Identity,
    prefix: Vec<u8>,
    prefix_sum: u32,
}

impl IdentityReader {
    /// As [`Identity::from_property`]; the identity stays until the next call.
    ///
    /// # Errors
    /// As [`Identity::from_property`].
    pub fn read(&mut self, text: &[u8]) -> Result<&Identity> {
        let mut last = self.last.take();
        let again = last.as_mut().and_then(|last| last.read(text)).is_some();
        let last = match last {
            Some(last) if again => last,
            _ => Last::of(text)?,
        };
        Ok(&self.last.insert(last).identity)
    }
}

impl Last {
    fn of(text: &[u8]) -> Result<Last> {
        let identity = Identity::from_property(text)?;
        let prefix = prefix(text).to_vec();
        Ok(Last { identity, prefix_sum: checksum(&prefix), prefix })
    }

    /// Takes over what is new in a text of the same prefix; `None` when there is anything else to say about it.
    fn read(&mut self, text: &[u8]) -> Option<()> {
        let rest = text.strip_prefix(self.prefix.as_slice())?;
        let (varying, sum) = rest.split_at_checked(rest.len().checked_sub(CRC_DIGITS)?)?;
        if hex(sum, CRC_DIGITS).ok()? != u128::from(checksum_append(self.prefix_sum, varying)) {
            return None;
        }
        let mut fields = varying.split(|byte| *byte == b';');
        let sequence = Sequence::new(decimal(fields.next()?).ok()?);
        let offset = fields.next()?;
        if fields.next() != Some(&[]) || fields.next().is_some() {
            return None;
        }
        if sequence < self.identity.floor || sequence > SEQUENCE_MAX {
            return None;
        }
        match &mut self.identity.source {
            Some((_, old)) => *old = Offset::new(decimal(offset).ok()?),
            None if offset == b"-" => {}
            None => return None,
        }
        self.identity.sequence = sequence;
        Some(())
    }
}

/// Up to the sequence.
fn prefix(text: &[u8]) -> &[u8] {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b';').map(|(at, _)| at + 1);
    ends.take(PREFIX_FIELDS).last().and_then(|end| text.get(..end)).unwrap_or_default()
}
