//! Payments in, alarms out. A card that pays too often or too much within an hour raises an alarm; when it has kept to the
//! rules for half an hour, the alarm is cleared. Each is written exactly once, whatever happens to this program in between.
//!
//! ```text
//! cargo run --release --example windowed_fraud
//! cargo run --release --example windowed_fraud --features rocketmq -- --name-server 127.0.0.1:9876
//! ```
//!
//! Stop it (Ctrl-C) or kill it (kill -9) at any moment and start it again: it goes on where it was. At the end it reads both
//! topics again, works out the alarms a second time in another way, and compares.

#![expect(unreachable_pub, reason = "a program: nothing here is used from outside")]

mod common;

use common::input::Input;
use common::{Ending, Options, Place, grouped};
use onceflow::codec::Json;
use onceflow::process::{Process, Processor, Setup, Timer, ValueState};
use onceflow::types::{Error, Result, Timestamp};
use onceflow::{Delivery, StartPolicy, StreamBuilder, Topology, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const JOB: &str = "windowed-fraud";
const PAYMENTS: &str = "payments-velocity";
const ALARMS: &str = "velocity-alarms";
/// Payments that came too late to be looked at.
const LATE: &str = "payments-late";

/// What one look back covers.
const WINDOW: Duration = Duration::from_hours(1);
/// How many payments, and how much, are in order within that time.
const PAYMENTS_MAX: u64 = 5;
const CENTS_MAX: u64 = 150_000;
/// How long a card has to keep to the rules until its alarm is cleared, in seconds.
const QUIET: i64 = 30 * 60;

/// The job. The window says with each payment what its card has paid in the hour up to it; the processor behind it makes
/// alarms of that, one for a whole row of payments that break a rule.
fn topology(delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    // The payments of a card come in order, so no time is lost by waiting for older ones.
    let payments = builder.source(PAYMENTS, Json::<Payment>::new()).start(StartPolicy::Earliest);
    let payments = payments.out_of_orderness(Duration::ZERO);
    let velocities = payments
        .select_timestamp(|payment| Timestamp::from_millis(payment.time * 1_000))
        .key_by(|payment| payment.card.clone())
        .window("velocity", Windows::sliding(WINDOW))
        .aggregate(Velocity::default, Velocity::add, Velocity::merge);
    velocities.late_to("late", LATE, Json::new()).delivery(delivery);
    velocities
        .process("alarms", Watch::default)
        .values()
        .sink("alarms", ALARMS, Json::<Alarm>::new())
        .key(|alarm| alarm.card().to_owned())
        .delivery(delivery);
    builder.build()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payment {
    id: u64,
    /// In seconds since 1970.
    time: i64,
    card: String,
    cents: u64,
}

/// What a card has paid in the hour up to a payment, that one included.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Velocity {
    payments: u64,
    cents: u64,
}

impl Velocity {
    fn add(&mut self, payment: &Payment) {
        self.payments += 1;
        self.cents += payment.cents;
    }

    fn merge(&mut self, other: &Velocity) {
        self.payments += other.payments;
        self.cents += other.cents;
    }

    fn breaks_a_rule(&self) -> bool {
        self.payments > PAYMENTS_MAX || self.cents > CENTS_MAX
    }
}

/// What becomes of a card. Times are in seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "alarm", rename_all = "kebab-case")]
enum Alarm {
    /// The first payment that breaks a rule, and what the card had paid by then.
    Raised { card: String, at: i64, seen: Velocity },
    /// The card has been quiet; so many payments in a row had broken a rule.
    Cleared { card: String, at: i64, since: i64, payments: u64 },
}

impl Alarm {
    fn card(&self) -> &str {
        match self {
            Alarm::Raised { card, .. } | Alarm::Cleared { card, .. } => card,
        }
    }

    fn at(&self) -> i64 {
        match self {
            Alarm::Raised { at, .. } | Alarm::Cleared { at, .. } => *at,
        }
    }
}

/// An alarm that is not cleared yet.
#[derive(Clone, Serialize, Deserialize)]
struct Open {
    since: i64,
    payments: u64,
    /// When it will be cleared, if nothing happens; there is a timer for it.
    quiet_at: i64,
}

/// Raises alarms, and clears them.
#[derive(Default)]
struct Watch {
    open: ValueState<Open>,
}

impl Processor<String, Windowed<Velocity>> for Watch {
    type Output = Alarm;

    fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
        self.open = setup.value("open")?;
        Ok(())
    }

    fn process(&mut self, seen: Windowed<Velocity>, cx: &mut Process<'_, String, Alarm>) -> Result<()> {
        let at = cx.time().as_millis() / 1_000;
        let mut open = cx.value(&self.open)?.get().cloned();
        // A timer waits until all cards have come so far, a payment does not. So look first whether the timer should have
        // fired: then the alarms are the same, however fast each queue is.
        if let Some(over) = open.take_if(|open| open.quiet_at <= at) {
            cx.cancel_event_timer(due(&over))?;
            self.clear(&over, cx)?;
        }
        if !seen.value.breaks_a_rule() {
            return Ok(());
        }
        if let Some(open) = &open {
            cx.cancel_event_timer(due(open))?;
        } else {
            let card = cx.key().clone();
            cx.emit(Alarm::Raised { card, at, seen: seen.value });
        }
        let (since, payments) = open.map_or((at, 0), |open| (open.since, open.payments));
        let open = Open { since, payments: payments + 1, quiet_at: at + QUIET };
        cx.set_event_timer(due(&open))?;
        cx.value(&self.open)?.set(open);
        Ok(())
    }

    fn on_timer(&mut self, _: Timer, cx: &mut Process<'_, String, Alarm>) -> Result<()> {
        match cx.value(&self.open)?.get().cloned() {
            Some(over) => self.clear(&over, cx),
            None => Err(Error::bug("a timer without an alarm")),
        }
    }
}

