//! How the real broker behaves where our rules rest on it: each fact is observed, asserted, and printed in one table, so
//! that it can go to `docs/calibration.md`. Run it alone and with `--nocapture`.
//!
//! Needs `ONCEFLOW_NAME_SERVER=host:port` of a test broker with fast check-backs (time-out 3 s, interval 2 s, a small
//! limit), `ONCEFLOW_CHECK_BACK_SECONDS` (how long one check-back may take) and `ONCEFLOW_CHECKS_MAX` (the broker's limit).
//! `ONCEFLOW_BROKER_RESTART` is a shell command that restarts the broker and waits until it serves. The facts in
//! `special` need brokers with other settings, or ones that can be killed: `ONCEFLOW_XTASK` is the program that starts
//! them, and `ONCEFLOW_ROCKETMQ_VERSION` their version.
#![cfg(feature = "rocketmq")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod special;

use onceflow_log::rocketmq::{RocketLog, RocketOptions};
use onceflow_log::{CheckBack, End, Log, MessageBatch, Queues, ReadLimit, TopicSpec, Verdict, find_property};
use onceflow_types::{Clock, ErrorKind, HalfHandle, Offset, Partition, SystemClock};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for what the broker does by itself.
const WITHIN: Duration = Duration::from_secs(30);

struct Bench {
    name_server: String,
    group: String,
    log: RocketLog,
    queues: Vec<Partition>,
    facts: Vec<(&'static str, String)>,
}

#[test]
#[ignore = "needs a broker: cargo xtask test"]
fn the_broker_behaves_as_modelled() {
    let name_server = std::env::var("ONCEFLOW_NAME_SERVER").expect("ONCEFLOW_NAME_SERVER is set by `cargo xtask test`");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut bench = Bench::new(name_server).await;
        bench.a_batch_is_answered_with_its_first_offset().await;
        bench.an_end_is_not_idempotent().await;
        bench.a_rollback_is_not_final().await;
        bench.only_the_group_can_end().await;
        bench.a_tail_lags_and_a_barrier_proves().await;
        bench.a_key_can_be_looked_up().await;
        bench.a_handle_outlives_its_connection().await;
        bench.an_end_may_be_carried_out_unheard().await;
        bench.check_backs_stop_and_the_first_handle_still_works().await;
        bench.any_member_of_the_group_is_asked().await;
        bench.a_restart_may_shorten_a_tail_for_a_while().await;
        special::facts(&mut bench).await;
        bench.print();
    });
}

impl Bench {
    async fn new(name_server: String) -> Bench {
        let unique = format!("{}-{}", SystemClock.now(), std::process::id());
        let group = format!("calibration-{unique}");
        let log = RocketLog::open(options(&name_server, &group)).await.unwrap();
        let spec = TopicSpec { topic: format!("calibration-{unique}").into(), queues: Queues::PerBroker(16) };
        log.create_topic(&spec).await.unwrap();
        let queues = log.partitions(&spec.topic).await.unwrap();
        Bench { name_server, group, log, queues, facts: vec![] }
    }

    fn note(&mut self, fact: &'static str, observed: impl Into<String>) {
        let observed = observed.into();
        eprintln!("calibration: {fact}: {observed}");
        self.facts.push((fact, observed));
    }

    fn print(&self) {
        println!("| fact | observed |\n| --- | --- |");
        for (fact, observed) in &self.facts {
            println!("| {fact} | {observed} |");
        }
    }

    /// A queue that no other fact uses.
    fn queue(&mut self) -> Partition {
        self.queues.pop().expect("there are more queues than facts")
    }

    async fn another_handle(&self, group: &str) -> RocketLog {
        RocketLog::open(options(&self.name_server, group)).await.unwrap()
    }

    async fn prepare(&self, queue: &Partition, body: &str) -> HalfHandle {
        self.log.prepare(queue, &message(body)).await.unwrap().handle
    }

