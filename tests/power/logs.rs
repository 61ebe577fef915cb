//! The embedded log.

use crate::dice::Dice;
use crate::subject::{Found, Life, Marks, Seen, Subject};
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::log::{End, Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow::types::{ErrorKind, HalfHandle, Offset, Offsets, Partition, Result};
use std::path::Path;
use std::time::Duration;

/// The embedded log in one of its modes. A step is one change that can be read, with what belongs to it.
pub struct EmbeddedSubject {
    pub sync: Sync,
}

const TOPICS: [&str; 2] = ["payments", "totals"];
const QUEUES: u32 = 2;
/// One in so many steps is followed by a close and an opening.
const CLOSES: u64 = 25;
/// How often the log is opened again after an error.
const OPENINGS_MAX: u32 = 3;
/// With odd seeds old records are dropped.
const RETENTION_BYTES: u64 = 400_000;
/// What a record takes beside its body, at most.
const RECORD_BYTES: u64 = 150;

enum Step {
    Append {
        queue: usize,
        bodies: Vec<Vec<u8>>,
    },
    /// A half message that becomes visible.
    Transaction {
        queue: usize,
        body: Vec<u8>,
    },
    /// A half message that is rolled back, then an append.
    RolledBack {
        queue: usize,
        body: Vec<u8>,
    },
    /// A half message that nobody ends, a report of offsets, then an append.
    Left {
        queue: usize,
        body: Vec<u8>,
    },
}

fn step(seed: u64, number: u64) -> Step {
    let mut dice = Dice::new(seed << 32 | number);
    let queue = dice.below(u64::from(QUEUES) * TOPICS.len() as u64) as usize;
    let (kind, count, large) = (dice.below(10), dice.below(8) + 1, dice.below(12) == 0);
    let mut body = || {
        let length = dice.below(if large { 20_000 } else { 2_000 }) as usize + 8;
        let seed = dice.next().to_le_bytes();
        seed.iter().copied().cycle().take(length).enumerate().map(|(at, byte)| byte ^ (at >> 3) as u8).collect()
    };
    match kind {
        0 => Step::RolledBack { queue, body: body() },
        1 => Step::Left { queue, body: body() },
        2 | 3 => Step::Transaction { queue, body: body() },
        _ => Step::Append { queue, bodies: (0..count).map(|_| body()).collect() },
    }
}

impl Step {
    fn appended(self) -> (usize, Vec<Vec<u8>>) {
        match self {
            Step::Append { queue, bodies } => (queue, bodies),
            Step::Transaction { queue, body } | Step::RolledBack { queue, body } | Step::Left { queue, body } => {
                (queue, vec![body])
            }
        }
    }
}

fn batch(bodies: &[Vec<u8>]) -> MessageBatch {
    let mut batch = MessageBatch::default();
    bodies.iter().for_each(|body| batch.push(b"", body).unwrap());
    batch
}

/// An open log and its queues.
struct Opened {
    log: EmbeddedLog,
    queues: Vec<Partition>,
}

impl EmbeddedSubject {
    async fn open(&self, place: &Path, seed: u64) -> Result<Opened> {
        let options = EmbeddedOptions {
            sync: self.sync,
            write_buffer_bytes: 1 << 20,
            cache_bytes: 1 << 20,
            journal_bytes_max: 64 << 20,
            retention_bytes: (seed % 2 == 1).then_some(RETENTION_BYTES),
            ..EmbeddedOptions::default()
        };
        let log = EmbeddedLog::open(place.join("log"), options)?;
        let mut queues = vec![];
        for topic in TOPICS {
            log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(QUEUES) }).await?;
            queues.extend(log.partitions(topic).await?);
        }
        Ok(Opened { log, queues })
    }

    async fn steps(&self, place: &Path, life: Life, last: &mut Option<u64>, marks: &mut Marks) -> Result<()> {
        let mut opened = self.open(place, life.seed).await?;
        let mut number = match opened.read(life.seed).await? {
            Ok(number) => number,
            Err(text) => panic!("{text}"),
        };
        marks.say(&format!("opened {number}"));
        let last = *last.get_or_insert(number + life.steps);
        while number < last {
            number += 1;
            marks.say(&format!("begin {number}"));
            opened.carry_out(life.seed, number, Some(marks)).await?;
            marks.say(&format!("done {number}"));
            if number == last || Dice::new(life.seed ^ number << 8).below(CLOSES) == 0 {
                marks.say(&format!("closing {number}"));
                drop(opened);
                marks.say(&format!("closed {number}"));
                opened = self.open(place, life.seed).await?;
            }
        }
        Ok(())
    }

    async fn look(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
        let synced = self.sync == Sync::EachAppend;
        let refused = |error: onceflow::types::Error, what: &str| match error.kind() {
            // What was never synced may be lost in any way; then the log says so.
            ErrorKind::DataLoss if !synced && seen.power_lost => Ok(Found::Refused(ErrorKind::DataLoss)),
            _ => Err(format!("{what}: {error:?}")),
        };
        let opened = match self.open(place, life.seed).await {
            Ok(opened) => opened,
            Err(error) => return refused(error, "does not open"),
        };
        let mut number = match opened.read(life.seed).await {
            Ok(number) => number?,
            Err(error) => return refused(error, "cannot be read"),
        };
        let least = if synced || !seen.power_lost { seen.done } else { 0 };
        if number < least || number > seen.begun {
            return Err(format!("after step {number}, which is not from {least} to {}", seen.begun));
        }
        let found = Found::Opened(number);
        if synced && let Some(handle) = opened.waiting_half(seen, number + 1) {
            let ended = opened.log.end(&handle, End::Commit).await;
            ended.map_err(|error| format!("a half that was acknowledged before step {number}: {error:?}"))?;
            number += 1;
        }
        number += 1;
        let went_on = opened.carry_out(life.seed, number, None).await;
        went_on.map_err(|error| format!("found after step {number}, cannot go on: {error:?}"))?;
        drop(opened);
        let again = self.open(place, life.seed).await.map_err(|error| format!("went on, then: {error:?}"))?;
        match again.read(life.seed).await {
            Ok(Ok(again)) if again == number => Ok(found),
            again => Err(format!("went on to step {number} and closed, then: {again:?}")),
        }
    }
}