impl Watch {
    fn clear(&self, over: &Open, cx: &mut Process<'_, String, Alarm>) -> Result<()> {
        cx.value(&self.open)?.remove();
        let card = cx.key().clone();
        cx.emit(Alarm::Cleared { card, at: over.quiet_at, since: over.since, payments: over.payments });
        Ok(())
    }
}

fn due(open: &Open) -> Timestamp {
    Timestamp::from_millis(open.quiet_at * 1_000)
}

fn main() -> ExitCode {
    common::main(run)
}

async fn run(options: Options) -> Result<Ending> {
    let place = Arc::new(Place::open("windowed_fraud", JOB, &options).await?);
    place.create_topics(&[PAYMENTS, ALARMS, LATE]).await?;
    let input = Input { topic: PAYMENTS, records: options.records.unwrap_or(100_000), record };
    let topology = topology(options.delivery.into())?;
    match common::run::run(&place, topology, input, ALARMS).await? {
        Some(_) => verify(&place).await.map(Ending::Checked),
        None => Ok(Ending::Stopped),
    }
}

// ---- the input ----

/// Made by `make_payments`.
const DATA: &str = include_str!("data/payments.csv");
/// The data covers so many seconds; when it is repeated, it is the next week.
const DATA_TIME: i64 = 7 * DAY;
const DAY: i64 = 24 * 3_600;

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
    let hash = payment.card.bytes().fold(0usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (hash % queues.max(1), body)
}

fn parse(row: &str) -> Option<Payment> {
    let [id, time, card, _, _, cents] = row.split(',').collect::<Vec<_>>().try_into().ok()?;
    Some(Payment { id: id.parse().ok()?, time: time.parse().ok()?, card: card.into(), cents: cents.parse().ok()? })
}

// ---- the check ----

