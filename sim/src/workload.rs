//! Jobs with a known answer.

mod joins;

use crate::dice::Dice;
use onceflow::codec::Json;
use onceflow::topology::{Delivery, StartPolicy, Stream, StreamBuilder, Topology};
use onceflow::types::{Result, Timestamp};
use onceflow::{Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Accounts, or keys, that the records of a run are about.
const KEYS: u64 = 5;
/// The bytes that a wide record adds to its key's state: enough of them do not fit into one journal record.
const WIDE_BYTES: usize = 72 << 10;

/// The windows, and a disorder that no record of a run is beyond.
const SIZE: Duration = Duration::from_secs(5);
const SLIDE: Duration = Duration::from_millis(2_500);
const OUT_OF_ORDERNESS: Duration = Duration::from_hours(1);
/// Event time of the first phase, and from one phase to the next.
const PHASE_FIRST: i64 = -10_000;
const PHASE: Duration = Duration::from_hours(3);
/// The key of records that end a phase.
const MARK: &str = "mark";

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Running count and sum of each key; keys stay in their partition.
    Counts,
    /// Transfers between accounts: two postings each, moved to the account's task, balances kept there.
    Transfers,
    /// A job that counts, and a second one that reads the first one's output and sums.
    Chain,
    /// Sums of each key in tumbling and in hopping windows of event time, behind a repartition; one result for each window, when it
    /// closes.
    Windows,
    /// Records joined with those near in event time, behind two repartitions; one result for each pair, and one for each
    /// left record that stays alone.
    Joins,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 5] =
        [Workload::Counts, Workload::Transfers, Workload::Chain, Workload::Windows, Workload::Joins];

    const fn word(self) -> &'static str {
        match self {
            Workload::Counts => "counts",
            Workload::Transfers => "transfers",
            Workload::Chain => "chain",
            Workload::Windows => "windows",
            Workload::Joins => "joins",
        }
    }

    /// Whether it has event time, which waits for every queue of its input.
    pub(crate) const fn is_timed(self) -> bool {
        matches!(self, Workload::Windows | Workload::Joins)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(word: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.word() == word);
        found.ok_or_else(|| format!("unknown workload {word:?}, known are: counts, transfers, chain, windows, joins"))
    }
}

/// What goes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    id: u64,
    from: String,
    to: String,
    amount: i64,
    time: i64,
    padding: String,
}

impl Record {
    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.time)
    }

    /// Whether it only moves event time on.
    fn is_mark(&self) -> bool {
        self.to == MARK
    }
}

/// One change of one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Posting {
    id: u64,
    key: String,
    value: i64,
    padding: String,
}

/// What comes out for each change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) count: u64,
    pub(crate) total: i64,
}

/// Changes of each key, by their id.
pub(crate) type Changes = BTreeMap<String, BTreeMap<u64, i64>>;

/// What must come out.
#[derive(Clone, Default, Debug)]
pub(crate) struct Expected {
    pub(crate) keys: Changes,
    rows: joins::Rows,
}

/// A workload as a run has it.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    pub(crate) workload: Workload,
    pub(crate) delivery: Delivery,
    /// How the first job of a chain writes.
    pub(crate) first_delivery: Delivery,
    /// How many of a thousand records are wide.
    pub(crate) wide_per_mille: u32,
    /// How many entries an operator keeps in memory: few, so that the store is read, or more than there are, so that the store
    /// is never asked.
    pub(crate) cache_entries: usize,
}

/// Fewer entries than a task has.
pub(crate) const FEW_ENTRIES: usize = 3;
/// More than a task has.
pub(crate) const ALL_ENTRIES: usize = 10_000;

pub(crate) const INPUT: &str = "in";
pub(crate) const MIDDLE: &str = "middle";
pub(crate) const OUTPUT: &str = "out";

impl Jobs {
    /// The topics that must be there, with the job that writes to each, if one does.
    pub(crate) fn topics(&self) -> Vec<(&'static str, Option<&'static str>)> {
        match self.workload {
            Workload::Counts | Workload::Transfers | Workload::Windows | Workload::Joins => {
                vec![(INPUT, None), (OUTPUT, Some("job"))]
            }
            Workload::Chain => vec![(INPUT, None), (MIDDLE, Some("first")), (OUTPUT, Some("job"))],
        }
    }

    /// Whether plain messages go out in batches.
    pub(crate) fn sends_batches(&self) -> bool {
        let plain = Delivery::Outbox { framed: false };
        self.delivery == plain || (self.workload == Workload::Chain && self.first_delivery == plain)
    }