    /// Bodies of a queue before a barrier that is appended now, barriers left out.
    async fn bodies(&self, queue: &Partition) -> Vec<String> {
        let barrier = self.log.append(queue, &message("barrier")).await.unwrap().first;
        let mut bodies = read(&self.log, queue, barrier).await;
        bodies.retain(|body| body != "barrier");
        bodies
    }

    async fn a_batch_is_answered_with_its_first_offset(&mut self) {
        let queue = self.queue();
        let mut batch = MessageBatch::default();
        for number in 0..10 {
            batch.push(b"", format!("{number}").as_bytes()).unwrap();
        }
        let firsts = [
            self.log.append(&queue, &batch).await.unwrap().first,
            self.log.append(&queue, &batch).await.unwrap().first,
        ];
        assert_eq!(firsts, [Offset::ZERO, Offset::new(10)]);
        let bodies = self.bodies(&queue).await;
        assert_eq!(bodies, (0..20).map(|number| (number % 10).to_string()).collect::<Vec<_>>());
        self.note("queueOffset in the reply to a batch of ten", "the first message's; the others follow densely");
    }

    async fn an_end_is_not_idempotent(&mut self) {
        let queue = self.queue();
        let handle = self.prepare(&queue, "half").await;
        assert!(self.bodies(&queue).await.is_empty());
        for _ in 0..3 {
            self.log.end(&handle, End::Commit).await.unwrap();
        }
        let copies = self.bodies(&queue).await.len();
        assert_eq!(copies, 3);
        self.note("END(commit) three times", format!("three times code 0, {copies} copies"));
    }

    async fn a_rollback_is_not_final(&mut self) {
        let queue = self.queue();
        let handle = self.prepare(&queue, "half").await;
        self.log.end(&handle, End::Rollback).await.unwrap();
        self.log.end(&handle, End::Rollback).await.unwrap();
        assert!(self.bodies(&queue).await.is_empty());
        self.log.end(&handle, End::Commit).await.unwrap();
        assert_eq!(self.bodies(&queue).await, ["half"]);
        self.note("END(commit) after two END(rollback)", "each code 0, the message is published once");
    }

    async fn only_the_group_can_end(&mut self) {
        let queue = self.queue();
        let handle = self.prepare(&queue, "half").await;
        let other = self.another_handle(&format!("{}-other", self.group)).await;
        let error = other.end(&handle, End::Commit).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        other.close().await;
        assert!(self.bodies(&queue).await.is_empty());
        let gone = HalfHandle { commit_log_offset: handle.commit_log_offset + (1 << 40), ..handle.clone() };
        let lost = self.log.end(&gone, End::Commit).await.expect_err("there is no such half");
        assert_eq!(lost.kind(), ErrorKind::DataLoss, "{lost:?}");
        self.note("END from another producer group", format!("refused: {error}"));
        self.note("END of a half that is not in the commit log", format!("refused: {lost}"));
    }

    async fn a_tail_lags_and_a_barrier_proves(&mut self) {
        let (queue, barriers) = (self.queue(), self.queue());
        let (mut stale, mut lag_max) = (0, Duration::ZERO);
        for round in 1..=200_u64 {
            let handle = self.prepare(&queue, "half").await;
            self.log.end(&handle, End::Commit).await.unwrap();
            let ended = Instant::now();
            if self.log.offsets(&queue).await.unwrap().next.get() < round {
                stale += 1;
                while self.log.offsets(&queue).await.unwrap().next.get() < round {
                    assert!(ended.elapsed() < WITHIN);
                }
                lag_max = lag_max.max(ended.elapsed());
            }
            let handle = self.prepare(&barriers, "later").await;
            self.log.end(&handle, End::Rollback).await.unwrap();
            let barrier = self.log.append(&barriers, &message("barrier")).await.unwrap().first;
            read_at(&self.log, &barriers, barrier).await;
            assert_eq!(
                self.log.offsets(&queue).await.unwrap().next.get(),
                round,
                "a barrier was read, the tail is old"
            );
        }
        self.note(
            "tail asked right after an acknowledged END, 200 times",
            format!("old {stale} times, at most {lag_max:?}"),
        );
        self.note("tail asked after a later message to another queue of the broker was read", "never old");
    }

