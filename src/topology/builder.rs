//! The start of every program.

use super::assembly::Assembly;
use super::compile;
use super::graph::{Graph, Kind, Make, Node, SharedGraph, SourceClock};
use super::plan::{StartPolicy, Topology};
use super::stream::Stream;
use crate::codec::{Data, Decode};
use crate::processor::{self, ErrorPolicy, Generator, SourceTime};
use crate::time::{Watermark, millis};
use onceflow_types::{Error, Name, Result};
use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Builds a topology: sources first, then what follows from them.
///
/// ```
/// use onceflow::codec::Utf8;
/// use onceflow::StreamBuilder;
///
/// let builder = StreamBuilder::new("shout")?;
/// builder.source("lines", Utf8).map(|line| line.to_uppercase()).sink("loud", "lines-loud", Utf8);
/// let topology = builder.build()?;
/// assert_eq!(topology.subtopologies[0].name.as_str(), "lines");
/// # Ok::<(), onceflow::types::Error>(())
/// ```
pub struct StreamBuilder {
    graph: SharedGraph,
}

impl StreamBuilder {
    /// Starts the program of a job.
    ///
    /// # Errors
    /// `Invalid` for a job id that is not 1 to 64 of letters, digits, `_` and `-`.
    pub fn new(job_id: &str) -> Result<Self> {
        let job = Name::job(job_id)?;
        Ok(StreamBuilder { graph: Rc::new(RefCell::new(Graph { job, nodes: vec![], errors: vec![] })) })
    }

    /// Reads a topic. The source is named after it, unless [`Source::name`] says otherwise.
    ///
    /// ```
    /// use onceflow::{StartPolicy, StreamBuilder, codec::Utf8};
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("%RETRY%lines", Utf8).name("retried").start(StartPolicy::Earliest);
    /// lines.for_each(|line| println!("{line}"));
    /// assert_eq!(builder.build()?.subtopologies[0].sources[0].start, StartPolicy::Earliest);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn source<T: Data, C: Decode<T> + 'static>(&self, topic: &str, codec: C) -> Source<T> {
        let topic: Arc<str> = topic.into();
        let codec = Arc::new(codec);
        let make = move |assembly: &mut Assembly<'_>| make_source(&codec, assembly);
        let mut graph = self.graph.borrow_mut();
        // Whether the topic can be the name is known when the program is complete.
        let (name, named) = match Name::new(&topic) {
            Ok(name) => (name, true),
            Err(_) => (graph.job.clone(), false),
        };
        let node = graph.add(Node {
            kind: Kind::Source {
                name,
                topic,
                start: StartPolicy::default(),
                tags: None,
                subtopology: None,
                named,
                time: SourceClock::default(),
            },
            inputs: vec![],
            policy: Some(ErrorPolicy::Fail),
            make: Make::Head(Arc::new(make)),
        });
        Source { stream: Stream::new(&self.graph, node) }
    }

    /// Checks the program and cuts it into subtopologies.
    ///
    /// # Errors
    /// `Invalid` for the first thing that was wrong with it: a bad name or topic, a name used twice, no source.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("lines", Utf8).sink("no good", "out", Utf8);
    /// let error = builder.build().expect_err("a bad name");
    /// assert!(error.to_string().starts_with("name must be"));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn build(&self) -> Result<Topology> {
        let graph = self.graph.borrow();
        match graph.errors.first() {
            Some(error) => Err(Error::new(error.kind(), error.to_string())),
            None => compile::compile(&graph),
        }
    }
}

pub(super) fn make_source<T: Data, C: Decode<T> + 'static>(
    codec: &Arc<C>,
    assembly: &mut Assembly<'_>,
) -> Result<Box<dyn processor::Ingest>> {
    let tags = match assembly.kind()? {
        Kind::Source { tags, .. } => tags.clone(),
        _ => None,
    };
    let time = source_time(assembly)?;
    let (guard, next) = (assembly.guard()?, assembly.next()?);
    Ok(Box::new(processor::Source { codec: codec.clone(), guard, tags, time, decoded: vec![], next }))
}

/// How the present source makes its watermark, if somebody wants one.
fn source_time(assembly: &Assembly<'_>) -> Result<Option<SourceTime>> {
    if !assembly.is_timed() {
        return Ok(None);
    }
    let clock = match assembly.kind()? {
        Kind::Source { time, .. } => Some(*time),
        _ => None,
    };
    Ok(Some(SourceTime {
        input: assembly.own_input()?,
        born: clock.map(|clock| Generator::new(clock.out_of_orderness)),
        is_used: assembly.time_is_used(),
        idle_timeout: clock.and_then(|clock| clock.idle_timeout).map(millis),
        watermark: Watermark::NONE,
        last_record_at: None,
    }))
}

/// A source that was just added: a [`Stream`] whose source can still be told more.
pub struct Source<T> {
    stream: Stream<T>,
}

