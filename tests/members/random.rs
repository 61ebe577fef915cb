//! Everything at once, from a seed.

use crate::faulty::ledger::Ledger;
use crate::faulty::pause;
use crate::world::{Process, World, shared};
use std::time::Duration;

const QUEUES: u32 = 5;
const STEPS: usize = 40;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Aim: no order of events among processes breaks the promise. Method: random starts, stops, kills, pauses, silences and
/// split views under load; then all faults end, and everything that was put in must be there, once.
async fn run(seed: u64) {
    let mut dice = Dice(seed);
    let ledger = Ledger { repartition: seed.is_multiple_of(2), ..Ledger::new(&format!("random-{seed}")) };
    let tasks = QUEUES as usize + usize::from(ledger.repartition);
    let world = World::new(ledger, QUEUES).await;
    let load = world.load();
    let putting = load.keep_putting(QUEUES);
    let mut processes: Vec<Process> = vec![world.start().await];
    for _ in 0..STEPS {
        let one = dice.below(processes.len());
        let member = processes[one].member();
        match dice.below(10) {
            0..=2 if processes.len() < 4 => processes.push(world.start().await),
            3 if processes.len() > 1 => {
                let process = processes.remove(one);
                process.log.freeze(false);
                process.stop().await;
            }
            4 if processes.len() > 1 => {
                let process = processes.remove(one);
                process.log.freeze(false);
                process.kill(&world).await;
            }
            5 => processes[one].log.freeze(true),
            6 => processes.iter().for_each(|process| process.log.freeze(false)),
            7 => world.group.silent(&member, dice.below(2) == 0),
            8 => world.group.deaf(&member, dice.below(2) == 0),
            9 => world.group.cut_off(&member, dice.below(2) == 0),
            _ => {}
        }
        pause(Duration::from_millis(dice.below(60) as u64)).await;
    }
    for process in &processes {
        process.log.freeze(false);
        let member = process.member();
        world.group.silent(&member, false);
        world.group.deaf(&member, false);
        world.group.cut_off(&member, false);
    }
    shared(&processes.iter().collect::<Vec<_>>(), tasks).await;
    load.stop(putting).await;
    world.exact(&load).await;
    let fenced: u64 = processes.iter().map(Process::fenced).sum();
    eprintln!("seed {seed}: entries={} fenced={fenced} copies={}", load.entries().len(), world.copies().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_order_of_events_leaves_output_exact() {
    let long = std::env::var("ONCEFLOW_LONG").is_ok();
    let fixed = std::env::var("ONCEFLOW_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    match fixed {
        Some(seed) => run(seed).await,
        None => {
            for seed in 1..=if long { 60 } else { 6 } {
                eprintln!("ONCEFLOW_TEST_SEED={seed}");
                run(seed).await;
            }
        }
    }
}
