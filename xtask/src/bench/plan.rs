//! What an invocation measures, in which order.

use super::{Args, peers};

/// One run of our own program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Its options.
    pub(super) words: Vec<String>,
    pub(super) on_broker: bool,
    /// Records that go through a fresh broker first, unmeasured, so that its JVM is warm.
    pub(super) warm_up: u64,
}

/// Records of a run if nothing else is said, as the program has it.
const RECORDS: u64 = 1_000_000;

impl Run {
    /// The options of the unmeasured run: those of the measured one with fewer records.
    pub(super) fn warm_up_words(&self) -> Vec<String> {
        let records = ["--records".to_owned(), self.warm_up.to_string()];
        let given = self.words.iter().filter(|word| *word != "--pump");
        given.cloned().chain(records).collect()
    }
}

/// The values that an option names; `all` is all that it may have.
pub(super) fn chosen<'a>(given: &'a [String], all: &[&'a str]) -> Vec<&'a str> {
    if given.iter().any(|value| value == "all") { all.to_vec() } else { given.iter().map(String::as_str).collect() }
}

/// One run of ours, or of another system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ours(Run),
    Peer(peers::Run),
}

/// What one round measures: all combinations, workload by workload, and the peers behind ours on each. So what else goes on
/// on the machine meets them alike.
pub(super) fn round(args: &Args) -> Vec<Step> {
    let of = |workload: &str| {
        let ours = runs(args, workload).into_iter().map(Step::Ours);
        let peers = if args.peers.is_some() { peers::runs(args, workload) } else { vec![] };
        ours.chain(peers.into_iter().map(Step::Peer)).collect::<Vec<_>>()
    };
    args.workloads().into_iter().flat_map(of).collect()
}

fn runs(args: &Args, workload: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    for log in args.logs() {
        for store in args.stores() {
            for delivery in args.deliveries() {
                let given = [("workload", workload), ("log", log), ("store", store), ("delivery", delivery)];
                let on_broker = log == "rocketmq";
                let warm_up = if on_broker { warm_up(args, workload) } else { 0 };
                runs.push(Run { words: words(args, workload, given), on_broker, warm_up });
            }
        }
    }
    runs
}

/// A fifth of the records: of the JVM peers, too, what they do with the first fifth is not measured. Few records do not warm a
/// JVM, so there are as many again then.
fn warm_up(args: &Args, workload: &str) -> u64 {
    const ENOUGH: u64 = 100_000;
    let records = args.records_of(workload).unwrap_or(RECORDS);
    if args.restore.or(args.latency).is_some() { 0 } else { (records / 5).max(records.min(ENOUGH)) }
}

fn words(args: &Args, workload: &str, given: [(&str, &str); 4]) -> Vec<String> {
    let numbers = [
        ("records", args.records_of(workload)),
        ("keys", args.keys),
        ("threads", args.threads.map(u64::from)),
        ("epoch-ms", args.epoch_ms),
        ("latency-target-ms", args.latency_target_ms),
        ("restore", args.restore),
        ("latency", args.latency),
        ("seconds", args.latency.and(args.seconds)),
        ("warm", args.latency.and(args.warm)),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string())));
    let given = given.map(|(name, value)| (name, value.to_owned())).into_iter();
    let valued = given.chain(numbers).flat_map(|(name, value)| [format!("--{name}"), value]);
    valued.chain(args.pump.then(|| "--pump".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    fn ours(args: &Args) -> Vec<Run> {
        let ours = |step| match step {
            Step::Ours(run) => Some(run),
            Step::Peer(_) => None,
        };
        round(args).into_iter().filter_map(ours).collect()
    }

    fn words_of(args: &Args) -> Vec<String> {
        ours(args).iter().map(|run| run.words.join(" ")).collect()
    }

    #[test]
    fn options_are_handed_on_as_given() {
        let line = "--workload w1 --log rocketmq --store rocksdb --delivery outbox --records 1000 --keys 10 --threads 2 --epoch-ms 50 --latency-target-ms 60";
        let args = parse(&format!("{line} --json /r")).unwrap();
        assert_eq!(words_of(&args), [line]);
        assert!(ours(&args)[0].on_broker);
        let restore = "--workload w1 --log embedded --store fjall --delivery framed --restore 1000";
        assert_eq!(words_of(&parse(restore).unwrap()), [restore]);
        let latency =
            "--workload w1 --log rocketmq --store fjall --delivery framed --latency 5000 --seconds 10 --warm 5";
        assert_eq!(words_of(&parse(latency).unwrap()), [latency]);
        assert_eq!(ours(&parse(latency).unwrap())[0].warm_up, 0, "it has a warm-up of its own");
    }

    #[test]
    fn a_broker_is_warmed_up_with_a_fifth_of_the_records() {
        let line = "--workload w1 --log all --store rocksdb --delivery outbox --records 1000000 --pump";
        let runs = ours(&parse(line).unwrap());
        assert_eq!([runs[0].warm_up, runs[1].warm_up], [0, 200_000]);
        assert!(runs[1].words.ends_with(&["--pump".to_owned()]));
        let words = runs[1].warm_up_words().join(" ");
        assert!(words.ends_with("--records 1000000 --records 200000") && !words.contains("--pump"), "{words}");
        let few = "--workload w1 --log rocketmq --store rocksdb --delivery outbox --records 50000";
        assert_eq!(ours(&parse(few).unwrap())[0].warm_up, 50_000);
    }

    #[test]
    fn a_round_is_every_combination() {
        let args = parse("--workload w4,w2 --log embedded,rocketmq --store fjall --delivery framed,outbox").unwrap();
        let words = |of: &str| {
            let [workload, log, delivery] = of.split(' ').collect::<Vec<_>>()[..] else { unreachable!() };
            format!("--workload {workload} --log {log} --store fjall --delivery {delivery}")
        };
        let expected = ["w4", "w2"].iter().flat_map(|workload| {
            ["embedded framed", "embedded outbox", "rocketmq framed", "rocketmq outbox"]
                .map(|rest| words(&format!("{workload} {rest}")))
        });
        assert_eq!(words_of(&args), expected.collect::<Vec<_>>());
        let all = parse("--workload all --log all --store all --delivery all").unwrap();
        assert_eq!(round(&all).len(), 4 * 2 * 4 * 3);
    }

    #[test]
    fn peers_follow_ours_on_each_workload_with_as_many_records() {
        let line = "--workload w1,w4 --log rocketmq --store rocksdb --delivery framed --peers /p";
        let steps = round(&parse(line).unwrap());
        let kinds: Vec<bool> = steps.iter().map(|step| matches!(step, Step::Ours(_))).collect();
        assert_eq!(kinds, [true, false, false, true, false, false]);
        let words = words_of(&parse(line).unwrap());
        assert!(words[0].ends_with("--records 4000000") && words[1].ends_with("--records 1000000"), "{words:?}");
    }
}
