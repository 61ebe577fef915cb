//! Questions about state, while tasks run here, elsewhere and nowhere.

use crate::faulty::ledger::Ledger;
use crate::world::{Load, World, shared};
use onceflow::Query;
use onceflow::types::ErrorKind;
use std::collections::BTreeMap;

/// The job's state: the last id, the count and the sum of a key.
type Sums = Query<String, (u64, u64, i64)>;

/// The state that the entries of the load give.
fn expected(load: &Load) -> BTreeMap<String, (u64, u64, i64)> {
    let mut sums = BTreeMap::new();
    for entry in load.entries() {
        let sum: &mut (u64, u64, i64) = sums.entry(entry.key).or_default();
        *sum = (entry.id, sum.1 + 1, sum.2 + entry.value);
    }
    sums
}

/// Each key is known to the process that runs its task, and to no other; none says that a key has no value while others may have
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_found_where_its_task_runs_and_denied_by_nobody_else() {
    let world = World::new(Ledger::new("asked"), 4).await;
    let load = world.load();
    let (first, second) = (world.start().await, world.start().await);
    let queries = [&first, &second].map(|process| process.runtime.query("sums").unwrap());
    shared(&[&first, &second], 4).await;
    load.put(0..4, 10).await;
    world.exact(&load).await;
    for (key, sum) in expected(&load) {
        let mut found = 0;
        for query in &queries {
            match Sums::get(query, &key).await {
                Ok(value) => {
                    assert_eq!(value, Some(sum), "{key}");
                    found += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error}"),
            }
        }
        assert_eq!(found, 1, "{key}");
    }
    let nobody = "nobody".to_owned();
    assert_eq!(queries[0].get(&nobody).await.unwrap_err().kind(), ErrorKind::Retry);

    second.stop().await;
    shared(&[&first], 4).await;
    for (key, sum) in expected(&load) {
        assert_eq!(queries[0].get(&key).await.unwrap(), Some(sum), "{key}");
        assert_eq!(queries[1].get(&key).await.unwrap_err().kind(), ErrorKind::Retry, "of a job that has stopped");
    }
    assert_eq!(queries[0].get(&nobody).await.unwrap(), None);
}

/// A value that was seen is committed: it never goes back, also over a crash, and questions do not hold the job up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_is_never_taken_back() {
    let world = World::new(Ledger::new("asked-on"), 2).await;
    let load = world.load();
    let mut process = world.start().await;
    let putting = load.keep_putting(2);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for life in 0..3 {
        let query: Sums = process.runtime.query("sums").unwrap();
        let mut answers = 0;
        while answers < 200 {
            let keys: Vec<String> = load.entries().into_iter().map(|entry| entry.key).collect();
            for (key, found) in ask(&query, keys).await {
                let before = seen.insert(key.clone(), found).unwrap_or_default();
                assert!(found >= before, "life={life} key={key} before={before} now={found}");
                answers += 1;
            }
        }
        process.kill(&world).await;
        process = world.start().await;
    }
    load.stop(putting).await;
    world.exact(&load).await;
    process.stop().await;
}

/// The counts of keys, asked for at once; those that could not be had are left out.
async fn ask(query: &Sums, mut keys: Vec<String>) -> Vec<(String, u64)> {
    keys.sort();
    keys.dedup();
    let asked = keys.into_iter().map(|key| async move {
        let value = query.get(&key).await.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Retry)).ok()?;
        Some((key, value.map_or(0, |(_, count, _)| count)))
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

/// What an operator does not have is said to be wrong, and not to be empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_makes_no_sense_is_refused() {
    let world = World::new(Ledger::new("asked-wrongly"), 1).await;
    let process = world.start().await;
    shared(&[&process], 1).await;
    let unknown = process.runtime.query::<String, u64>("counts").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid);
    let other: Query<String, u64> = process.runtime.query("sums").unwrap();
    assert_eq!(other.get(&"a".to_owned()).await.unwrap_err().kind(), ErrorKind::Invalid);
    let part: Sums = process.runtime.query("sums#items").unwrap();
    assert_eq!(part.get(&"a".to_owned()).await.unwrap_err().kind(), ErrorKind::Invalid);
    process.stop().await;
}
