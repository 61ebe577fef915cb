//! Worlds that the model can reach: both folds on their journals, both readers on their queues.

use crate::journal::{Goes, Pair};
use crate::{Dice, queue, rules};
use onceflow_model::rules::{Bounds, Release, Rules};
use onceflow_model::step::next;
use onceflow_model::world::{Rec, World};

/// What can happen in these worlds keeps every promise, so the product must neither see lost data in a journal nor in a
/// queue that it read whole.
fn check(world: &World, rules: &Rules, bounds: &Bounds) {
    assert_eq!(world.bad, None);
    let mut pair = Pair::start();
    for record in &world.journal {
        assert!(pair.push(record, rules, bounds) == Goes::On, "{:?}", world.journal);
    }
    let lost = queue::compare(&world.sink);
    assert!(!lost, "{:?}", world.sink);
}

fn walk(rules: &Rules, bounds: &Bounds, walks: u64) -> usize {
    let mut longest = 0;
    for seed in 1..=walks {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut world = World::start(bounds);
        for step in 0.. {
            let mut all = next(&world, rules, bounds);
            if all.is_empty() || world.journal.len() > 40 {
                break;
            }
            world = all.swap_remove(dice.below(all.len())).1;
            if step % 8 == 0 {
                check(&world, rules, bounds);
            }
        }
        check(&world, rules, bounds);
        longest = longest.max(world.journal.len());
    }
    longest
}

fn wide() -> Bounds {
    Bounds { owners: 3, claims: 6, epochs: 4, faults: 5, crashes: 3, store_loss: true, ..Bounds::base() }
}

#[test]
fn product_and_model_agree_wherever_the_protocol_can_get() {
    let halves = Rules { release: Release::Off, ..rules() };
    let releasing = rules();
    let cases = [
        (halves, wide()),
        (halves, Bounds { parts: 2, outputs: 2, ..wide() }),
        (halves, Bounds { parts: 0, ..wide() }),
        (releasing, Bounds { halves: false, ..wide() }),
        (releasing, Bounds { power_journal: 1, power_sink: 1, ..wide() }),
        (Rules { low_ack_stops: true, ..releasing }, Bounds { power_journal: 1, parts: 2, ..wide() }),
    ];
    for (rules, bounds) in cases {
        let longest = walk(&rules, &bounds, 400);
        assert!(longest >= 14, "the journals stay short: {longest}");
    }
}

/// The comparison itself must be able to fail: with one rule of the model taken away, walks find a difference.
#[test]
fn a_model_without_a_rule_is_found_out() {
    let without_epochs = Rules { epoch_check: false, ..rules() };
    let mut pair = Pair::start();
    let bounds = Bounds { parts: 0, ..wide() };
    let commit = Rec::Commit { generation: 0, epoch: 1, published: 0, seq: 0, halves: [255; 2] };
    pair.push(&Rec::Claim { nonce: 0, expects: 255 }, &without_epochs, &bounds);
    pair.push(&commit, &without_epochs, &bounds);
    let found = std::panic::catch_unwind(move || pair.push(&commit, &without_epochs, &bounds));
    assert!(found.is_err());
}
