//! Half messages beyond the contract: what only this log's clock and places can show.

use super::{batch_of, bodies, quick, topic};
use crate::embedded::{EmbeddedLog, EmbeddedOptions};
use crate::{CheckBack, End, Log, MessageBatch, Verdict};
use futures_util::FutureExt;
use onceflow_types::{ErrorKind, HalfHandle, ManualClock, Offset};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

fn checking() -> EmbeddedOptions {
    EmbeddedOptions {
        check_after: Duration::from_secs(6),
        check_interval: Duration::from_secs(30),
        checks_max: 3,
        ..quick()
    }
}

fn handle_of(check: &CheckBack) -> HalfHandle {
    HalfHandle {
        target: check.ticket.target.clone(),
        commit_log_offset: check.ticket.commit_log_offset,
        half_queue_offset: check.ticket.half_queue_offset,
        unique_key: check.unique_key.clone(),
    }
}

#[tokio::test(start_paused = true)]
async fn check_backs_come_when_they_are_due_each_from_a_new_place_and_then_stop() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let began = Instant::now();
    let handle = log.prepare(&queue, &batch_of(&["half"])).await.unwrap().handle;
    let mut places = vec![handle.commit_log_offset];
    let mut last = None;
    for after in [6, 36, 66] {
        let check = log.next_check_back().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), after);
        assert_eq!(check.unique_key, handle.unique_key);
        places.push(check.ticket.commit_log_offset);
        last = Some(check);
    }
    places.dedup();
    assert_eq!(places.len(), 4, "each check gives the half a new place");
    assert!(timeout(Duration::from_hours(1), log.next_check_back()).await.is_err(), "given up after the third");
    // It can be ended by its first place and by any later one, as often as one likes.
    log.end(&handle, End::Commit).await.unwrap();
    log.end(&handle_of(&last.unwrap()), End::Commit).await.unwrap();
    assert_eq!(bodies(&log, &queue, 0).await, ["half", "half"]);
}

#[tokio::test(start_paused = true)]
async fn an_ended_half_is_not_asked_about_and_other_groups_are_never() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    let other = log.with_group("other").unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let ended = log.prepare(&queue, &batch_of(&["ended"])).await.unwrap().handle;
    let open = log.prepare(&queue, &batch_of(&["open"])).await.unwrap().handle;
    log.end(&ended, End::Rollback).await.unwrap();
    assert!(timeout(Duration::from_mins(1), other.next_check_back()).await.is_err());
    let check = log.next_check_back().await.unwrap();
    assert_eq!(check.unique_key, open.unique_key);
    log.answer_check_back(&check, Verdict::Rollback).await.unwrap();
    assert!(timeout(Duration::from_hours(1), log.next_check_back()).await.is_err());
    assert_eq!(log.offsets(&queue).await.unwrap().next, Offset::ZERO);
}

#[tokio::test(start_paused = true)]
async fn checks_go_on_after_an_opening_and_count_on() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    log.prepare(&queue, &batch_of(&["half"])).await.unwrap();
    let first = log.next_check_back().await.unwrap();
    drop(log);
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    for _ in 0..2 {
        let check = log.next_check_back().await.unwrap();
        assert_eq!((&check.unique_key, &check.properties), (&first.unique_key, &first.properties));
        assert!(check.ticket.commit_log_offset > first.ticket.commit_log_offset);
    }
    assert!(timeout(Duration::from_hours(1), log.next_check_back()).await.is_err());
}

#[tokio::test]
async fn a_waiting_check_back_hears_of_a_new_half() {
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions { check_after: Duration::ZERO, ..checking() };
    let log = EmbeddedLog::open(directory.path(), options).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let mut waiting = log.next_check_back();
    assert!((&mut waiting).now_or_never().is_none());
    let handle = log.prepare(&queue, &batch_of(&["half"])).await.unwrap().handle;
    assert_eq!(waiting.await.unwrap().unique_key, handle.unique_key);
}

#[tokio::test]
async fn a_key_given_by_the_producer_is_kept_and_a_half_is_one_message() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let mut own = MessageBatch::default();
    own.push_with_flag(-4, b"UNIQ_KEY\x01mine\x02a\x01b", b"body").unwrap();
    let handle = log.prepare(&queue, &own).await.unwrap().handle;
    assert_eq!(&*handle.unique_key, "mine");
    log.end(&handle, End::Commit).await.unwrap();
    let records = log.read(&queue, Offset::ZERO, super::NO_WAIT).await.unwrap();
    let record = records.iter().next().unwrap();
    assert_eq!(record.property("UNIQ_KEY"), Some(b"mine".as_slice()));
    assert_eq!(record.property("a"), Some(b"b".as_slice()));
    for wrong in [batch_of(&[]), batch_of(&["two", "messages"])] {
        assert_eq!(log.prepare(&queue, &wrong).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[tokio::test]
async fn a_handle_of_another_log_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), checking()).unwrap();
    let queues = topic(&log, 2).await;
    let handle = log.prepare(&queues[0], &batch_of(&["half"])).await.unwrap().handle;
    let strangers = [
        HalfHandle { commit_log_offset: 99, half_queue_offset: 99, ..handle.clone() },
        HalfHandle { half_queue_offset: 1, ..handle.clone() },
        HalfHandle { target: queues[1].clone(), ..handle.clone() },
        HalfHandle { unique_key: "other".into(), ..handle.clone() },
    ];
    for stranger in strangers {
        assert_eq!(log.end(&stranger, End::Commit).await.unwrap_err().kind(), ErrorKind::DataLoss, "{stranger:?}");
    }
    assert_eq!(log.offsets(&queues[0]).await.unwrap().next, Offset::ZERO);
}

#[tokio::test]
async fn halves_beyond_their_retention_are_gone_and_places_are_not_given_twice() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::default();
    let options =
        EmbeddedOptions { clock: Arc::new(clock.clone()), half_retention: Duration::from_millis(100), ..checking() };
    let log = EmbeddedLog::open(directory.path(), options.clone()).unwrap();
    let queue = topic(&log, 1).await.remove(0);
    let mut old = vec![];
    for _ in 0..5 {
        old.push(log.prepare(&queue, &batch_of(&["old"])).await.unwrap().handle);
    }
    clock.advance(100);
    log.end(&old[0], End::Commit).await.unwrap();
    clock.advance(1);
    let new = log.prepare(&queue, &batch_of(&["new"])).await.unwrap().handle;
    for handle in &old {
        assert_eq!(log.end(handle, End::Commit).await.unwrap_err().kind(), ErrorKind::DataLoss);
    }
    drop(log);
    let log = EmbeddedLog::open(directory.path(), options).unwrap();
    let newest = log.prepare(&queue, &batch_of(&["newest"])).await.unwrap().handle;
    assert!(newest.commit_log_offset > new.commit_log_offset);
    log.end(&new, End::Commit).await.unwrap();
    assert_eq!(bodies(&log, &queue, 0).await, ["old", "new"]);
}
