//! Lines in, the running count of each word out, exactly once.
//!
//! ```text
//! cargo run --release --example word_count
//! cargo run --release --example word_count --features rocketmq -- --name-server 127.0.0.1:9876
//! ```
//!
//! Stop it (Ctrl-C) or kill it (kill -9) at any moment and start it again: it goes on where it was. At the end it
//! reads both topics again, counts the words a second time, and compares.

#![expect(unreachable_pub, reason = "a program: nothing here is used from outside")]

mod common;

use common::input::Input;
use common::{Ending, Options, Place, grouped};
use onceflow::codec::{Json, Utf8};
use onceflow::types::{Error, Result};
use onceflow::{Delivery, Emit, StartPolicy, StreamBuilder, Topology};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

const JOB: &str = "word-count";
const LINES: &str = "lines";
const COUNTS: &str = "word-counts";

/// The job: lines are cut into words, words are counted, and the counts that an epoch has changed go out with it.
fn topology(delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    builder
        .source(LINES, Utf8)
        .start(StartPolicy::Earliest)
        .flat_map(|line| words(&line))
        .key_by(String::clone)
        .count("counts")
        .emit(Emit::PerEpoch)
        .sink("totals", COUNTS, Json::<(String, u64)>::new())
        .delivery(delivery);
    builder.build()
}

fn words(line: &str) -> Vec<String> {
    line.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

fn main() -> ExitCode {
    common::main(run)
}

async fn run(options: Options) -> Result<Ending> {
    let place = Arc::new(Place::open("word_count", JOB, &options).await?);
    place.create_topics(&[LINES, COUNTS]).await?;
    let input = Input { topic: LINES, records: options.records.unwrap_or(20_000), record };
    let topology = topology(options.delivery.into())?;
    match common::run::run(&place, topology, input, COUNTS).await? {
        Some(_) => verify(&place).await.map(Ending::Checked),
        None => Ok(Ending::Stopped),
    }
}

/// Line number `number` of the text, which is repeated; to the queues in turn.
fn record(number: u64, queues: usize) -> (usize, Vec<u8>) {
    static TEXT: std::sync::LazyLock<Vec<&str>> = std::sync::LazyLock::new(|| {
        include_str!("data/lighthouse.txt").lines().filter(|line| !line.trim().is_empty()).collect()
    });
    let at = |count: usize| usize::try_from(number % count.max(1) as u64).unwrap_or(0);
    (at(queues), TEXT.get(at(TEXT.len())).copied().unwrap_or_default().into())
}

/// Reads lines and counts from their topics, counts the words of the lines, and compares: the counts of a word only
/// grow, and end where they must. Nothing that the engine counted is used.
async fn verify(place: &Place) -> Result<bool> {
    let (mut expected, mut lines) = (BTreeMap::<String, u64>::new(), 0u64);
    common::topic::read_plain(&*place.log, LINES, |body| {
        lines += 1;
        for word in words(&String::from_utf8_lossy(body)) {
            *expected.entry(word).or_default() += 1;
        }
    })
    .await?;
    println!("{LINES:<20} {} records, {} words", grouped(lines), grouped(expected.values().sum()));

    let (mut found, mut grows) = (BTreeMap::<String, u64>::new(), true);
    for record in common::topic::read_output(&place.log, COUNTS, JOB).await? {
        let (word, count): (String, u64) = serde_json::from_slice(&record.body)
            .map_err(|e| Error::data_loss("a count cannot be read").with_source(e))?;
        let before = found.insert(word.clone(), count).unwrap_or(0);
        if count <= before {
            eprintln!("{word}: {count} after {before}");
            grows = false;
        }
    }
    let mut frequent: Vec<_> = found.iter().collect();
    frequent.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), *word));
    println!("\n{} different words, most frequent", grouped(found.len() as u64));
    for (word, count) in frequent.into_iter().take(8) {
        println!("  {word:<18} {:>9}", grouped(*count));
    }
    println!("\n{} in {}", if place.on_broker { "state" } else { "log and state" }, place.directory.display());
    for (word, count) in expected.iter().filter(|(word, count)| found.get(*word) != Some(count)) {
        eprintln!("{word}: expected {count}, found {:?}", found.get(word));
    }
    Ok(grows && found == expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::{CrashPoint, TestDriver};

    #[test]
    fn words_are_counted_once_wherever_it_crashes() {
        for point in CrashPoint::ALL {
            let mut driver = TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap();
            for line in ["The light, the tower.", "The sea!"] {
                driver.send(LINES, line.as_bytes()).unwrap();
                assert!(driver.crash_at(point).unwrap(), "{point:?}");
                driver.commit().unwrap();
            }
            let mut counts: Vec<(String, u64)> =
                driver.bodies(COUNTS).iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
            counts.sort();
            let expected = [("light", 1), ("sea", 1), ("the", 2), ("the", 3), ("tower", 1)];
            assert_eq!(counts, expected.map(|(word, count)| (word.to_owned(), count)), "{point:?}");
        }
    }
}
