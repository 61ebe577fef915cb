//! Runs a topology in memory, without broker, threads or clock.

use crate::output::{Output, SourcePosition};
use crate::stage::{Context, Counters, SourceBatch, SourceRecord, Stage};
use crate::state::TaskState;
use crate::topology::{Subtopology, Topology};
use onceflow_log::find_property;
use onceflow_storage::{MemoryStore, Overlay};
use onceflow_types::{
    CommitPoint, Epoch, Error, Generation, Incarnation, Nonce, Offset, Offsets, Partition, Result, Timestamp,
};
use std::collections::BTreeMap;
use std::fmt;

/// A topology, its topics and the state of its tasks, in memory. Topics have one queue unless told otherwise; internal
/// topics have theirs.
///
/// ```
/// use onceflow::codec::{Json, Utf8};
/// use onceflow::{StreamBuilder, testing::TestDriver};
///
/// let builder = StreamBuilder::new("word-count")?;
/// let words = builder.source("words", Utf8).key_by(|word| word.clone());
/// words.count("counts").sink("totals", "totals", Json::new());
///
/// let mut driver = TestDriver::new(&builder.build()?)?;
/// driver.send("words", b"once")?;
/// driver.commit()?;
/// driver.send("words", b"once")?;
/// driver.process()?;
/// driver.abort()?; // as a crash before the commit
/// driver.commit()?;
/// assert_eq!(driver.bodies("totals"), [br#"["once",1]"#, br#"["once",2]"#]);
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct TestDriver {
    topics: BTreeMap<String, Topic>,
    tasks: Vec<Task>,
    now: Timestamp,
    batch_records_max: usize,
    counters: Counters,
}

/// A message in a topic of a [`TestDriver`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestMessage {
    /// The queue it is in.
    pub queue: u32,
    /// Its body.
    pub body: Vec<u8>,
    /// Its properties, encoded.
    pub properties: Vec<u8>,
    /// Its event time: when it was sent, or what the record had that it was made from.
    pub timestamp: Timestamp,
    /// The source record it was made from.
    pub source: Option<SourcePosition>,
}

#[derive(Default)]
struct Topic {
    queues: Vec<Queue>,
}

struct Queue {
    partition: Partition,
    messages: Vec<TestMessage>,
}

/// One subtopology on one queue.
struct Task {
    plan: Subtopology,
    queue: u32,
    stage: Box<dyn Stage>,
    /// Taken only while it is opened again.
    state: TaskState,
    output: Output,
    epoch: Epoch,
    /// The next message to read and the next one after the last commit, by source.
    positions: Vec<usize>,
    committed: Vec<usize>,
}

impl TestDriver {
    /// Starts a topology with empty topics and state.
    ///
    /// # Errors
    /// What opening a stage returns.
    pub fn new(topology: &Topology) -> Result<Self> {
        TestDriver::with_queues(topology, &[])
    }

    /// As [`new`](Self::new), with a number of queues for some topics.
    ///
    /// # Errors
    /// What opening a stage returns.
    pub fn with_queues(topology: &Topology, queues: &[(&str, u32)]) -> Result<Self> {
        let mut topics = topics_of(topology, queues);
        let mut tasks = vec![];
        for plan in &topology.subtopologies {
            let counts = plan.sources.iter().filter_map(|source| topics.get(&*source.topic));
            let tasks_of_plan = counts.map(|topic| topic.queues.len()).max().unwrap_or(0);
            for queue in 0..tasks_of_plan {
                tasks.push(Task::new(plan, u32::try_from(queue).unwrap_or(u32::MAX), &mut topics)?);
            }
        }
        let now = Timestamp::from_millis(0);
        Ok(TestDriver { topics, tasks, now, batch_records_max: usize::MAX, counters: Counters::default() })
    }

    /// Bounds the records that a stage gets in one call. What comes out must not depend on it.
    pub fn batch_records_max(&mut self, records: usize) {
        self.batch_records_max = records.max(1);
    }

