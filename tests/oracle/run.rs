//! One random stream through both.

use crate::batch::{self, Cut, Event, Late, Output, Program, Row, When};
use crate::dice::Dice;
use onceflow::codec::Json;
use onceflow::storage::{Backend, MemoryStores, StoreFactory, StoreOptions};
use onceflow::testing::{CrashPoint, TestDriver};
use onceflow::topology::{KeyedStream, Placement, WindowResults};
use onceflow::types::Timestamp;
use onceflow::{Config, StreamBuilder, Topology, Trigger, Windowed, Windows};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy)]
pub enum Stores {
    Memory,
    Disk(Backend),
}

type Sent = (u8, i64, u64);

const RECORDS: usize = 200;
/// 2024-03-30, noon UTC: the day before clocks change in Berlin.
const SPRING: i64 = 1_711_800_000_000;
const AUTUMN: i64 = 1_729_944_000_000;

struct Plan {
    program: Program,
    out_of_orderness: i64,
    partitions: u32,
    /// Whether a repartition lies between the source and the windows.
    repartition: bool,
    records: Vec<(u32, Sent)>,
}

fn draw(dice: &mut Dice) -> Plan {
    let cut = match dice.within(0, 9) {
        0..=2 => {
            let slide = dice.within(1, 40);
            let size = if dice.happens(50) { slide } else { slide * dice.within(1, 4) + dice.within(0, 5) };
            Cut::Hopping { size, slide, offset: dice.within(0, 30) }
        }
        3 => Cut::Berlin,
        4..=6 => Cut::Session { gap: dice.within(1, 20) },
        7..=8 => Cut::Sliding { size: dice.within(1, 60) },
        _ => Cut::Count { records: dice.within(1, 5) as usize },
    };
    let scale = if cut == Cut::Berlin { 600_000 } else { 1 };
    let by_records = matches!(cut, Cut::Sliding { .. } | Cut::Count { .. });
    let when = match dice.within(0, 3) {
        _ if by_records => When::Close,
        0 => When::Update,
        1 | 2 => When::Every(dice.within(1, 25) * scale),
        _ => When::Close,
    };
    let deltas = when != When::Close && dice.happens(40);
    let lateness = if dice.happens(40) { 0 } else { dice.within(1, 40) * scale };
    let program = Program { cut, when, deltas, lateness };
    let partitions = dice.pick(&[1, 4]);
    let start = if cut == Cut::Berlin { dice.pick(&[SPRING, AUTUMN]) } else { dice.within(-300, 100) };
    let (step, jitter) = (dice.within(0, 4) * scale, dice.within(0, 40) * scale);
    let keys = dice.within(1, 6);
    let repartition = dice.happens(50);
    let records = (0..RECORDS).map(|number| {
        let key = dice.within(1, keys) as u8;
        let jump = if dice.happens(2) { dice.within(0, 200) * scale } else { 0 };
        let time = start + number as i64 * step + dice.within(-jitter, jitter) + jump;
        // Without a repartition the producer brings the records of a key together.
        let queue = if repartition { dice.next() as u32 % partitions } else { u32::from(key) % partitions };
        (queue, (key, time, number as u64))
    });
    let records = records.collect();
    Plan { program, out_of_orderness: dice.within(0, 30) * scale, partitions, repartition, records }
}

fn topology(plan: &Plan, records_cached: usize) -> Topology {
    let builder = StreamBuilder::new("oracle").unwrap();
    let source = builder.source("in", Json::<Sent>::new()).idle_timeout(None);
    let source = source.out_of_orderness(Duration::from_millis(plan.out_of_orderness as u64));
    let keyed = source.select_timestamp(|(_, time, _)| Timestamp::from_millis(*time)).key_by(|(key, ..)| *key);
    if plan.repartition {
        windowed(&keyed.repartition("windows").queues(plan.partitions), &plan.program, records_cached);
    } else {
        windowed(&keyed.partitioned_by_key(), &plan.program, records_cached);
    }
    builder.build().unwrap()
}

fn windowed<P: Placement<u8, Sent>>(stream: &KeyedStream<u8, Sent, P>, program: &Program, cached: usize) {
    let ms = |time: i64| Duration::from_millis(time as u64);
    let windows = match program.cut {
        Cut::Hopping { size, slide, offset } => Windows::hopping(ms(size), ms(slide)).offset(ms(offset)),
        Cut::Berlin => Windows::daily("Europe/Berlin"),
        Cut::Session { gap } => Windows::session(ms(gap)),
        Cut::Sliding { size } => Windows::sliding(ms(size)),
        Cut::Count { records } => Windows::count(records as u64),
    };
    let mut windowed = stream.window("ids", windows).lateness(ms(program.lateness));
    if program.deltas {
        windowed = windowed.deltas();
    }
    windowed = windowed.trigger(match program.when {
        When::Close => Trigger::OnClose,
        When::Update => Trigger::OnUpdate,
        When::Every(every) => Trigger::Every(ms(every)),
    });
    let ids: WindowResults<u8, Sent, Vec<u64>> = windowed
        .aggregate(Vec::new, |ids: &mut Vec<u64>, (_, _, id)| ids.push(*id), |ids, other| ids.extend(other))
        .cache_entries(cached);
    ids.sink("out", "out", Json::new());
    ids.late_to("late", "late", Json::new());
}

