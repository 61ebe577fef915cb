//! Reads: rules 4, 5, 11 and 14.

use super::Subject;
use super::support::{CALL_WITHIN, Room, Seen, after, batch, must, must_fail};
use crate::ReadLimit;
use futures_util::future::join;
use onceflow_types::{ErrorKind, Offset, Timestamp};
use std::time::Duration;
use tokio::time::timeout;

const NO_WAIT: ReadLimit = ReadLimit { records_max: 1_000, bytes_max: 1 << 20, wait_max: Duration::ZERO };

pub(super) async fn a_read_starts_anywhere_and_is_dense(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let texts: Vec<String> = (0..30).map(|number| format!("record-{number}")).collect();
    for batch_of in texts.chunks(7) {
        must("append", room.log.append(&queue, &batch(batch_of))).await;
    }
    for from in 0..30 {
        let seen = room.read_through(&queue, after(Offset::ZERO, from), after(Offset::ZERO, 29)).await;
        let expected: Vec<&str> = texts.iter().skip(from).map(String::as_str).collect();
        assert_eq!(seen.iter().map(Seen::text).collect::<Vec<_>>(), expected, "rule 4: from={from}");
    }
}

pub(super) async fn a_read_keeps_its_limits(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let texts: Vec<String> = (0..10).map(|number| format!("{number}").repeat(1_000)).collect();
    must("append", room.log.append(&queue, &batch(&texts))).await;
    room.wait_for_next(&queue, after(Offset::ZERO, 10)).await;

    let three = ReadLimit { records_max: 3, ..NO_WAIT };
    assert!(must("read", room.log.read(&queue, Offset::ZERO, three)).await.len() <= 3);
    // One record is returned even if it is larger than the limit.
    let tiny = ReadLimit { bytes_max: 1, ..NO_WAIT };
    assert_eq!(must("read", room.log.read(&queue, Offset::ZERO, tiny)).await.len(), 1);
    for zero in [ReadLimit { records_max: 0, ..NO_WAIT }, ReadLimit { bytes_max: 0, ..NO_WAIT }] {
        let error = must_fail("read", room.log.read(&queue, Offset::ZERO, zero)).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    }
}

pub(super) async fn a_read_tells_how_much_is_left(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    must("append", room.log.append(&queue, &batch(["a", "b", "c", "d", "e"]))).await;
    room.wait_for_next(&queue, after(Offset::ZERO, 5)).await;
    for (from, records_max) in [(0, 1), (1, 3), (2, 2), (0, 5), (4, 9)] {
        let limit = ReadLimit { records_max, ..NO_WAIT };
        let records = must("read", room.log.read(&queue, after(Offset::ZERO, from), limit)).await;
        let behind = (5 - from - records.len()) as u64;
        assert_eq!(records.remaining(), behind, "rule 14: from={from} records_max={records_max}");
    }
    let nothing = must("read", room.log.read(&queue, after(Offset::ZERO, 5), NO_WAIT)).await;
    assert_eq!(nothing.remaining(), 0, "rule 14");
}

pub(super) async fn a_read_outside_the_range_is_data_loss(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    must("append", room.log.append(&queue, &batch(["a", "b", "c"]))).await;
    room.wait_for_next(&queue, after(Offset::ZERO, 3)).await;
    assert!(must("read", room.log.read(&queue, after(Offset::ZERO, 3), NO_WAIT)).await.is_empty());
    let error = must_fail("read", room.log.read(&queue, after(Offset::ZERO, 1_234), NO_WAIT)).await;
    assert_eq!(error.kind(), ErrorKind::DataLoss, "rule 4: {error:?}");
    assert!(error.to_string().contains("1234"), "rule 4: the offset is in the message: {error}");
}

pub(super) async fn a_read_waits_for_an_append_and_no_longer_than_asked(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let short = ReadLimit { wait_max: Duration::from_millis(50), ..NO_WAIT };
    let nothing = timeout(CALL_WITHIN, room.log.read(&queue, Offset::ZERO, short)).await.expect("rule 11");
    assert!(nothing.expect("an empty queue can be read").is_empty());

    let long = ReadLimit { wait_max: subject.notes().visible_within, ..NO_WAIT };
    let waiting = async {
        let records = must("read", room.log.read(&queue, Offset::ZERO, long)).await;
        records.iter().map(|record| Seen::new(record).text().to_owned()).collect::<Vec<_>>()
    };
    let (texts, _) = join(waiting, room.append(&queue, "awaited")).await;
    assert_eq!(texts, ["awaited"]);
}

/// Aim: a barrier proves absence. Method: append to one queue, then to another on the same broker; once the later one
/// can be read, a read without waiting finds the earlier one.
pub(super) async fn a_later_message_proves_the_earlier_ones(subject: &dyn Subject) {
    let room = Room::new(subject, 2).await;
    let same_broker: Vec<_> = room.queues.iter().filter(|queue| queue.broker == room.queue().broker).collect();
    let [early, late] = same_broker.as_slice() else { panic!("two queues on a broker: {same_broker:?}") };
    for round in 0..20 {
        let (first, second) = (room.append(early, "early").await, room.append(late, "late").await);
        room.read_through(late, second, second).await;
        let records = must("read", room.log.read(early, first, NO_WAIT)).await;
        assert_eq!(records.next_offset(), Some(first.next()), "rule 5: round={round}");
    }
}

pub(super) async fn an_offset_can_be_found_by_time(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    must("append", room.log.append(&queue, &batch(["a", "b", "c"]))).await;
    room.wait_for_next(&queue, after(Offset::ZERO, 3)).await;
    let records = must("read", room.log.read(&queue, Offset::ZERO, NO_WAIT)).await;
    let stored = records.iter().next().expect("it was waited for").stored();
    assert_eq!(must("offset_at", room.log.offset_at(&queue, stored)).await, Offset::ZERO);
    assert_eq!(must("offset_at", room.log.offset_at(&queue, Timestamp::from_millis(0))).await, Offset::ZERO);
    let tomorrow = stored.saturating_add(86_400_000);
    assert_eq!(must("offset_at", room.log.offset_at(&queue, tomorrow)).await, after(Offset::ZERO, 3));
}
