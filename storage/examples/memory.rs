//! How much memory four stores take while they write and read 400 MB of state, and how quick they are.
//!
//! `cargo run --release -p onceflow-storage --features fjall --example memory -- fjall`

#[path = "../tests/common/point.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod point;

use onceflow_storage::{Backend, Delta, KeyRange, Order, StateStore, StoreFactory, StoreOptions};
use onceflow_types::{Error, Name, Result, TaskId};
use point::point;

const TASKS: u32 = 4;
const EPOCHS: u64 = 100;
const CHANGES: u64 = 10_000;
const KEYS: u64 = 500_000;
const STRIDE: u64 = 7919;

fn main() -> Result<()> {
    let backend: Backend = std::env::args().nth(1).as_deref().unwrap_or("fjall").parse()?;
    let root = tempfile::tempdir().map_err(|e| Error::invalid("no temporary directory").with_source(e))?;
    let options = StoreOptions::new(backend, root.path());
    let mut stores = vec![];
    for queue in 0..TASKS {
        let task = TaskId { subtopology: Name::new("memory")?, broker: "broker-a".into(), queue };
        stores.push(options.open(&Name::job("memory")?, &task)?);
    }
    println!("{backend}: {TASKS} stores open, peak {} MiB", peak_mib());
    let mut delta = Delta::default();
    for epoch in 1..=EPOCHS {
        for store in &mut stores {
            delta.clear();
            for number in 0..CHANGES {
                let key = (epoch * CHANGES + number) * STRIDE % KEYS;
                delta.put(&key.to_be_bytes(), &[epoch.to_le_bytes(); 12].concat());
            }
            store.commit(&delta, &point(epoch))?;
        }
    }
    println!("{backend}: {} commits of {CHANGES} changes, peak {} MiB", EPOCHS * u64::from(TASKS), peak_mib());
    for store in &stores {
        println!("{backend}: {} entries read", count(&**store)?);
    }
    println!("{backend}: all read, peak {} MiB", peak_mib());
    Ok(())
}

fn count(store: &dyn StateStore) -> Result<u64> {
    let mut cursor = store.scan(KeyRange::all(), Order::Ascending)?;
    let mut count = 0;
    while cursor.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// The largest resident memory of the process so far, as Linux reports it; 0 elsewhere.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