impl Opened {
    async fn carry_out(&self, seed: u64, number: u64, mut marks: Option<&mut Marks>) -> Result<()> {
        let wanted = step(seed, number);
        match &wanted {
            Step::Append { .. } => {}
            Step::Transaction { queue, body } => {
                let half = self.log.prepare(&self.queues[*queue], &batch(std::slice::from_ref(body))).await?.handle;
                if let Some(marks) = &mut marks {
                    marks.say(&format!("half {number} {} {} {queue}", half.commit_log_offset, half.unique_key));
                }
                self.log.end(&half, End::Commit).await?;
                return Ok(());
            }
            Step::RolledBack { queue, body } => {
                let half = self.log.prepare(&self.queues[*queue], &batch(std::slice::from_ref(body))).await?.handle;
                self.log.end(&half, End::Rollback).await?;
            }
            Step::Left { queue, body } => {
                self.log.prepare(&self.queues[*queue], &batch(std::slice::from_ref(body))).await?;
                let mut offsets = Offsets::default();
                offsets.set(&self.queues[*queue], Offset::new(number));
                self.log.report_offsets("readers", &offsets).await?;
            }
        }
        let (queue, bodies) = wanted.appended();
        let next = self.log.offsets(&self.queues[queue]).await?.next;
        let acked = self.log.append(&self.queues[queue], &batch(&bodies)).await?;
        assert_eq!(acked.first, next, "offsets are dense");
        Ok(())
    }

