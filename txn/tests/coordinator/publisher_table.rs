//! `coordinator_publisher.txt`.

use crate::owner_table::channel;
use crate::table::{Step as Line, run};
use onceflow_txn::{Item, ItemId, LinkId, PublishPlan, Publisher, Step, Work};
use onceflow_types::{Epoch, HalfHandle, Sequence};
use std::time::Duration;

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// `end:pay`, `send:log` or `internal:mid`, with sequences as they come.
fn plan(line: &Line<'_>) -> PublishPlan {
    let items = line.text("items").unwrap_or_default().split(',').filter(|item| !item.is_empty());
    let items = items.zip(0..).map(|(item, nth)| {
        let (work, sink) = item.split_once(':').unwrap();
        let channel = channel(sink);
        let handle = HalfHandle {
            target: channel.target.clone(),
            commit_log_offset: nth,
            half_queue_offset: nth,
            unique_key: "K".into(),
        };
        let end = work == "end";
        let work_of = if end { Work::End(handle) } else { Work::Send(vec![1]) };
        Item { channel, first: Sequence::new(nth), count: 1, internal: work == "internal", work: work_of }
    });
    PublishPlan { epoch: Epoch::new(line.number("epoch").unwrap()), items: items.collect() }
}

fn id(text: &str) -> ItemId {
    let (epoch, index) = text.split_once('.').unwrap();
    ItemId { epoch: Epoch::new(epoch.parse().unwrap()), index: index.parse().unwrap() }
}

fn show(ids: &[ItemId]) -> String {
    ids.iter().map(|id| format!("{}.{}", id.epoch, id.index)).collect::<Vec<_>>().join(" ")
}

fn link(line: &Line<'_>) -> LinkId {
    LinkId { broker: line.text("broker").unwrap_or("b").into(), connection: line.or("link", 1) }
}

struct World {
    publisher: Publisher,
    ticket: u64,
}

fn step(world: &mut World, line: &Line<'_>) -> String {
    let publisher = &mut world.publisher;
    match line.verb {
        "new" => {
            let in_flight_max = line.or("in-flight", 64) as usize;
            *publisher = Publisher::new(Epoch::new(line.or("through", 0)), seconds(10), in_flight_max);
        }
        "take-over" => publisher.take_over(vec![plan(line)], seconds(line.or("at", 0)), line.has("wait")),
        "decided" => publisher.decided(plan(line)),
        "lease" => publisher.lease_from(seconds(line.or("at", 0))),
        "ended" => line.words.iter().for_each(|word| publisher.ended(id(word), link(line))),
        "sent" => line.words.iter().for_each(|word| publisher.sent(id(word))),
        "unknown" => line.words.iter().for_each(|word| publisher.unknown(id(word))),
        "scanned" => {
            let asked: Vec<ItemId> = line.words.iter().map(|word| id(word)).collect();
            let seen: Vec<ItemId> = line.text("seen").into_iter().flat_map(|seen| seen.split(',')).map(id).collect();
            publisher.scanned(&asked, |id| seen.contains(&id));
        }
        "ticket" => world.ticket = publisher.ticket(),
        "acked" => {
            let ticket = if line.has("early") { world.ticket } else { publisher.ticket() };
            publisher.send_acknowledged(&link(line), ticket);
        }
        "want-proof" => publisher.want_proof(),
        "prove-failed" => publisher.prove_failed(),
        "step" => {
            return match publisher.step(seconds(line.or("at", 0))) {
                Step::Idle => "idle".into(),
                Step::WaitUntil(until) => format!("wait until {}", until.as_secs()),
                Step::RenewLease => "renew the lease".into(),
                Step::Scan(ids) => format!("scan {}", show(&ids)),
                Step::Prove(brokers) => format!("prove {}", brokers.join(" ")),
                Step::Publish(ids) => format!("publish {}", show(&ids)),
            };
        }
        verb => panic!("{verb}"),
    }
    format!("through={} unpublished={}", publisher.published_through(), publisher.unpublished())
}

#[test]
fn the_publisher_decides_as_written_down() {
    let fresh = || World { publisher: Publisher::new(Epoch::ZERO, seconds(10), 64), ticket: 0 };
    run("coordinator_publisher", fresh, step);
}
