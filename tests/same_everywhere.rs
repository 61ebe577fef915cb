//! One topology, the same output in the test driver, on the embedded log and on a real broker: windows, sessions, a join, a
//! processor with timers, running counts. The same rows in all, and the running counts of each key in their order.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::pedantic, reason = "helpers of tests")]

use onceflow::codec::Json;
use onceflow::process::{MapState, Process, Processor, Setup, Timer};
use onceflow::testing::{CrashPoint, TestDriver};
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::{Error, Result, Timestamp};
use onceflow::{JoinWindow, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Event {
    /// Its queue: a key that stays there.
    place: String,
    key: String,
    time: i64,
    number: i64,
}

/// What it is about, and what came out.
type Row = (String, String);

const QUEUES: u32 = 2;
const PHASES: i64 = 2;
const EVENTS_PER_PHASE: i64 = 150;
const PHASE: i64 = 4 * 3_600_000;
/// Longer than a phase's events are apart, so nothing is late, whoever is faster.
const OUT_OF_ORDERNESS: Duration = Duration::from_secs(3_600);
/// The key of events that only end a phase.
const MARK: &str = "mark";
const ALARM: i64 = 100_000;

/// Every 100 s of event time: how many events lie before it.
#[derive(Default)]
struct Alarms(MapState<i64, u64>);

impl Processor<String, Event> for Alarms {
    type Output = String;

    fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
        self.0 = setup.map("times")?;
        Ok(())
    }

    fn process(&mut self, event: Event, cx: &mut Process<'_, String, String>) -> Result<()> {
        let mut times = cx.map(&self.0)?;
        *times.entry(&event.time)?.get_or_insert_with(|| 0) += 1;
        cx.set_event_timer(Timestamp::from_millis((event.time.div_euclid(ALARM) + 1) * ALARM))
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Process<'_, String, String>) -> Result<()> {
        let Timer::Event(at) = timer else { return Err(Error::bug("no other timer is set")) };
        let times = cx.map(&self.0)?.all()?;
        let mut count = 0;
        for (time, events) in times.into_iter().filter(|(time, _)| *time < at.as_millis()) {
            count += events;
            cx.map(&self.0)?.entry(&time)?.remove();
        }
        cx.emit(format!("until {at}: {count}"));
        Ok(())
    }
}

type Sum = (u64, i64);

fn add(sum: &mut Sum, event: &Event) {
    *sum = (sum.0 + 1, sum.1 + event.number);
}

fn merge(sum: &mut Sum, other: &Sum) {
    *sum = (sum.0 + other.0, sum.1 + other.1);
}

fn topology(run: &str) -> Result<Topology> {
    let builder = StreamBuilder::new(run)?;
    let events = builder.source(&input(run), Json::<Event>::new()).start(StartPolicy::Earliest);
    let events = events.out_of_orderness(OUT_OF_ORDERNESS).idle_timeout(None);
    let events = events.select_timestamp(|event| Timestamp::from_millis(event.time)).filter(|event| event.key != MARK);
    let side = |name: &str, rest: i64| {
        let some = events.filter(move |event| event.number % 2 == rest);
        some.key_by(|event| event.key.clone()).repartition(name).queues(QUEUES).map_values(|event| event)
    };

    let running = events.key_by(|event| format!("{} {}", event.place, event.key)).partitioned_by_key();
    let running = running.aggregate("running", Sum::default, add).map(|key, sum| (format!("running {key}"), text(sum)));
    let all = events.key_by(|event| event.key.clone()).repartition("all").queues(QUEUES).map_values(|event| event);
    let windows = |name: &str, windows: Windows| {
        let (sums, name) = (all.window(name, windows).aggregate(Sum::default, add, merge), name.to_owned());
        sums.map(move |key, sum: Windowed<Sum>| {
            (format!("{name} {key}"), format!("{} to {}: {:?}", sum.window_start, sum.window_end, sum.value))
        })
    };
    let alarms = all.process("alarms", Alarms::default);
    let numbers = |event: Option<&Event>| event.map(|event| event.number);
    let near = side("even", 0).join("near", &side("odd", 1), JoinWindow::within(Duration::from_secs(5)));
    let near = near.outer(move |even, odd| (format!("{:?}", numbers(even)), format!("{:?}", numbers(odd))));

    running
        .merge(&windows("minutes", Windows::tumbling(Duration::from_secs(60))))
        .merge(&windows("visits", Windows::session(Duration::from_secs(20))))
        .merge(&alarms.map(|key, alarm| (format!("alarms {key}"), alarm)))
        .merge(&near.map(|key, pair| (format!("near {key}"), text(pair))))
        .sink("out", &output(run), Json::<Row>::new())
        .key(|row| row.0.clone())
        .delivery(Delivery::Transactional);
    builder.build()
}

fn text(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn input(run: &str) -> String {
    format!("{run}-in")
}

fn output(run: &str) -> String {
    format!("{run}-out")
}

/// Queue and body of each event, in order, each phase with its marks.
fn events() -> Vec<(u32, Vec<u8>)> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut dice = |sides: i64| {
        // xorshift64, Marsaglia 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 1) as i64 % sides
    };
    let mut events = vec![];
    let mut push = |queue: u32, key: String, time: i64, number: i64| {
        let event = Event { place: queue.to_string(), key, time, number };
        events.push((queue, serde_json::to_vec(&event).unwrap()));
    };
    for phase in 0..PHASES {
        for number in 0..EVENTS_PER_PHASE {
            let (queue, key) = (dice(QUEUES.into()) as u32, format!("key-{}", dice(6)));
            push(queue, key, phase * PHASE - 50_000 + dice(300_000), number);
        }
        (0..QUEUES).for_each(|queue| push(queue, MARK.to_owned(), phase * PHASE + PHASE / 2, 0));
    }
    events
}