/// What happens to the windows: without a repartition each partition's records, each followed by what it says about time; with
/// one, epoch by epoch and partition by partition its records, and then what all of them say about time.
fn events(plan: &Plan, commits: &[usize]) -> Vec<Vec<Event>> {
    let mut watermarks = vec![i64::MIN; plan.partitions as usize];
    let mut told = watermarks.clone();
    let mut of: Vec<Vec<Event>> = vec![vec![]; if plan.repartition { 1 } else { plan.partitions as usize }];
    let mut from = 0;
    for to in commits.iter().copied().chain([plan.records.len()]) {
        for partition in 0..plan.partitions {
            let sent = plan.records[from..to].iter().filter(|(queue, _)| *queue == partition);
            for (_, (key, time, id)) in sent {
                let events = if plan.repartition { &mut of[0] } else { &mut of[partition as usize] };
                events.push(Event::Record { key: *key, time: *time, id: *id });
                let watermark = &mut watermarks[partition as usize];
                *watermark = (*watermark).max(time - plan.out_of_orderness);
                if !plan.repartition {
                    events.push(Event::Watermark(*watermark));
                }
            }
            if plan.repartition {
                told[partition as usize] = watermarks[partition as usize];
                of[0].push(Event::Watermark(told.iter().copied().min().unwrap()));
            }
        }
        from = to;
    }
    of
}

pub fn run(seed: u64, stores: Stores) {
    let mut dice = Dice::new(seed);
    let plan = draw(&mut dice);
    let directory = tempfile::tempdir().unwrap();
    let factory: Arc<dyn StoreFactory> = match stores {
        Stores::Memory => Arc::new(MemoryStores::default()),
        Stores::Disk(backend) => Arc::new(StoreOptions::new(backend, directory.path())),
    };
    let small_epochs = dice.happens(40);
    let config =
        Config { epoch_halves_max: if small_epochs { dice.within(1, 6) as usize } else { 4_000 }, ..Config::default() };
    let topology = topology(&plan, dice.pick(&[1, 3, 1_000]));
    let queues = [("in", plan.partitions)];
    let mut driver = TestDriver::with_config(&topology, &queues, factory, config).unwrap();
    driver.batch_records_max(dice.pick(&[1, 2, 7, 1_000]));
    let commits = drive(&plan, &mut driver, &mut dice);
    let mut want = Output::default();
    for events in events(&plan, &commits) {
        let one = batch::run(plan.program, &events);
        want.rows.extend(one.rows);
        want.late.extend(one.late);
    }
    let mut got = output(&driver);
    if small_epochs {
        // A window that the epoch had no room for fires before a record is added to it, and so before its turn.
        got.rows.values_mut().chain(want.rows.values_mut()).for_each(|rows| rows.sort());
    }
    let about = format!(
        "seed={seed} {:?} out_of_orderness={} partitions={} repartition={} commits={commits:?}",
        plan.program, plan.out_of_orderness, plan.partitions, plan.repartition
    );
    same("late", &got.late, &want.late, &about);
    same("rows", &got.rows, &want.rows, &about);
    let late: usize = want.late.values().map(Vec::len).sum();
    assert!(driver.counters().late >= late as u64, "{about}");
}

/// Shows the first difference, not all of both.
fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    got: &BTreeMap<u8, Vec<T>>,
    want: &BTreeMap<u8, Vec<T>>,
    about: &str,
) {
    for key in got.keys().chain(want.keys()) {
        let of = |all: &BTreeMap<u8, Vec<T>>| {
            all.get(key).map_or(vec![], |list| list.iter().map(|row| format!("{row:?}")).collect())
        };
        let (got, want): (Vec<String>, Vec<String>) = (of(got), of(want));
        let same = got.iter().zip(&want).take_while(|(got, want)| got == want).count();
        let next = |list: &[String]| list[same..].iter().take(4).cloned().collect::<Vec<_>>().join(" ");
        assert!(got == want, "{what} of key {key}, row {same}:\n got  {}\n want {}\n{about}", next(&got), next(&want));
    }
}

/// Sends all records, cuts epochs and crashes on the way; returns before which records epochs were cut.
fn drive(plan: &Plan, driver: &mut TestDriver, dice: &mut Dice) -> Vec<usize> {
    let (often, crashes) = (dice.pick(&[2, 10, 40]), dice.pick(&[0, 30, 70]));
    let mut commits = vec![];
    for (number, (queue, sent)) in plan.records.iter().enumerate() {
        if dice.happens(often) {
            commit(driver, dice, crashes);
            commits.push(number);
        }
        let body = serde_json::to_vec(sent).unwrap();
        driver.send_with("in", *queue, b"", &body).unwrap();
    }
    commit(driver, dice, crashes);
    driver.abort().unwrap();
    driver.commit().unwrap();
    commits
}

/// Commits, after crashes at random steps.
pub fn commit(driver: &mut TestDriver, dice: &mut Dice, crashes: u64) {
    while dice.happens(crashes) {
        if dice.happens(30) {
            driver.abort().unwrap();
        } else {
            driver.crash_at(dice.pick(&CrashPoint::ALL)).unwrap();
        }
    }
    driver.commit().unwrap();
}

fn output(driver: &TestDriver) -> Output {
    let mut output = Output::default();
    for body in driver.bodies("out") {
        let (key, row): (u8, Windowed<Vec<u64>>) = serde_json::from_slice(&body).unwrap();
        let mut ids = row.value.clone();
        ids.sort_unstable();
        let row: Row = (row.window_start.as_millis(), row.window_end.as_millis(), ids);
        output.rows.entry(key).or_default().push(row);
    }
    for body in driver.bodies("late") {
        let (key, late): (u8, Windowed<Sent>) = serde_json::from_slice(&body).unwrap();
        let late: Late = (late.window_start.as_millis(), late.window_end.as_millis(), late.value.2);
        output.late.entry(key).or_default().push(late);
    }
    output
}
