//! A clean run is found clean, and each fault is found as what it is.

use super::*;
use crate::identity::written;
use crate::report::Figures as Counts;

/// A small run: three payments of one card from two queues, in two epochs, and the output that belongs to it.
struct World {
    input: Vec<Message>,
    output: Vec<Message>,
}

fn message(queue: u32, body: String, properties: &[(&str, String)]) -> Message {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Message { broker: "b".to_owned(), queue, offset: 0, body, properties }
}

fn payment(queue: u32, id: u64, amount: i64) -> Message {
    message(queue, format!(r#"{{"id":{id},"card":"c","amount":{amount}}}"#), &[])
}

fn identity(sequence: u64, epoch: u64) -> Identity {
    Identity {
        job: "soak".to_owned(),
        task: "01;s;b;0".to_owned(),
        generation: 7,
        epoch,
        sink: "out".to_owned(),
        floor: 0,
        sequence,
    }
}

fn said(identity: &Identity, figures: [i64; 5]) -> Message {
    let [id, count, sum, min, max] = figures;
    let body = format!(r#"{{"card":"c","id":{id},"count":{count},"sum":{sum},"min":{min},"max":{max}}}"#);
    let stored = format!("KEY-{}-{}", identity.sequence, identity.epoch);
    message(2, body, &[(PROPERTY, written(identity)), (STORED, stored)])
}

impl World {
    fn new() -> World {
        World {
            input: vec![payment(0, 1, 10), payment(0, 2, -4), payment(1, 3, 7), payment(1, 4, 1)],
            output: vec![
                said(&identity(0, 1), [1, 1, 10, 10, 10]),
                said(&identity(1, 1), [3, 2, 17, 7, 10]),
                said(&identity(2, 1), [2, 3, 13, -4, 10]),
                said(&identity(3, 2), [4, 4, 14, -4, 10]),
            ],
        }
    }

    fn counts(&self) -> Counts {
        let mut judge = Judge::new("soak");
        self.input.iter().for_each(|message| judge.input(message).unwrap());
        self.output.iter().for_each(|message| judge.output(message));
        let report = judge.verdict();
        let counts = report.figures.clone();
        let Counts { lost, doubled, out_of_order, wrong, torn, conflicting, foreign, .. } = counts;
        let faults = lost + doubled + out_of_order + wrong + torn + conflicting + foreign;
        assert_eq!(report.is_clean(), faults == 0);
        assert_eq!(report.findings().count() as u64, faults, "each fault is told");
        counts
    }
}

/// What a clean run counts.
fn clean() -> Counts {
    Counts { input: 4, outputs: 4, ..Counts::default() }
}

#[test]
fn a_clean_run_is_clean() {
    assert_eq!(World::new().counts(), clean());
}

#[test]
fn raw_order_does_not_matter_where_sequences_say_it() {
    let mut world = World::new();
    world.output.swap(0, 2);
    assert_eq!(world.counts(), clean());
}

#[test]
fn a_lost_record_inside_an_epoch_is_lost_and_tears_it() {
    let mut world = World::new();
    world.output.remove(1);
    assert_eq!(world.counts(), Counts { outputs: 3, lost: 1, torn: 1, wrong: 1, ..clean() });
}

#[test]
fn a_lost_record_at_the_end_is_lost() {
    let mut world = World::new();
    world.output.pop();
    assert_eq!(world.counts(), Counts { outputs: 3, lost: 1, wrong: 1, ..clean() });
}

#[test]
fn a_payment_that_was_never_processed_is_lost() {
    let mut world = World::new();
    world.input.push(payment(1, 5, 100));
    assert_eq!(world.counts(), Counts { input: 5, lost: 1, wrong: 1, ..clean() });
}

#[test]
fn a_payment_that_was_processed_twice_is_doubled() {
    let mut world = World::new();
    world.output.push(said(&identity(4, 3), [4, 5, 15, -4, 10]));
    assert_eq!(world.counts(), Counts { outputs: 5, doubled: 1, wrong: 1, ..clean() });
}

#[test]
fn a_payment_that_is_in_the_input_twice_must_be_processed_twice() {
    let mut world = World::new();
    world.input.push(payment(1, 4, 1));
    assert_eq!(world.counts(), Counts { input: 5, lost: 1, wrong: 1, ..clean() });
    world.output.push(said(&identity(4, 3), [4, 5, 15, -4, 10]));
    assert_eq!(world.counts(), Counts { input: 5, outputs: 5, ..clean() });
}

#[test]
fn a_wrong_sum_is_wrong() {
    let mut world = World::new();
    world.output[3] = said(&identity(3, 2), [4, 4, 15, -4, 10]);
    // The step and the end.
    assert_eq!(world.counts(), Counts { wrong: 2, ..clean() });
    world.output[3] = said(&identity(3, 2), [4, 4, 14, -4, 11]);
    assert_eq!(world.counts(), Counts { wrong: 2, ..clean() });
}

#[test]
fn swapped_payments_of_one_queue_are_out_of_order() {
    let mut world = World::new();
    world.output[0] = said(&identity(0, 1), [2, 1, -4, -4, -4]);
    world.output[1] = said(&identity(1, 1), [3, 2, 3, -4, 7]);
    world.output[2] = said(&identity(2, 1), [1, 3, 13, -4, 10]);
    assert_eq!(world.counts(), Counts { out_of_order: 1, ..clean() });
}

#[test]
fn a_card_in_two_queues_is_out_of_order() {
    let mut world = World::new();
    // A task of its own, as a channel is per queue.
    let other = Identity { task: "01;s;b;1".to_owned(), ..identity(0, 1) };
    world.output[3] = said(&other, [4, 4, 14, -4, 10]);
    world.output[3].queue = 3;
    assert_eq!(world.counts(), Counts { out_of_order: 1, ..clean() });
}

#[test]
fn exact_copies_are_raw_duplicates_by_their_cause() {
    let mut world = World::new();
    let copy = world.output[1].clone();
    let mut sent = copy.clone();
    sent.properties.insert(STORED.to_owned(), "another".to_owned());
    world.output.extend([copy, sent]);
    assert_eq!(world.counts(), Counts { raw_duplicates: 2, sent_again: 2, ..clean() });
}

#[test]
fn a_half_may_be_ended_twice_but_no_other_half_of_its_record() {
    let mut world = World::new();
    for message in &mut world.output {
        message.properties.insert(OF_A_HALF.to_owned(), "soak-producer".to_owned());
    }
    let copy = world.output[1].clone();
    world.output.push(copy.clone());
    assert_eq!(world.counts(), Counts { raw_duplicates: 1, ended_again: 1, ..clean() });
    let mut orphan = copy;
    orphan.properties.insert(STORED.to_owned(), "another".to_owned());
    world.output.push(orphan);
    assert_eq!(world.counts(), Counts { raw_duplicates: 1, ended_again: 1, conflicting: 1, ..clean() });
}

#[test]
fn another_message_under_the_same_number_conflicts() {
    let mut world = World::new();
    world.output.push(said(&identity(1, 1), [3, 2, 18, 7, 10]));
    assert_eq!(world.counts(), Counts { conflicting: 1, ..clean() });
    let mut world = World::new();
    // The same record, of an owner that was fenced.
    world.output.push(said(&Identity { generation: 6, ..identity(1, 1) }, [3, 2, 17, 7, 10]));
    assert_eq!(world.counts(), Counts { conflicting: 1, ..clean() });
}

#[test]
fn an_epoch_of_two_generations_is_torn() {
    let mut world = World::new();
    world.output[2] = said(&Identity { generation: 8, ..identity(2, 1) }, [2, 3, 13, -4, 10]);
    world.output[3] = said(&Identity { generation: 8, ..identity(3, 2) }, [4, 4, 14, -4, 10]);
    assert_eq!(world.counts(), Counts { torn: 1, ..clean() });
}

#[test]
fn an_epoch_behind_a_later_one_is_torn() {
    let mut world = World::new();
    world.output[1] = said(&identity(1, 2), [3, 2, 17, 7, 10]);
    assert_eq!(world.counts(), Counts { torn: 1, ..clean() });
}

#[test]
fn foreign_messages_are_counted_and_change_nothing() {
    let mut world = World::new();
    let good = world.output[3].clone();
    let mut bare = good.clone();
    bare.properties.clear();
    let mut damaged = good.clone();
    damaged.properties.insert(PROPERTY.to_owned(), written(&identity(4, 3)).replace("soak", "sock"));
    let other_job = said(&Identity { job: "other".to_owned(), ..identity(4, 3) }, [4, 5, 15, -4, 10]);
    let mut no_body = said(&identity(4, 3), [4, 5, 15, -4, 10]);
    no_body.body = "{}".to_owned();
    world.output.extend([bare, damaged, other_job, no_body]);
    assert_eq!(world.counts(), Counts { foreign: 4, ..clean() });
}

#[test]
fn records_of_nobody_are_foreign() {
    let mut world = World::new();
    world.output.push(said(&identity(4, 3), [99, 5, 15, -4, 10]));
    let counts = world.counts();
    assert_eq!((counts.foreign, counts.lost, counts.doubled), (1, 0, 0));
}

#[test]
fn an_input_that_is_no_payment_is_an_error() {
    assert!(Judge::new("soak").input(&message(0, "{}".to_owned(), &[])).unwrap_err().contains("no payment"));
}