fn rows<B: AsRef<[u8]>>(bodies: impl IntoIterator<Item = B>) -> Vec<Row> {
    bodies.into_iter().map(|body| serde_json::from_slice(body.as_ref()).unwrap()).collect()
}

/// What the test driver makes of it; a crash every now and then.
fn in_the_driver() -> Vec<Row> {
    let topology = topology("driver").unwrap();
    let (input, output) = (input("driver"), output("driver"));
    let mut driver = TestDriver::with_queues(&topology, &[(&input, QUEUES), (&output, QUEUES)]).unwrap();
    for (number, (queue, body)) in events().into_iter().enumerate() {
        driver.send_with(&input, queue, b"", &body).unwrap();
        match number % 100 {
            30 => _ = driver.crash_at(CrashPoint::ALL[number / 100 % CrashPoint::ALL.len()]).unwrap(),
            60 => driver.abort().unwrap(),
            90 => driver.commit().unwrap(),
            _ => {}
        }
    }
    driver.commit().unwrap();
    rows(driver.bodies(&output))
}

#[test]
fn the_driver_has_rows_of_every_operator() {
    let rows = in_the_driver();
    for (operator, least) in [("running", 300), ("minutes", 50), ("visits", 50), ("alarms", 20), ("near", 100)] {
        let found = rows.iter().filter(|(about, _)| about.starts_with(operator)).count();
        assert!(found >= least, "{operator}: {found}");
    }
}

#[cfg(any(feature = "embedded", feature = "rocketmq"))]
mod on_a_log {
    use super::*;
    use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
    use onceflow::storage::MemoryStores;
    use onceflow::types::{Name, Partition};
    use onceflow::{Config, Runtime, TopicReader};
    use std::sync::Arc;
    use tokio::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(120);

    async fn append(log: &dyn Log, run: &str, events: &[(u32, Vec<u8>)]) {
        let brokers = log.partitions(&input(run)).await.unwrap();
        for (queue, body) in events {
            let mut batch = MessageBatch::default();
            batch.push(b"", body).unwrap();
            log.append(&Partition::new(&*input(run), brokers[0].broker.clone(), *queue), &batch).await.unwrap();
        }
    }

    async fn start(log: &Arc<dyn Log>, run: &str) -> Runtime {
        let config = Config {
            epoch_time: Duration::from_millis(50),
            publish_lease: Duration::from_secs(1),
            watermark_time: Duration::from_millis(100),
            ..Config::default()
        };
        let stores = Arc::new(MemoryStores::default());
        Runtime::builder(topology(run).unwrap(), log.clone(), stores).config(config).start().await.unwrap()
    }

    /// Aim: the rows are those of the driver. Method: half of the input, a drain, another half with a restart in it.
    pub(super) async fn same(log: Arc<dyn Log>, run: &str) {
        for topic in [input(run), output(run)] {
            let spec = TopicSpec { topic: topic.as_str().into(), queues: Queues::PerBroker(QUEUES) };
            log.create_topic(&spec).await.unwrap();
        }
        let (events, expected) = (events(), in_the_driver());
        let (first, second) = events.split_at(events.len() / 3);
        append(&*log, run, first).await;
        let mut runtime = start(&log, run).await;
        assert!(runtime.wait_caught_up(PATIENCE).await.unwrap(), "{:#?}", runtime.status());
        runtime.drain().await.unwrap();
        let runtime = start(&log, run).await;
        append(&*log, run, second).await;
        let found = read(&log, run, expected.len()).await;
        drop(runtime);
        compare(&expected, &found);
    }

    /// The reader view, once it has as many rows as it must have.
    async fn read(log: &Arc<dyn Log>, run: &str, count: usize) -> Vec<Row> {
        let until = Instant::now() + PATIENCE;
        let mut reader = TopicReader::open(log.clone(), &output(run), Name::job(run).unwrap()).await.unwrap();
        let mut found = vec![];
        while found.len() < count && Instant::now() < until {
            found.extend(rows(reader.read_to_end().await.unwrap().into_iter().map(|record| record.body)));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Nothing may come behind them.
        tokio::time::sleep(Duration::from_millis(300)).await;
        found.extend(rows(reader.read_to_end().await.unwrap().into_iter().map(|record| record.body)));
        found
    }

    fn compare(expected: &[Row], found: &[Row]) {
        let running = |rows: &[Row]| {
            let mut rows: Vec<Row> = rows.iter().filter(|(about, _)| about.starts_with("running")).cloned().collect();
            rows.sort_by(|one, other| one.0.cmp(&other.0));
            rows
        };
        assert_eq!(running(expected), running(found), "in order for each key");
        let sorted = |rows: &[Row]| {
            let mut rows = rows.to_vec();
            rows.sort();
            rows
        };
        assert_eq!(sorted(expected), sorted(found));
    }
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_log_gives_the_same_rows_as_the_driver() {
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
    let directory = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(directory.path(), EmbeddedOptions::default()).unwrap();
    on_a_log::same(std::sync::Arc::new(log), "same-embedded").await;
}

#[cfg(feature = "rocketmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a broker: cargo xtask test"]
async fn a_real_broker_gives_the_same_rows_as_the_driver() {
    use onceflow::log::rocketmq::{RocketLog, RocketOptions};
    let address = std::env::var("ONCEFLOW_NAME_SERVER").unwrap_or_else(|_| panic!("run `cargo xtask test`"));
    let run = format!("same-broker-{}", std::process::id());
    let log = std::sync::Arc::new(RocketLog::open(RocketOptions::new(&address, &run)).await.unwrap());
    on_a_log::same(log.clone(), &run).await;
    log.close().await;
}