impl<T: Data> Source<T> {
    /// Names the source, when its topic will not do as a name. A name is at most 40 of letters, digits, `_` and `-`.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("%RETRY%lines", Utf8).name("retried").for_each(|line| println!("{line}"));
    /// assert_eq!(builder.build()?.subtopologies[0].name.as_str(), "retried");
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn name(self, new: &str) -> Self {
        let new = self.stream.graph().borrow_mut().name(new);
        self.change(|kind| {
            if let Kind::Source { name, named, .. } = kind {
                (*name, *named) = (new, true);
            }
        })
    }

    /// Where to start in queues without a committed offset.
    ///
    /// ```
    /// # use onceflow::{StartPolicy, StreamBuilder, codec::Utf8, types::Timestamp};
    /// let builder = StreamBuilder::new("job")?;
    /// let monday = StartPolicy::Timestamp(Timestamp::from_millis(1_704_067_200_000));
    /// builder.source("lines", Utf8).start(monday).for_each(|line| println!("{line}"));
    /// assert_eq!(builder.build()?.subtopologies[0].sources[0].start, monday);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn start(self, policy: StartPolicy) -> Self {
        self.change(|kind| {
            if let Kind::Source { start, .. } = kind {
                *start = policy;
            }
        })
    }

    /// Takes only messages with one of these tags, checked after they were read.
    ///
    /// ```
    /// use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("lines", Utf8).tags(["a", "b"]).sink("out", "out", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send_with("lines", 0, b"TAGS\x01b\x02", b"taken")?;
    /// driver.send_with("lines", 0, b"TAGS\x01c\x02", b"left out")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"taken"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn tags(self, wanted: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let wanted: Arc<[String]> = wanted.into_iter().map(Into::into).collect();
        self.change(|kind| {
            if let Kind::Source { tags, .. } = kind {
                *tags = Some(wanted);
            }
        })
    }

    /// How much older than the newest record before it a record may be and still be on time \[2 s\]: the watermark is the
    /// highest event time less this. Records that are older still are late for windows that are gone.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::Json, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let times = builder.source("in", Json::<i64>::new()).out_of_orderness(Duration::from_millis(5));
    /// let times = times.select_timestamp(|millis| Timestamp::from_millis(*millis)).key_by(|_| 0u8);
    /// let counts = times.window("counts", Windows::tumbling(Duration::from_millis(10))).count();
    /// counts.values().map(|window| window.value).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for time in [3, 14, 9, 15, 8] {
    ///     driver.send("in", time.to_string().as_bytes())?; // 14: the watermark is 9, 15: it is 10
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [b"2"]);
    /// assert_eq!(driver.counters().late, 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn out_of_orderness(self, bound: Duration) -> Self {
        self.change(|kind| {
            if let Kind::Source { time, .. } = kind {
                time.out_of_orderness = bound;
            }
        })
    }

    /// How long a queue may be silent until nobody waits for it \[2 s\], in processing time; `None`: for ever. What comes
    /// from it later is late if time has gone on without it.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, Windows, codec::{Json, Utf8}, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let times = |topic: &str, wait: Option<Duration>| {
    ///     let source = builder.source(topic, Json::<i64>::new()).out_of_orderness(Duration::ZERO).idle_timeout(wait);
    ///     source.select_timestamp(|millis| Timestamp::from_millis(*millis))
    /// };
    /// let both = times("busy", None).merge(&times("quiet", Some(Duration::from_secs(5)))).key_by(|_| 0u8);
    /// let counts = both.window("counts", Windows::tumbling(Duration::from_millis(10))).count();
    /// counts.values().map(|window| window.value).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("busy", b"3")?;
    /// driver.send("busy", b"10")?;
    /// driver.commit()?;
    /// assert!(driver.bodies("out").is_empty(), "the quiet topic may hold older records");
    /// driver.advance_time(Duration::from_secs(5))?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"1"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn idle_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = timeout.into();
        self.change(|kind| {
            if let Kind::Source { time, .. } = kind {
                time.idle_timeout = timeout;
            }
        })
    }

    /// Names the subtopology that this source belongs to.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("lines", Utf8).subtopology("intake").for_each(|line| println!("{line}"));
    /// assert_eq!(builder.build()?.subtopologies[0].name.as_str(), "intake");
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn subtopology(self, name: &str) -> Self {
        let name = self.stream.graph().borrow_mut().name(name);
        self.change(|kind| {
            if let Kind::Source { subtopology, .. } = kind {
                *subtopology = Some(name);
            }
        })
    }

    /// What to do with records that cannot be decoded.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).on_error(ErrorPolicy::dead_letter("in-bad"));
    /// numbers.sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"{")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("in-bad"), [b"{"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.set_policy(policy);
        self
    }

    fn change(self, change: impl FnOnce(&mut Kind)) -> Self {
        self.stream.change(|node| change(&mut node.kind));
        self
    }
}

impl<T> Deref for Source<T> {
    type Target = Stream<T>;

    fn deref(&self) -> &Stream<T> {
        &self.stream
    }
}

impl fmt::Debug for StreamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBuilder").field("job", &self.graph.borrow().job).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.stream).finish()
    }
}
