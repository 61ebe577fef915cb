//! Makes `examples/data/payments.csv`, the input of `fraud_detection`. The same file every time:
//!
//! ```text
//! cargo run --example make_payments > examples/data/payments.csv
//! ```
//!
//! 240 cards pay for a week. Each has a home country, a level of spending and a daily rhythm; some travel, with the hours
//! that this takes. One card in eight is abused, in one of four ways:
//!
//! - tested: a dozen tiny payments online within minutes, then one that empties it;
//! - copied: used on another continent while its owner shops at home;
//! - cashed out: one payment far above everything before;
//! - shopped: large payments one after the other within an hour.

/// Monday, 2 March 2026, 00:00 UTC, in seconds since 1970.
const MONDAY: i64 = 1_772_409_600;
const HOUR: i64 = 3_600;
const CARDS: u64 = 240;
const HOME: [&str; 8] = ["DE", "FR", "NL", "ES", "IT", "PL", "SE", "GB"];
const FAR: [&str; 4] = ["US", "BR", "SG", "AU"];
/// Merchants of daily life, with the usual range of a payment in cents.
const DAILY: [(&str, u64, u64); 12] = [
    ("Corner Bakery", 180, 1_200),
    ("Fresh Market", 800, 9_500),
    ("City Transit", 280, 1_100),
    ("Station Kiosk", 150, 1_500),
    ("Green Pharmacy", 500, 4_500),
    ("Cafe Central", 300, 2_800),
    ("Fuel Stop 24", 2_500, 9_000),
    ("Book Nook", 900, 4_800),
    ("Streamly", 999, 1_499),
    ("Parcel Web Shop", 1_200, 14_000),
    ("Trattoria Nonna", 1_800, 8_500),
    ("Home and Garden", 1_500, 18_000),
];
const ONLINE: [&str; 4] = ["Gift Cards Now", "App Bazaar", "Donate Direct", "Ringtone Hub"];
const LUXURY: [&str; 4] = ["Diamond Row", "Volt Electronics", "Watch Gallery", "Camera World"];

struct Payment {
    time: i64,
    card: u64,
    merchant: &'static str,
    country: &'static str,
    cents: u64,
}

fn main() {
    let mut payments: Vec<Payment> = (0..CARDS).flat_map(week_of).collect();
    payments.sort_by_key(|payment| (payment.time, payment.card));
    println!("id,time,card,merchant,country,cents");
    for (id, Payment { time, card, merchant, country, cents }) in payments.iter().enumerate() {
        println!("{id},{time},card-{card:04},{merchant},{country},{cents}");
    }
}

/// The payments of one card, in order of time.
fn week_of(card: u64) -> Vec<Payment> {
    let mut dice = Dice(card);
    let home = dice.one_of(&HOME);
    let level = dice.between(60, 160);
    let mut payments = vec![];
    // Two or three payments a day, between seven in the morning and ten at night.
    for day in 0..7 {
        for part in 0..dice.between(1, 3) {
            let from =
                day * 24 * HOUR + 7 * HOUR + dice.time(0, 4 * HOUR) + i64::try_from(part).unwrap_or(0) * 5 * HOUR;
            let (merchant, low, high) = dice.one_of(&DAILY);
            let cents = dice.between(low, high) * level / 100;
            payments.push(Payment { time: MONDAY + from, card, merchant, country: home, cents });
        }
    }
    match card % 40 {
        // A journey: from Thursday on all payments are abroad.
        3 | 17 | 29 => {
            let abroad = dice.one_of(&HOME);
            let leaves = MONDAY + 3 * 24 * HOUR;
            payments.iter_mut().filter(|payment| payment.time >= leaves).for_each(|payment| payment.country = abroad);
        }
        5 | 25 => tested(&mut dice, card, home, &mut payments),
        11 => copied(&mut dice, card, &mut payments),
        21 => cashed_out(&mut dice, card, home, &mut payments),
        33 => shopped(&mut dice, card, home, &mut payments),
        _ => {}
    }
    payments.sort_by_key(|payment| payment.time);
    payments
}

fn tested(dice: &mut Dice, card: u64, country: &'static str, payments: &mut Vec<Payment>) {
    let mut time = MONDAY + dice.time(2 * 24 * HOUR, 6 * 24 * HOUR);
    for _ in 0..dice.between(8, 14) {
        let merchant = dice.one_of(&ONLINE);
        payments.push(Payment { time, card, merchant, country, cents: dice.between(50, 300) });
        time += dice.time(20, 120);
    }
    let merchant = dice.one_of(&LUXURY);
    payments.push(Payment { time: time + 300, card, merchant, country, cents: dice.between(60_000, 150_000) });
}

fn copied(dice: &mut Dice, card: u64, payments: &mut Vec<Payment>) {
    let Some(theirs) = payments.get(payments.len() / 2).map(|payment| payment.time) else { return };
    let country = dice.one_of(&FAR);
    let mut time = theirs;
    for _ in 0..dice.between(2, 4) {
        time += dice.time(300, 1_200);
        let merchant = dice.one_of(&LUXURY);
        payments.push(Payment { time, card, merchant, country, cents: dice.between(9_000, 40_000) });
    }
}

fn cashed_out(dice: &mut Dice, card: u64, country: &'static str, payments: &mut Vec<Payment>) {
    let time = MONDAY + dice.time(4 * 24 * HOUR, 7 * 24 * HOUR);
    let merchant = dice.one_of(&LUXURY);
    payments.push(Payment { time, card, merchant, country, cents: dice.between(90_000, 240_000) });
}

fn shopped(dice: &mut Dice, card: u64, country: &'static str, payments: &mut Vec<Payment>) {
    let mut time = MONDAY + dice.time(3 * 24 * HOUR, 6 * 24 * HOUR);
    for _ in 0..dice.between(4, 5) {
        let merchant = dice.one_of(&LUXURY);
        payments.push(Payment { time, card, merchant, country, cents: dice.between(45_000, 80_000) });
        time += dice.time(240, 800);
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for test data, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low + 1)
    }

    /// Seconds, from `low` to below `high`.
    fn time(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.roll() % high.abs_diff(low)).unwrap_or(0)
    }

    fn one_of<T: Copy, const N: usize>(&mut self, all: &[T; N]) -> T {
        let index = usize::try_from(self.roll() % N as u64).unwrap_or(0);
        *all.get(index).unwrap_or(&all[0])
    }
}
