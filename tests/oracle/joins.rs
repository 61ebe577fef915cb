//! One random pair of streams through a join, by both.

use crate::dice::Dice;
use crate::join_batch::{self, Arrival, Output, Pair, Program, Rule};
use crate::run::{Stores, commit};
use onceflow::codec::Json;
use onceflow::storage::{MemoryStores, StoreFactory, StoreOptions};
use onceflow::testing::TestDriver;
use onceflow::topology::{KeyedStream, Placement};
use onceflow::types::Timestamp;
use onceflow::{Config, JoinWindow, Stream, StreamBuilder, Topology, Windowed, Windows};
use std::sync::Arc;
use std::time::Duration;

/// Key, time, number.
type Sent = (Option<u8>, i64, u64);
type Late = (Option<u8>, Sent);

const RECORDS: usize = 200;

struct Plan {
    program: Program,
    out_of_orderness: i64,
    partitions: u32,
    repartition: bool,
    /// Runs of records of one side, each of which is committed before the next one is sent: so the order in which they reach
    /// the join is known.
    runs: Vec<(bool, Vec<(u32, Sent)>)>,
    /// How many entries of each side the join keeps in memory.
    entries: usize,
}

fn draw(dice: &mut Dice) -> Plan {
    let rule = match dice.within(0, 9) {
        0..=4 => Rule::Interval { before: dice.within(0, 20), after: dice.within(0, 20), grace: dice.within(0, 15) },
        5 | 6 => Rule::Latest { live: dice.within(1, 40) },
        7 => Rule::Table,
        _ => Rule::Window { size: dice.within(1, 30), lateness: dice.within(0, 15) },
    };
    let left_alone = dice.happens(66);
    let program = Program { rule, left_alone, right_alone: left_alone && rule != Rule::Table && dice.happens(50) };
    let partitions = dice.pick(&[1, 4]);
    let repartition = matches!(rule, Rule::Window { .. }) || dice.happens(50);
    let (start, step, jitter) = (dice.within(-300, 100), dice.within(0, 3), dice.within(0, 25));
    let (keys, run_max) = (dice.within(1, 5), dice.pick(&[1, 4, 30]));
    let (mut runs, mut number) = (vec![], 0);
    while number < RECORDS {
        let (is_left, mut records) = (dice.happens(50), vec![]);
        for _ in 0..dice.within(1, run_max) {
            let key = dice.within(0, keys) as u8;
            let jump = if dice.happens(2) { dice.within(0, 100) } else { 0 };
            let time = start + number as i64 * step + dice.within(-jitter, jitter) + jump;
            let queue = if repartition { dice.next() as u32 % partitions } else { u32::from(key) % partitions };
            records.push((queue, (Some(key).filter(|key| *key > 0), time, number as u64)));
            number += 1;
        }
        runs.push((is_left, records));
    }
    let out_of_orderness = dice.within(0, 20);
    let entries = dice.pick(&[1, 2, 5, 1_000]);
    Plan { program, out_of_orderness, partitions, repartition, runs, entries }
}

fn topology(plan: &Plan) -> Topology {
    let builder = StreamBuilder::new("oracle").unwrap();
    let source = |topic: &str| {
        let source = builder.source(topic, Json::<Sent>::new()).idle_timeout(None);
        let source = source.out_of_orderness(Duration::from_millis(plan.out_of_orderness as u64));
        source.select_timestamp(|(_, time, _)| Timestamp::from_millis(*time))
    };
    let (left, right) = (source("left"), source("right"));
    if let Rule::Window { size, lateness } = plan.program.rule {
        by_window(&left, &right, plan.program, size, lateness);
        return builder.build().unwrap();
    }
    let (left, right) = (left.key_by(|(key, ..)| *key), right.key_by(|(key, ..)| *key));
    if plan.repartition {
        let left = left.repartition("to-left").queues(plan.partitions);
        join(&left, &right.repartition("to-right").queues(plan.partitions), plan.program, plan.entries);
    } else {
        join(&left.partitioned_by_key(), &right.partitioned_by_key(), plan.program, plan.entries);
    }
    builder.build().unwrap()
}

fn ms(time: i64) -> Duration {
    Duration::from_millis(time as u64)
}

fn join<P: Placement<Option<u8>, Sent>>(
    left: &KeyedStream<Option<u8>, Sent, P>,
    right: &KeyedStream<Option<u8>, Sent, P>,
    program: Program,
    entries: usize,
) {
    let left_row = |left: &Sent, right: Option<&Sent>| -> Pair { (Some(left.2), right.map(|right| right.2)) };
    let both =
        |left: Option<&Sent>, right: Option<&Sent>| -> Pair { (left.map(|left| left.2), right.map(|right| right.2)) };
    macro_rules! finish {
        ($joining:expr) => {{
            let joined = match (program.left_alone, program.right_alone) {
                (false, _) => $joining.inner(|left: &Sent, right: &Sent| -> Pair { (Some(left.2), Some(right.2)) }),
                (true, false) => $joining.left(left_row),
                (true, true) => $joining.outer(both),
            };
            let joined = joined.cache_entries(entries);
            joined.values().sink("out", "out", Json::<Pair>::new());
            joined.late_left_to("late-left", "late", Json::<Late>::new());
            joined.late_right_to("late-right", "late", Json::<Late>::new());
        }};
    }
    match program.rule {
        Rule::Interval { before, after, grace } => {
            let window = JoinWindow::before(ms(before)).after(ms(after)).grace(ms(grace));
            finish!(left.join("join", right, window));
        }
        Rule::Latest { live } => finish!(left.join_latest("join", right, ms(live))),
        _ => {
            let joining = left.join_table("join", &right.table("table"));
            let joined = if program.left_alone {
                joining.left(left_row)
            } else {
                joining.inner(|left: &Sent, right: &Sent| -> Pair { (Some(left.2), Some(right.2)) })
            };
            joined.values().sink("out", "out", Json::<Pair>::new());
        }
    }
}

