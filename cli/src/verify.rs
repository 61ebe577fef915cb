//! `onceflow verify`: is everything that a job decided to write in the topic?

use crate::channels::{self, Channels};
use crate::journal::{self, Journal};
use crate::open::LogArgs;
use crate::output::{Output, table};
use clap::Args as ClapArgs;
use onceflow::log::{Log, ReadLimit};
use onceflow::topics;
use onceflow::txn::ChannelKey;
use onceflow::types::{Channel, Error, ErrorKind, Name, Offset, Partition, Result, Sequence, TaskId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    log: LogArgs,
    /// The topic
    #[arg(long)]
    topic: String,
    /// The job id
    #[arg(long)]
    job: String,
    /// Compare with the journals of this subtopology, also when none of its messages is found; those of messages that
    /// are found are used in any case
    #[arg(long = "subtopology", value_name = "NAME")]
    subtopologies: Vec<String>,
}

/// What was found in the topic.
#[derive(Default)]
struct Audit {
    messages: u64,
    foreign: u64,
    channels: Channels,
    /// By channel: the next sequence of what is published and proven, and of what is decided.
    must: BTreeMap<ChannelKey, Sequence>,
    decided: BTreeMap<ChannelKey, Sequence>,
    /// Journals that are gone or have lost their beginning.
    unread: Vec<String>,
}

pub(crate) async fn run(args: Args, output: Output) -> Result<()> {
    let job = Name::job(&args.job)?;
    let log = args.log.open().await?;
    let mut audit = Audit::default();
    audit.topic(&*log, &args.topic, &job).await?;
    let found = audit.channels.keys().map(|key| key.task.subtopology.clone());
    let mut subtopologies: BTreeSet<Name> = found.collect();
    for name in &args.subtopologies {
        subtopologies.insert(Name::new(name)?);
    }
    audit.journals(&*log, &job, &args.topic, &subtopologies).await?;
    if audit.missing() > 0 {
        // A running job may have gone on between topic and journals.
        audit.topic(&*log, &args.topic, &job).await?;
    }
    output.print(&audit.json(&args), &audit.text(&args))?;
    match audit.missing() {
        0 => Ok(()),
        missing => Err(Error::data_loss(format!("messages are missing: topic={} missing={missing}", args.topic))),
    }
}

impl Audit {
    async fn topic(&mut self, log: &dyn Log, topic: &str, job: &Name) -> Result<()> {
        (self.messages, self.foreign) = (0, 0);
        self.channels.clear();
        for partition in log.partitions(topic).await? {
            self.queue(log, &partition, job).await?;
        }
        Ok(())
    }

    async fn queue(&mut self, log: &dyn Log, partition: &Partition, job: &Name) -> Result<()> {
        let range = log.offsets(partition).await?;
        let limit = ReadLimit { records_max: 4_096, bytes_max: 4 << 20, wait_max: Duration::from_secs(1) };
        let mut next = range.first;
        while next < range.next {
            let batch = log.read(partition, next, limit).await?;
            for record in batch.iter() {
                self.messages += 1;
                match onceflow::identity_of(record, usize::MAX).ok().flatten().filter(|identity| identity.is_of(job)) {
                    Some(identity) => {
                        let key = ChannelKey::of(&identity, partition);
                        channels::found(&mut self.channels, key, &identity, range.first == Offset::ZERO);
                    }
                    None => self.foreign += 1,
                }
            }
            next = batch.next_offset().unwrap_or(next);
        }
        Ok(())
    }

