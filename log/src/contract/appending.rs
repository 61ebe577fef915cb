//! Topics and appends: rules 1 to 3, 10 and 12.

use super::Subject;
use super::support::{Room, Seen, after, batch, must, must_fail, partitions_of_new, unique};
use crate::{MESSAGE_OVERHEAD_BYTES, MessageBatch, Properties, Queues, TopicSpec};
use futures_util::FutureExt;
use onceflow_types::{ErrorKind, Offset, Partition};

pub(super) async fn a_topic_has_the_queues_it_was_given(subject: &dyn Subject) {
    let room = Room::new(subject, 3).await;
    let topic = room.queue().topic;
    let on_first = room.queues.iter().filter(|queue| queue.broker == room.queue().broker);
    assert_eq!(on_first.map(|queue| queue.queue).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(room.queues.iter().all(|queue| queue.topic == topic), "{:?}", room.queues);
    assert!(room.queues.is_sorted(), "{:?}", room.queues);

    // A topic that exists with at least these queues is left as it is.
    let fewer = TopicSpec { topic: topic.clone(), queues: Queues::PerBroker(2) };
    must("create_topic", room.log.create_topic(&fewer)).await;
    assert_eq!(must("partitions", room.log.partitions(&topic)).await, room.queues);

    let error = must_fail("partitions", room.log.partitions(&unique("absent"))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

pub(super) async fn a_topic_can_be_like_another(subject: &dyn Subject) {
    let room = Room::new(subject, 3).await;
    let like = TopicSpec { topic: unique("like").into(), queues: Queues::SameAs(room.queue().topic) };
    must("create_topic", room.log.create_topic(&like)).await;
    let expected: Vec<Partition> = room.queues.iter().map(|queue| queue.in_topic(like.topic.clone())).collect();
    assert_eq!(partitions_of_new(subject, &*room.log, &like.topic).await, expected);

    let orphan = TopicSpec { topic: unique("orphan").into(), queues: Queues::SameAs(unique("absent").into()) };
    let error = must_fail("create_topic", room.log.create_topic(&orphan)).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

pub(super) async fn offsets_are_dense_and_a_batch_gets_consecutive_ones(subject: &dyn Subject) {
    let room = Room::new(subject, 2).await;
    let mut next = vec![Offset::ZERO; room.queues.len()];
    for round in 0..10 {
        for (queue, next) in room.queues.iter().zip(&mut next) {
            let texts: Vec<String> = (0..=round % 4).map(|number| format!("{round}-{number}")).collect();
            let acked = must("append", room.log.append(queue, &batch(&texts))).await;
            assert_eq!(acked.first, *next, "rule 1: offsets are dense");
            *next = after(*next, texts.len());
        }
    }
    for (queue, next) in room.queues.iter().zip(&next) {
        room.wait_for_next(queue, *next).await;
        let range = must("offsets", room.log.offsets(queue)).await;
        assert_eq!((range.first, range.next), (Offset::ZERO, *next));
    }
}

pub(super) async fn what_was_acknowledged_survives_a_crash(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let texts: Vec<String> = (0..20).map(|number| format!("kept-{number}")).collect();
    for pair in texts.chunks(2) {
        must("append", room.log.append(&queue, &batch(pair))).await;
    }
    let room = room.crash().await;
    assert_eq!(must("partitions", room.log.partitions(&queue.topic)).await, room.queues);
    let seen = room.read_through(&queue, Offset::ZERO, after(Offset::ZERO, 19)).await;
    assert_eq!(seen.iter().map(Seen::text).collect::<Vec<_>>(), texts, "rule 2: acknowledged means kept");
    assert_eq!(room.append(&queue, "next").await, after(Offset::ZERO, 20), "rule 1, over a crash");
}

pub(super) async fn what_is_refused_is_not_in_the_log(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    for absent in [queue.in_topic(unique("absent")), Partition { queue: 4_000, ..queue.clone() }] {
        let error = must_fail("append", room.log.append(&absent, &batch(["lost"]))).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "rule 3: {error:?}");
        let error = must_fail("prepare", room.log.prepare(&absent, &batch(["lost"]))).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "rule 3: {error:?}");
        let error = must_fail("offsets", room.log.offsets(&absent)).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    }
    let limit = room.log.message_bytes_max();
    let mut largest = MessageBatch::default();
    largest.push(b"", &vec![b'x'; limit]).expect("the limit is far below 2 GiB");
    must("append", room.log.append(&queue, &largest)).await;
    let mut larger = MessageBatch::default();
    larger.push(b"", &vec![b'x'; limit + 1]).expect("the limit is far below 2 GiB");
    for refused in [
        must_fail("append", room.log.append(&queue, &larger)).await,
        must_fail("prepare", room.log.prepare(&queue, &larger)).await,
    ] {
        assert_eq!(refused.kind(), ErrorKind::Invalid, "rule 3: {refused:?}");
        let text = refused.to_string();
        let named = [limit + 1, limit].iter().all(|number| text.contains(&number.to_string()));
        assert!(named, "an error about size names size and limit: {text}");
    }
    let last = room.append(&queue, "last").await;
    assert_eq!(last, after(Offset::ZERO, 1), "rule 3: what is refused is not in the log");
}

pub(super) async fn a_message_comes_back_as_it_was_given(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let body: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let mut properties = Properties::default();
    properties.push("own", "größer = besser").expect("a valid property");
    properties.push("KEYS", "order-7").expect("a valid property");
    let mut given = MessageBatch::default();
    given.push(properties.as_bytes(), &body).expect("small");
    given.push(b"", b"x").expect("small");
    must("append", room.log.append(&queue, &given)).await;
    let seen = room.read_through(&queue, Offset::ZERO, after(Offset::ZERO, 1)).await;
    let [first, second] = seen.as_slice() else { panic!("two messages: {seen:?}") };
    assert_eq!(first.body, body);
    assert_eq!(first.property("own"), Some("größer = besser".as_bytes()));
    assert_eq!(first.property("KEYS"), Some(b"order-7".as_slice()));
    assert_eq!((second.body.as_ref(), second.property("own")), (b"x".as_slice(), None));
    assert_eq!(given.as_bytes().len(), 2 * MESSAGE_OVERHEAD_BYTES + properties.as_bytes().len() + 10_001);
}

/// Aim: a dropped call has an unknown outcome and does no other harm. Method: poll appends once, drop them, then append
/// in earnest; the queue holds the earnest ones in order, and of the dropped ones each not more than once.
pub(super) async fn an_append_that_was_dropped_leaves_the_handle_usable(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    for number in 0..10 {
        let dropped = batch([format!("dropped-{number}")]);
        let _ = room.log.append(&queue, &dropped).now_or_never();
        room.append(&queue, &format!("kept-{number}")).await;
    }
    let texts = room.up_to_barrier(&queue, Offset::ZERO).await;
    let kept: Vec<&String> = texts.iter().filter(|text| text.starts_with("kept")).collect();
    assert_eq!(kept, (0..10).map(|number| format!("kept-{number}")).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    for number in 0..10 {
        let copies = texts.iter().filter(|text| **text == format!("dropped-{number}")).count();
        assert!(copies <= 1, "rule 10: a dropped append is there {copies} times");
    }
}

pub(super) async fn an_append_over_a_link_is_sent_over_it_or_not_at_all(subject: &dyn Subject) {
    let room = Room::new(subject, 1).await;
    let queue = room.queue();
    let first = must("append", room.log.append(&queue, &batch(["first"]))).await;
    let second = must("append_over", room.log.append_over(&first.link, &queue, &batch(["second"]))).await;
    assert_eq!((second.first, &second.link), (after(first.first, 1), &first.link), "rule 12: over that link");
    assert!(room.log.is_open(&first.link), "rule 12: a link that carried an append is open");

    let room = room.crash().await;
    let third = must("append", room.log.append(&queue, &batch(["third"]))).await;
    if third.link == first.link {
        // A subject that cannot crash: its link is as good as before.
        return;
    }
    assert!(!room.log.is_open(&first.link), "rule 12: a closed link stays closed");
    let error = must_fail("append_over", room.log.append_over(&first.link, &queue, &batch(["void"]))).await;
    assert_eq!(error.kind(), ErrorKind::Retry, "{error:?}");
    let fourth = must("append", room.log.append(&queue, &batch(["fourth"]))).await;
    assert_eq!(fourth.first, after(third.first, 1), "rule 12: nothing was sent");
}