    /// The jobs.
    pub(crate) fn topologies(&self) -> Result<Vec<Topology>> {
        match self.workload {
            Workload::Counts => Ok(vec![self.counting("job", OUTPUT, self.delivery)?]),
            Workload::Transfers => Ok(vec![self.transfers()?]),
            Workload::Windows => Ok(vec![self.windows()?]),
            Workload::Joins => Ok(vec![self.joins()?]),
            Workload::Chain => Ok(vec![self.counting("first", MIDDLE, self.first_delivery)?, self.summing()?]),
        }
    }

    /// Running sums of keys that stay in their partition.
    fn counting(&self, job: &str, output: &str, delivery: Delivery) -> Result<Topology> {
        let builder = StreamBuilder::new(job)?;
        let records = builder.source(INPUT, Json::<Record>::new()).name("records").start(StartPolicy::Earliest);
        let keyed =
            records.map(|record| posting(&record, &record.to, record.amount)).key_by(|posting| posting.key.clone());
        keyed
            .partitioned_by_key()
            .aggregate("sums", State::default, State::add)
            .cache_entries(self.cache_entries)
            .map(State::out)
            .sink("out", output, Json::<Sum>::new())
            .delivery(delivery);
        builder.build()
    }

    fn transfers(&self) -> Result<Topology> {
        let builder = StreamBuilder::new("job")?;
        let records = builder.source(INPUT, Json::<Record>::new()).name("transfers").start(StartPolicy::Earliest);
        let postings = records.flat_map(|record| {
            [posting(&record, &record.from, -record.amount), posting(&record, &record.to, record.amount)]
        });
        postings
            .key_by(|posting| posting.key.clone())
            .repartition("by-account")
            .queues(2)
            .map_values(|posting| posting)
            .aggregate("balances", State::default, State::add)
            .cache_entries(self.cache_entries)
            .map(State::out)
            .sink("out", OUTPUT, Json::<Sum>::new())
            .key(|sum| sum.key.clone())
            .delivery(self.delivery);
        builder.build()
    }

    /// No source is ever idle, and nothing is late, so the answer does not depend on who was faster: time stands at a phase's
    /// beginning until its last record in each queue.
    fn windows(&self) -> Result<Topology> {
        let builder = StreamBuilder::new("job")?;
        let keyed = timed(&builder)
            .map(|record| posting(&record, &record.to, record.amount))
            .key_by(|posting| posting.key.clone());
        let together = keyed.repartition("by-key").queues(2).map_values(|posting| posting);
        let sums = |name: &str, windows: Windows| {
            let sums = together.window(name, windows).aggregate(State::default, State::add, State::merge);
            let sums = sums.cache_entries(self.cache_entries);
            let name = name.to_owned();
            sums.map(move |key, sum: Windowed<State>| {
                let key = window_key(&key, &name, sum.window_start.as_millis());
                Sum { id: sum.value.count, key, count: 1, total: sum.value.total }
            })
        };
        let tumbling = sums("tumbling", Windows::tumbling(SIZE));
        tumbling
            .merge(&sums("hopping", Windows::hopping(SIZE, SLIDE)))
            .sink("out", OUTPUT, Json::<Sum>::new())
            .key(|sum| sum.key.clone())
            .delivery(self.delivery);
        builder.build()
    }

    fn summing(&self) -> Result<Topology> {
        let builder = StreamBuilder::new("job")?;
        let sums = builder.source(MIDDLE, Json::<Sum>::new()).name("counts").start(StartPolicy::Earliest);
        let value = |sum: &Sum| i64::try_from(sum.count).unwrap_or(i64::MAX);
        sums.map(move |sum| Posting { id: sum.id, value: value(&sum), key: sum.key, padding: String::new() })
            .key_by(|posting| posting.key.clone())
            .repartition("again")
            .queues(1)
            .map_values(|posting| posting)
            .aggregate("sums", State::default, State::add)
            .cache_entries(self.cache_entries)
            .map(State::out)
            .sink("out", OUTPUT, Json::<Sum>::new())
            .key(|sum| sum.key.clone())
            .delivery(self.delivery);
        builder.build()
    }

    /// A record for a partition, and what it must do.
    pub(crate) fn record(
        &self,
        id: u64,
        (partition, phase): (&str, u64),
        dice: &mut Dice,
        expected: &mut Expected,
    ) -> Result<Vec<u8>, String> {
        let mut key = || format!("{partition}/{}", dice.below(KEYS));
        let (from, to) = (key(), key());
        let amount = i64::try_from(dice.within(1, 100)).unwrap_or(1);
        let padding = if dice.happens(self.wide_per_mille) { noise(dice) } else { String::new() };
        // To and fro within the phase.
        let time = phase_start(phase) + i64::try_from(id * 7_919 % 20_000).unwrap_or(0);
        let record = Record { id, from, to, amount, time, padding };
        self.expect(&record, expected);
        serde_json::to_vec(&record).map_err(|error| error.to_string())
    }

