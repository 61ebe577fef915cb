//! `onceflow inspect`: journals, state directories, commit points.

use crate::journal::{self, Entry, Journal};
use crate::open::{LogArgs, block_on};
use crate::output::{Output, table};
use crate::state;
use clap::{Args, Subcommand};
use onceflow::topics;
use onceflow::txn::{CommitBody, Decoded, Fold, JournalRecord};
use onceflow::types::{Generation, Name, Partition, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// What to look into.
#[derive(Subcommand)]
pub(crate) enum Inspect {
    /// The journal of each task of a subtopology: claims, commits, epochs, void records
    Journal(JournalArgs),
    /// A state directory: whose state it holds
    Store(state::StoreArgs),
    /// The commit point of a task's state, or of all tasks of a job; the job must not be running
    Point(state::PointArgs),
}

#[derive(Args)]
pub(crate) struct JournalArgs {
    #[command(flatten)]
    log: LogArgs,
    /// The job id
    #[arg(long)]
    job: String,
    /// The subtopology's name
    #[arg(long)]
    subtopology: String,
    /// Only these tasks, as broker:queue
    #[arg(long = "task", value_name = "BROKER:QUEUE")]
    tasks: Vec<String>,
    /// Show so many records of each journal, the last ones; 0: the summary alone
    #[arg(long, value_name = "N", default_value_t = 20)]
    records: usize,
}

pub(crate) fn run(what: Inspect, output: Output) -> Result<()> {
    match what {
        Inspect::Journal(args) => block_on(journals(args, output)),
        Inspect::Store(args) => state::store(&args, output),
        Inspect::Point(args) => state::point(&args, output),
    }
}

async fn journals(args: JournalArgs, output: Output) -> Result<()> {
    let (job, subtopology) = (Name::job(&args.job)?, Name::new(&args.subtopology)?);
    let log = args.log.open().await?;
    let topic = topics::journal(&job, &subtopology);
    let (mut objects, mut text) = (vec![], String::new());
    for partition in journal::queues(&*log, &topic, &args.tasks.into_iter().collect()).await? {
        let mut view = View { records_max: args.records, ..View::default() };
        let journal = journal::read(&*log, &partition, |entry| view.take(&entry)).await?;
        text += &view.text(&partition, &journal);
        objects.push(view.json(&partition, &journal));
    }
    output.print(&json!({ "topic": topic, "journals": objects }), &text)
}

/// What is shown of one journal.
#[derive(Default)]
struct View {
    records_max: usize,
    /// The last records.
    records: VecDeque<Value>,
    kinds: BTreeMap<&'static str, u64>,
    /// Records that did nothing, by reason.
    void: BTreeMap<String, u64>,
    bytes: u64,
}

impl View {
    fn take(&mut self, entry: &Entry<'_>) {
        let (kind, effect) = (journal::kind(entry.decoded), journal::effect(entry.folded.as_ref()));
        *self.kinds.entry(kind).or_default() += 1;
        self.bytes += entry.bytes as u64;
        let mut object = json!({
            "offset": entry.offset.get(),
            "kind": kind,
            "effect": effect,
            "bytes": entry.bytes,
            "details": details(entry.decoded),
        });
        if let (Value::Object(object), Some((generation, epoch))) = (&mut object, place(entry.decoded)) {
            object.insert("generation".into(), generation.into());
            object.insert("epoch".into(), epoch.into());
        }
        if !matches!(effect.as_str(), "valid" | "unknown") {
            *self.void.entry(effect).or_default() += 1;
        }
        self.records.push_back(object);
        if self.records.len() > self.records_max {
            self.records.pop_front();
        }
    }

    fn json(&self, partition: &Partition, journal: &Journal) -> Value {
        let fold = journal.fold.as_ref();
        json!({
            "queue": partition.to_string(),
            "first": journal.first.get(),
            "next": journal.next.get(),
            "bytes": self.bytes,
            "records_by_kind": self.kinds,
            "void": self.void,
            "incarnation": fold.and_then(Fold::incarnation).map(|incarnation| incarnation.to_string()),
            "generation": fold.and_then(Fold::generation).map(Generation::get),
            "owner": fold.and_then(Fold::claim).map(|claim| json!({
                "host": claim.owner.host,
                "directory": claim.owner.directory,
            })),
            "epoch": fold.map(|fold| fold.epoch().get()),
            "published_through": fold.map(|fold| fold.published_through().get()),
            "released": fold.map(Fold::released),
            "offsets": fold.and_then(Fold::point).map(|point| state::offsets(&point.offsets)),
            "records": self.records,
        })
    }

    fn text(&self, partition: &Partition, journal: &Journal) -> String {
        let mut text = format!("journal {partition}\n");
        let number = |value: &Value| value.as_u64().map_or("-".into(), |incarnation| incarnation.to_string());
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut rows = vec![];
        for record in &self.records {
            let cell = |name: &str| record.get(name).unwrap_or(&Value::Null);
            rows.push(vec![
                String::new(),
                number(cell("offset")),
                word(cell("kind")),
                number(cell("generation")),
                number(cell("epoch")),
                word(cell("effect")),
                word(cell("details")),
            ]);
        }
        if !rows.is_empty() {
            let head = ["", "offset", "kind", "generation", "epoch", "effect", "details"];
            rows.insert(0, head.map(str::to_owned).to_vec());
            text += &table(&rows);
        }
        let list = |counts: &mut dyn Iterator<Item = (String, u64)>| {
            let words: Vec<String> = counts.map(|(word, count)| format!("{count} {word}")).collect();
            if words.is_empty() { "none".to_owned() } else { words.join(", ") }
        };
        let (kinds, void) = (
            list(&mut self.kinds.iter().map(|(word, count)| ((*word).to_owned(), *count))),
            list(&mut self.void.iter().map(|(word, count)| (word.clone(), *count))),
        );
        text.extend([format!("  records {kinds}\n  without effect {void}\n")]);
        match &journal.fold {
            Some(fold) => {
                let generation = fold.generation().map_or("none".into(), |generation| generation.to_string());
                text.extend([format!(
                    "  generation {generation}, epoch {}, published through {}, {}\n",
                    fold.epoch(),
                    fold.published_through(),
                    if fold.released() { "released" } else { "not released" },
                )]);
            }
            None => text.extend([format!("  begins at offset {}: its records cannot be judged\n", journal.first)]),
        }
        text
    }
}

/// Generation and epoch of a record that carries them. A Claim's generation is its offset.
fn place(decoded: &Decoded) -> Option<(u64, u64)> {
    let Decoded::Record(record) = decoded else { return None };
    let (generation, epoch) = match record {
        JournalRecord::Claim(_) => return None,
        JournalRecord::Delta(delta) => (delta.generation, delta.epoch),
        JournalRecord::Commit(commit) => (commit.generation, commit.epoch),
        JournalRecord::Snapshot(snapshot) => (snapshot.generation, snapshot.epoch),
        JournalRecord::Release(release) => (release.generation, release.epoch),
    };
    Some((generation.get(), epoch.get()))
}

fn details(decoded: &Decoded) -> String {
    let Decoded::Record(record) = decoded else { return String::new() };
    match record {
        JournalRecord::Claim(claim) => {
            let replaces = claim.replaces.map_or("nobody".into(), |generation| generation.to_string());
            format!("replaces={replaces} host={:?} directory={:?}", claim.owner.host, claim.owner.directory)
        }
        JournalRecord::Delta(delta) => format!("part={} of {}", delta.part, delta.parts),
        JournalRecord::Commit(commit) => {
            let body = match &commit.body {
                CommitBody::Inline(body) => format!("body_bytes={}", body.len()),
                CommitBody::Parts { parts, .. } => format!("body_parts={parts}"),
            };
            let offsets: Vec<String> = commit.offsets.iter().map(|(queue, next)| format!("{queue}={next}")).collect();
            format!("published_through={} {body} offsets {}", commit.published_through, offsets.join(" "))
        }
        JournalRecord::Snapshot(snapshot) => format!("through={}", snapshot.through),
        JournalRecord::Release(_) => String::new(),
    }
}