/// Reads payments and alarms from their topics, works out the alarms by looking back over all payments of each card, and
/// compares. Nothing that the engine counted is used. Of the last day some alarms may still wait to be cleared.
async fn verify(place: &Place) -> Result<bool> {
    let mut cards: BTreeMap<String, Vec<Payment>> = BTreeMap::new();
    let mut payments = 0u64;
    common::topic::read_plain(&*place.log, PAYMENTS, |body| {
        let Ok(payment) = serde_json::from_slice::<Payment>(body) else { return };
        payments += 1;
        cards.entry(payment.card.clone()).or_default().push(payment);
    })
    .await?;
    println!("{PAYMENTS:<20} {} records of {} cards", grouped(payments), grouped(cards.len() as u64));

    let mut found: BTreeMap<String, Vec<Alarm>> = BTreeMap::new();
    for record in common::topic::read_output(&place.log, ALARMS, JOB).await? {
        let alarm: Alarm = serde_json::from_slice(&record.body)
            .map_err(|e| Error::data_loss("an alarm cannot be read").with_source(e))?;
        found.entry(alarm.card().to_owned()).or_default().push(alarm);
    }
    let late = common::topic::read_output(&place.log, LATE, JOB).await?.len();
    show(&found);
    println!("\n{} in {}", if place.on_broker { "state" } else { "log and state" }, place.directory.display());

    let settled = found.values().flatten().map(Alarm::at).max().unwrap_or(0) - DAY;
    let mut right = late == 0;
    for (card, payments) in &cards {
        let mut expected = expected_alarms(card, payments);
        let found = found.remove(card).unwrap_or_default();
        // Only the last alarm of a card can still be open, and only if its time has hardly come.
        if expected.len() == found.len() + 1 && expected.last().is_some_and(|last| last.at() > settled) {
            expected.pop();
        }
        if found != expected {
            eprintln!("{card}: expected {expected:?}, found {found:?}");
            right = false;
        }
    }
    Ok(right && found.is_empty())
}

/// The alarms for all payments of a card, in order, straight from what the rules say.
fn expected_alarms(card: &str, payments: &[Payment]) -> Vec<Alarm> {
    let hour = i64::try_from(WINDOW.as_secs()).unwrap_or(i64::MAX);
    let seen_by = |index: usize, at: i64| {
        let before = payments.get(..=index).unwrap_or_default().iter().rev();
        let in_sight = before.take_while(|other| other.time > at - hour);
        in_sight.fold(Velocity::default(), |sum, other| Velocity {
            payments: sum.payments + 1,
            cents: sum.cents + other.cents,
        })
    };
    let all = payments.iter().enumerate().map(|(index, payment)| (payment.time, seen_by(index, payment.time)));
    let broken: Vec<(i64, Velocity)> = all.filter(|(_, seen)| seen.breaks_a_rule()).collect();
    let rows = broken.chunk_by(|(one, _), (next, _)| next - one < QUIET);
    let alarms = rows.filter_map(|row| {
        let ((since, seen), (last, _)) = (row.first()?, row.last()?);
        let raised = Alarm::Raised { card: card.to_owned(), at: *since, seen: seen.clone() };
        let (at, payments) = (last + QUIET, row.len() as u64);
        Some([raised, Alarm::Cleared { card: card.to_owned(), at, since: *since, payments }])
    });
    alarms.flatten().collect()
}

