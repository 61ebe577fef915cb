//! Orderly moves: processes that come and go.

use crate::faulty::ledger::Ledger;
use crate::world::{Process, World, shared, until};
use onceflow::Standing;
use onceflow::topology::Delivery;

const QUEUES: u32 = 8;

fn given(processes: &[&Process]) -> u64 {
    processes.iter().map(|process| process.runtime.membership().tasks_given).sum()
}

/// Aim: an orderly move costs nobody anything. Method: 1, 2, 3, 4 and again 1 process under load.
async fn scale(ledger: Ledger, tasks: usize) {
    let world = World::new(ledger, QUEUES).await;
    let load = world.load();
    let putting = load.keep_putting(QUEUES);
    let mut processes = vec![world.start().await];
    shared(&[&processes[0]], tasks).await;
    for _ in 0..3 {
        processes.push(world.start().await);
        shared(&processes.iter().collect::<Vec<_>>(), tasks).await;
    }
    // What moved is the share of each that came, as it was then.
    let moved = given(&processes.iter().collect::<Vec<_>>());
    let most = (2..=4).map(|members| tasks.div_ceil(members)).sum::<usize>() as u64;
    assert!(moved <= most, "moved={moved} most={most}");
    let fenced: u64 = processes.iter().map(Process::fenced).sum();
    assert_eq!(fenced, 0, "a task was taken instead of given");
    while processes.len() > 1 {
        // The first one goes first: the others take its tasks.
        processes.remove(0).stop().await;
        shared(&processes.iter().collect::<Vec<_>>(), tasks).await;
    }
    load.stop(putting).await;
    world.exact(&load).await;
    let last = processes.remove(0);
    assert_eq!(last.fenced(), 0);
    last.stop().await;
    world.exact(&load).await;
    assert_eq!(world.copies().await, 0, "an orderly move repeats nothing, not even for plain consumers");
    assert_eq!(world.group.len(), 0, "everybody left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_one_process_to_four_and_back_under_load() {
    scale(Ledger::new("scale"), 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_one_process_to_four_and_back_with_a_repartition_and_plain_output() {
    scale(Ledger { repartition: true, delivery: Delivery::Outbox { framed: false }, ..Ledger::new("scale-rep") }, 9)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_and_repeats_nothing() {
    let world = World::new(Ledger { repartition: true, ..Ledger::new("rolling") }, QUEUES).await;
    let load = world.load();
    let putting = load.keep_putting(QUEUES);
    let mut processes = vec![world.start().await, world.start().await, world.start().await];
    shared(&processes.iter().collect::<Vec<_>>(), 9).await;
    for _ in 0..3 {
        processes.remove(0).stop().await;
        processes.push(world.start().await);
        shared(&processes.iter().collect::<Vec<_>>(), 9).await;
    }
    load.stop(putting).await;
    world.exact(&load).await;
    // Two may claim a task that was released and that nobody owns; one of them waits, and that is all.
    assert_eq!(world.copies().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_beyond_the_tasks_stand_by_and_take_over_after_a_kill() {
    let world = World::new(Ledger::new("standby"), 2).await;
    let load = world.load();
    let processes = [world.start().await, world.start().await, world.start().await];
    shared(&processes.iter().collect::<Vec<_>>(), 2).await;
    // The start of three at once takes a moment to settle.
    let mut loads = || {
        let mut loads: Vec<usize> = processes.iter().map(|process| process.owned().len()).collect();
        loads.sort_unstable();
        let standby: usize = processes.iter().map(|process| process.in_state(Standing::Standby).len()).sum();
        loads == [0, 1, 1] && standby == 4
    };
    until("two own a task each, the others are standbys", &mut loads).await;
    let (owners, idle): (Vec<Process>, Vec<Process>) = processes.into_iter().partition(|p| !p.owned().is_empty());
    assert_eq!((owners.len(), idle.len()), (2, 1));
    assert_eq!(idle[0].in_state(Standing::Standby).len(), 2);
    load.put(0..2, 50).await;
    world.exact(&load).await;
    let [killed, other] = <[Process; 2]>::try_from(owners).ok().unwrap();
    let (lost, given) = (killed.owned(), other.runtime.membership().tasks_given);
    killed.kill(&world).await;
    load.put(0..2, 50).await;
    world.exact(&load).await;
    assert_eq!(idle[0].owned(), lost, "the idle one took over");
    assert_eq!(other.runtime.membership().tasks_given, given, "nothing else moved");
    shared(&[&other, &idle[0]], 2).await;
}

/// Kills instead of orderly stops, one process after the other, until one is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_killed_processes_go_on_elsewhere() {
    let world = World::new(Ledger { repartition: true, ..Ledger::new("killed") }, QUEUES).await;
    let load = world.load();
    let putting = load.keep_putting(QUEUES);
    let mut processes = vec![];
    for _ in 0..4 {
        processes.push(world.start().await);
    }
    shared(&processes.iter().collect::<Vec<_>>(), 9).await;
    while processes.len() > 1 {
        processes.remove(0).kill(&world).await;
        shared(&processes.iter().collect::<Vec<_>>(), 9).await;
    }
    load.stop(putting).await;
    world.exact(&load).await;
}