    /// Sets the processing time, which is also the time at which sent messages are born.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Sends a message to queue 0.
    ///
    /// # Errors
    /// `Invalid` when the topology neither reads nor writes the topic.
    pub fn send(&mut self, topic: &str, body: &[u8]) -> Result<()> {
        self.send_with(topic, 0, b"", body)
    }

    /// Sends a message with encoded properties to a queue.
    ///
    /// # Errors
    /// `Invalid` when there is no such queue.
    pub fn send_with(&mut self, topic: &str, queue: u32, properties: &[u8], body: &[u8]) -> Result<()> {
        let target = self.topics.get_mut(topic).and_then(|topic| topic.queues.get_mut(queue as usize));
        let Some(target) = target else {
            return Err(Error::invalid(format!("no such queue: topic={topic} queue={queue}")));
        };
        let (body, properties) = (body.to_vec(), properties.to_vec());
        target.messages.push(TestMessage { queue, body, properties, timestamp: self.now, source: None });
        Ok(())
    }

    /// Lets every task work on what there is to read, without committing.
    ///
    /// # Errors
    /// The first error of a stage. The driver can go on only after [`abort`](Self::abort).
    pub fn process(&mut self) -> Result<()> {
        for task in &mut self.tasks {
            task.process(&self.topics, self.now, self.batch_records_max, &mut self.counters)?;
        }
        Ok(())
    }