    async fn a_key_can_be_looked_up(&mut self) {
        let queue = self.queue();
        let (mut index_lag_max, mut tail_cost, mut index_cost) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for round in 0..50 {
            let handle = self.prepare(&queue, "half").await;
            self.log.end(&handle, End::Commit).await.unwrap();
            let ended = Instant::now();
            loop {
                let asked = Instant::now();
                let found = self.log.find_unique_key(&queue, &handle.unique_key, 8).await.unwrap();
                index_cost = index_cost.max(asked.elapsed());
                if found == [Offset::new(round)] {
                    break;
                }
                assert!(found.is_empty() && ended.elapsed() < WITHIN, "{found:?}");
            }
            index_lag_max = index_lag_max.max(ended.elapsed());
            let asked = Instant::now();
            read_at(&self.log, &queue, Offset::new(round)).await;
            tail_cost = tail_cost.max(asked.elapsed());
        }
        let handle = self.prepare(&queue, "twice").await;
        self.log.end(&handle, End::Commit).await.unwrap();
        self.log.end(&handle, End::Commit).await.unwrap();
        self.bodies(&queue).await;
        let mut found = vec![];
        let asked = Instant::now();
        while found.len() < 2 && asked.elapsed() < WITHIN {
            found = self.log.find_unique_key(&queue, &handle.unique_key, 8).await.unwrap();
        }
        let never = self.prepare(&queue, "never").await;
        self.bodies(&queue).await;
        let half = self.log.find_unique_key(&queue, &never.unique_key, 8).await.unwrap();
        assert!(half.is_empty(), "an unended half is found in its target queue: {half:?}");
        self.note(
            "look-up by UNIQ_KEY after END, 50 times",
            format!("found after at most {index_lag_max:?}; one look-up at most {index_cost:?}, one read of the tail {tail_cost:?}"),
        );
        self.note("look-up by UNIQ_KEY of a half committed twice", format!("{} found", found.len()));
        self.note("look-up by UNIQ_KEY of a half not ended", "none found in its target queue");
    }

    async fn a_handle_outlives_its_connection(&mut self) {
        let queue = self.queue();
        let first = self.another_handle(&self.group).await;
        let handle = first.prepare(&queue, &message("half")).await.unwrap().handle;
        first.close().await;
        self.log.end(&handle, End::Commit).await.unwrap();
        assert_eq!(self.bodies(&queue).await, ["half"]);
        self.note("END over another connection after the preparing one is gone", "code 0, published once");
    }

    /// Aim: an END whose sender is gone may still be carried out. Method: drop the connection at various moments after
    /// the END was handed to it, and look behind a barrier whether the message is there.
    async fn an_end_may_be_carried_out_unheard(&mut self) {
        let queue = self.queue();
        let rounds = 40_u64;
        let mut late = 0;
        for round in 0..rounds {
            let handle = self.prepare(&queue, &format!("{round}")).await;
            let sender = self.another_handle(&self.group).await;
            let _ = timeout(Duration::from_micros(100 * (round % 20)), sender.end(&handle, End::Commit)).await;
            sender.close().await;
            let copies = self.bodies(&queue).await.iter().filter(|body| **body == round.to_string()).count();
            assert!(copies <= 1, "one END gave {copies} copies");
            late += copies;
        }
        self.note(
            "END whose connection is closed 0 to 2 ms later",
            format!("carried out in {late} of {rounds} cases, never twice"),
        );
    }

