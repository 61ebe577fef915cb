//! Payments in, alerts out. Every payment changes its card's history exactly once, and every alert is raised exactly once,
//! whatever happens to this program in between.
//!
//! ```text
//! cargo run --release --example fraud_detection
//! cargo run --release --example fraud_detection --features rocketmq -- --name-server 127.0.0.1:9876
//! ```
//!
//! Stop it (Ctrl-C) or kill it (kill -9) at any moment and start it again: it goes on where it was. At the end it
//! reads both topics again, works out the alerts a second time in another way, and compares.

#![expect(unreachable_pub, reason = "a program: nothing here is used from outside")]

mod common;

use common::input::Input;
use common::{Ending, Options, Place, grouped};
use onceflow::codec::Json;
use onceflow::types::{Error, Result, Timestamp};
use onceflow::{Delivery, ErrorPolicy, StartPolicy, StreamBuilder, Topology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::ExitCode;
use std::sync::Arc;

const JOB: &str = "fraud-detection";
const PAYMENTS: &str = "payments";
const ALERTS: &str = "fraud-alerts";
const BAD_PAYMENTS: &str = "payments-bad";

/// The job: what comes in, what is kept for each card, what goes out.
fn topology(delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    builder
        .source(PAYMENTS, Json::<Payment>::new())
        .start(StartPolicy::Earliest)
        .on_error(ErrorPolicy::dead_letter(BAD_PAYMENTS))
        .select_timestamp(|payment| Timestamp::from_millis(payment.time * 1_000))
        .key_by(|payment| payment.card.clone())
        .scan("cards", Card::default, Card::judge)
        .values()
        .flat_map(|alert| alert)
        .sink("alerts", ALERTS, Json::<Alert>::new())
        .key(|alert| alert.card.clone())
        .delivery(delivery);
    builder.build()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payment {
    id: u64,
    /// In seconds since 1970.
    time: i64,
    card: String,
    merchant: String,
    country: String,
    cents: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Alert {
    payment: u64,
    card: String,
    cents: u64,
    reasons: BTreeSet<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reason {
    /// Ten times what the card pays on average, once it has paid [`PAYMENTS_KNOWN`] times.
    LargeAmount,
    /// In another country than the payment before, less than [`TRAVEL_TIME`] ago.
    ImpossibleTravel,
    /// The payment with which an hour has [`HOUR_PAYMENTS`] of them.
    ManyPayments,
    /// The payment with which an hour's spending passes [`HOUR_CENTS`].
    HighSpending,
}

const PAYMENTS_KNOWN: u64 = 5;
const AVERAGE_FACTOR: u64 = 10;
const TRAVEL_TIME: i64 = 2 * 3_600;
const HOUR: i64 = 3_600;
const HOUR_PAYMENTS: usize = 6;
const HOUR_CENTS: u64 = 150_000;

/// What is kept for each card.
#[derive(Default, Serialize, Deserialize)]
struct Card {
    payments: u64,
    cents: u64,
    /// Country and time of the last payment.
    last: Option<(String, i64)>,
    /// Time and amount of the payments of the last hour, by the time in the payments.
    hour: VecDeque<(i64, u64)>,
}

impl Card {
    /// Takes one payment in, and says what is suspicious about it.
    fn judge(&mut self, payment: &Payment) -> Option<Alert> {
        let mut reasons = BTreeSet::new();
        if self.payments >= PAYMENTS_KNOWN && payment.cents * self.payments > AVERAGE_FACTOR * self.cents {
            reasons.insert(Reason::LargeAmount);
        }
        if let Some((country, time)) = &self.last
            && *country != payment.country
            && payment.time - time < TRAVEL_TIME
        {
            reasons.insert(Reason::ImpossibleTravel);
        }
        self.hour.retain(|(time, _)| *time > payment.time - HOUR);
        let spent: u64 = self.hour.iter().map(|(_, cents)| cents).sum();
        self.hour.push_back((payment.time, payment.cents));
        if self.hour.len() == HOUR_PAYMENTS {
            reasons.insert(Reason::ManyPayments);
        }
        if spent <= HOUR_CENTS && spent + payment.cents > HOUR_CENTS {
            reasons.insert(Reason::HighSpending);
        }
        self.payments += 1;
        self.cents += payment.cents;
        self.last = Some((payment.country.clone(), payment.time));
        let alert = Alert { payment: payment.id, card: payment.card.clone(), cents: payment.cents, reasons };
        (!alert.reasons.is_empty()).then_some(alert)
    }
}

fn main() -> ExitCode {
    common::main(run)
}

async fn run(options: Options) -> Result<Ending> {
    let place = Arc::new(Place::open("fraud_detection", JOB, &options).await?);
    place.create_topics(&[PAYMENTS, ALERTS, BAD_PAYMENTS]).await?;
    let input = Input { topic: PAYMENTS, records: options.records.unwrap_or(500_000), record };
    let topology = topology(options.delivery.into())?;
    match common::run::run(&place, topology, input, ALERTS).await? {
        Some(_) => verify(&place).await.map(Ending::Checked),
        None => Ok(Ending::Stopped),
    }
}

// ---- the input ----

/// Made by `make_payments`.
const DATA: &str = include_str!("data/payments.csv");
/// The data covers so many seconds; when it is repeated, it is the next week.
const DATA_TIME: i64 = 7 * 24 * HOUR;

/// Payment number `number`. Those of a card go to one queue, so that they stay in order.
fn record(number: u64, queues: usize) -> (usize, Vec<u8>) {
    static ROWS: std::sync::LazyLock<Vec<Payment>> =
        std::sync::LazyLock::new(|| DATA.lines().skip(1).filter_map(parse).collect());
    let rows = ROWS.len() as u64;
    let week = i64::try_from(number / rows).unwrap_or(0);
    let row = usize::try_from(number % rows).unwrap_or(0);
    let mut payment = ROWS.get(row).cloned().expect("the remainder of a division by the number of rows");
    payment.id = number;
    payment.time += week * DATA_TIME;
    let body = serde_json::to_vec(&payment).expect("texts and numbers have a json form");
    (queue_of(&payment.card, queues), body)
}

/// The queue of a key, as RocketMQ's `SelectMessageQueueByHash` chooses it: all records of a key in one queue, in order.
fn queue_of(key: &str, queues: usize) -> usize {
    let hash = key.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    hash.unsigned_abs() as usize % queues.max(1)
}

fn parse(row: &str) -> Option<Payment> {
    let mut fields = row.split(',');
    Some(Payment {
        id: fields.next()?.parse().ok()?,
        time: fields.next()?.parse().ok()?,
        card: fields.next()?.into(),
        merchant: fields.next()?.into(),
        country: fields.next()?.into(),
        cents: fields.next()?.parse().ok()?,
    })
}

// ---- the check ----

/// Reads payments and alerts from their topics, works out the alerts by looking back over all payments of each card, and
/// compares. Nothing that the engine counted is used.
async fn verify(place: &Place) -> Result<bool> {
    let mut cards: BTreeMap<String, Vec<Payment>> = BTreeMap::new();
    let mut unreadable = 0u64;
    common::topic::read_plain(&*place.log, PAYMENTS, |body| match serde_json::from_slice::<Payment>(body) {
        Ok(payment) => cards.entry(payment.card.clone()).or_default().push(payment),
        Err(_) => unreadable += 1,
    })
    .await?;
    let payments: usize = cards.values().map(Vec::len).sum();
    println!("{PAYMENTS:<20} {} records of {} cards", grouped(payments as u64), grouped(cards.len() as u64));

    let mut raised: BTreeMap<String, Vec<Alert>> = BTreeMap::new();
    for record in common::topic::read_output(&place.log, ALERTS, JOB).await? {
        let alert: Alert = serde_json::from_slice(&record.body)
            .map_err(|e| Error::data_loss("an alert cannot be read").with_source(e))?;
        raised.entry(alert.card.clone()).or_default().push(alert);
    }
    let rejected = common::topic::read_output(&place.log, BAD_PAYMENTS, JOB).await?.len() as u64;
    print_alerts(&raised);
    println!("\n{} in {}", if place.on_broker { "state" } else { "log and state" }, place.directory.display());

    let expected: BTreeMap<String, Vec<Alert>> = cards
        .into_iter()
        .map(|(card, payments)| (card, expected_alerts(&payments)))
        .filter(|(_, alerts)| !alerts.is_empty())
        .collect();
    for (card, alerts) in &expected {
        if raised.get(card) != Some(alerts) {
            eprintln!("{card}: expected {alerts:?}, found {:?}", raised.get(card));
        }
    }
    if rejected != unreadable {
        eprintln!("{BAD_PAYMENTS}: expected {unreadable}, found {rejected}");
    }
    Ok(raised == expected && rejected == unreadable)
}

/// The alerts for all payments of a card, in order, straight from what the reasons say.
fn expected_alerts(payments: &[Payment]) -> Vec<Alert> {
    let (mut alerts, mut total) = (vec![], 0);
    for (count, payment) in payments.iter().enumerate() {
        let before = payments.get(..count).unwrap_or_default();
        let hour: Vec<u64> =
            before.iter().rev().take_while(|other| other.time > payment.time - HOUR).map(|other| other.cents).collect();
        let (known, spent) = (count as u64, hour.iter().sum::<u64>());
        let travelled = |last: &Payment| last.country != payment.country && payment.time - last.time < TRAVEL_TIME;
        let checks = [
            (Reason::LargeAmount, known >= PAYMENTS_KNOWN && payment.cents * known > AVERAGE_FACTOR * total),
            (Reason::ImpossibleTravel, before.last().is_some_and(travelled)),
            (Reason::ManyPayments, hour.len() + 1 == HOUR_PAYMENTS),
            (Reason::HighSpending, spent <= HOUR_CENTS && spent + payment.cents > HOUR_CENTS),
        ];
        let reasons: BTreeSet<Reason> = checks.iter().filter(|(_, found)| *found).map(|(reason, _)| *reason).collect();
        total += payment.cents;
        if !reasons.is_empty() {
            alerts.push(Alert { payment: payment.id, card: payment.card.clone(), cents: payment.cents, reasons });
        }
    }
    alerts
}

fn print_alerts(raised: &BTreeMap<String, Vec<Alert>>) {
    let mut by_reason: BTreeMap<Reason, u64> = BTreeMap::new();
    for reason in raised.values().flatten().flat_map(|alert| &alert.reasons) {
        *by_reason.entry(*reason).or_default() += 1;
    }
    println!("\nalerts by reason");
    for (reason, count) in by_reason {
        println!("  {:<18} {:>9}", format!("{reason:?}"), grouped(count));
    }
    let mut cards: Vec<_> = raised.iter().collect();
    cards.sort_by_key(|(card, alerts)| (std::cmp::Reverse(alerts.len()), *card));
    println!("\ncards with most alerts");
    for (card, alerts) in cards.into_iter().take(5) {
        let cents: u64 = alerts.iter().map(|alert| alert.cents).sum();
        println!(
            "  {card:<18} {:>9}  for {}.{:02} in all",
            grouped(alerts.len() as u64),
            grouped(cents / 100),
            cents % 100
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::{CrashPoint, TestDriver};

    #[test]
    fn alerts_are_those_of_the_check_wherever_it_crashes() {
        for point in CrashPoint::ALL {
            let mut driver = TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap();
            let mut cards: BTreeMap<String, Vec<Payment>> = BTreeMap::new();
            for number in 0..3_000 {
                let (_, body) = record(number, 1);
                let payment: Payment = serde_json::from_slice(&body).unwrap();
                cards.entry(payment.card.clone()).or_default().push(payment);
                driver.send(PAYMENTS, &body).unwrap();
                if number % 1_000 == 0 {
                    driver.crash_at(point).unwrap();
                }
            }
            driver.commit().unwrap();
            let mut raised: BTreeMap<String, Vec<Alert>> = BTreeMap::new();
            for body in driver.bodies(ALERTS) {
                let alert: Alert = serde_json::from_slice(&body).unwrap();
                raised.entry(alert.card.clone()).or_default().push(alert);
            }
            let expected = cards.into_iter().map(|(card, payments)| (card, expected_alerts(&payments)));
            let expected: BTreeMap<String, Vec<Alert>> = expected.filter(|(_, alerts)| !alerts.is_empty()).collect();
            assert!(!expected.is_empty(), "the data holds too little to look for");
            assert_eq!(raised, expected, "{point:?}");
        }
    }

    #[test]
    fn a_payment_that_cannot_be_read_goes_to_a_topic() {
        let mut driver = TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap();
        driver.send(PAYMENTS, b"a payment").unwrap();
        driver.commit().unwrap();
        assert_eq!(driver.bodies(BAD_PAYMENTS), [b"a payment"]);
        assert_eq!(driver.counters().dead_letters, 1);
    }
}
