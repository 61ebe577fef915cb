//! Clicks in, visits out: the clicks of a user that are at most half a minute apart are one visit. Clicks come out of order, so
//! a visit may turn out to be part of another one; clicks that come much too late go to a topic of their own.
//!
//! ```text
//! cargo run --release --example session_clicks
//! cargo run --release --example session_clicks --features rocketmq -- --name-server 127.0.0.1:9876
//! ```
//!
//! Stop it (Ctrl-C) or kill it (kill -9) at any moment and start it again: it goes on where it was. At the end it reads all
//! topics again, works out the visits a second time by sorting the clicks, and compares.

#![expect(unreachable_pub, reason = "a program: nothing here is used from outside")]

mod common;

use common::input::Input;
use common::{Ending, Options, Place, grouped};
use onceflow::codec::Json;
use onceflow::types::{Error, Result, Timestamp};
use onceflow::{Delivery, StartPolicy, StreamBuilder, Topology, Windowed, Windows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const JOB: &str = "session-clicks";
const CLICKS: &str = "clicks";
const VISITS: &str = "visits";
/// Clicks whose visit was over when they came.
const LATE: &str = "clicks-late";

/// A visit is over when its user has not clicked for so long.
const GAP: Duration = Duration::from_secs(30);
/// How much older than a click before it a click may be. No visit ends before that has passed, too.
const OUT_OF_ORDERNESS: Duration = Duration::from_secs(40);

/// The job. Whoever sends the clicks puts those of a user into one queue, so each queue's task finds the visits of its users
/// by itself.
fn topology(delivery: Delivery) -> Result<Topology> {
    let builder = StreamBuilder::new(JOB)?;
    let clicks = builder.source(CLICKS, Json::<Click>::new()).start(StartPolicy::Earliest);
    let visits = clicks
        .out_of_orderness(OUT_OF_ORDERNESS)
        .select_timestamp(|click| Timestamp::from_millis(click.at))
        .key_by(|click| click.user.clone())
        .partitioned_by_key()
        .window("visits", Windows::session(GAP))
        .aggregate(Visit::default, Visit::add, Visit::merge);
    visits.sink("visits", VISITS, Json::<(String, Windowed<Visit>)>::new()).delivery(delivery);
    visits.late_to("late", LATE, Json::<(String, Windowed<Click>)>::new()).delivery(delivery);
    builder.build()
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Click {
    user: String,
    page: String,
    /// In milliseconds.
    at: i64,
}

/// What is known of a visit.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Visit {
    clicks: u64,
    /// Time and page of the first and of the last click, by their own times.
    entered: Option<(i64, String)>,
    left: Option<(i64, String)>,
}

impl Visit {
    fn add(&mut self, click: &Click) {
        let place = Some((click.at, click.page.clone()));
        self.merge(&Visit { clicks: 1, entered: place.clone(), left: place });
    }

    /// Two visits become one when a click lies between them. Either may be the earlier one.
    fn merge(&mut self, other: &Visit) {
        self.clicks += other.clicks;
        self.entered = [self.entered.take(), other.entered.clone()].into_iter().flatten().min();
        self.left = self.left.take().max(other.left.clone());
    }
}

fn main() -> ExitCode {
    common::main(run)
}

async fn run(options: Options) -> Result<Ending> {
    let place = Arc::new(Place::open("session_clicks", JOB, &options).await?);
    place.create_topics(&[CLICKS, VISITS, LATE]).await?;
    let input = Input { topic: CLICKS, records: options.records.unwrap_or(50_000), record };
    let topology = topology(options.delivery.into())?;
    match common::run::run(&place, topology, input, VISITS).await? {
        Some(_) => verify(&place).await.map(Ending::Checked),
        None => Ok(Ending::Stopped),
    }
}

// ---- the input ----

const USERS: u64 = 20;
const PAGES: [&str; 6] = ["home", "search", "article", "cart", "checkout", "help"];
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Click number `number`: one each second, to the queue of its user. In each minute six of the users are there. Every tenth
/// click was up to 40 seconds under way, every two-hundredth an hour.
fn record(number: u64, queues: usize) -> (usize, Vec<u8>) {
    let (now, dice) = (number * SECOND, scatter(number));
    let strays = number.is_multiple_of(200) && now > HOUR;
    let (at, slot) = match (strays, number.is_multiple_of(10)) {
        // Of somebody who was away at that time, minutes before and after.
        (true, _) => (now - HOUR, 6),
        (false, true) => (now.saturating_sub(dice % (40 * SECOND)), dice % 3),
        (false, false) => (now, dice % 3),
    };
    // User `u` comes in minute `m` if `(u + m) % 10` is below 3.
    let user = (slot + 10 - at / MINUTE % 10) % 10 + 10 * (dice / 7 % (USERS / 10));
    let queue = usize::try_from(scatter(user) % queues.max(1) as u64).unwrap_or(0);
    let page = PAGES.get(usize::try_from(dice / 100 % PAGES.len() as u64).unwrap_or(0)).copied().unwrap_or_default();
    let click = Click { user: format!("user-{user:02}"), page: page.into(), at: i64::try_from(at).unwrap_or(i64::MAX) };
    (queue, serde_json::to_vec(&click).expect("texts and numbers have a json form"))
}

/// A number that looks random: SplitMix64.
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

// ---- the check ----

/// The user of a visit, and when it began.
type Key = (String, i64);

/// Reads clicks and visits from their topics, puts the clicks of each user in order and cuts them into visits again, and
/// compares. Nothing that the engine counted is used. A user's newest visits may not be over yet.
async fn verify(place: &Place) -> Result<bool> {
    let mut users: BTreeMap<String, Vec<Click>> = BTreeMap::new();
    let mut clicks = 0u64;
    common::topic::read_plain(&*place.log, CLICKS, |body| {
        let Ok(click) = serde_json::from_slice::<Click>(body) else { return };
        clicks += 1;
        users.entry(click.user.clone()).or_default().push(click);
    })
    .await?;
    println!("{CLICKS:<20} {} records of {} users", grouped(clicks), grouped(users.len() as u64));

    let (mut late, mut right) = (0u64, true);
    for (user, missed) in read::<Click>(place, LATE).await? {
        late += 1;
        let of_user = users.entry(user).or_default();
        match of_user.iter().position(|click| *click == missed.value) {
            Some(index) => drop(of_user.swap_remove(index)),
            None => {
                eprintln!("a late click that nobody sent, or one twice: {:?}", missed.value);
                right = false;
            }
        }
    }
    // Time has come so far for a user, at least.
    let come_to = |clicks: &[Click]| clicks.iter().map(|click| click.at).max().unwrap_or(0) - millis(OUT_OF_ORDERNESS);
    let reached: BTreeMap<String, i64> = users.iter().map(|(user, clicks)| (user.clone(), come_to(clicks))).collect();
    let mut expected: BTreeMap<Key, Visit> = users.iter_mut().flat_map(|(user, clicks)| cut(user, clicks)).collect();

    let mut found = vec![];
    for (user, row) in read::<Visit>(place, VISITS).await? {
        let (start, end) = (row.window_start.as_millis(), row.window_end.as_millis());
        let visit = expected.remove(&(user.clone(), start));
        if visit.as_ref() != Some(&row.value) || end_of(&row.value) != end {
            eprintln!("{user} at {start}: expected {visit:?}, found {row:?}");
            right = false;
        }
        found.push((row.value.clicks, user, end - start));
    }
    for ((user, start), visit) in &expected {
        if reached.get(user).is_some_and(|reached| end_of(visit) <= *reached) {
            eprintln!("{user} at {start}: expected {visit:?}, found nothing");
            right = false;
        }
    }
    show(&mut found, late, expected.len() as u64);
    println!("\n{} in {}", if place.on_broker { "state" } else { "log and state" }, place.directory.display());
    Ok(right && !found.is_empty())
}

/// Everything that the job has written to a topic.
async fn read<T: for<'de> Deserialize<'de>>(place: &Place, topic: &str) -> Result<Vec<(String, Windowed<T>)>> {
    let records = common::topic::read_output(&place.log, topic, JOB).await?;
    let decode = |body| {
        serde_json::from_slice(body)
            .map_err(|e| Error::data_loss(format!("cannot be read: topic={topic}")).with_source(e))
    };
    records.iter().map(|record| decode(&record.body)).collect()
}

/// The visits of a user, straight from what a visit is.
fn cut(user: &str, clicks: &mut [Click]) -> Vec<(Key, Visit)> {
    clicks.sort_by_key(|click| click.at);
    let visits = clicks.chunk_by(|one, next| next.at - one.at <= millis(GAP));
    let ends = |visit: &[Click]| Some((visit.first()?.at, visit.last()?.at));
    let made = visits.filter_map(|visit| {
        let (first, last) = ends(visit)?;
        let pages = |at: i64| visit.iter().filter(move |click| click.at == at).map(|click| click.page.clone());
        let (entered, left) = (pages(first).min()?, pages(last).max()?);
        let entry = Visit { clicks: visit.len() as u64, entered: Some((first, entered)), left: Some((last, left)) };
        Some(((user.to_owned(), first), entry))
    });
    made.collect()
}

/// A visit ends a millisecond after the gap behind its last click.
fn end_of(visit: &Visit) -> i64 {
    visit.left.as_ref().map_or(0, |(last, _)| last + millis(GAP) + 1)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn show(visits: &mut [(u64, String, i64)], late: u64, open: u64) {
    println!("\nvisits that are over   {:>7}", grouped(visits.len() as u64));
    println!("  clicks in them       {:>7}", grouped(visits.iter().map(|(clicks, ..)| clicks).sum()));
    println!("visits going on        {:>7}", grouped(open));
    println!("clicks too late        {:>7}", grouped(late));
    visits.sort_by(|one, other| other.cmp(one));
    println!("\nlongest visits");
    for (clicks, user, time) in visits.iter().take(5) {
        println!("  {user:<20} {:>7} clicks in {} s", grouped(*clicks), (time - millis(GAP)) / 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow::testing::{CrashPoint, TestDriver};

    fn click(driver: &mut TestDriver, user: &str, page: &str, seconds: i64) {
        let click = Click { user: user.into(), page: page.into(), at: seconds * 1_000 };
        driver.send(CLICKS, &serde_json::to_vec(&click).unwrap()).unwrap();
    }

    /// User, first and last second and page, clicks.
    fn visits(driver: &TestDriver) -> Vec<(String, i64, String, i64, String, u64)> {
        let rows = driver.bodies(VISITS).into_iter().map(|body| {
            let (user, row): (String, Windowed<Visit>) = serde_json::from_slice(&body).unwrap();
            let ((entered, first), (left, last)) = (row.value.entered.unwrap(), row.value.left.unwrap());
            assert_eq!((row.window_start.as_millis(), row.window_end.as_millis()), (entered, left + 30_001));
            (user, entered / 1_000, first, left / 1_000, last, row.value.clicks)
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort();
        rows
    }

    fn driver() -> TestDriver {
        TestDriver::new(&topology(Delivery::Transactional).unwrap()).unwrap()
    }

    #[test]
    fn a_click_between_two_visits_makes_them_one() {
        let mut driver = driver();
        for (user, page, seconds) in
            [("ann", "home", 0), ("bob", "home", 10), ("ann", "cart", 50), ("ann", "search", 25)]
        {
            click(&mut driver, user, page, seconds);
            driver.commit().unwrap();
        }
        assert_eq!(visits(&driver), []);
        click(&mut driver, "bob", "help", 200);
        driver.commit().unwrap();
        let ann = ("ann".into(), 0, "home".into(), 50, "cart".into(), 3);
        assert_eq!(visits(&driver), [ann, ("bob".into(), 10, "home".into(), 10, "home".into(), 1)]);
    }

    #[test]
    fn half_a_minute_is_one_visit_and_a_moment_more_is_two() {
        let mut driver = driver();
        for seconds in [0, 30, 61, 1_000] {
            click(&mut driver, "ann", "home", seconds);
        }
        driver.commit().unwrap();
        let found: Vec<_> =
            visits(&driver).into_iter().map(|(_, first, _, last, _, clicks)| (first, last, clicks)).collect();
        assert_eq!(found, [(0, 30, 2), (61, 61, 1)]);
    }

    #[test]
    fn a_click_of_a_visit_that_is_over_goes_to_a_topic() {
        let mut driver = driver();
        for seconds in [0, 200, 1] {
            click(&mut driver, "ann", "home", seconds);
            driver.commit().unwrap();
        }
        assert_eq!(visits(&driver), [("ann".into(), 0, "home".into(), 0, "home".into(), 1)]);
        let late: Vec<(String, Windowed<Click>)> =
            driver.bodies(LATE).iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
        assert_eq!(late.len(), 1);
        assert_eq!((late[0].1.window_start.as_millis(), late[0].1.value.at), (1_000, 1_000));
        assert_eq!(driver.counters().late, 1);
    }

    #[test]
    fn the_check_agrees_with_the_engine_wherever_it_crashes() {
        for (round, point) in CrashPoint::ALL.into_iter().enumerate() {
            let mut driver = driver();
            let mut clicks = vec![];
            for number in 0..600 {
                let (_, body) = record(number, 1);
                driver.send(CLICKS, &body).unwrap();
                clicks.push(serde_json::from_slice::<Click>(&body).unwrap());
                if number % 100 == round as u64 {
                    driver.crash_at(point).unwrap();
                }
            }
            driver.commit().unwrap();
            driver.advance_event_time(Timestamp::from_millis(1 << 40)).unwrap();
            driver.commit().unwrap();
            let mut users: BTreeMap<String, Vec<Click>> = BTreeMap::new();
            for click in clicks {
                users.entry(click.user.clone()).or_default().push(click);
            }
            let mut expected: Vec<_> = users.iter_mut().flat_map(|(user, clicks)| cut(user, clicks)).collect();
            let mut found: Vec<(Key, Visit)> = vec![];
            for body in driver.bodies(VISITS) {
                let (user, row): (String, Windowed<Visit>) = serde_json::from_slice(&body).unwrap();
                found.push(((user, row.window_start.as_millis()), row.value));
            }
            expected.sort_by(|one, other| one.0.cmp(&other.0));
            found.sort_by(|one, other| one.0.cmp(&other.0));
            assert_eq!(found, expected, "{point:?}");
        }
    }
}
