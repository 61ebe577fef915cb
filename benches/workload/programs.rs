//! The four workloads, written in the public API as a user would write them, and what they put out.

use crate::spec::{Input, InputCodec, Key};
use onceflow::codec::Encode;
use onceflow::topology::{Delivery, KeyedStream, StartPolicy, Stream, StreamBuilder, Together, Topology};
use onceflow::types::{Result, Timestamp};
use onceflow::{JoinWindow, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Workload {
    /// Running count and sum per key; an output for each record.
    W1,
    /// Count and sum per key and window of 10 s; an output when the window closes.
    W2,
    /// The records whose amount ends with a zero.
    W3,
    /// Authorisations with their payments, at most 5 s apart.
    W4,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Workload::W1 => "w1",
            Workload::W2 => "w2",
            Workload::W3 => "w3",
            Workload::W4 => "w4",
        })
    }
}

impl Workload {
    /// Different keys if nothing else is said.
    pub fn keys(self) -> u64 {
        if self == Workload::W4 { 100_000 } else { 10_000 }
    }
}

/// Topics and job of a run.
#[derive(Clone)]
pub struct Names {
    pub job: String,
    /// One; for [`Workload::W4`] that of the authorisations (even records) and that of the payments (odd ones).
    pub inputs: Vec<String>,
    pub output: String,
}

impl Names {
    /// `run` tells the runs on one broker apart.
    pub fn new(workload: Workload, run: &str) -> Names {
        let sides: &[&str] = if workload == Workload::W4 { &["-auth", "-pay"] } else { &[""] };
        Names {
            job: format!("bench{run}"),
            inputs: sides.iter().map(|side| format!("bench-in{run}{side}")).collect(),
            output: format!("bench-out{run}"),
        }
    }
}

/// The operator of W1; it keeps [`Sums`].
pub const RUNNING: &str = "running";

pub fn topology(workload: Workload, names: &Names, delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(&names.job)?;
    let input = |number: usize| {
        // Records come up to 2 s late. Windows and join wait for them; a queue is waited for, however slow it is.
        let source = builder.source(&names.inputs[number], InputCodec).start(StartPolicy::Earliest);
        source.out_of_orderness(Duration::ZERO).idle_timeout(None)
    };
    match workload {
        Workload::W1 => _ = running_sums(&input(0)).sink("out", &names.output, OutputCodec).delivery(delivery),
        Workload::W2 => _ = window_sums(&input(0)).sink("out", &names.output, OutputCodec).delivery(delivery),
        Workload::W3 => _ = kept(&input(0)).sink("out", &names.output, OutputCodec).delivery(delivery),
        Workload::W4 => _ = pairs(&input(0), &input(1)).sink("out", &names.output, OutputCodec).delivery(delivery),
    }
    builder.build()
}

/// Count and sum of amounts, with the sequence of the last record added and the largest ingest time.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Sums {
    pub seq: i64,
    pub ingest: i64,
    pub count: i64,
    pub sum: i64,
}

impl Sums {
    fn add(&mut self, input: &Input) {
        self.seq = input.seq;
        self.ingest = self.ingest.max(input.ingest);
        self.count += 1;
        self.sum += input.amount;
    }
}

fn keyed(input: &Stream<Input>) -> KeyedStream<Key, Input, Together> {
    input.key_by(|input| input.key).partitioned_by_key()
}

fn timed(input: &Stream<Input>) -> Stream<Input> {
    input.select_timestamp(|input| Timestamp::from_millis(input.time))
}

fn running_sums(input: &Stream<Input>) -> KeyedStream<Key, Sums, Together> {
    keyed(input).aggregate(RUNNING, Sums::default, Sums::add).clone()
}

fn window_sums(input: &Stream<Input>) -> KeyedStream<Key, Windowed<Sums>, Together> {
    let windows = keyed(&timed(input)).window("sums", Windows::tumbling(Duration::from_secs(10)));
    let merge = |_: &mut Sums, _: &Sums| unreachable!("only sessions are merged");
    windows.lateness(Duration::from_secs(2)).aggregate(Sums::default, Sums::add, merge).clone()
}

fn kept(input: &Stream<Input>) -> Stream<Input> {
    input.filter(|input| input.amount % 10 == 0).map(|input| Input { amount: input.amount + 1, ..input })
}

/// What a pair needs of each side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Side {
    seq: i64,
    ingest: i64,
    amount: i64,
}

/// The sequences of both sides, the largest ingest time and the sum of both amounts.
#[derive(Clone, Copy, Debug)]
struct Pair {
    authorisation: i64,
    ingest: i64,
    payment: i64,
    sum: i64,
}

fn pairs(authorisations: &Stream<Input>, payments: &Stream<Input>) -> KeyedStream<Key, Pair, Together> {
    let side = |input| keyed(&timed(input)).map_values(|of| Side { seq: of.seq, ingest: of.ingest, amount: of.amount });
    let near = JoinWindow::within(Duration::from_secs(5)).grace(Duration::from_secs(2));
    let joined = side(authorisations).join("pairs", &side(payments), near).inner(|authorisation, payment| Pair {
        authorisation: authorisation.seq,
        ingest: authorisation.ingest.max(payment.ingest),
        payment: payment.seq,
        sum: authorisation.amount + payment.amount,
    });
    joined.clone()
}

/// Writes outputs, 48 bytes: four numbers, little-endian, and the key. The numbers are `a`, ingest time, `c` and `d` of the
/// table in `docs/benchmarks.md`.
#[derive(Clone, Copy, Debug)]
struct OutputCodec;

fn put(to: &mut Vec<u8>, numbers: [i64; 4], key: &Key) -> Result<()> {
    for number in numbers {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(key);
    Ok(())
}

impl Encode<(Key, Sums)> for OutputCodec {
    fn encode(&self, (key, of): &(Key, Sums), to: &mut Vec<u8>) -> Result<()> {
        put(to, [of.seq, of.ingest, of.count, of.sum], key)
    }
}

impl Encode<(Key, Windowed<Sums>)> for OutputCodec {
    fn encode(&self, (key, window): &(Key, Windowed<Sums>), to: &mut Vec<u8>) -> Result<()> {
        let of = window.value;
        put(to, [window.window_start.as_millis(), of.ingest, of.count, of.sum], key)
    }
}

impl Encode<Input> for OutputCodec {
    fn encode(&self, of: &Input, to: &mut Vec<u8>) -> Result<()> {
        put(to, [of.seq, of.ingest, of.time, of.amount], &of.key)
    }
}

impl Encode<(Key, Pair)> for OutputCodec {
    fn encode(&self, (key, of): &(Key, Pair), to: &mut Vec<u8>) -> Result<()> {
        put(to, [of.authorisation, of.ingest, of.payment, of.sum], key)
    }
}
