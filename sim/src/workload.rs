//! Jobs with a known answer.

use crate::dice::Dice;
use onceflow::codec::Json;
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Accounts, or keys, that the records of a run are about.
const KEYS: u64 = 5;
/// The bytes that a wide record adds to its key's state: enough of them do not fit into one journal record.
const WIDE_BYTES: usize = 72 << 10;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Running count and sum of each key; keys stay in their partition.
    Counts,
    /// Transfers between accounts: two postings each, moved to the account's task, balances kept there.
    Transfers,
    /// A job that counts, and a second one that reads the first one's output and sums.
    Chain,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 3] = [Workload::Counts, Workload::Transfers, Workload::Chain];

    const fn word(self) -> &'static str {
        match self {
            Workload::Counts => "counts",
            Workload::Transfers => "transfers",
            Workload::Chain => "chain",
        }
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
        found.ok_or_else(|| format!("unknown workload {word:?}, known are: counts, transfers, chain"))
    }
}

/// What goes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    id: u64,
    from: String,
    to: String,
    amount: i64,
    padding: String,
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

/// The changes that each key must have seen, by their id.
pub(crate) type Expected = BTreeMap<String, BTreeMap<u64, i64>>;

/// A workload as a run has it.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    pub(crate) workload: Workload,
    pub(crate) delivery: Delivery,
    /// How the first job of a chain writes.
    pub(crate) first_delivery: Delivery,
    /// How many of a thousand records are wide.
    pub(crate) wide_per_mille: u32,
}

pub(crate) const INPUT: &str = "in";
pub(crate) const MIDDLE: &str = "middle";
pub(crate) const OUTPUT: &str = "out";

impl Jobs {
    /// The topics that must be there, with the job that writes to each, if one does.
    pub(crate) fn topics(&self) -> Vec<(&'static str, Option<&'static str>)> {
        match self.workload {
            Workload::Counts | Workload::Transfers => vec![(INPUT, None), (OUTPUT, Some("job"))],
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
            Workload::Counts => Ok(vec![counting("job", OUTPUT, self.delivery)?]),
            Workload::Transfers => Ok(vec![self.transfers()?]),
            Workload::Chain => Ok(vec![counting("first", MIDDLE, self.first_delivery)?, self.summing()?]),
        }
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
            .map(State::out)
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
        partition: &str,
        dice: &mut Dice,
        expected: &mut Expected,
    ) -> Result<Vec<u8>, String> {
        let mut key = || format!("{partition}/{}", dice.below(KEYS));
        let (from, to) = (key(), key());
        let amount = i64::try_from(dice.within(1, 100)).unwrap_or(1);
        let padding = if dice.happens(self.wide_per_mille) { noise(dice) } else { String::new() };
        let record = Record { id, from, to, amount, padding };
        self.expect(&record, expected);
        serde_json::to_vec(&record).map_err(|error| error.to_string())
    }

    fn expect(&self, record: &Record, expected: &mut Expected) {
        let to = expected.entry(record.to.clone()).or_default();
        match self.workload {
            Workload::Counts => {
                to.insert(record.id * 2 + 1, record.amount);
            }
            // The value is the count that the first job gave it: keys stay in their partition, so that is known.
            Workload::Chain => {
                let count = i64::try_from(to.len()).unwrap_or(i64::MAX) + 1;
                to.insert(record.id * 2 + 1, count);
            }
            Workload::Transfers => {
                to.insert(record.id * 2 + 1, record.amount);
                expected.entry(record.from.clone()).or_default().insert(record.id * 2, -record.amount);
            }
        }
    }
}

/// Running sums of keys that stay in their partition.
fn counting(job: &str, output: &str, delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(job)?;
    let records = builder.source(INPUT, Json::<Record>::new()).name("records").start(StartPolicy::Earliest);
    let keyed = records.map(|record| posting(&record, &record.to, record.amount)).key_by(|posting| posting.key.clone());
    keyed
        .partitioned_by_key()
        .aggregate("sums", State::default, State::add)
        .map(State::out)
        .sink("out", output, Json::<Sum>::new())
        .delivery(delivery);
    builder.build()
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

    #[allow(clippy::needless_pass_by_value, reason = "the signature of a mapping")]
    fn out(key: String, state: State) -> Sum {
        Sum { id: state.id, key, count: state.count, total: state.total }
    }
}
