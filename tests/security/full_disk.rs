//! A disk that is really full: a small file system in memory, filled until a write fails, then made larger.

use crate::local_disk::{epoch_of, open_log, open_store, point};
use onceflow::log::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow::storage::{Backend, Delta, StateStore};
use onceflow::types::{Error, ErrorKind, Offset};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Above what each engine needs when it holds nothing.
const SMALL: &str = "size=12m";
const LARGE: &str = "size=512m";
const VALUE_BYTES: usize = 100_000;
const WRITES_MAX: u64 = 1_000;

/// A mounted file system; gone when it is dropped.
struct Mount(TempDir);

impl Mount {
    /// `None`, loudly, where this user may not mount one.
    fn new() -> Option<Mount> {
        let folder = tempfile::tempdir().unwrap();
        match Command::new("mount").args(["-t", "tmpfs", "-o", SMALL, "tmpfs"]).arg(folder.path()).output() {
            Ok(output) if output.status.success() => Some(Mount(folder)),
            other => {
                eprintln!("NOT RUN: a full disk needs the right to mount a file system in memory: {other:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn enlarge(&self) {
        let options = format!("remount,{LARGE}");
        assert!(Command::new("mount").args(["-o", &options]).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// Bytes that cannot be compressed.
fn value(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let mut next = || {
        // xorshift64, Marsaglia 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(VALUE_BYTES / 8).flatten().collect()
}

fn says_what_to_do(error: &Error) {
    assert!(error.report().contains("free space"), "{}", error.report());
}

fn commit(store: &mut dyn StateStore, epoch: u64) -> onceflow::types::Result<()> {
    let mut delta = Delta::default();
    delta.put(&epoch.to_be_bytes(), &value(epoch));
    store.commit(&delta, &point(epoch))
}

fn check_store(store: &dyn StateStore) -> u64 {
    let (epoch, mut found) = (epoch_of(store), vec![]);
    for number in 1..=epoch {
        assert!(store.get(&number.to_be_bytes(), &mut found).unwrap() && found == value(number), "{number}");
    }
    epoch
}

#[test]
fn a_store_on_a_full_disk_stops_the_job_and_is_there_when_there_is_space() {
    // sled may wait for ever, with a lock of all its stores.
    for backend in [Backend::Fjall, Backend::RocksDb].into_iter().filter(|it| it.is_available()) {
        let Some(mount) = Mount::new() else { return };
        let mut store = open_store(backend, mount.path()).unwrap();
        let failed = (1..WRITES_MAX).find_map(|epoch| commit(&mut *store, epoch).err().map(|error| (epoch, error)));
        let (epoch, error) = failed.expect("the disk is full");
        // fjall does not say why a flush in the background has failed; then the task opens its store again.
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Corrupt), "{backend}: {}", error.report());
        says_what_to_do(&error);
        drop(store);
        // Opened again while there is still no space, as somebody may who did not read the error.
        match open_store(backend, mount.path()) {
            Ok(store) => assert!(check_store(&*store) >= epoch - 1, "{backend}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{backend}: {}", error.report());
                says_what_to_do(&error);
            }
        }
        mount.enlarge();
        let mut store = open_store(backend, mount.path()).unwrap();
        let found = check_store(&*store);
        assert!((epoch - 1..=epoch).contains(&found), "{backend}: found={found} failed={epoch}");
        commit(&mut *store, found + 1).unwrap();
        drop(store);
        assert_eq!(check_store(&*open_store(backend, mount.path()).unwrap()), found + 1, "{backend}");
    }
}

#[tokio::test]
async fn a_log_on_a_full_disk_has_all_that_was_acknowledged_when_there_is_space() {
    let Some(mount) = Mount::new() else { return };
    let topic = TopicSpec { topic: "payments".into(), queues: Queues::PerBroker(1) };
    let batch = |number: u64| {
        let mut batch = MessageBatch::default();
        batch.push(b"", &value(number)).unwrap();
        batch
    };
    let log = open_log(mount.path()).unwrap();
    log.create_topic(&topic).await.unwrap();
    let queue = log.partitions("payments").await.unwrap().remove(0);
    let mut acknowledged = 0;
    let error = loop {
        assert!(acknowledged < WRITES_MAX, "the disk is full");
        match log.append(&queue, &batch(acknowledged)).await {
            Ok(acked) => assert_eq!(acked.first, Offset::new(acknowledged)),
            Err(error) => break error,
        }
        acknowledged += 1;
    };
    // What became of it is not known, so it may be sent again; the next one is refused.
    assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::Invalid), "{}", error.report());
    says_what_to_do(&error);
    let error = log.append(&queue, &batch(acknowledged)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report());
    says_what_to_do(&error);
    drop(log);
    if let Err(error) = open_log(mount.path()) {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report());
        says_what_to_do(&error);
    }
    mount.enlarge();
    for more in 0..2 {
        let log = open_log(mount.path()).unwrap();
        let next = log.offsets(&queue).await.unwrap().next.get();
        assert!((acknowledged..=acknowledged + 1).contains(&next) || more == 1, "{next} of {acknowledged}");
        for number in 0..next {
            let limit = ReadLimit { records_max: 1, bytes_max: 1 << 20, wait_max: Duration::ZERO };
            let records = log.read(&queue, Offset::new(number), limit).await.unwrap();
            let record = records.iter().next().unwrap();
            assert!(*record.body().unwrap() == *value(number), "offset {number}");
        }
        assert_eq!(log.append(&queue, &batch(next)).await.unwrap().first.get(), next);
    }
}
