//! State across epochs, and records of fixed size from end to end.

use super::{Number, driver, send, texts};
use crate::codec::{Decode, Encode, Json};
use onceflow_types::{Error, Result};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Aim: sums per key are those of a plain map, with any cache, across commits and aborts. Method: an aborted epoch is
    // processed again with the next one.
    #[test]
    fn sums_equal_a_plain_map(epochs in vec((vec((0u8..9, -100i64..100), 0..20), any::<bool>()), 1..6), cache in 1usize..12) {
        let mut driver = driver(|builder| {
            let pairs = builder.source("in", Json::<(u8, i64)>::new()).key_by(|pair| pair.0);
            pairs.sum("sums", |pair| pair.1).cache_entries(cache).sink("out", "out", Json::new());
        });
        let (mut sums, mut want) = (BTreeMap::new(), vec![]);
        for (records, abort) in epochs {
            for (key, number) in records {
                driver.send("in", format!("[{key},{number}]").as_bytes()).unwrap();
                let sum = sums.entry(key).or_insert(0);
                *sum += number;
                want.push((key, *sum));
            }
            if abort {
                driver.process().unwrap();
                driver.abort().unwrap();
            } else {
                driver.commit().unwrap();
            }
        }
        driver.commit().unwrap();
        let decode = |body: Vec<u8>| serde_json::from_slice::<(u8, i64)>(&body).unwrap();
        let out: Vec<_> = driver.bodies("out").into_iter().map(decode).collect();
        for key in 0..9 {
            let of_key = |list: &[(u8, i64)]| list.iter().filter(|pair| pair.0 == key).copied().collect::<Vec<_>>();
            prop_assert_eq!(of_key(&out), of_key(&want));
        }
    }
}

#[test]
fn two_operators_of_one_task_keep_their_state_apart() {
    let mut driver = driver(|builder| {
        let numbers = builder.source("in", Number).key_by(|_| 0u8).partitioned_by_key();
        numbers.count("counts").values().sink("counts", "counts", Json::new());
        numbers.sum("sums", |n| *n).values().sink("sums", "sums", Json::new());
    });
    send(&mut driver, "in", [5, 6]);
    driver.commit().unwrap();
    driver.abort().unwrap();
    send(&mut driver, "in", [7]);
    driver.commit().unwrap();
    assert_eq!(texts(&driver, "counts"), ["1", "2", "3"]);
    assert_eq!(texts(&driver, "sums"), ["5", "11", "18"]);
}

/// A payment of the common benchmark: 100 bytes, of which these fields are used. It needs no serde, as it never travels
/// between tasks.
#[derive(Clone, Copy)]
struct Payment {
    seq: i64,
    amount: i64,
    ingest: i64,
    key: [u8; 16],
}

/// Count and sum so far, and whose payment it was.
#[derive(Clone, Copy)]
struct Update {
    seq: i64,
    ingest: i64,
    count: i64,
    sum: i64,
}

struct Fixed;

impl Decode<Payment> for Fixed {
    fn decode(&self, bytes: &[u8]) -> Result<Payment> {
        let number = |at: usize| Some(i64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let payment = || {
            let key = *bytes.get(32..)?.first_chunk()?;
            Some(Payment { seq: number(0)?, amount: number(16)?, ingest: number(24)?, key })
        };
        payment().filter(|_| bytes.len() == 100).ok_or_else(|| Error::record("payment must have 100 bytes"))
    }
}

impl Encode<([u8; 16], Update)> for Fixed {
    fn encode(&self, (key, update): &([u8; 16], Update), to: &mut Vec<u8>) -> Result<()> {
        for number in [update.seq, update.ingest, update.count, update.sum] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        to.extend_from_slice(key);
        Ok(())
    }
}

fn body(seq: i64, amount: i64, key: u8) -> Vec<u8> {
    let mut body = vec![b'.'; 100];
    body[0..8].copy_from_slice(&seq.to_le_bytes());
    body[16..24].copy_from_slice(&amount.to_le_bytes());
    body[24..32].copy_from_slice(&(seq * 1_000).to_le_bytes());
    body[32..48].copy_from_slice(&[key; 16]);
    body
}

#[test]
fn the_common_benchmark_can_be_said_in_a_few_lines() {
    let mut driver = driver(|builder| {
        let payments = builder.source("in", Fixed).key_by(|payment: &Payment| payment.key).partitioned_by_key();
        let updates = payments.scan(
            "totals",
            || (0i64, 0i64),
            |(count, sum), payment| {
                (*count, *sum) = (count.wrapping_add(1), sum.wrapping_add(payment.amount));
                Update { seq: payment.seq, ingest: payment.ingest, count: *count, sum: *sum }
            },
        );
        updates.sink("out", "out", Fixed);
    });
    for (seq, amount, key) in [(0, 5, 1), (1, 6, 2), (2, 7, 1)] {
        driver.send("in", &body(seq, amount, key)).unwrap();
    }
    driver.commit().unwrap();
    let fields = |body: &[u8]| -> Vec<i64> {
        body[..32].chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    let out: Vec<_> = driver.bodies("out").iter().map(|body| (fields(body), body[32])).collect();
    assert_eq!(out, [(vec![0, 0, 1, 5], 1), (vec![1, 1_000, 1, 6], 2), (vec![2, 2_000, 2, 12], 1)]);
    assert!(driver.bodies("out").iter().all(|body| body.len() == 48));
}