    async fn journals(&mut self, log: &dyn Log, job: &Name, topic: &str, subtopologies: &BTreeSet<Name>) -> Result<()> {
        for subtopology in subtopologies {
            let journal_topic = topics::journal(job, subtopology);
            let queues = match journal::queues(log, &journal_topic, &BTreeSet::new()).await {
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    self.unread.push(journal_topic);
                    continue;
                }
                other => other?,
            };
            for queue in queues {
                let journal = journal::read(log, &queue, |_| {}).await?;
                self.compare_with(&journal, &queue, subtopology, topic);
            }
        }
        Ok(())
    }

    fn compare_with(&mut self, journal: &Journal, queue: &Partition, subtopology: &Name, topic: &str) {
        let Some(fold) = &journal.fold else { return self.unread.push(queue.to_string()) };
        // A journal without a Claim belongs to a task that has never run.
        let Some(incarnation) = fold.incarnation() else { return };
        let task = TaskId { subtopology: subtopology.clone(), broker: queue.broker.clone(), queue: queue.queue };
        let key = |Channel { sink, target }: Channel| ChannelKey { incarnation, task: task.clone(), sink, target };
        let of_topic = |channel: &Channel| &*channel.target.topic == topic;
        for (channel, next) in journal.proven().into_iter().filter(|(channel, _)| of_topic(channel)) {
            self.must.insert(key(channel), next);
        }
        for (channel, next) in journal.decided().into_iter().filter(|(channel, _)| of_topic(channel)) {
            self.decided.insert(key(channel), next);
        }
    }

    /// The channels that are in the topic or must be.
    fn keys(&self) -> BTreeSet<&ChannelKey> {
        self.channels.keys().chain(self.must.keys()).chain(self.decided.keys()).collect()
    }

    fn line(&self, key: &ChannelKey) -> Line {
        let absent = channels::Channel::new(Sequence::ZERO);
        let channel = self.channels.get(key).unwrap_or(&absent);
        // Without a word from a journal, what lies below a message that is there must be there.
        let must = self.must.get(key).copied().unwrap_or(channel.end());
        let decided = self.decided.get(key).copied().unwrap_or(must).max(channel.end());
        let missing = channel.missing_below(must);
        let pending = channel.missing_below(decided).saturating_sub(missing);
        Line { next: channel.next, messages: channel.messages, duplicates: channel.duplicates, missing, pending }
    }

    fn missing(&self) -> u64 {
        self.keys().into_iter().map(|key| self.line(key).missing).sum()
    }

    fn json(&self, args: &Args) -> Value {
        let channels: Vec<Value> = self.keys().into_iter().map(|key| self.line(key).json(key)).collect();
        let sum = |name: &str| channels.iter().filter_map(|channel| channel.get(name)?.as_u64()).sum::<u64>();
        json!({
            "topic": args.topic,
            "job": args.job,
            "messages": self.messages,
            "foreign": self.foreign,
            "duplicates": sum("duplicates"),
            "missing": sum("missing"),
            "pending": sum("pending"),
            "journals_unread": self.unread,
            "channels": channels,
        })
    }

    fn text(&self, args: &Args) -> String {
        let head = ["task", "incarnation", "sink", "queue", "messages", "duplicates", "next", "missing", "pending"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut total = Line { next: Sequence::ZERO, messages: 0, duplicates: 0, missing: 0, pending: 0 };
        for key in self.keys() {
            let line = self.line(key);
            rows.push(line.row(key));
            total.messages += line.messages;
            total.duplicates += line.duplicates;
            total.missing += line.missing;
            total.pending += line.pending;
        }
        let mut text = table(&rows);
        text.extend([format!(
            "\ntopic {}: {} messages, {} of job {}, {} foreign\n{} duplicates, which a dedup reader drops; {} missing; {} decided and on their way\n",
            args.topic,
            self.messages,
            total.messages,
            args.job,
            self.foreign,
            total.duplicates,
            total.missing,
            total.pending,
        )]);
        if !self.unread.is_empty() {
            text.extend([format!(
                "cannot say whether ends of channels are missing, without {}\n",
                self.unread.join(", ")
            )]);
        }
        text
    }
}

/// One channel, judged.
struct Line {
    next: Sequence,
    messages: u64,
    duplicates: u64,
    missing: u64,
    pending: u64,
}

impl Line {
    fn json(&self, key: &ChannelKey) -> Value {
        json!({
            "task": key.task.to_string(),
            "incarnation": key.incarnation.to_string(),
            "sink": key.sink.as_str(),
            "queue": key.target.to_string(),
            "messages": self.messages,
            "duplicates": self.duplicates,
            "next": self.next.get(),
            "missing": self.missing,
            "pending": self.pending,
        })
    }

    fn row(&self, key: &ChannelKey) -> Vec<String> {
        let incarnation = key.incarnation.to_string();
        vec![
            key.task.to_string(),
            incarnation.chars().take(8).collect(),
            key.sink.to_string(),
            key.target.to_string(),
            self.messages.to_string(),
            self.duplicates.to_string(),
            self.next.to_string(),
            self.missing.to_string(),
            self.pending.to_string(),
        ]
    }
}