    /// A half that was acknowledged in this step and not ended.
    fn waiting_half(&self, seen: &Seen, number: u64) -> Option<HalfHandle> {
        let wanted = format!("half {number} ");
        let mark = seen.marks.iter().rev().find_map(|mark| mark.strip_prefix(&wanted))?;
        let [place, key, queue] = mark.split(' ').collect::<Vec<_>>()[..] else { panic!("not a half: {mark}") };
        let place = place.parse().unwrap();
        let target = self.queues[queue.parse::<usize>().unwrap()].clone();
        Some(HalfHandle { target, commit_log_offset: place, half_queue_offset: place, unique_key: key.into() })
    }

    /// Reads all queues and returns after which step they are so. The inner text says what is wrong.
    async fn read(&self, seed: u64) -> Result<Result<u64, String>> {
        let mut found = vec![];
        for queue in &self.queues {
            found.push(self.log.offsets(queue).await?);
        }
        let mut wanted: Vec<Vec<Vec<u8>>> = vec![vec![]; self.queues.len()];
        let mut number = 0;
        // Each step adds a record, so the step is known by the number of records.
        while wanted.iter().zip(&found).any(|(bodies, range)| (bodies.len() as u64) < range.next.get()) {
            number += 1;
            let (queue, bodies) = step(seed, number).appended();
            wanted[queue].extend(bodies);
        }
        for ((bodies, range), queue) in wanted.iter().zip(&found).zip(&self.queues) {
            let (first, next) = (range.first.get(), range.next.get());
            if next != bodies.len() as u64 {
                return Ok(Err(format!("not at the end of a step: {queue} ends at {next}, not {}", bodies.len())));
            }
            if first > 0 && (seed.is_multiple_of(2) || left(bodies, first) < RETENTION_BYTES) {
                return Ok(Err(format!("dropped too much: {queue} begins at {first} of {next}")));
            }
            if let Err(text) = self.compare(queue, bodies, first).await? {
                return Ok(Err(text));
            }
        }
        Ok(Ok(number))
    }

    async fn compare(&self, queue: &Partition, bodies: &[Vec<u8>], first: u64) -> Result<Result<(), String>> {
        let limit = ReadLimit { records_max: 1_000, bytes_max: 1 << 20, wait_max: Duration::ZERO };
        let mut at = first;
        while at < bodies.len() as u64 {
            let records = self.log.read(queue, Offset::new(at), limit).await?;
            for record in records.iter() {
                let body = record.body().expect("a plain body");
                if record.offset().get() != at || bodies.get(at as usize).is_none_or(|wanted| **wanted != *body) {
                    return Ok(Err(format!("another record: {queue} offset={} wanted={at}", record.offset())));
                }
                at += 1;
            }
        }
        Ok(Ok(()))
    }
}

/// The bytes from a record on, at most.
fn left(bodies: &[Vec<u8>], first: u64) -> u64 {
    bodies[first as usize..].iter().map(|body| body.len() as u64 + RECORD_BYTES).sum()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

impl Subject for EmbeddedSubject {
    fn name(&self) -> &'static str {
        match self.sync {
            Sync::EachAppend => "log",
            Sync::Never => "log-unsynced",
        }
    }

    fn live(&self, place: &Path, life: Life, marks: &mut Marks) {
        let mut last = None;
        for _ in 0..OPENINGS_MAX {
            let Err(error) = runtime().block_on(self.steps(place, life, &mut last, marks)) else { return };
            marks.say(&format!("failed {error:?}").replace('\n', " "));
        }
    }

    fn check_damaged(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
        let read = runtime().block_on(async { self.open(place, life.seed).await?.read(life.seed).await });
        match read {
            Ok(Ok(number)) if number == seen.closed => Ok(Found::Opened(number)),
            Ok(Ok(number)) => Err(format!("a shorter log: found={number} closed={}", seen.closed)),
            Ok(Err(text)) => Err(text),
            Err(error) if matches!(error.kind(), ErrorKind::DataLoss | ErrorKind::Invalid) => {
                Ok(Found::Refused(error.kind()))
            }
            Err(error) => Err(format!("{error:?}")),
        }
    }

    fn check(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
        runtime().block_on(self.look(place, life, seen))
    }
}
