//! What only the feature `fuzzing` makes reachable: bytes from a broker, and pieces of snapshots.

use super::{check_back, summed};
use onceflow::fuzzing::{chunk_again, header_again};
use onceflow_log::fuzzing::{INFLATED_BYTES_MAX, found_by_key, half_properties, inflated, pulled, replies};
use onceflow_types::Offset;

/// Frames on a connection. No more bytes come out than went in.
pub fn remoting_frame(bytes: &[u8]) {
    let (seen, _) = replies(bytes, 1 << 20);
    let bodies: usize = seen.iter().map(|reply| reply.body_bytes).sum();
    assert!(seen.len() * 8 + bodies <= bytes.len());
    for reply in seen {
        assert!(reply.offset.is_err() || reply.offset.is_ok_and(|offset| i64::try_from(offset.get()).is_ok()));
    }
}

/// The body of a pull: offsets are dense from the asked one on, and limits are kept.
pub fn pull_body(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let from = Offset::new(u64::from(first & 7));
    let records_max = usize::from(first >> 3) + 1;
    if let Ok((records, whole)) = pulled(bytes, from, records_max, 1 << 16) {
        assert!(records.len() <= records_max);
        for (place, record) in records.iter().enumerate() {
            assert_eq!(record.offset().get(), from.get() + place as u64);
            let body = record.body().map_or(0, <[u8]>::len);
            assert!(body <= INFLATED_BYTES_MAX);
            assert!(record.properties().len() <= bytes.len());
            let _ = record.property("KEYS");
        }
        assert!(whole || !records.is_empty() || bytes.is_empty());
    }
    if let Some(properties) = half_properties(bytes) {
        check_back(properties);
    }
    if let Ok(offsets) = found_by_key(bytes, 0, "K") {
        assert!(offsets.is_sorted());
    }
}

/// A compressed body; the first byte says how.
pub fn capped_inflate(bytes: &[u8]) {
    let Some((how, body)) = bytes.split_first() else { return };
    let before = b"before".to_vec();
    let mut to = before.clone();
    match inflated(i32::from(how & 7) << 8, body, &mut to) {
        Ok(length) => assert!(length <= INFLATED_BYTES_MAX && to.len() == before.len() + length),
        Err(_) => assert_eq!(to, before, "nothing is left of what was refused"),
    }
    assert!(to.starts_with(&before));
}

/// A message of a snapshot.
pub fn snapshot_chunk(bytes: &[u8]) {
    for bytes in [bytes, &summed(bytes)] {
        if let Some(again) = chunk_again(bytes) {
            assert_eq!(again, bytes, "a chunk has one form");
        }
    }
}

/// The first unit of a snapshot.
pub fn snapshot_header(bytes: &[u8]) {
    if let Some(again) = header_again(bytes) {
        assert_eq!(header_again(&again), Some(again), "a header that was read can be read again");
    }
}
