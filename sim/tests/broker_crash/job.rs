//! A small job with a known answer that meets every step: both deliveries, records too wide for one journal record.

use onceflow::codec::Json;
use onceflow::topology::{Delivery, StartPolicy, StreamBuilder, Topology};
use onceflow::types::Name;
use onceflow_sim::Dice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const CARDS: u64 = 4;
/// The bytes of a wide record: some of them in one epoch do not fit into one journal record.
const WIDE_BYTES: usize = 72 << 10;

/// What goes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Payment {
    pub id: u64,
    pub card: String,
    pub amount: i64,
    padding: String,
}

/// What comes out for each payment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Total {
    pub card: String,
    pub id: u64,
    pub count: u64,
    pub sum: i64,
}

/// What is kept of each card: the padding makes large changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Kept {
    id: u64,
    count: u64,
    sum: i64,
    padding: String,
}

impl Kept {
    fn add(&mut self, payment: &Payment) {
        self.id = payment.id;
        self.count += 1;
        self.sum += payment.amount;
        self.padding.clone_from(&payment.padding);
    }
}

/// Which tasks there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Shape {
    /// One task that moves payments to two others by a repartition: the first plain messages are internal ones.
    Moved,
    /// One task: all plain messages are output.
    Kept,
}

/// The job of one run, with topics of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub run: String,
    pub shape: Shape,
}

impl Job {
    pub fn name(&self) -> Name {
        Name::job(format!("crash-{}", self.run)).unwrap()
    }

    pub fn input(&self) -> String {
        format!("crash-in-{}", self.run)
    }

    /// The output topics and how they are written; each gets every record.
    pub fn outputs(&self) -> [(&'static str, String, Delivery); 2] {
        let topic = |name: &str| format!("crash-{name}-{}", self.run);
        [
            ("transactional", topic("transactional"), Delivery::Transactional),
            ("outbox", topic("outbox"), Delivery::Outbox { framed: false }),
        ]
    }

    pub fn topology(&self) -> Topology {
        let builder = StreamBuilder::new(self.name().as_str()).unwrap();
        let payments = builder.source(&self.input(), Json::<Payment>::new()).name("payments");
        let keyed = payments.start(StartPolicy::Earliest).key_by(|payment| payment.card.clone());
        let kept = match self.shape {
            Shape::Moved => keyed.repartition("by-card").queues(2).aggregate("totals", Kept::default, Kept::add),
            Shape::Kept => keyed.partitioned_by_key().aggregate("totals", Kept::default, Kept::add),
        };
        let totals = kept.map(|card, Kept { id, count, sum, .. }| Total { card, id, count, sum });
        for (name, topic, delivery) in self.outputs() {
            let sink = totals.sink(name, &topic, Json::<Total>::new());
            sink.key(|total| total.card.clone()).delivery(delivery);
        }
        builder.build().unwrap()
    }
}

pub fn payment(id: u64) -> Payment {
    let mut dice = Dice::new(id);
    let card = format!("card-{}", dice.below(CARDS));
    let amount = i64::try_from(dice.within(1, 1_000)).unwrap();
    let mut padding = String::new();
    // Text that does not compress, in two records of three.
    while !id.is_multiple_of(3) && padding.len() < WIDE_BYTES {
        padding.push(char::from(b'0' + u8::try_from(dice.below(75)).unwrap()));
    }
    Payment { id, card, amount, padding }
}

/// The one right output of each card: its payments in the order of the input queue, each with the figures up to it.
pub fn expected(payments: &[Payment]) -> BTreeMap<String, Vec<Total>> {
    let mut cards: BTreeMap<String, Vec<Total>> = BTreeMap::new();
    for payment in payments {
        let totals = cards.entry(payment.card.clone()).or_default();
        let (count, sum) = totals.last().map_or((0, 0), |last| (last.count, last.sum));
        let card = payment.card.clone();
        totals.push(Total { card, id: payment.id, count: count + 1, sum: sum + payment.amount });
    }
    cards
}