fn show(found: &BTreeMap<String, Vec<Alarm>>) {
    let (mut raised, mut often, mut much) = (0u64, 0u64, 0u64);
    let mut longest: Vec<(i64, &str, u64)> = vec![];
    for alarm in found.values().flatten() {
        match alarm {
            Alarm::Raised { seen, .. } => {
                raised += 1;
                often += u64::from(seen.payments > PAYMENTS_MAX);
                much += u64::from(seen.cents > CENTS_MAX);
            }
            Alarm::Cleared { card, at, since, payments } => longest.push((at - since, card, *payments)),
        }
    }
    println!("\nalarms raised          {:>7}", grouped(raised));
    println!("  too many payments    {:>7}", grouped(often));
    println!("  too much money       {:>7}", grouped(much));
    println!("alarms cleared         {:>7}", grouped(longest.len() as u64));
    longest.sort_by(|one, other| other.cmp(one));
    println!("\nlongest alarms");
    for (seconds, card, payments) in longest.into_iter().take(5) {
        println!("  {card:<20} {:>7} min  {} payments", seconds / 60, grouped(payments));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::{CrashPoint, TestDriver};

    const MINUTE: i64 = 60;

    fn driver() -> TestDriver {
        TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap()
    }

    fn pay(driver: &mut TestDriver, card: &str, time: i64, cents: u64) {
        let payment = Payment { id: 0, time, card: card.into(), cents };
        driver.send(PAYMENTS, &serde_json::to_vec(&payment).unwrap()).unwrap();
    }

    fn alarms(driver: &TestDriver) -> Vec<Alarm> {
        driver.bodies(ALARMS).iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    fn raised(at: i64, payments: u64, cents: u64) -> Alarm {
        Alarm::Raised { card: "c7".into(), at, seen: Velocity { payments, cents } }
    }

    fn cleared(at: i64, since: i64, payments: u64) -> Alarm {
        Alarm::Cleared { card: "c7".into(), at, since, payments }
    }

    #[test]
    fn many_payments_raise_one_alarm_and_a_timer_clears_it() {
        let mut driver = driver();
        for minute in 0..8 {
            pay(&mut driver, "c7", minute * MINUTE, 10);
        }
        driver.commit().unwrap();
        assert_eq!(alarms(&driver), [raised(5 * MINUTE, 6, 60)]);

        // Other cards' payments move event time on; one of this card that keeps to the rules changes nothing.
        pay(&mut driver, "c8", 37 * MINUTE - 1, 10);
        driver.commit().unwrap();
        assert_eq!(alarms(&driver).len(), 1);
        pay(&mut driver, "c8", 37 * MINUTE, 10);
        driver.commit().unwrap();
        let expected = [raised(5 * MINUTE, 6, 60), cleared(37 * MINUTE, 5 * MINUTE, 3)];
        assert_eq!(alarms(&driver), expected);
        driver.advance_event_time(Timestamp::from_millis(1_000 * DAY)).unwrap();
        driver.commit().unwrap();
        assert_eq!(alarms(&driver), expected);
    }

    #[test]
    fn much_money_is_much_only_within_the_hour() {
        let mut driver = driver();
        for (time, cents) in [(0, 100_000), (60 * MINUTE, 100_000), (120 * MINUTE - 1, 50_001), (300 * MINUTE, 1)] {
            pay(&mut driver, "c7", time, cents);
        }
        driver.commit().unwrap();
        let at = 120 * MINUTE - 1;
        assert_eq!(alarms(&driver), [raised(at, 2, 150_001), cleared(at + QUIET, at, 1)]);
    }

    #[test]
    fn alarms_do_not_depend_on_the_speed_of_the_queues() {
        // The second queue is silent at first, so no timer fires: the card's own payments have to clear its alarm.
        let topology = topology(Delivery::Transactional).unwrap();
        let mut driver = TestDriver::with_queues(&topology, &[(PAYMENTS, 2)]).unwrap();
        for time in [0, QUIET, QUIET + 1] {
            pay(&mut driver, "c7", time * 4, 200_000);
        }
        driver.commit().unwrap();
        let at = QUIET * 4;
        let mut expected = vec![raised(0, 1, 200_000), cleared(QUIET, 0, 1), raised(at, 1, 200_000)];
        assert_eq!(alarms(&driver), expected);
        driver.advance_event_time(Timestamp::from_millis(1_000 * DAY)).unwrap();
        driver.commit().unwrap();
        expected.push(cleared(at + 4 + QUIET, at, 2));
        assert_eq!(alarms(&driver), expected);
    }

    #[test]
    fn a_crash_at_any_step_changes_nothing() {
        for point in CrashPoint::ALL {
            let mut driver = driver();
            for second in 0..6 {
                pay(&mut driver, "c7", second, 10);
            }
            assert!(driver.crash_at(point).unwrap(), "{point:?}");
            driver.commit().unwrap();
            pay(&mut driver, "c8", 5 + QUIET, 10);
            driver.crash_at(point).unwrap();
            driver.commit().unwrap();
            assert_eq!(alarms(&driver), [raised(5, 6, 60), cleared(5 + QUIET, 5, 1)], "{point:?}");
        }
    }
}
