//! What an invocation measures, in which order.

use super::Args;

/// One run of our own program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Its options.
    pub(super) words: Vec<String>,
    pub(super) on_broker: bool,
}

/// The values that an option names; `all` is all that it may have.
pub(super) fn chosen<'a>(given: &'a [String], all: &[&'a str]) -> Vec<&'a str> {
    if given.iter().any(|value| value == "all") { all.to_vec() } else { given.iter().map(String::as_str).collect() }
}

/// The runs of one round. A round is all combinations, so that what else goes on on the machine meets them alike.
pub(super) fn round(args: &Args) -> Vec<Run> {
    let mut runs = Vec::new();
    for workload in args.workloads() {
        for log in args.logs() {
            for store in args.stores() {
                for delivery in args.deliveries() {
                    let words =
                        words(args, [("workload", workload), ("log", log), ("store", store), ("delivery", delivery)]);
                    runs.push(Run { words, on_broker: log == "rocketmq" });
                }
            }
        }
    }
    runs
}

fn words(args: &Args, given: [(&str, &str); 4]) -> Vec<String> {
    let numbers = [
        ("records", args.records),
        ("keys", args.keys),
        ("threads", args.threads.map(u64::from)),
        ("epoch-ms", args.epoch_ms),
        ("restore", args.restore),
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

    fn runs(args: &Args) -> Vec<String> {
        round(args).iter().map(|run| run.words.join(" ")).collect()
    }

    #[test]
    fn options_are_handed_on_as_given() {
        let line = "--workload w1 --log rocketmq --store rocksdb --delivery outbox --records 1000 --keys 10 --threads 2 --epoch-ms 50";
        let args = parse(&format!("{line} --json /r")).unwrap();
        assert_eq!(runs(&args), [line]);
        assert!(round(&args)[0].on_broker);
        let restore = "--workload w1 --log embedded --store fjall --delivery framed --restore 1000";
        assert_eq!(runs(&parse(restore).unwrap()), [restore]);
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
        assert_eq!(runs(&args), expected.collect::<Vec<_>>());
        let all = parse("--workload all --log all --store all --delivery all").unwrap();
        assert_eq!(round(&all).len(), 4 * 2 * 4 * 3);
    }
}
