//! The job under test: payments in, a running count, sum, least and greatest amount per card out, through a repartition.

use onceflow::codec::Json;
use onceflow::topology::Delivery;
use onceflow::types::Result;
use onceflow::{StartPolicy, StreamBuilder, Topology};
use serde::{Deserialize, Serialize};

pub(crate) const JOB: &str = "soak";
pub(crate) const INPUT: &str = "soak-payments";
/// Queues of the topics and of the repartition.
pub(crate) const QUEUES: u32 = 4;

/// What goes in. `id` says which payment it is, so that an auditor can tell them apart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) id: u64,
    pub(crate) card: String,
    pub(crate) amount: i64,
}

/// What comes out for each payment: the card's figures with that payment in them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Totals {
    card: String,
    id: u64,
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Figures {
    last: u64,
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

impl Figures {
    fn add(&mut self, payment: &Payment) {
        let first = self.count == 0;
        self.last = payment.id;
        self.count += 1;
        self.sum += payment.amount;
        self.min = if first { payment.amount } else { self.min.min(payment.amount) };
        self.max = if first { payment.amount } else { self.max.max(payment.amount) };
    }
}

/// How output reaches its readers; `Both` writes each record to two topics, one in each way, in the same epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Transactional messages
    Transactional,
    /// Plain messages after the decision
    Outbox,
    /// Two output topics, one of each kind
    Both,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Transactional => "transactional",
            Mode::Outbox => "outbox",
            Mode::Both => "both",
        }
    }

    /// The output topics and how they are written.
    pub(crate) fn outputs(self) -> Vec<(&'static str, Delivery)> {
        let all = [
            ("transactional", Delivery::Transactional, Mode::Outbox),
            ("outbox", Delivery::Outbox { framed: false }, Mode::Transactional),
        ];
        all.into_iter().filter(|(.., without)| self != *without).map(|(name, how, _)| (name, how)).collect()
    }
}

/// The topic of an output.
pub(crate) fn topic(output: &str) -> String {
    format!("soak-{output}")
}

pub(crate) fn topology(mode: Mode) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    let totals = builder
        .source(INPUT, Json::<Payment>::new())
        .start(StartPolicy::Earliest)
        .key_by(|payment| payment.card.clone())
        .repartition("by-card")
        .queues(QUEUES)
        .aggregate("figures", Figures::default, Figures::add)
        .map(|card, Figures { last: id, count, sum, min, max }| Totals { card, id, count, sum, min, max });
    for (name, delivery) in mode.outputs() {
        let sink = totals.sink(name, &topic(name), Json::<Totals>::new());
        sink.key(|totals| totals.card.clone()).delivery(delivery);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::TestDriver;

    #[test]
    fn each_payment_gives_the_figures_of_its_card_in_each_output() {
        let outputs = ["soak-transactional", "soak-outbox"].map(|topic| (topic, QUEUES));
        let mut driver = TestDriver::with_queues(&topology(Mode::Both).unwrap(), &outputs).unwrap();
        for (id, amount) in [(1, -5), (2, 9)] {
            let payment = Payment { id, card: "c".to_owned(), amount };
            driver.send(INPUT, &serde_json::to_vec(&payment).unwrap()).unwrap();
        }
        driver.commit().unwrap();
        let wanted = [
            r#"{"card":"c","id":1,"count":1,"sum":-5,"min":-5,"max":-5}"#,
            r#"{"card":"c","id":2,"count":2,"sum":4,"min":-5,"max":9}"#,
        ];
        for (topic, _) in outputs {
            assert_eq!(driver.bodies(topic), wanted.map(str::as_bytes), "{topic}");
        }
    }

    #[test]
    fn a_mode_has_its_outputs() {
        let names = |mode: Mode| mode.outputs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Mode::Transactional), ["transactional"]);
        assert_eq!(names(Mode::Outbox), ["outbox"]);
        assert_eq!(names(Mode::Both), ["transactional", "outbox"]);
    }
}
