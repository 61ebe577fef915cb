//! Decision tables: `testdata/*.txt` hold steps, each with what it led to behind `->`. `UPDATE=1 cargo test` rewrites
//! them, to be reviewed as a diff.

use onceflow_txn::*;
use onceflow_types::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// One line of a table: its first word, and the rest as `key=value`.
struct Step<'t> {
    verb: &'t str,
    fields: BTreeMap<&'t str, &'t str>,
}

impl<'t> Step<'t> {
    fn parse(line: &'t str) -> Self {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let fields = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        Step { verb, fields }
    }

    fn text(&self, key: &str) -> Option<&'t str> {
        self.fields.get(key).copied()
    }

    fn or(&self, key: &str, default: u64) -> u64 {
        self.text(key).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    }
}

/// Runs every step of a table and compares, or rewrites, what is behind the arrows. A line `case …` starts anew.
fn run<S>(table: &str, fresh: impl Fn() -> S, step: impl Fn(&mut S, &Step<'_>) -> String) {
    let path = format!("{}/testdata/{table}.txt", env!("CARGO_MANIFEST_DIR"));
    let before = std::fs::read_to_string(&path).unwrap();
    let (mut after, mut state) = (String::new(), fresh());
    for line in before.lines() {
        let given = line.split_once("->").map_or(line, |(given, _)| given).trim_end();
        if given.starts_with("case ") {
            state = fresh();
        }
        if given.is_empty() || given.starts_with('#') || given.starts_with("case ") {
            writeln!(after, "{given}").unwrap();
        } else {
            writeln!(after, "{given:<46} -> {}", step(&mut state, &Step::parse(given))).unwrap();
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, after).unwrap();
    } else {
        let differing = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        if let Some((before, after)) = differing {
            panic!("{table}.txt differs, review with UPDATE=1:\n  expected {before}\n  got      {after}");
        }
    }
}

fn failed(error: &Error) -> String {
    format!("error {}", error.kind().as_str())
}

// ---- the fold ----

fn place(step: &Step<'_>) -> (Incarnation, Generation, Epoch) {
    let incarnation = Incarnation::new(step.or("inc", 1).into());
    (incarnation, Generation::new(step.or("gen", 0)), Epoch::new(step.or("epoch", 1)))
}

fn record(step: &Step<'_>) -> Decoded {
    let (incarnation, generation, epoch) = place(step);
    let parts = u32::try_from(step.or("of", 1)).unwrap();
    Decoded::Record(match step.verb {
        "claim" => JournalRecord::Claim(Claim {
            incarnation,
            nonce: Nonce::new(step.or("nonce", 1).into()),
            replaces: step.text("replaces").map(|text| Generation::new(text.parse().unwrap())),
            owner: Owner::default(),
            topology_hash: 0,
        }),
        "delta" => JournalRecord::Delta(DeltaPart {
            incarnation,
            generation,
            epoch,
            part: u32::try_from(step.or("part", 0)).unwrap(),
            parts,
            bytes: step.text("bytes").unwrap_or("x").into(),
        }),
        "commit" => {
            let body = step.text("body").unwrap_or("x");
            let body = match step.text("parts") {
                Some(parts) => {
                    CommitBody::Parts { parts: parts.parse().unwrap(), checksum: wire::checksum(body.as_bytes()) }
                }
                None => CommitBody::Inline(body.into()),
            };
            let target = Partition::new("out", "b", 0);
            let channel = Channel { sink: Name::new("sink").unwrap(), target };
            JournalRecord::Commit(Box::new(Commit {
                incarnation,
                generation,
                epoch,
                offsets: Offsets::default(),
                watermarks: BTreeMap::new(),
                clock: Timestamp::from_millis(0),
                channels: [(channel, Sequence::new(step.or("next", 0)))].into(),
                tails: Offsets::default(),
                published_through: Epoch::new(step.or("published", 0)),
                body,
            }))
        }
        "snapshot" => JournalRecord::Snapshot(Box::new(Snapshot {
            incarnation,
            generation,
            epoch,
            through: Offset::new(9),
            commit_offset: Offset::new(8),
            commit_checksum: 0,
            location: SnapshotLocation {
                partition: Partition::new("snapshots", "b", 0),
                first: Offset::ZERO,
                chunks: 1,
                checksum: 0,
            },
        })),
        "release" => JournalRecord::Release(Release { incarnation, generation, epoch }),
        "foreign" => return Decoded::Foreign(Foreign::NotOurs),
        verb => panic!("unknown step {verb}"),
    })
}

fn folded(folded: Folded) -> String {
    match folded {
        Folded::Claimed { .. } => "claimed".into(),
        Folded::DeltaKept => "kept".into(),
        Folded::Committed(committed) => {
            let body = String::from_utf8(committed.body).unwrap();
            format!("committed body={body} from={}", committed.body_from)
        }
        Folded::Released => "released".into(),
        Folded::Snapshot => "snapshot".into(),
        Folded::Void(void) => format!("void {void:?}"),
        Folded::Foreign(foreign) => format!("foreign {foreign:?}"),
    }
}

/// Every line is one record at the next offset; a line that is a resend is written again.
#[test]
fn fold_table() {
    run("fold", Fold::default, |fold, step| {
        let before = fold.clone();
        let result = fold.apply(fold.next(), &record(step), 0);
        let result = result.map_or_else(|error| failed(&error), folded);
        if result.starts_with("error") {
            assert_eq!(*fold, before, "a failed record changes nothing");
            return result;
        }
        let generation = fold.generation().map_or("-".to_owned(), |generation| generation.to_string());
        let unpublished: Vec<String> =
            fold.unpublished().iter().map(|u| format!("{}@{}..{}", u.epoch, u.body_from, u.commit_offset)).collect();
        let released = if fold.released() { " released" } else { "" };
        format!(
            "{result} | gen={generation} epoch={} published={} [{}]{released}",
            fold.epoch(),
            fold.published_through(),
            unpublished.join(" ")
        )
    });
}

// ---- check-backs ----

fn point(step: &Step<'_>) -> CommitPoint {
    let (incarnation, generation, epoch) = place(step);
    let published_through = Epoch::new(step.or("published", 0));
    let unpublished = (published_through.get() + 1..=epoch.get())
        .map(|epoch| Unpublished {
            epoch: Epoch::new(epoch),
            body_from: Offset::new(epoch),
            commit_offset: Offset::new(epoch),
        })
        .collect();
    CommitPoint {
        incarnation,
        generation,
        nonce: Nonce::new(1),
        epoch,
        offsets: Offsets::default(),
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: BTreeMap::new(),
        tails: Offsets::default(),
        published_through,
        commit_offset: Offset::new(epoch.get()),
        commit_checksum: 0,
        unpublished,
        journal_next: Offset::new(100),
    }
}

fn half(step: &Step<'_>) -> Identity {
    let (incarnation, generation, epoch) = place(step);
    Identity {
        job: Name::job("job").unwrap(),
        incarnation,
        task: TaskId { subtopology: Name::new("sum").unwrap(), broker: "b".into(), queue: 0 },
        generation,
        epoch,
        sink: Name::new("sink").unwrap(),
        sequence: Sequence::ZERO,
        floor: Sequence::ZERO,
        source: None,
    }
}

/// `fold` is what the instance has folded, `listed` the halves of a decided epoch, `half` a check-back.
#[test]
fn check_back_table() {
    run("check_back", CheckBackView::default, |view, step| match step.verb {
        "fold" => {
            view.advance(&Fold::from_point(&point(step)));
            "ok".into()
        }
        "listed" => {
            let keys = step.text("keys").unwrap_or_default();
            view.list(place(step).2, keys.split(',').filter(|key| !key.is_empty()).map(Into::into));
            "ok".into()
        }
        "half" => format!("{:?}", verdict(view, &half(step), step.text("key").unwrap())),
        verb => panic!("unknown step {verb}"),
    });
}

// ---- the dedup reader ----

struct Reading {
    reader: DedupReader<String>,
    saved: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn settings() -> DedupSettings {
    let lease = Duration::from_secs(10);
    DedupSettings { held_max: 3, ..DedupSettings::new(lease, Duration::from_secs(1000)) }
}

fn save(reading: &mut Reading) {
    let saved = &mut reading.saved;
    reading.reader.changes(
        |item, to| to.extend(item.bytes()),
        |key, value| {
            match value {
                Some(value) => saved.insert(key.to_vec(), value.to_vec()),
                None => saved.remove(key),
            };
        },
    );
}

fn dedup_step(reading: &mut Reading, step: &Step<'_>) -> String {
    let target = Partition::new("out", "b", 0);
    let key = ChannelKey::of(&half(step), &target);
    let now = Timestamp::from_millis(i64::try_from(step.or("t", 0) * 1000).unwrap());
    let mut out = vec![];
    let reader = &mut reading.reader;
    let result = match step.verb {
        "begin" => {
            reader.begin(&target, if step.text("first").is_some() { Start::First } else { Start::Middle });
            "ok".into()
        }
        "hole" => {
            reader.hole(&target, now);
            "ok".into()
        }
        "end" => {
            reader.pass_gaps(&target, now, &mut out);
            "ok".into()
        }
        "forget" => {
            reader.forget_unseen(&target, now);
            format!("channels={}", reader.channels())
        }
        "counts" => format!("{:?}", reader.counts()),
        "restart" => {
            save(reading);
            reading.reader = DedupReader::new(settings());
            for (key, value) in &reading.saved {
                let item = |bytes: &[u8]| Ok(String::from_utf8(bytes.to_vec()).unwrap());
                reading.reader.restore(key, value, item).unwrap();
            }
            format!("entries={}", reading.saved.len())
        }
        "msg" => {
            let (sequence, floor) = (Sequence::new(step.or("s", 0)), Sequence::new(step.or("f", 0)));
            match reader.accept(&key, sequence, floor, sequence.to_string(), now, &mut out) {
                Ok(accepted) => format!("{accepted:?}"),
                Err(error) => failed(&error),
            }
        }
        verb => panic!("unknown step {verb}"),
    };
    format!("{result} [{}] held={}", out.join(" "), reading.reader.held())
}

/// `msg` is a message of one channel with sequence `s` and floor `f`, stored at second `t`; `end` a read that found the
/// queue's end. Handed-on messages are in brackets. At most 3 messages are held.
#[test]
fn dedup_table() {
    let fresh = || Reading { reader: DedupReader::new(settings()), saved: BTreeMap::new() };
    run("dedup", fresh, dedup_step);
}