fn by_window(left: &Stream<Sent>, right: &Stream<Sent>, program: Program, size: i64, lateness: i64) {
    let keyed = left.join(right).where_key(|(key, ..)| *key).equal_to(|(key, ..)| *key);
    let windowed = keyed.window("join", Windows::tumbling(ms(size))).lateness(ms(lateness));
    let joined = match (program.left_alone, program.right_alone) {
        (false, _) => windowed.apply(|left, right| -> Pair { (Some(left.2), Some(right.2)) }),
        (true, false) => windowed.apply_left(|left, right| -> Pair { (Some(left.2), right.map(|right| right.2)) }),
        (true, true) => {
            windowed.apply_outer(|left, right| -> Pair { (left.map(|left| left.2), right.map(|right| right.2)) })
        }
    };
    joined.map(|_, pair| pair.value).sink("out", "out", Json::<Pair>::new());
    let late = |late: &KeyedStream<Option<u8>, Windowed<Sent>, _>| late.map_values(|late| late.value);
    late(&joined.late_left()).sink("late-left", "late", Json::<Late>::new());
    late(&joined.late_right()).sink("late-right", "late", Json::<Late>::new());
}

/// What reaches the join, task by task, and how far time comes in each.
fn arrivals(plan: &Plan) -> Vec<(Vec<Arrival>, i64)> {
    let partitions = plan.partitions as usize;
    // Of each side and partition: at its source, and as the join has heard.
    let mut at_source = [vec![i64::MIN; partitions], vec![i64::MIN; partitions]];
    let mut heard = at_source.clone();
    let mut tasks: Vec<Vec<Arrival>> = vec![vec![]; if plan.repartition { 1 } else { partitions }];
    let least = |of: &[Vec<i64>; 2], partition: Option<usize>| match partition {
        Some(partition) => of[0][partition].min(of[1][partition]),
        None => of.iter().flatten().copied().min().unwrap(),
    };
    for (is_left, records) in &plan.runs {
        let side = usize::from(!is_left);
        for partition in 0..partitions {
            for (_, (key, time, id)) in records.iter().filter(|(queue, _)| *queue as usize == partition) {
                let watermark = least(&heard, (!plan.repartition).then_some(partition));
                let task = if plan.repartition { 0 } else { partition };
                tasks[task].push(Arrival { is_left: *is_left, key: *key, time: *time, id: *id, watermark });
                let own = &mut at_source[side][partition];
                *own = (*own).max(time - plan.out_of_orderness);
                if !plan.repartition {
                    heard[side][partition] = *own;
                }
            }
            heard[side][partition] = at_source[side][partition];
        }
    }
    let end = |task: usize| least(&heard, (!plan.repartition).then_some(task));
    tasks.into_iter().enumerate().map(|(task, arrivals)| (arrivals, end(task))).collect()
}

pub fn run(seed: u64, stores: Stores) {
    let mut dice = Dice::new(seed);
    let plan = draw(&mut dice);
    let directory = tempfile::tempdir().unwrap();
    let factory: Arc<dyn StoreFactory> = match stores {
        Stores::Memory => Arc::new(MemoryStores::default()),
        Stores::Disk(backend) => Arc::new(StoreOptions::new(backend, directory.path())),
    };
    let halves = if dice.happens(40) { dice.within(1, 6) as usize } else { 4_000 };
    let config = Config { epoch_halves_max: halves, ..Config::default() };
    let queues = [("left", plan.partitions), ("right", plan.partitions)];
    let mut driver = TestDriver::with_config(&topology(&plan), &queues, factory, config).unwrap();
    driver.batch_records_max(dice.pick(&[1, 2, 7, 1_000]));
    let crashes = dice.pick(&[0, 10, 50]);
    for (is_left, records) in &plan.runs {
        for (queue, sent) in records {
            let topic = if *is_left { "left" } else { "right" };
            driver.send_with(topic, *queue, b"", &serde_json::to_vec(sent).unwrap()).unwrap();
        }
        commit(&mut driver, &mut dice, crashes);
    }
    driver.abort().unwrap();
    driver.commit().unwrap();

    let (mut want, mut got) = (Output::default(), Output::default());
    for (arrivals, end) in arrivals(&plan) {
        let one = join_batch::run(plan.program, &arrivals, end);
        want.pairs.extend(one.pairs);
        want.late.extend(one.late);
    }
    got.pairs.extend(driver.bodies("out").iter().map(|body| serde_json::from_slice::<Pair>(body).unwrap()));
    if plan.program.rule != Rule::Table {
        let late = driver.bodies("late");
        got.late.extend(late.iter().map(|body| serde_json::from_slice::<Late>(body).unwrap().1.2));
    }
    for output in [&mut want, &mut got] {
        output.pairs.sort_unstable();
        output.late.sort_unstable();
    }
    let about = format!(
        "seed={seed} {:?} out_of_orderness={} partitions={} repartition={}",
        plan.program, plan.out_of_orderness, plan.partitions, plan.repartition
    );
    let lacking: Vec<_> = want.pairs.iter().filter(|pair| !got.pairs.contains(pair)).take(5).collect();
    let beyond: Vec<_> = got.pairs.iter().filter(|pair| !want.pairs.contains(pair)).take(5).collect();
    assert!(got.pairs == want.pairs, "pairs differ: lacking={lacking:?} beyond={beyond:?} {about}");
    assert_eq!(got.late, want.late, "late records differ: {about}");
}