    /// The last record of each queue in a phase, if the job needs one: it moves event time behind the phase's windows.
    pub(crate) fn mark(&self, phase: u64) -> Option<Result<Vec<u8>, String>> {
        if !self.workload.is_timed() {
            return None;
        }
        let time = phase_start(phase) + millis(OUT_OF_ORDERNESS) * 2;
        let (to, padding) = (MARK.to_owned(), String::new());
        let mark = Record { id: u64::MAX / 4, from: String::new(), to, amount: 0, time, padding };
        Some(serde_json::to_vec(&mark).map_err(|error| error.to_string()))
    }

    fn expect(&self, record: &Record, expected: &mut Expected) {
        let keys = &mut expected.keys;
        match self.workload {
            Workload::Counts => post(keys, &record.to, record.id * 2 + 1, record.amount),
            // The value is the count that the first job gave it: keys stay in their partition, so that is known.
            Workload::Chain => {
                let count = keys.get(&record.to).map_or(0, BTreeMap::len) + 1;
                post(keys, &record.to, record.id * 2 + 1, i64::try_from(count).unwrap_or(i64::MAX));
            }
            Workload::Transfers => {
                post(keys, &record.to, record.id * 2 + 1, record.amount);
                post(keys, &record.from, record.id * 2, -record.amount);
            }
            Workload::Windows => expect_windows(record, keys),
            Workload::Joins => expected.join(record),
        }
    }
}

/// The input with event time, without the records that only move it on.
fn timed(builder: &StreamBuilder) -> Stream<Record> {
    let records = builder.source(INPUT, Json::<Record>::new()).name("records").start(StartPolicy::Earliest);
    let timed = records.out_of_orderness(OUT_OF_ORDERNESS).idle_timeout(None).select_timestamp(Record::time);
    timed.filter(|record| !record.is_mark())
}

/// A change that a key must have seen.
fn post(keys: &mut Changes, key: &str, id: u64, change: i64) {
    keys.entry(key.to_owned()).or_default().insert(id, change);
}

/// Each window has one result, told by how many records it holds.
fn expect_windows(record: &Record, keys: &mut Changes) {
    let (size, slide) = (millis(SIZE), millis(SLIDE));
    let time = record.time().as_millis();
    let mut expect = |name: &str, start: i64| {
        let window = keys.entry(window_key(&record.to, name, start)).or_default();
        let (count, total) = window.pop_first().unwrap_or_default();
        window.insert(count + 1, total + record.amount);
    };
    expect("tumbling", time.div_euclid(size) * size);
    let last = time.div_euclid(slide) * slide;
    (0..size / slide).for_each(|back| expect("hopping", last - back * slide));
}

fn phase_start(phase: u64) -> i64 {
    PHASE_FIRST + millis(PHASE) * i64::try_from(phase).unwrap_or(0)
}

fn window_key(key: &str, windows: &str, start: i64) -> String {
    format!("{key} {windows} {start}")
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The posting of one side of a record: ids are even for what goes, odd for what comes.
fn posting(record: &Record, key: &str, value: i64) -> Posting {
    let id = record.id * 2 + u64::from(value > 0);
    Posting { id, key: key.to_owned(), value, padding: record.padding.clone() }
}

/// Text that does not compress.
fn noise(dice: &mut Dice) -> String {
    let mut text = String::with_capacity(WIDE_BYTES);
    while text.len() < WIDE_BYTES {
        text.push(char::from(b'0' + u8::try_from(dice.below(75)).unwrap_or(0)));
    }
    text
}

/// What is kept of each key: last id, count, total, and the padding of the last change.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
struct State {
    id: u64,
    count: u64,
    total: i64,
    padding: String,
}

impl State {
    fn add(state: &mut State, posting: &Posting) {
        state.id = posting.id;
        state.count += 1;
        state.total += posting.value;
        state.padding.clone_from(&posting.padding);
    }

    fn merge(state: &mut State, other: &State) {
        state.count += other.count;
        state.total += other.total;
    }

    #[allow(clippy::needless_pass_by_value, reason = "the signature of a mapping")]
    fn out(key: String, state: State) -> Sum {
        Sum { id: state.id, key, count: state.count, total: state.total }
    }
}
