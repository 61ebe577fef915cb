//! Aggregates at the ends of their range, branches, and the largest.

use super::{Number, driver, program, send, texts};
use crate::codec::{Json, Utf8};
use crate::processor::ErrorPolicy;
use crate::testing::TestDriver;
use crate::topology::{Change, KeyedStream, TOP_N_MAX, Together};
use proptest::collection::vec;
use proptest::prelude::*;

fn numbers(write: impl FnOnce(KeyedStream<u8, i64, Together>)) -> TestDriver {
    driver(|builder| write(builder.source("in", Number).key_by(|_| 0u8).partitioned_by_key()))
}

/// Case 57 for the other aggregates: a mean whose sum is out of range goes to the policy, and the state is what it was, also
/// after it was read again; extremes have no range to leave.
#[test]
fn aggregates_at_the_ends_of_their_range_neither_wrap_nor_panic() {
    let mut driver = numbers(|numbers| {
        numbers.avg("avg", |n| *n).on_error(ErrorPolicy::Skip).values().sink("avg", "avg", Json::new());
        numbers.min("min", |n| *n).values().sink("min", "min", Json::new());
        numbers.max("max", |n| *n).values().sink("max", "max", Json::new());
    });
    for number in [i64::MAX, 1, -1, i64::MIN] {
        send(&mut driver, "in", [number]);
        driver.commit().unwrap();
        driver.abort().unwrap();
    }
    #[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
    let (max, half) = (i64::MAX as f64, (i64::MAX - 1) as f64 / 2.0);
    let third = (-2.0f64) / 3.0;
    let avg: Vec<f64> = texts(&driver, "avg").iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(avg, [max, half, third]);
    assert_eq!(driver.counters().skipped, 1);
    let text = |numbers: [i64; 4]| numbers.map(|number| number.to_string());
    assert_eq!(texts(&driver, "min"), text([i64::MAX, 1, -1, i64::MIN]));
    assert_eq!(texts(&driver, "max"), text([i64::MAX; 4]));
}

/// Case 57: no mean is made of what is no number. (Floats have no `min` and `max`: they have no order.)
#[test]
fn means_of_floats_are_finite_or_record_errors() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Utf8).map(|text| text.parse::<f64>().unwrap());
        let avg = numbers.key_by(|_| 0u8).partitioned_by_key().avg("avg", |n| *n).on_error(ErrorPolicy::Skip);
        avg.values().sink("out", "out", Json::new());
    });
    for text in ["NaN", "1.5", "inf", "-inf", "NaN", "2.5", "1.7e308", "1.7e308"] {
        driver.send("in", text.as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    let avg: Vec<f64> = texts(&driver, "out").iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(avg, [1.5, 2.0, 1.7e308 / 3.0]);
    assert_eq!(driver.counters().skipped, 5);
}

/// Case 57: 38 decimal digits.
#[test]
fn sums_of_38_digits_are_exact() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Utf8).map(|text| text.parse::<i128>().unwrap());
        let sums = numbers.key_by(|_| 0u8).partitioned_by_key().sum("sums", |n| *n).on_error(ErrorPolicy::Skip);
        sums.values().map(|sum| sum.to_string()).sink("out", "out", Utf8);
    });
    let nines = "9".repeat(38);
    for text in [&nines, "1", &nines, "-1"] {
        driver.send("in", text.as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), [nines.clone(), format!("1{}", "0".repeat(38)), nines]);
    assert_eq!(driver.counters().skipped, 1);
}

/// The changes, carried out.
fn carried_out(driver: &TestDriver) -> Vec<i64> {
    let mut kept = vec![];
    for text in texts(driver, "out") {
        match serde_json::from_str(&text).unwrap() {
            Change::Added(number) => kept.push(number),
            Change::Removed(number) => {
                let at = kept.iter().position(|other| *other == number).expect("it was added before");
                kept.remove(at);
            }
        }
    }
    kept.sort_unstable();
    kept
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_changes_of_the_largest_come_to_the_largest(numbers in vec(-5i64..20, 0..40), n in 1usize..6, abort in 0usize..40) {
        let mut driver = self::numbers(|numbers| {
            numbers.top_n("top", n, |number| *number).values().sink("out", "out", Json::new());
        });
        for (at, number) in numbers.iter().enumerate() {
            send(&mut driver, "in", [*number]);
            if at == abort {
                driver.process().unwrap();
                driver.abort().unwrap();
            }
            if at % 7 == 0 {
                driver.commit().unwrap();
            }
        }
        driver.commit().unwrap();
        let mut largest = numbers.clone();
        largest.sort_unstable_by(|one, other| other.cmp(one));
        largest.truncate(n);
        largest.reverse();
        prop_assert_eq!(carried_out(&driver), largest);
    }

    // Aim: every record goes to the first branch that takes it, and where branches meet again the order is that of the
    // source, however records are batched. Method: all branches in one sink, beside a plain loop.
    #[test]
    fn branches_that_meet_again_keep_the_order(numbers in vec(0i64..30, 0..40), batch in 1usize..9) {
        let mut driver = driver(|builder| {
            let mut split = builder.source("in", Number).split();
            let even = split.branch("even", |n| (n % 2 == 0).then(|| format!("even {n}")));
            let third = split.branch_if("third", |n| n % 3 == 0).map(|n| format!("third {n}"));
            let rest = split.rest().map(|n| format!("rest {n}"));
            rest.merge(&even).merge(&third).sink("out", "out", Utf8);
        });
        driver.batch_records_max(batch);
        send(&mut driver, "in", numbers.iter().copied());
        driver.commit().unwrap();
        let name = |n: i64| if n % 2 == 0 { "even" } else if n % 3 == 0 { "third" } else { "rest" };
        let want: Vec<_> = numbers.iter().map(|n| format!("{} {n}", name(*n))).collect();
        prop_assert_eq!(texts(&driver, "out"), want);
    }
}

#[test]
fn an_equal_record_drives_nothing_out_and_bounds_are_checked() {
    let mut driver = driver(|builder| {
        let pairs = builder.source("in", Json::<(u8, u8)>::new()).key_by(|_| 0u8).partitioned_by_key();
        pairs.top_n("top", 1, |pair| pair.0).values().sink("out", "out", Json::new());
    });
    for pair in ["[5,1]", "[5,2]", "[4,3]"] {
        driver.send("in", pair.as_bytes()).unwrap();
    }
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "out"), [r#"{"added":[5,1]}"#]);
    for n in [0, TOP_N_MAX + 1] {
        let refused = program(|builder| {
            builder.source("in", Number).key_by(|_| 0u8).top_n("top", n, |number| *number);
        });
        assert!(refused.unwrap_err().to_string().contains("top_n needs 1 to"));
    }
}

#[test]
fn branches_show_in_the_description_with_their_names() {
    let topology = program(|builder| {
        let mut split = builder.source("in", Number).split();
        split.branch_if("large", |n| *n > 9).sink("large", "large", Number);
        split.rest().print("small").for_each(|_| ());
    });
    let text = "job job

subtopology in
  1 source in: topic=in start=latest
  2 branch large <- 1
  3 taken <- 2
  4 sink large: topic=large delivery=transactional <- 3
  5 print <- 2
  6 for-each <- 5
";
    assert_eq!(topology.unwrap().describe(), text);
    assert!(program(|builder| drop(builder.source("in", Number).split().branch_if("no good", |_| true))).is_err());
}
