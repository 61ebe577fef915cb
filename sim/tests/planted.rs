//! The simulation can see: every wrong engine, log and store is found within 500 seeds (goal G1c). Prints who finds what.
#![cfg(feature = "planted")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use onceflow_sim::{Report, Search, Wish, run};

const SEEDS_MAX: u64 = 500;

fn found(search: &Search) -> Option<Report> {
    let wish =
        |seed| Wish { seed, workload: search.workload, faults: search.faults.clone(), plant: Some(search.plant) };
    (0..SEEDS_MAX).map(|seed| run(&wish(seed))).find(|report| !report.violations.is_empty())
}

#[test]
fn every_planted_bug_is_found() {
    let searches = Search::all();
    assert!(searches.len() >= 15, "plants={}", searches.len());
    let mut missed = vec![];
    for search in &searches {
        match found(search) {
            Some(report) => {
                let first = report.violations.first().unwrap().to_string();
                let word: String = first.split(':').next().unwrap_or_default().to_owned();
                println!("{:<40} seed {:>3}  {word}", format!("{:?}", search.plant), report.seed);
            }
            None => missed.push(search.plant),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS_MAX} seeds: {missed:?}");
}
