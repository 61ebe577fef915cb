//! The output of an open epoch: messages per sink and target queue, in the order in which they were made.

use crate::time::Watermark;
use onceflow_log::PROPERTIES_BYTES_MAX;
use onceflow_types::{Error, Offset, Result, Timestamp};

/// What the commit adds to a message at most, in bytes: its identity, and a frame around it.
const IDENTITY_BYTES_MAX: usize = 2_048;
/// About what the commit adds to a message that goes by itself, in bytes: an identity with names of usual length.
pub(crate) const IDENTITY_BYTES_USUAL: usize = 128;
/// Most bytes of body and properties of an output message together, less where the log takes less. RocketMQ refuses
/// more than 4 MiB (`maxMessageSize`) and adds properties of its own, for which logs keep 64 KiB free.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024 - IDENTITY_BYTES_MAX;
/// Longest encoded properties of an output message, in bytes: what the wire can say, less room for the identity that
/// the commit adds.
pub const OUTPUT_PROPERTIES_BYTES_MAX: usize = PROPERTIES_BYTES_MAX - IDENTITY_BYTES_MAX;

/// What is left for body and properties of an output message in a log that takes messages of `bytes_max`.
pub(crate) fn message_room(bytes_max: usize) -> usize {
    bytes_max.saturating_sub(IDENTITY_BYTES_MAX).min(MESSAGE_BYTES_MAX)
}

/// The source record from which an output message stems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourcePosition {
    /// The index of the source in the subtopology's plan.
    pub source: u32,
    /// The record's offset.
    pub offset: Offset,
}

/// All messages of an open epoch. Reuse it: [`clear`](Self::clear) keeps its memory.
///
/// ```
/// use onceflow::output::Output;
/// use onceflow::types::Timestamp;
///
/// let mut output = Output::new(&[4]); // one sink with four queues
/// output.push(0, 3, b"TAGS\x01big\x02", Timestamp::from_millis(5), None, |body| {
///     body.extend_from_slice(b"hello");
///     Ok(())
/// })?;
/// let message = output.sinks()[0].queues()[3].iter().next().expect("one message");
/// assert_eq!((message.body, message.properties), (b"hello".as_slice(), b"TAGS\x01big\x02".as_slice()));
/// assert_eq!((output.records(), output.bytes()), (1, 14));
/// # Ok::<(), onceflow::types::Error>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Output {
    sinks: Vec<SinkOutput>,
    records: usize,
    bytes: usize,
    message_bytes_max: usize,
}

/// The messages of one sink.
#[derive(Clone, Default, Debug)]
pub struct SinkOutput {
    queues: Vec<QueueOutput>,
    /// Where messages without a key go.
    task_queue: u32,
    /// What the commit adds to each message, in bytes, as far as it counts for the epoch.
    added_bytes: usize,
    /// How far the stream has come, of a repartition behind which time counts; it outlives the epoch.
    watermark: Option<Watermark>,
}

/// The messages for one target queue, in one buffer.
#[derive(Clone, Default, Debug)]
pub struct QueueOutput {
    /// Properties and body of each message, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A message; kept small, as an epoch has one for each. [`check_size`] bounds the lengths.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Bytes of its properties, which begin where the message before ends,
    properties: u32,
    /// ... and of its body behind them.
    body: u32,
    /// The source's index, or [`NO_SOURCE`].
    source: u32,
    offset: Offset,
    timestamp: Timestamp,
}

/// Stems from no record.
const NO_SOURCE: u32 = u32::MAX;

impl Entry {
    fn source(self) -> Option<SourcePosition> {
        (self.source != NO_SOURCE).then_some(SourcePosition { source: self.source, offset: self.offset })
    }
}

/// One message, borrowed from an [`Output`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutputMessage<'o> {
    /// Its properties, encoded.
    pub properties: &'o [u8],
    /// Its body.
    pub body: &'o [u8],
    /// Its event time.
    pub timestamp: Timestamp,
    /// The source record it stems from; `None` when it was made at the seal or by a timer.
    pub source: Option<SourcePosition>,
}

impl Output {
    /// An empty output for sinks with these numbers of target queues, in the order of the plan.
    pub fn new(queues: &[u32]) -> Self {
        let sinks = queues.iter().map(|queues| SinkOutput {
            queues: vec![QueueOutput::default(); *queues as usize],
            ..SinkOutput::default()
        });
        Output { sinks: sinks.collect(), records: 0, bytes: 0, message_bytes_max: MESSAGE_BYTES_MAX }
    }

    /// The same for a log whose messages may have at most this many bytes.
    #[must_use]
    pub fn for_messages_of(mut self, bytes_max: usize) -> Self {
        self.message_bytes_max = message_room(bytes_max);
        self
    }

    /// The same with the queue of each sink to which messages without a key go; else it is the first.
    #[must_use]
    pub(crate) fn with_task_queues(mut self, queues: impl IntoIterator<Item = u32>) -> Self {
        for (sink, queue) in self.sinks.iter_mut().zip(queues) {
            sink.task_queue = queue;
        }
        self
    }

    /// The same with what the commit adds to each message of each sink, in bytes; else it is nothing.
    #[must_use]
    pub(crate) fn with_added_bytes(mut self, bytes: impl IntoIterator<Item = usize>) -> Self {
        for (sink, bytes) in self.sinks.iter_mut().zip(bytes) {
            sink.added_bytes = bytes;
        }
        self
    }

    /// The queue of a sink to which messages without a key go.
    pub(crate) fn task_queue(&self, sink: usize) -> u32 {
        self.sinks.get(sink).map_or(0, |sink| sink.task_queue)
    }

