//! Lines with a time in, the count of each word in every 15 seconds out, exactly once: RocketMQ Streams' WindowCount.
//!
//! ```text
//! cargo run --release --example word_count_windowed
//! cargo run --release --example word_count_windowed --features rocketmq -- --name-server 127.0.0.1:9876
//! ```
//!
//! Stop it (Ctrl-C) or kill it (kill -9) at any moment and start it again: it goes on where it was. At the end it reads both
//! topics again, counts the words of each window a second time, and compares.

#![expect(unreachable_pub, reason = "a program: nothing here is used from outside")]

mod common;

use common::input::Input;
use common::{Ending, Options, Place, grouped};
use onceflow::codec::Json;
use onceflow::types::{Error, Result, Timestamp};
use onceflow::{Delivery, StartPolicy, StreamBuilder, Topology, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const JOB: &str = "word-count-windowed";
const LINES: &str = "lines-timed";
const COUNTS: &str = "word-counts-windowed";
/// Words that came too late for their window.
const LATE: &str = "words-late";

const WINDOW: Duration = Duration::from_secs(15);
/// How much older than a line before it a line may be, and how long a window waits for lines that are older still.
const OUT_OF_ORDERNESS: Duration = Duration::from_secs(2);
const LATENESS: Duration = Duration::from_secs(2);
/// Event time between two lines.
const STEP_MILLIS: u64 = 100;

/// A line, and when it was spoken.
#[derive(Clone, Serialize, Deserialize)]
struct Line {
    at: i64,
    text: String,
}

/// The job: lines are cut into words, and the words of every 15 seconds are counted. A window's counts come when nothing can
/// change them any more.
fn topology(delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    let lines =
        builder.source(LINES, Json::<Line>::new()).start(StartPolicy::Earliest).out_of_orderness(OUT_OF_ORDERNESS);
    let counts = lines
        .select_timestamp(|line| Timestamp::from_millis(line.at))
        .flat_map(|line| words(&line.text))
        .key_by(String::clone)
        .window("counts", Windows::tumbling(WINDOW))
        .lateness(LATENESS)
        .count();
    counts.sink("totals", COUNTS, Json::<(String, Windowed<u64>)>::new()).delivery(delivery);
    counts.late_to("late", LATE, Json::new()).delivery(delivery);
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
    let place = Arc::new(Place::open("word_count_windowed", JOB, &options).await?);
    place.create_topics(&[LINES, COUNTS, LATE]).await?;
    let input = Input { topic: LINES, records: options.records.unwrap_or(20_000), record };
    let topology = topology(options.delivery.into())?;
    match common::run::run(&place, topology, input, COUNTS).await? {
        Some(_) => verify(&place).await.map(Ending::Checked),
        None => Ok(Ending::Stopped),
    }
}

/// Line number `number` of the text, which is repeated; to the queues in turn. Every seventh is a second late.
fn record(number: u64, queues: usize) -> (usize, Vec<u8>) {
    static TEXT: std::sync::LazyLock<Vec<&str>> = std::sync::LazyLock::new(|| {
        include_str!("data/lighthouse.txt").lines().filter(|line| !line.trim().is_empty()).collect()
    });
    let place = |count: usize| usize::try_from(number % count.max(1) as u64).unwrap_or(0);
    let text = TEXT.get(place(TEXT.len())).copied().unwrap_or_default().to_owned();
    let at = i64::try_from(number * STEP_MILLIS).unwrap_or(i64::MAX) - if number.is_multiple_of(7) { 1_000 } else { 0 };
    (place(queues), serde_json::to_vec(&Line { at, text }).unwrap_or_default())
}

/// A word, and where its window begins.
type Cell = (String, i64);

/// Reads lines and counts from their topics, counts the words of each window again, and compares. Of the newest windows some
/// are still open; each that is there is right, and comes once. Nothing that the engine counted is used.
async fn verify(place: &Place) -> Result<bool> {
    let size = i64::try_from(WINDOW.as_millis()).unwrap_or(i64::MAX);
    let (mut expected, mut lines, mut newest) = (BTreeMap::<Cell, u64>::new(), 0u64, i64::MIN);
    common::topic::read_plain(&*place.log, LINES, |body| {
        let Ok(line) = serde_json::from_slice::<Line>(body) else { return };
        lines += 1;
        newest = newest.max(line.at);
        for word in words(&line.text) {
            *expected.entry((word, line.at.div_euclid(size) * size)).or_default() += 1;
        }
    })
    .await?;
    println!("{LINES:<22} {} records, {} counts", grouped(lines), grouped(expected.len() as u64));

    let mut late = 0;
    for record in common::topic::read_output(&place.log, LATE, JOB).await? {
        let (word, row): (String, Windowed<String>) = serde_json::from_slice(&record.body)
            .map_err(|e| Error::data_loss("a late word cannot be read").with_source(e))?;
        late += 1;
        if let Some(count) = expected.get_mut(&(word, row.window_start.as_millis())) {
            *count -= 1;
        }
    }
    expected.retain(|_, count| *count > 0);

    let (mut found, mut right, mut last) = (BTreeMap::<Cell, u64>::new(), true, i64::MIN);
    for record in common::topic::read_output(&place.log, COUNTS, JOB).await? {
        let (word, row): (String, Windowed<u64>) = serde_json::from_slice(&record.body)
            .map_err(|e| Error::data_loss("a count cannot be read").with_source(e))?;
        last = last.max(row.window_start.as_millis());
        let cell = (word, row.window_start.as_millis());
        if found.insert(cell.clone(), row.value).is_some() {
            eprintln!("{cell:?} comes twice");
            right = false;
        }
    }
    for (cell, count) in found.iter().filter(|(cell, count)| expected.get(*cell) != Some(*count)) {
        eprintln!("{cell:?}: expected {:?}, found {count}", expected.get(cell));
        right = false;
    }
    // A window that is older than one that is there has come, too, once all tasks have heard of it.
    let settled = last - 4 * size;
    for (cell, count) in expected.iter().filter(|(cell, _)| cell.1 < settled && !found.contains_key(*cell)) {
        eprintln!("{cell:?}: expected {count}, found nothing");
        right = false;
    }
    println!("{COUNTS:<22} {} counts, {} words late", grouped(found.len() as u64), grouped(late));
    println!("{} in {}", if place.on_broker { "state" } else { "log and state" }, place.directory.display());
    println!("event time             {} s, of which {} s are closed", newest / 1_000, (last + size) / 1_000);
    Ok(right && !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::{CrashPoint, TestDriver};

    fn say(driver: &mut TestDriver, at: i64, text: &str) {
        driver.send(LINES, &serde_json::to_vec(&Line { at, text: text.into() }).unwrap()).unwrap();
    }

    /// Word, beginning of its window, and count.
    fn counts(driver: &TestDriver) -> Vec<(String, i64, u64)> {
        let rows = driver.bodies(COUNTS).into_iter().map(|body| {
            let (word, row): (String, Windowed<u64>) = serde_json::from_slice(&body).unwrap();
            (word, row.window_start.as_millis(), row.value)
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort();
        rows
    }

    #[test]
    fn a_word_counts_for_its_window_until_that_is_gone() {
        for point in CrashPoint::ALL {
            let mut driver = TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap();
            // A window is gone when a line comes that is four seconds younger: two for lines out of order, two of lateness.
            for (at, text) in [(0, "sea light"), (14_999, "sea"), (18_999, "sea"), (1_000, "sea")] {
                say(&mut driver, at, text);
                driver.crash_at(point).unwrap();
                driver.commit().unwrap();
            }
            assert_eq!(counts(&driver), [], "{point:?}");
            for (at, text) in [(19_000, "tower"), (2_000, "sea"), (40_000, "end")] {
                say(&mut driver, at, text);
                driver.crash_at(point).unwrap();
                driver.commit().unwrap();
            }
            let expected = [("light", 0, 1), ("sea", 0, 3), ("sea", 15_000, 1), ("tower", 15_000, 1)];
            assert_eq!(counts(&driver), expected.map(|(word, at, count)| (word.to_owned(), at, count)), "{point:?}");
            let late: Vec<(String, Windowed<String>)> =
                driver.bodies(LATE).iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
            assert_eq!(late.len(), 1, "{point:?}");
            assert_eq!((late[0].0.as_str(), late[0].1.window_end.as_millis()), ("sea", 15_000));
        }
    }
}
