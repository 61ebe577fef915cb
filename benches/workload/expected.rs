//! What each workload must put out, computed from the generator by straight code, and known checksums to compare that with.

use crate::programs::Workload;
use crate::spec::{Arrival, Check, Generator};

/// The check over all that the workload makes of the first `records` records.
pub fn expected(workload: Workload, generator: Generator, records: u64) -> Check {
    match workload {
        Workload::W1 => running_sums(generator, records),
        Workload::W2 => window_sums(generator, records),
        Workload::W3 => kept(generator, records),
        Workload::W4 => pairs(generator, records),
    }
}

fn running_sums(generator: Generator, records: u64) -> Check {
    let mut check = Check::default();
    let mut state = vec![(0i64, 0i64); generator.keys as usize];
    for record in 0..records {
        let key = generator.key(record);
        let (count, sum) = &mut state[key as usize];
        *count += 1;
        *sum += generator.amount(record) as i64;
        check.add(record as i64, *count, *sum, key);
    }
    check
}

fn window_sums(generator: Generator, records: u64) -> Check {
    const SIZE: i64 = 10_000;
    let window = |record| generator.time(record).div_euclid(SIZE);
    let mut parts: Vec<(i64, u64, u64)> =
        (0..records).map(|record| (window(record), generator.key(record), generator.amount(record))).collect();
    parts.sort_unstable();
    let mut check = Check::default();
    for group in parts.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
        let sum: u64 = group.iter().map(|(.., amount)| amount).sum();
        check.add(group[0].0 * SIZE, group.len() as i64, sum as i64, group[0].1);
    }
    check
}

fn kept(generator: Generator, records: u64) -> Check {
    let mut check = Check::default();
    for record in (0..records).filter(|&record| generator.amount(record).is_multiple_of(10)) {
        check.add(record as i64, generator.time(record), generator.amount(record) as i64 + 1, generator.key(record));
    }
    check
}

fn pairs(generator: Generator, records: u64) -> Check {
    let mut authorisations = vec![Vec::new(); generator.keys as usize];
    for record in (0..records).step_by(2) {
        authorisations[generator.key(record) as usize].push(record);
    }
    let mut check = Check::default();
    for payment in (1..records).step_by(2) {
        let (key, time) = (generator.key(payment), generator.time(payment));
        for &authorisation in &authorisations[key as usize] {
            if generator.time(authorisation).abs_diff(time) <= 5_000 {
                let sum = generator.amount(authorisation) + generator.amount(payment);
                check.add(authorisation as i64, payment as i64, sum as i64, key);
            }
        }
    }
    check
}

/// Known checksums, from an independent implementation, at seed 42: workload, records, keys; count, sum.
const KNOWN: [(Workload, u64, u64, u64, u64); 8] = [
    (Workload::W1, 200_000, 10_000, 200_000, 0xd525_cd70_0479_9fbb),
    (Workload::W1, 1_000_000, 10_000, 1_000_000, 0x35a5_52d7_6c8f_6eba),
    (Workload::W2, 200_000, 10_000, 20_104, 0xf25d_b870_ba78_6542),
    (Workload::W2, 1_000_000, 10_000, 100_101, 0x88ef_c61a_0644_db24),
    (Workload::W3, 200_000, 10_000, 19_805, 0x615e_8d96_9bd3_bd34),
    (Workload::W3, 1_000_000, 10_000, 99_444, 0xcb4a_6c0f_f5ba_d2a4),
    (Workload::W4, 200_000, 100_000, 43_792, 0x5d9a_a3c4_1d59_ee24),
    (Workload::W4, 1_000_000, 100_000, 243_421, 0xa0cd_63c1_818f_fdf0),
];

/// Its record 12,345 among 10,000 keys.
const KNOWN_RECORD: &str = concat!(
    "3930000000000000d26ce5cf8b010000934f01000000000000000000000000006330303030303030303030303431303466636a6563626161",
    "696d676c66636a6d6f7068646269656b6663626169656b6e6f707070707070686c66636a6d6f686c6e6f7068"
);

fn uniform(keys: u64) -> Generator {
    Generator { seed: 42, keys, arrival: Arrival::Uniform, pace: None }
}

/// Compares the generator and what is expected of a workload with what an independent implementation says.
pub fn self_check(workload: Workload) -> Result<(), String> {
    let bytes = uniform(10_000).record(12_345);
    let record: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if record != KNOWN_RECORD {
        return Err(format!("the generator is wrong: record={record}"));
    }
    for (_, records, keys, count, sum) in KNOWN.into_iter().filter(|known| known.0 == workload) {
        let check = expected(workload, uniform(keys), records);
        if check != (Check { count, sum }) {
            return Err(format!("the generator is wrong: workload={workload} records={records} check={check:x?}"));
        }
    }
    Ok(())
}
