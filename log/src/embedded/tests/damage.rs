//! Damage is a typed error, never a hole and never other data.

use super::{batch_of, quick, topic};
use crate::embedded::{EmbeddedLog, chunk};
use crate::{End, Log, ReadLimit};
use onceflow_types::{ErrorKind, Offset, Partition};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const ONE_BY_ONE: ReadLimit = ReadLimit { records_max: 1, bytes_max: 1 << 20, wait_max: Duration::ZERO };

async fn three_chunks(log: &EmbeddedLog) -> Partition {
    let queue = topic(log, 1).await.remove(0);
    for bodies in [["a", "b"], ["c", "d"], ["e", "f"]] {
        log.append(&queue, &batch_of(&bodies)).await.unwrap();
    }
    queue
}

/// Reads every record alone; `None` where that is data loss.
async fn read_each(log: &EmbeddedLog, queue: &Partition) -> Vec<Option<Vec<u8>>> {
    let mut seen = vec![];
    for offset in 0..6 {
        match log.read(queue, Offset::new(offset), ONE_BY_ONE).await {
            Ok(records) => {
                let record = records.iter().next().unwrap();
                assert_eq!(record.offset(), Offset::new(offset));
                seen.push(Some(record.body().unwrap().to_vec()));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DataLoss, "{error:?}");
                seen.push(None);
            }
        }
    }
    seen
}

fn records(texts: [&str; 6]) -> Vec<Option<Vec<u8>>> {
    texts.iter().map(|text| (!text.is_empty()).then(|| text.as_bytes().to_vec())).collect()
}

#[tokio::test]
async fn a_flipped_byte_in_a_chunk_is_data_loss_there_and_nowhere_else() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    let queue = three_chunks(&log).await;
    let chunks = &log.shared().store.chunks;
    let key = chunk::key(0, Offset::new(2));
    let whole = chunks.get(key).unwrap().unwrap().to_vec();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x40;
        chunks.insert(key, flipped).unwrap();
        assert_eq!(read_each(&log, &queue).await, records(["a", "b", "", "", "e", "f"]), "byte {at}");
    }
    chunks.insert(key, whole).unwrap();
    assert_eq!(read_each(&log, &queue).await, records(["a", "b", "c", "d", "e", "f"]));
}

#[tokio::test]
async fn a_lost_chunk_is_a_hole_and_a_swapped_one_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    let queue = three_chunks(&log).await;
    let chunks = &log.shared().store.chunks;
    let last = chunks.get(chunk::key(0, Offset::new(4))).unwrap().unwrap();
    chunks.insert(chunk::key(0, Offset::new(2)), last).unwrap();
    assert_eq!(read_each(&log, &queue).await, records(["a", "b", "", "", "e", "f"]));
    chunks.remove(chunk::key(0, Offset::new(2))).unwrap();
    assert_eq!(read_each(&log, &queue).await, records(["a", "b", "", "", "e", "f"]));
    let all = ReadLimit { records_max: 10, ..ONE_BY_ONE };
    assert_eq!(log.read(&queue, Offset::ZERO, all).await.unwrap_err().kind(), ErrorKind::DataLoss);
}

#[tokio::test]
async fn a_damaged_half_is_data_loss_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let handle = log.prepare(&queue, &batch_of(&["half"])).await.unwrap().handle;
    let halves = &log.shared().store.halves;
    let key = handle.commit_log_offset.to_be_bytes();
    let whole = halves.get(key).unwrap().unwrap().to_vec();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        halves.insert(key, flipped).unwrap();
        assert_eq!(log.end(&handle, End::Commit).await.unwrap_err().kind(), ErrorKind::DataLoss, "byte {at}");
    }
    assert_eq!(log.offsets(&queue).await.unwrap().next, Offset::ZERO);
}

#[tokio::test]
async fn a_damaged_last_chunk_is_data_loss_at_the_opening() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), quick()).unwrap();
    three_chunks(&log).await;
    let chunks = log.shared().store.chunks.clone();
    chunks.insert(chunk::key(0, Offset::new(4)), b"rubbish").unwrap();
    drop(chunks);
    drop(log);
    assert_eq!(EmbeddedLog::open(directory.path(), quick()).unwrap_err().kind(), ErrorKind::DataLoss);
}

/// Aim: a flipped byte in a file never makes the log hold other data, or data with a hole, or less than was closed. Method:
/// flip bytes of the journal, open, and read each record: the opening fails, or what is read is what was written. (fjall
/// takes damage to a journal's framing for its torn end, and cuts it off there; we know where it was closed.)
#[tokio::test]
async fn a_flipped_byte_in_the_journal_of_a_closed_log_is_an_error_or_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path().join("log"), quick()).unwrap();
    let queue = three_chunks(&log).await;
    drop(log);
    let journal = directory.path().join("log/data/0.jnl");
    let written = std::fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut errors = 0;
    for at in (0..written).step_by(13) {
        let damaged = directory.path().join(format!("damaged-{at}"));
        super::copy(&directory.path().join("log"), &damaged);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(damaged.join("data/0.jnl")).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at as u64).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at as u64).unwrap();
        match EmbeddedLog::open(&damaged, quick()) {
            Ok(log) => {
                assert_eq!(super::bodies(&log, &queue, 0).await, ["a", "b", "c", "d", "e", "f"], "byte {at}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DataLoss, "byte {at}: {error:?}");
                errors += 1;
            }
        }
        std::fs::remove_dir_all(damaged).unwrap();
    }
    assert!(errors > 0, "some bytes of {written} are covered by a checksum");
}
