//! The regression guard: what a record costs the engine, in parts of what the least possible work costs on the same machine
//! at the same time. A ratio of CPU times, so neither the machine's speed nor what else runs on it matters much.

use crate::args::{Args, Role};
use crate::expected::expected;
use crate::load;
use crate::measure::cpu_of;
use crate::place::Place;
use crate::programs::Names;
use crate::spec::{Generator, INPUT_BYTES, InputCodec, Key};
use crate::throughput::{measured, verify};
use onceflow::codec::Decode;
use onceflow::types::{Error, Result};
use serde_json::{Map, Value};
use std::hint::black_box;

/// Rounds of both; the least CPU time of each counts, for whatever disturbs only adds.
const ROUNDS: u32 = 3;
/// Records of the baseline, gone through again and again,
const BASELINE_RECORDS: u64 = 100_000;
/// ... until there are so many that a clock of 10 ms is fine enough.
const BASELINE_PASSES: u64 = 500;
/// Its keys; few enough for any processor's own cache, which others on the machine do not share.
const BASELINE_KEYS: u64 = 10_000;

/// Says whether the output was exact and the ratio within the limit.
pub async fn run(args: &Args, place: &Place, ratio_max: f64) -> Result<(Map<String, Value>, bool)> {
    place.run_part(Role::Load)?;
    let input = baseline_input(Generator { keys: BASELINE_KEYS, ..args.generator() });
    let (mut baseline, mut engine, mut exact) = (f64::MAX, f64::MAX, true);
    for round in 0..ROUNDS {
        baseline = baseline.min(baseline_ns(&input)?);
        let (ns, right) = engine_ns(args, place, round).await?;
        engine = engine.min(ns);
        exact &= right;
    }
    let ratio = engine / baseline;
    println!(
        "{} {} {} {}: {engine:.0} ns of CPU a record, the least work {baseline:.1} ns: ratio {ratio:.1}, at most {ratio_max}, exact: {exact}",
        args.workload, args.log, args.store, args.delivery,
    );
    let mut result = args.described("guard");
    result.extend([
        ("engine_ns".to_owned(), engine.into()),
        ("baseline_ns".to_owned(), baseline.into()),
        ("ratio".to_owned(), ratio.into()),
        ("exact".to_owned(), exact.into()),
    ]);
    Ok((result, exact && ratio <= ratio_max))
}

fn own_cpu() -> Result<f64> {
    let cpu = cpu_of("self").ok_or_else(|| Error::invalid("the guard needs the CPU times of /proc"))?;
    Ok(cpu.as_secs_f64())
}

fn baseline_input(generator: Generator) -> Vec<u8> {
    (0..BASELINE_RECORDS).flat_map(|record| generator.record(record)).collect()
}

/// The least work: copies each record, decodes it, and adds it to the sum of its key. Nanoseconds of CPU a record.
fn baseline_ns(input: &[u8]) -> Result<f64> {
    let before = own_cpu()?;
    let hasher = foldhash::fast::FixedState::with_seed(42);
    let mut sums: hashbrown::HashMap<Key, (i64, i64), _> = hashbrown::HashMap::with_hasher(hasher);
    let mut copy = [0; INPUT_BYTES];
    for _ in 0..BASELINE_PASSES {
        for record in input.chunks_exact(INPUT_BYTES) {
            copy.copy_from_slice(record);
            let input = InputCodec.decode(black_box(&copy))?;
            let (count, sum) = sums.entry(input.key).or_default();
            *count += 1;
            *sum += input.amount;
        }
    }
    black_box(&sums);
    Ok((own_cpu()? - before) * 1e9 / (BASELINE_RECORDS * BASELINE_PASSES) as f64)
}

/// The engine on the whole input, as another job with an output of its own. Nanoseconds of CPU a record, and whether the
/// output is exact.
async fn engine_ns(args: &Args, place: &Place, round: u32) -> Result<(f64, bool)> {
    let job = format!("{}-{round}", place.names.job);
    let output = format!("{}-{round}", place.names.output);
    let names = Names { job, output, inputs: place.names.inputs.clone() };
    let place = Place { directory: place.directory.clone(), run: place.run, names };
    let log = place.open_log(args).await?;
    load::create(&*log, &place.names).await?;
    let spent = measured(args, log.clone(), &place).await?;
    let verified = verify(log, &place.names, expected(args.workload, args.generator(), args.records())).await?;
    let [cpu, _] = spent.usage.per_million(args.records());
    let cpu = cpu.ok_or_else(|| Error::invalid("the guard needs the CPU times of /proc"))?;
    Ok((cpu * 1e3, verified.exact))
}