    /// Processes and commits until nothing moves any more, repartition topics included.
    ///
    /// # Errors
    /// The first error of a stage. The driver can go on only after [`abort`](Self::abort).
    pub fn commit(&mut self) -> Result<()> {
        loop {
            self.process()?;
            let mut moved = false;
            for task in self.tasks.iter_mut().filter(|task| task.positions != task.committed) {
                task.commit(&mut self.topics, self.now, &mut self.counters)?;
                moved = true;
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Drops what is not committed, as a crash does, and opens every task again.
    ///
    /// # Errors
    /// What opening a stage returns.
    pub fn abort(&mut self) -> Result<()> {
        let tasks = std::mem::take(&mut self.tasks);
        self.tasks = tasks.into_iter().map(Task::reopen).collect::<Result<_>>()?;
        Ok(())
    }

    /// All messages of a topic, queue by queue.
    pub fn read(&self, topic: &str) -> Vec<TestMessage> {
        let queues = self.topics.get(topic).map_or(&[][..], |topic| &topic.queues);
        queues.iter().flat_map(|queue| queue.messages.iter().cloned()).collect()
    }

    /// The bodies of [`read`](Self::read).
    pub fn bodies(&self, topic: &str) -> Vec<Vec<u8>> {
        self.read(topic).into_iter().map(|message| message.body).collect()
    }

    /// The state of a task, in the order of subtopologies and queues.
    #[cfg(test)]
    pub(crate) fn state_mut(&mut self, task: usize) -> Option<&mut TaskState> {
        self.tasks.get_mut(task).map(|task| &mut task.state)
    }

    /// What all stages did so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

fn topics_of(topology: &Topology, queues: &[(&str, u32)]) -> BTreeMap<String, Topic> {
    let given = |topic: &str| queues.iter().find(|(name, _)| *name == topic).map(|(_, queues)| *queues);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for plan in &topology.subtopologies {
        for sink in &plan.sinks {
            counts.insert(sink.topic.to_string(), sink.queues.or(given(&sink.topic)).unwrap_or(1));
        }
        for source in plan.sources.iter().filter(|source| !source.internal) {
            counts.insert(source.topic.to_string(), given(&source.topic).unwrap_or(1));
        }
    }
    let topic = |name: &str, queues: u32| Topic {
        queues: (0..queues)
            .map(|queue| Queue { partition: Partition::new(name, "test", queue), messages: vec![] })
            .collect(),
    };
    counts.into_iter().map(|(name, queues)| (name.clone(), topic(&name, queues))).collect()
}

impl Task {
    fn new(plan: &Subtopology, queue: u32, topics: &mut BTreeMap<String, Topic>) -> Result<Task> {
        let queues_of = |topic: &str| topics.get(topic).map_or(0, |topic| topic.queues.len());
        let queues: Vec<u32> =
            plan.sinks.iter().map(|sink| u32::try_from(queues_of(&sink.topic)).unwrap_or(u32::MAX)).collect();
        let state = TaskState::open(Overlay::new(Box::new(MemoryStore::default())))?;
        let task = Task {
            plan: plan.clone(),
            queue,
            stage: (plan.build)(),
            state,
            output: Output::new(&queues),
            epoch: Epoch::ZERO,
            positions: vec![0; plan.sources.len()],
            committed: vec![0; plan.sources.len()],
        };
        task.opened()
    }

    fn opened(mut self) -> Result<Task> {
        self.stage.open(&mut self.state)?;
        Ok(self)
    }

    fn reopen(self) -> Result<Task> {
        let Task { plan, queue, state, mut output, epoch, committed, .. } = self;
        let mut overlay = state.into_overlay();
        overlay.discard();
        output.clear();
        let state = TaskState::open(overlay)?;
        let positions = committed.clone();
        Task { queue, stage: (plan.build)(), plan, state, output, epoch, positions, committed }.opened()
    }

    fn process(
        &mut self,
        topics: &BTreeMap<String, Topic>,
        now: Timestamp,
        batch_records_max: usize,
        counters: &mut Counters,
    ) -> Result<()> {
        for (at, (source, position)) in self.plan.sources.iter().zip(&mut self.positions).enumerate() {
            let queue = topics.get(&*source.topic).and_then(|topic| topic.queues.get(self.queue as usize));
            let Some(queue) = queue else { continue };
            let unread = queue.messages.get(*position..).unwrap_or_default();
            for messages in unread.chunks(batch_records_max.min(unread.len().max(1))) {
                let records = messages.iter().zip(*position..).map(|(message, offset)| source_record(message, offset));
                let batch = SourceBatch { partition: &queue.partition, records: records.collect() };
                *position += messages.len();
                let mut cx = Context::new(&mut self.state, &mut self.output, counters, now, self.queue);
                self.stage.process(at, &batch, &mut cx)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, topics: &mut BTreeMap<String, Topic>, now: Timestamp, counters: &mut Counters) -> Result<()> {
        let mut cx = Context::new(&mut self.state, &mut self.output, counters, now, self.queue);
        self.stage.seal(&mut cx)?;
        self.epoch = self.epoch.next();
        self.state.overlay_mut().commit(&commit_point(self.epoch.get()))?;
        self.committed.clone_from(&self.positions);
        for (sink, output) in self.plan.sinks.iter().zip(self.output.sinks()) {
            let Some(topic) = topics.get_mut(&*sink.topic) else { continue };
            for (queue, output) in topic.queues.iter_mut().zip(output.queues()) {
                queue.messages.extend(output.iter().map(|message| TestMessage {
                    queue: queue.partition.queue,
                    body: message.body.to_vec(),
                    properties: message.properties.to_vec(),
                    timestamp: message.timestamp,
                    source: message.source,
                }));
            }
        }
        self.output.clear();
        Ok(())
    }
}

fn source_record(message: &TestMessage, offset: usize) -> SourceRecord<'_> {
    SourceRecord {
        body: Ok(&message.body),
        properties: &message.properties,
        timestamp: message.timestamp,
        offset: Offset::new(offset as u64),
    }
}

/// A point that a store accepts for `epoch`, with nothing else in it.
pub(crate) fn commit_point(epoch: u64) -> CommitPoint {
    CommitPoint {
        incarnation: Incarnation::new(1),
        generation: Generation::ZERO,
        nonce: Nonce::new(1),
        epoch: Epoch::new(epoch),
        offsets: Offsets::default(),
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: BTreeMap::new(),
        tails: Offsets::default(),
        published_through: Epoch::ZERO,
        commit_offset: Offset::ZERO,
        commit_checksum: 0,
        unpublished: vec![],
        journal_next: Offset::ZERO,
    }
}

impl TestMessage {
    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<String> {
        find_property(&self.properties, name).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

impl fmt::Debug for TestDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDriver").field("tasks", &self.tasks.len()).field("now", &self.now).finish_non_exhaustive()
    }
}
