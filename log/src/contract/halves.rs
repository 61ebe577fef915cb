//! Half messages and check-backs: rules 6 to 9.

use super::Subject;
use super::support::{Room, Seen, after, batch, must, must_fail, unique};
use crate::{CheckBack, End, Prepared, Verdict, find_property};
use onceflow_types::{ErrorKind, HalfHandle, Offset};
use std::time::Duration;
use tokio::time::timeout;

/// The property that names a half wherever it shows up.
const UNIQUE_KEY: &str = "UNIQ_KEY";

impl Room<'_> {
    async fn prepare(&self, text: &str) -> HalfHandle {
        let Prepared { handle, .. } = must("prepare", self.log.prepare(&self.queue(), &batch([text]))).await;
        assert_eq!(handle.target, self.queue());
        assert!(!handle.unique_key.is_empty());
        handle
    }

    async fn end(&self, handle: &HalfHandle, end: End) {
        must("end", self.log.end(handle, end)).await;
    }

    /// The next check-back about `handle`; those about others are answered Unknown.
    async fn check_back(&self, handle: &HalfHandle, within: Duration) -> Option<CheckBack> {
        let asking = async {
            loop {
                let check = self.log.next_check_back().await.expect("check-backs can be taken");
                if check.unique_key == handle.unique_key {
                    return check;
                }
                must("answer_check_back", self.log.answer_check_back(&check, Verdict::Unknown)).await;
            }
        };
        timeout(within, asking).await.ok()
    }
}

pub(super) async fn a_half_is_invisible_until_it_is_committed(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("half").await;
    let rolled_back = room.prepare("never").await;
    room.end(&rolled_back, End::Rollback).await;
    assert!(room.up_to_barrier(&room.queue(), Offset::ZERO).await.is_empty(), "rule 6: halves are invisible");

    room.end(&handle, End::Commit).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["barrier", "half"]);
    let seen = room.read_through(&room.queue(), Offset::ZERO, after(Offset::ZERO, 1)).await;
    let half = seen.last().expect("two records were read");
    assert_eq!(half.property("KEYS"), Some(b"half".as_slice()), "rule 6: its properties are those of the half");
    assert_eq!(half.property(UNIQUE_KEY), Some(handle.unique_key.as_bytes()));
    // What marked the half may stay: TRAN_MSG and PGROUP on any real broker, REAL_TOPIC and REAL_QID on some versions.
}

pub(super) async fn several_tries_are_several_halves(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let (first, second) = (room.prepare("try").await, room.prepare("try").await);
    assert_ne!(first.unique_key, second.unique_key, "rule 6: several tries are several halves");
    assert_ne!(first.commit_log_offset, second.commit_log_offset);
    room.end(&first, End::Rollback).await;
    room.end(&second, End::Commit).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["try"]);
    let seen = room.read_through(&room.queue(), Offset::ZERO, Offset::ZERO).await;
    assert_eq!(seen.first().and_then(|half| half.property(UNIQUE_KEY)), Some(second.unique_key.as_bytes()));
}

pub(super) async fn each_commit_makes_the_message_visible_once_more(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("again").await;
    for _ in 0..3 {
        room.end(&handle, End::Commit).await;
    }
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["again"; 3], "rule 7");
}

pub(super) async fn a_commit_works_after_a_rollback(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("late").await;
    room.end(&handle, End::Rollback).await;
    room.end(&handle, End::Rollback).await;
    room.end(&handle, End::Commit).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["late"], "rule 7");
}

pub(super) async fn a_half_can_be_ended_after_a_crash(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let (one, two) = (room.prepare("one").await, room.prepare("two").await);
    room.end(&one, End::Commit).await;
    let room = room.crash().await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["one"], "rule 2, for an end");
    room.end(&two, End::Commit).await;
    let texts = room.up_to_barrier(&room.queue(), Offset::ZERO).await;
    assert_eq!(texts, ["one", "barrier", "two"], "rule 2, for a half");
}

pub(super) async fn another_group_cannot_end_a_half(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("mine").await;
    let other = subject.log(&unique("group")).await;
    for end in [End::Commit, End::Rollback] {
        let error = must_fail("end", other.end(&handle, end)).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "rule 8: {error:?}");
    }
    assert!(room.up_to_barrier(&room.queue(), Offset::ZERO).await.is_empty(), "rule 8");
    let same_group = subject.log(&room.group).await;
    must("end", same_group.end(&handle, End::Commit)).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["barrier", "mine"], "rule 8");
}

pub(super) async fn a_check_back_comes_again_with_the_properties_unchanged(subject: &dyn Subject) {
    let Some(within) = subject.notes().check_back_within else { return };
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("asked").await;
    for round in 0..2 {
        let check = room.check_back(&handle, within).await.unwrap_or_else(|| panic!("rule 9: no check, round={round}"));
        assert_eq!(find_property(&check.properties, "KEYS"), Some(b"asked".as_slice()), "rule 9");
        assert_eq!(find_property(&check.properties, UNIQUE_KEY), Some(handle.unique_key.as_bytes()), "rule 9");
        assert_eq!(check.ticket.target, handle.target);
        must("answer_check_back", room.log.answer_check_back(&check, Verdict::Unknown)).await;
    }
    room.end(&handle, End::Commit).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["asked"], "rule 7: by the first handle");
}

pub(super) async fn a_check_back_answered_with_rollback_does_not_end_the_half_for_good(subject: &dyn Subject) {
    let Some(within) = subject.notes().check_back_within else { return };
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("rescued").await;
    let check = room.check_back(&handle, within).await.expect("rule 9: a check-back comes");
    must("answer_check_back", room.log.answer_check_back(&check, Verdict::Rollback)).await;
    assert!(room.up_to_barrier(&room.queue(), Offset::ZERO).await.is_empty(), "a rollback shows nothing");
    room.end(&handle, End::Commit).await;
    let texts = room.up_to_barrier(&room.queue(), Offset::ZERO).await;
    assert_eq!(texts, ["barrier", "rescued"], "rule 7: a commit works after a rollback");
}

pub(super) async fn a_half_that_was_given_up_can_still_be_committed(subject: &dyn Subject) {
    let notes = subject.notes();
    let (Some(within), Some(checks_max)) = (notes.check_back_within, notes.checks_max) else { return };
    let room = Room::new(subject, 1).await;
    let handle = room.prepare("forgotten").await;
    let mut checks = 0;
    while let Some(check) = room.check_back(&handle, within).await {
        must("answer_check_back", room.log.answer_check_back(&check, Verdict::Unknown)).await;
        checks += 1;
        assert!(checks <= 2 * checks_max, "rule 9: up to the log's limit, {checks_max}");
    }
    room.end(&handle, End::Commit).await;
    assert_eq!(room.up_to_barrier(&room.queue(), Offset::ZERO).await, ["forgotten"], "rule 7");
    let seen = room.read_through(&room.queue(), Offset::ZERO, Offset::ZERO).await;
    assert_eq!(seen.iter().map(Seen::text).collect::<Vec<_>>(), ["forgotten"]);
}
