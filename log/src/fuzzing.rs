//! The decoders of what a broker sends, for fuzz targets and hostile tests. Hidden, and no part of the API: they change
//! without notice.

use crate::RecordBatch;
use crate::remoting::{self, Bounds, Reply, RocketCounters, split_frame};
use bytes::{Bytes, BytesMut};
use onceflow_types::{Offset, Partition, Result};
use std::sync::Arc;

pub use crate::remoting::INFLATED_BYTES_MAX;

/// One reply as a connection reads it.
#[derive(Debug)]
pub struct Seen {
    /// What the broker says.
    pub code: i32,
    /// Which request it answers.
    pub opaque: i32,
    /// Whether it is an answer at all.
    pub is_reply: bool,
    /// The field `queueOffset`, which must be an offset.
    pub offset: Result<Offset>,
    /// The body's length in bytes.
    pub body_bytes: usize,
}

/// Reads the frames in `bytes` one after the other, as a connection does, until one is bad or not whole. The second
/// result is the error that would close the connection.
pub fn replies(bytes: &[u8], frame_bytes_max: usize) -> (Vec<Seen>, Result<()>) {
    let counters = Arc::<RocketCounters>::default();
    let mut buffer = BytesMut::from(bytes);
    let mut seen = vec![];
    loop {
        let frame = match split_frame(&mut buffer, frame_bytes_max) {
            Ok(Ok(frame)) => frame,
            Ok(Err(_)) => return (seen, Ok(())),
            Err(error) => return (seen, Err(error)),
        };
        match Reply::parse(&frame, &counters) {
            Ok(reply) => seen.push(Seen {
                code: reply.code,
                opaque: reply.opaque,
                is_reply: reply.is_reply(),
                offset: reply.offset("queueOffset"),
                body_bytes: reply.body.len(),
            }),
            Err(error) => return (seen, Err(error)),
        }
    }
}

/// Decodes the body of a pull that asked for `from`; the second result says whether all of it was taken.
///
/// # Errors
/// As a read: `DataLoss` for what cannot be placed.
pub fn pulled(bytes: &[u8], from: Offset, records_max: usize, bytes_max: usize) -> Result<(RecordBatch, bool)> {
    let queue = Partition::new("topic", "broker", 0);
    remoting::decode(&queue, Bytes::copy_from_slice(bytes), Bounds { from, records_max, bytes_max })
}

/// Looks up a key in messages of any order.
///
/// # Errors
/// The reason why a message cannot be read.
pub fn found_by_key(bytes: &[u8], queue: u32, unique_key: &str) -> Result<Vec<Offset>, &'static str> {
    remoting::offsets_with(bytes, queue, unique_key)
}

/// The properties of the half that a check-back brings.
pub fn half_properties(bytes: &[u8]) -> Option<&[u8]> {
    remoting::half(bytes).map(|half| half.properties)
}

/// Inflates a body as its system flag says; nothing is left in `to` after an error.
///
/// # Errors
/// The reason why it cannot be inflated, or not within the cap.
pub fn inflated(sys_flag: i32, body: &[u8], to: &mut Vec<u8>) -> Result<usize, &'static str> {
    remoting::inflate(sys_flag, body, to)
}