    async fn check_backs_stop_and_the_first_handle_still_works(&mut self) {
        let (Some(within), Some(checks_max)) = (check_back_time(), number("ONCEFLOW_CHECKS_MAX")) else {
            eprintln!("NOT RUN: check-backs: set ONCEFLOW_CHECK_BACK_SECONDS and ONCEFLOW_CHECKS_MAX");
            return self.note("check-backs", "not run");
        };
        let queue = self.queue();
        let mut half = MessageBatch::default();
        half.push(b"own\x011\x02", b"half").unwrap();
        let handle = self.log.prepare(&queue, &half).await.unwrap().handle;
        let mut checks: Vec<CheckBack> = vec![];
        while let Some(check) = self.check_back(&handle, within).await {
            assert_eq!(check.ticket.target, handle.target);
            checks.push(check);
            assert!(checks.len() as u64 <= 2 * checks_max, "the broker does not stop asking");
        }
        assert!(!checks.is_empty(), "no check-back came");
        for check in &checks {
            assert_eq!(find_property(&check.properties, "UNIQ_KEY"), Some(handle.unique_key.as_bytes()));
            assert_eq!(find_property(&check.properties, "own"), Some(b"1".as_slice()));
        }
        let names = changing(&checks);
        let mut places: Vec<u64> = checks.iter().map(|check| check.ticket.commit_log_offset).collect();
        let first_is_original = places[0] == handle.commit_log_offset;
        places.dedup();
        self.note(
            "check-backs of a half that nobody ends",
            format!(
                "{} at a limit of {checks_max}, at {} places (the first {} the half's own); UNIQ_KEY and our property unchanged, the broker's own change: {names}",
                checks.len(),
                places.len(),
                if first_is_original { "is" } else { "is not" }
            ),
        );
        assert!(self.bodies(&queue).await.is_empty());
        self.log.end(&handle, End::Commit).await.unwrap();
        assert_eq!(self.bodies(&queue).await, ["half"]);
        self.note("END by the original handle after the limit", "code 0, published once");
    }

    async fn check_back(&self, handle: &HalfHandle, within: Duration) -> Option<CheckBack> {
        let asking = async {
            loop {
                let check = self.log.next_check_back().await.unwrap();
                if check.unique_key == handle.unique_key {
                    return check;
                }
                self.log.answer_check_back(&check, Verdict::Unknown).await.unwrap();
            }
        };
        timeout(within, asking).await.ok()
    }

    /// Aim: a check-back reaches the members of a group, not only the one that prepared the half. Method: one member
    /// prepares, two listen.
    async fn any_member_of_the_group_is_asked(&mut self) {
        const HALVES: u32 = 8;
        let Some(within) = check_back_time() else {
            eprintln!("NOT RUN: members: set ONCEFLOW_CHECK_BACK_SECONDS");
            return self.note("check-backs where the group has two members", "not run");
        };
        let queue = self.queue();
        let group = format!("{}-members", self.group);
        let (one, two) = (self.another_handle(&group).await, self.another_handle(&group).await);
        let mut asked = [0_u32; 2];
        for _ in 0..HALVES {
            one.prepare(&queue, &message("half")).await.unwrap();
        }
        let listening = async {
            loop {
                let (member, check) = tokio::select! {
                    check = one.next_check_back() => (0, check.unwrap()),
                    check = two.next_check_back() => (1, check.unwrap()),
                };
                asked[member] += 1;
                let answering = if member == 0 { &one } else { &two };
                answering.answer_check_back(&check, Verdict::Unknown).await.unwrap();
            }
        };
        // As long as two rounds of check-backs may take; the broker's limit ends them.
        assert!(timeout(within * 2, listening).await.is_err());
        one.close().await;
        two.close().await;
        assert!(asked.iter().sum::<u32>() >= HALVES, "each half is asked about: {asked:?}");
        self.note(
            "check-backs where the group has two members",
            format!("{} to the one that prepared the halves, {} to the other", asked[0], asked[1]),
        );
    }