    /// Most bytes of body and properties of one message together.
    pub fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// Adds a message whose body `write` appends. After an error nothing was added.
    ///
    /// # Errors
    /// `Record` for an empty body (RocketMQ carries none), a message above
    /// [`message_bytes_max`](Self::message_bytes_max), or properties above [`OUTPUT_PROPERTIES_BYTES_MAX`]; `Bug` for a sink or queue that there is not; what `write` returns.
    #[inline]
    pub fn push(
        &mut self,
        sink: usize,
        queue: u32,
        properties: &[u8],
        timestamp: Timestamp,
        source: Option<SourcePosition>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let place =
            self.sinks.get_mut(sink).and_then(|sink| Some((sink.queues.get_mut(queue as usize)?, sink.added_bytes)));
        let Some((target, added_bytes)) = place else {
            return Err(Error::bug(format!("no such output queue: sink={sink} queue={queue}")));
        };
        self.bytes += target.push(properties, timestamp, source, self.message_bytes_max, write)? + added_bytes;
        self.records += 1;
        Ok(())
    }

    /// The number of target queues of a sink; 0 for one that there is not.
    pub fn queues_of(&self, sink: usize) -> u32 {
        // The number came from a `u32`.
        self.sinks.get(sink).map_or(0, |sink| u32::try_from(sink.queues.len()).unwrap_or(u32::MAX))
    }

    /// Says how far the stream in front of a sink has come.
    pub(crate) fn set_watermark(&mut self, sink: usize, watermark: Watermark) {
        if let Some(sink) = self.sinks.get_mut(sink) {
            sink.watermark = Some(watermark);
        }
    }

    /// The sinks in the order of the plan.
    pub fn sinks(&self) -> &[SinkOutput] {
        &self.sinks
    }

    /// How many messages there are.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Bytes of all bodies and properties; in a task with what the commit adds to messages that go by themselves.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Removes all messages, keeps the memory.
    pub fn clear(&mut self) {
        for queue in self.sinks.iter_mut().flat_map(|sink| &mut sink.queues) {
            queue.bytes.clear();
            queue.entries.clear();
        }
        (self.records, self.bytes) = (0, 0);
    }
}

impl SinkOutput {
    /// How far the stream in front of the sink has come, if it has said so.
    pub(crate) fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    /// The target queues in order.
    pub fn queues(&self) -> &[QueueOutput] {
        &self.queues
    }
}

impl QueueOutput {
    #[inline]
    fn push(
        &mut self,
        properties: &[u8],
        timestamp: Timestamp,
        source: Option<SourcePosition>,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(properties);
        let body_start = self.bytes.len();
        let written = write(&mut self.bytes)
            .and_then(|()| check_size(properties.len(), self.bytes.len() - body_start, bytes_max));
        let (properties, body) = match written {
            Ok(lengths) => lengths,
            Err(error) => {
                self.bytes.truncate(start);
                return Err(error);
            }
        };
        let (source, offset) = source.map_or((NO_SOURCE, Offset::ZERO), |source| (source.source, source.offset));
        self.entries.push(Entry { properties, body, source, offset, timestamp });
        Ok(self.bytes.len() - start)
    }

    /// The messages in order.
    pub fn iter(&self) -> impl Iterator<Item = OutputMessage<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let message = self.bytes.get(start..).unwrap_or_default();
            let (properties, rest) = message.split_at_checked(entry.properties as usize).unwrap_or_default();
            let body = rest.get(..entry.body as usize).unwrap_or_default();
            start += properties.len() + body.len();
            OutputMessage { properties, body, timestamp: entry.timestamp, source: entry.source() }
        })
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of bodies and properties.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The lengths, if they are allowed.
#[inline]
fn check_size(properties: usize, body: usize, bytes_max: usize) -> Result<(u32, u32)> {
    if body == 0 {
        return Err(Error::record("message body is empty"));
    }
    let is_allowed = body + properties <= bytes_max && properties <= OUTPUT_PROPERTIES_BYTES_MAX;
    match (u32::try_from(properties), u32::try_from(body)) {
        (Ok(properties), Ok(body)) if is_allowed => Ok((properties, body)),
        _ => Err(Error::record(format!(
            "message is too large: body_bytes={body} properties_bytes={properties} bytes_max={bytes_max} \
             properties_bytes_max={OUTPUT_PROPERTIES_BYTES_MAX}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::ErrorKind;

    fn push(output: &mut Output, queue: u32, body: &[u8]) -> Result<()> {
        output.push(0, queue, b"p", Timestamp::MIN, None, |to| {
            to.extend_from_slice(body);
            Ok(())
        })
    }

    #[test]
    fn a_failed_message_leaves_nothing_behind() {
        let mut output = Output::new(&[2]);
        push(&mut output, 1, b"first").unwrap();
        let error = output.push(0, 1, b"pp", Timestamp::MIN, None, |to| {
            to.extend_from_slice(b"half");
            Err(Error::record("cannot encode"))
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Record);
        for bad in [vec![], vec![0; MESSAGE_BYTES_MAX]] {
            assert_eq!(push(&mut output, 1, &bad).unwrap_err().kind(), ErrorKind::Record);
        }
        push(&mut output, 1, b"second").unwrap();
        let bodies: Vec<_> = output.sinks()[0].queues()[1].iter().map(|m| (m.properties, m.body)).collect();
        assert_eq!(bodies, [(b"p".as_slice(), b"first".as_slice()), (b"p", b"second")]);
        assert_eq!((output.records(), output.bytes()), (2, 13));
    }

    #[test]
    fn unknown_targets_are_a_bug() {
        let mut output = Output::new(&[1]);
        assert_eq!(push(&mut output, 1, b"x").unwrap_err().kind(), ErrorKind::Bug);
        assert_eq!((output.queues_of(0), output.queues_of(1)), (1, 0));
    }
}
