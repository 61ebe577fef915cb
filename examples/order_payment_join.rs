//! Orders and payments in, settlements out: each order with its payment, or without one when a quarter of an hour and a
//! minute have passed.
//!
//! ```text
//! cargo run --example order_payment_join
//! ```
//!
//! It runs in memory, step by step, by the test driver: what it shows is the join. `word_count` shows a job on a log.

use onceflow::codec::{Decode, Encode, Json};
use onceflow::testing::TestDriver;
use onceflow::types::{Result, Timestamp};
use onceflow::{JoinWindow, StartPolicy, StreamBuilder, Topology};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    cents: i64,
    at: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payment {
    /// The order that it is for; a payment without one belongs to none.
    order: Option<u64>,
    cents: i64,
    at: i64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Settlement {
    order: u64,
    owed: i64,
    paid: Option<i64>,
}

const MINUTE: i64 = 60_000;

/// The job. An order may be paid in parts: then each part is one settlement.
fn topology() -> Result<Topology> {
    let builder = StreamBuilder::new("settlement")?;
    let orders = builder.source("orders", Json::<Order>::new()).start(StartPolicy::Earliest);
    let orders = orders.select_timestamp(|order| Timestamp::from_millis(order.at)).key_by(|order| Some(order.id));
    let payments = builder.source("payments", Json::<Payment>::new()).start(StartPolicy::Earliest);
    let payments = payments.select_timestamp(|paid| Timestamp::from_millis(paid.at)).key_by(|paid| paid.order);

    let window = JoinWindow::before(Duration::ZERO).after(Duration::from_mins(15)).grace(Duration::from_mins(1));
    let settled = orders.join("settled", &payments, window).left(|order, payment| Settlement {
        order: order.id,
        owed: order.cents,
        paid: payment.map(|payment| payment.cents),
    });
    settled.values().filter(|row| row.paid.is_some()).sink("settlements", "settlements", Json::new());
    settled.values().filter(|row| row.paid.is_none()).sink("unpaid", "unpaid", Json::new());
    settled.late_right_to("late", "payments-late", Json::new());
    builder.build()
}

fn main() -> Result<()> {
    let mut driver = TestDriver::new(&topology()?)?;
    play(&mut driver)?;
    driver.commit()?;
    driver.advance_event_time(Timestamp::from_millis(60 * MINUTE))?;
    driver.commit()?;

    for topic in ["settlements", "unpaid"] {
        println!("{topic}");
        for Settlement { order, owed, paid } in settlements(&driver, topic)? {
            println!("  order {order}: owed {owed}, paid {paid:?}");
        }
    }
    println!("payments without an order: {}", driver.counters().missing_keys);
    Ok(())
}

/// Three orders, one of them paid in parts, one never, one too late.
fn play(driver: &mut TestDriver) -> Result<()> {
    for (id, cents, at) in [(1, 1_000, 0), (2, 2_500, MINUTE), (3, 700, 2 * MINUTE)] {
        send(driver, "orders", &Order { id, cents, at })?;
    }
    for (order, cents, at) in
        [(Some(1), 400, MINUTE), (Some(1), 600, 5 * MINUTE), (None, 99, MINUTE), (Some(3), 700, 20 * MINUTE)]
    {
        send(driver, "payments", &Payment { order, cents, at })?;
    }
    Ok(())
}

/// What is in a topic, in the order of the orders.
fn settlements(driver: &TestDriver, topic: &str) -> Result<Vec<Settlement>> {
    let codec = Json::<Settlement>::new();
    let mut rows = driver.bodies(topic).iter().map(|body| codec.decode(body)).collect::<Result<Vec<_>>>()?;
    rows.sort();
    Ok(rows)
}

fn send<T: Serialize + 'static>(driver: &mut TestDriver, topic: &str, value: &T) -> Result<()> {
    let mut body = vec![];
    Json::<T>::new().encode(value, &mut body)?;
    driver.send(topic, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::CrashPoint;

    #[test]
    fn each_part_is_settled_and_an_order_is_unpaid_only_when_its_time_is_over() {
        for point in CrashPoint::ALL {
            let mut driver = TestDriver::new(&topology().unwrap()).unwrap();
            play(&mut driver).unwrap();
            driver.crash_at(point).unwrap();
            driver.commit().unwrap();
            let part = |paid| Settlement { order: 1, owed: 1_000, paid: Some(paid) };
            assert_eq!(settlements(&driver, "settlements").unwrap(), [part(400), part(600)], "{point:?}");

            // Order 3 was made at 2 minutes: its quarter of an hour and a minute are over at 18.
            driver.advance_event_time(Timestamp::from_millis(60 * MINUTE)).unwrap();
            driver.crash_at(point).unwrap();
            driver.advance_event_time(Timestamp::from_millis(60 * MINUTE)).unwrap();
            driver.commit().unwrap();
            let unpaid = |order, owed| Settlement { order, owed, paid: None };
            assert_eq!(settlements(&driver, "unpaid").unwrap(), [unpaid(2, 2_500), unpaid(3, 700)], "{point:?}");
            assert_eq!(settlements(&driver, "settlements").unwrap().len(), 2, "{point:?}");
        }
    }
}
