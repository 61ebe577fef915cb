//! Processes that are thought to be gone and are not: case 13 in the large, goal G4.

use crate::faulty::ledger::Ledger;
use crate::world::{Process, World, shared, until};

const QUEUES: u32 = 6;

/// A process is paused wherever it is. The others take its tasks, and all its input is worked on; then it goes on as if
/// nothing had happened, and is fenced. In the end it has its share again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_process_loses_its_tasks_and_is_fenced_when_it_goes_on() {
    let world = World::new(Ledger { repartition: true, ..Ledger::new("zombie") }, QUEUES).await;
    let load = world.load();
    let processes = [world.start().await, world.start().await, world.start().await];
    let all: Vec<&Process> = processes.iter().collect();
    shared(&all, 7).await;
    for (turn, zombie) in processes.iter().enumerate() {
        let others: Vec<&Process> = processes.iter().filter(|other| other.member() != zombie.member()).collect();
        let putting = load.keep_putting(QUEUES);
        until("the zombie works", || zombie.runtime.status().values().any(|status| status.epoch.get() > 0)).await;
        zombie.log.freeze(true);
        load.stop(putting).await;
        let fenced = zombie.fenced();
        world.group.silent(&zombie.member(), true);
        shared(&others, 7).await;
        load.put(0..QUEUES, 20).await;
        world.exact(&load).await;
        // It does what it was about to do, while it is still thought to be gone.
        zombie.log.freeze(false);
        load.put(0..QUEUES, 20).await;
        until("the zombie is fenced", || zombie.fenced() > fenced).await;
        world.exact(&load).await;
        world.group.silent(&zombie.member(), false);
        shared(&all, 7).await;
        load.put(0..QUEUES, 20).await;
        world.exact(&load).await;
        eprintln!("zombie {turn}: fenced={} copies={}", zombie.fenced(), world.copies().await);
    }
}

/// Two halves of a group that do not see each other fight about every task; when they see each other again they share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_different_views_fight_and_then_agree() {
    let world = World::new(Ledger::new("split"), QUEUES).await;
    let load = world.load();
    let processes = [world.start().await, world.start().await];
    let all: Vec<&Process> = processes.iter().collect();
    shared(&all, 6).await;
    let putting = load.keep_putting(QUEUES);
    let fenced = || processes.iter().map(Process::fenced).sum::<u64>();
    processes.iter().for_each(|process| world.group.deaf(&process.member(), true));
    until("they fight", || fenced() >= 6).await;
    processes.iter().for_each(|process| world.group.deaf(&process.member(), false));
    shared(&all, 6).await;
    load.stop(putting).await;
    world.exact(&load).await;
}

/// Who gets no answer about members goes on with what it knows, and counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_answers_about_members_everybody_goes_on() {
    let world = World::new(Ledger::new("unanswered"), QUEUES).await;
    let load = world.load();
    let processes = [world.start().await, world.start().await];
    let all: Vec<&Process> = processes.iter().collect();
    shared(&all, 6).await;
    load.put(0..QUEUES, 10).await;
    world.exact(&load).await;
    shared(&all, 6).await;
    let before: Vec<_> = all.iter().map(|process| (process.owned(), process.fenced())).collect();
    all.iter().for_each(|process| world.group.cut_off(&process.member(), true));
    until("looks fail", || all.iter().all(|process| process.runtime.membership().looks_failed >= 3)).await;
    load.put(0..QUEUES, 50).await;
    world.exact(&load).await;
    assert_eq!(before, all.iter().map(|process| (process.owned(), process.fenced())).collect::<Vec<_>>());
}
