//! Queues that are added to a topic: case 15.

use crate::faulty::Call;
use crate::faulty::ledger::Ledger;
use crate::faulty::{Fault, On};
use crate::world::{World, shared, sources, until};
use onceflow::topology::StartPolicy;

/// `Latest` is for a job that never ran: what is written to a new queue before anybody knows of it counts, too.
fn ledger(job: &str) -> Ledger {
    Ledger { start: StartPolicy::Latest, ..Ledger::new(job) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_are_added_while_the_job_runs_are_read_from_their_first_message() {
    let world = World::new(ledger("growing"), 2).await;
    let load = world.load();
    let processes = [world.start().await, world.start().await];
    shared(&processes.iter().collect::<Vec<_>>(), 2).await;
    load.put(0..2, 10).await;
    world.exact(&load).await;
    world.queues(&world.ledger.input(), 4).await;
    load.put(2..4, 10).await;
    load.put(0..2, 10).await;
    shared(&processes.iter().collect::<Vec<_>>(), 4).await;
    world.exact(&load).await;
    for process in &processes {
        assert_eq!(process.runtime.membership().tasks_found, 2);
        assert_eq!(process.runtime.status().len(), 4);
    }
}

/// The process dies over the new queues: before their first Claim, and between it and their first epoch. The next one
/// finds the queues at its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_right_after_queues_were_found_loses_none_of_their_messages() {
    for nth in 1..=4 {
        let world = World::new(ledger(&format!("growing-crash-{nth}")), 2).await;
        let load = world.load();
        let first = world.start().await;
        shared(&[&first], 2).await;
        load.put(0..2, 10).await;
        world.exact(&load).await;
        let dies = first.log.on(
            On::of(Call::Append, &world.ledger.journal()),
            nth,
            Fault::Death { carried_out: nth % 2 == 0 },
        );
        world.queues(&world.ledger.input(), 4).await;
        load.put(2..4, 10).await;
        until("it died", || first.log.is_dead()).await;
        assert_eq!(first.log.fired(dies), 1);
        first.kill(&world).await;
        load.put(0..4, 10).await;
        let second = world.start().await;
        world.exact(&load).await;
        shared(&[&second], 4).await;
        assert_eq!(sources(second.owned()).len(), 4);
    }
}

/// Nobody ran when the queues came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_were_added_between_two_runs_are_read_from_their_first_message() {
    let world = World::new(ledger("grown"), 2).await;
    let load = world.load();
    let first = world.start().await;
    shared(&[&first], 2).await;
    load.put(0..2, 10).await;
    world.exact(&load).await;
    first.stop().await;
    world.queues(&world.ledger.input(), 4).await;
    load.put(0..4, 10).await;
    let second = world.start().await;
    world.exact(&load).await;
    shared(&[&second], 4).await;
}