    async fn a_restart_may_shorten_a_tail_for_a_while(&mut self) {
        let Ok(command) = std::env::var("ONCEFLOW_BROKER_RESTART") else {
            eprintln!("NOT RUN: restart: set ONCEFLOW_BROKER_RESTART to a command that restarts the broker");
            return self.note("tail right after a restart", "not run");
        };
        let queue = self.queue();
        for number in 0..1_000_u64 {
            assert_eq!(self.log.append(&queue, &message("kept")).await.unwrap().first, Offset::new(number));
        }
        let before = self.log.append(&queue, &message("last")).await.unwrap().link;
        let run = tokio::task::spawn_blocking(move || std::process::Command::new("sh").arg("-c").arg(command).status());
        assert!(run.await.unwrap().unwrap().success(), "ONCEFLOW_BROKER_RESTART failed");
        let started = Instant::now();
        let mut tails = vec![];
        while tails.last() != Some(&1_001) {
            assert!(started.elapsed() < WITHIN, "acknowledged messages are gone: {tails:?}");
            match self.log.offsets(&queue).await {
                Ok(range) if tails.last() != Some(&range.next.get()) => tails.push(range.next.get()),
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error:?}"),
            }
            sleep(Duration::from_millis(1)).await;
        }
        let after = self.log.append(&queue, &message("after")).await.unwrap();
        assert_eq!(after.first, Offset::new(1_001));
        assert_ne!(after.link, before);
        self.note("tails seen after a restart, 1001 messages acknowledged before", format!("{tails:?}"));
    }
}

/// With time for a broker that has just started on a busy machine.
fn options(name_server: &str, group: &str) -> RocketOptions {
    RocketOptions { request_timeout: WITHIN, ..RocketOptions::new(name_server, group) }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// How long one check-back may take.
fn check_back_time() -> Option<Duration> {
    number("ONCEFLOW_CHECK_BACK_SECONDS").map(Duration::from_secs)
}

/// Names of the properties that are not the same in all check-backs.
fn changing(checks: &[CheckBack]) -> String {
    let properties = |check: &CheckBack| -> BTreeSet<String> {
        let all = check.properties.split(|byte| *byte == 2).filter(|property| !property.is_empty());
        all.map(|property| String::from_utf8(property.to_vec()).unwrap()).collect()
    };
    let first = checks.first().map(properties).unwrap_or_default();
    let differ = checks.iter().flat_map(|check| &properties(check) ^ &first);
    let names: BTreeSet<String> =
        differ.filter_map(|property| Some(property.split_once('\u{1}')?.0.to_owned())).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

fn message(body: &str) -> MessageBatch {
    let mut batch = MessageBatch::default();
    batch.push(b"", body.as_bytes()).unwrap();
    batch
}

/// Bodies of a queue from its start up to `offset_last`.
async fn read(log: &RocketLog, queue: &Partition, offset_last: Offset) -> Vec<String> {
    let limit = ReadLimit { records_max: 1_000, bytes_max: 1 << 20, wait_max: Duration::from_secs(1) };
    let (mut bodies, mut next, started) = (vec![], Offset::ZERO, Instant::now());
    while next <= offset_last {
        assert!(started.elapsed() < WITHIN, "{queue} {offset_last} cannot be read");
        let records = log.read(queue, next, limit).await.unwrap();
        for record in records.iter().filter(|record| record.offset() < offset_last) {
            bodies.push(String::from_utf8(record.body().unwrap().to_vec()).unwrap());
        }
        next = records.next_offset().unwrap_or(next);
    }
    bodies
}

/// Waits until the record at `offset` can be read.
async fn read_at(log: &RocketLog, queue: &Partition, offset: Offset) {
    let limit = ReadLimit { records_max: 1, bytes_max: 1, wait_max: Duration::from_secs(1) };
    let started = Instant::now();
    while log.read(queue, offset, limit).await.unwrap().is_empty() {
        assert!(started.elapsed() < WITHIN, "{queue} {offset} cannot be read");
    }
}
