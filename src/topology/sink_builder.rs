//! What can be said about a sink.

use super::assembly::{Assembly, room};
use super::graph::{Kind, Make};
use super::plan::Delivery;
use super::stream::Stream;
use crate::codec::{Data, Encode};
use crate::processor::{Attributes, ErrorPolicy, Route, Sink};
use onceflow_types::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// A sink that was just added, to be told more: where messages go and what they carry.
pub struct SinkBuilder<T, C> {
    stream: Stream<T>,
    codec: Arc<C>,
    route: Route<T>,
    attributes: Attributes<T>,
}

impl<T: Data, C: Encode<T> + 'static> SinkBuilder<T, C> {
    pub(super) fn new(stream: &Stream<T>, name: &str, topic: &str, codec: C, route: Route<T>) -> Self {
        let name = stream.graph().borrow_mut().name(name);
        let kind = Kind::Sink { name, topic: topic.into(), delivery: Delivery::default() };
        let codec = Arc::new(codec);
        let (made, made_route) = (codec.clone(), route.clone());
        let node = stream.add(kind, Some(ErrorPolicy::Fail), move |assembly| {
            make_sink(&made, &made_route, &Attributes::new(), assembly)
        });
        SinkBuilder { stream: Stream::new(stream.graph(), node), codec, route, attributes: vec![] }
    }

    /// Chooses the queue by the stable hash of a key, so that messages of a key stay in order.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8);
    /// lines.sink("out", "out", Utf8).key(|line| line.clone());
    /// let mut driver = TestDriver::with_queues(&builder.build()?, &[("out", 4)])?;
    /// driver.send("in", b"c7")?;
    /// driver.send("in", b"c7")?;
    /// driver.commit()?;
    /// let messages = driver.read("out");
    /// assert_eq!(messages[0].queue, messages[1].queue);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn key<B: AsRef<[u8]>>(mut self, key: impl Fn(&T) -> B + Send + Sync + 'static) -> Self {
        self.route = Route::Key(Arc::new(move |value, to| {
            to.extend_from_slice(key(value).as_ref());
            Ok(())
        }));
        self.installed()
    }

    /// Chooses the queue by a function of the value and the number of queues. A queue that there is not is a record error.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8);
    /// lines.sink("out", "out", Utf8).queue(|line, queues| if line.starts_with('!') { queues - 1 } else { 0 });
    /// let mut driver = TestDriver::with_queues(&builder.build()?, &[("out", 4)])?;
    /// driver.send("in", b"!urgent")?;
    /// driver.commit()?;
    /// assert_eq!(driver.read("out")[0].queue, 3);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn queue(mut self, select: impl Fn(&T, u32) -> u32 + Send + Sync + 'static) -> Self {
        self.route = Route::Queue(Arc::new(select));
        self.installed()
    }

    /// The message's tag, by which consumers filter.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8);
    /// lines.sink("out", "out", Utf8).tag(|line| if line.len() > 9 { "long" } else { "short" });
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"hello")?;
    /// driver.commit()?;
    /// assert_eq!(driver.read("out")[0].property("TAGS"), Some("short".into()));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn tag<S: Into<String>>(self, tag: impl Fn(&T) -> S + Send + Sync + 'static) -> Self {
        self.attribute("TAGS", move |value| Some(tag(value).into()))
    }

    /// The message's keys (separated by spaces), by which it can be found in the broker's index.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let lines = builder.source("in", Utf8);
    /// lines.sink("out", "out", Utf8).message_keys(|line| line.clone());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"order-7")?;
    /// driver.commit()?;
    /// assert_eq!(driver.read("out")[0].property("KEYS"), Some("order-7".into()));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn message_keys<S: Into<String>>(self, keys: impl Fn(&T) -> S + Send + Sync + 'static) -> Self {
        self.attribute("KEYS", move |value| Some(keys(value).into()))
    }

    /// A property of the message; `None` leaves it out. A value with RocketMQ's separators (bytes 1 and 2) is a record
    /// error.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder
    ///     .source("in", Utf8)
    ///     .sink("out", "out", Utf8)
    ///     .property("length", |line| Some(line.len().to_string()));
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"hello")?;
    /// driver.commit()?;
    /// assert_eq!(driver.read("out")[0].property("length"), Some("5".into()));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn property(self, name: &str, value: impl Fn(&T) -> Option<String> + Send + Sync + 'static) -> Self {
        if name.is_empty() || name.bytes().any(|byte| byte <= 2) || name.starts_with("ONCEFLOW_") {
            let error = Error::invalid(format!("property cannot have this name: name={name:?}"));
            self.stream.graph().borrow_mut().errors.push(error);
        }
        self.attribute(name, value)
    }

    fn attribute(mut self, name: &str, value: impl Fn(&T) -> Option<String> + Send + Sync + 'static) -> Self {
        self.attributes.push((name.into(), Arc::new(value)));
        self.installed()
    }

    /// How messages reach consumers.
    ///
    /// ```
    /// # use onceflow::{Delivery, StreamBuilder, codec::Utf8};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).sink("out", "out", Utf8).delivery(Delivery::Outbox { framed: false });
    /// assert_eq!(builder.build()?.subtopologies[0].sinks[0].delivery, Delivery::Outbox { framed: false });
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn delivery(self, mode: Delivery) -> Self {
        self.stream.change(|node| {
            if let Kind::Sink { delivery, .. } = &mut node.kind {
                *delivery = mode;
            }
        });
        self
    }

    /// What to do with values that cannot be encoded, or make a message that the broker would refuse.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Utf8, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// builder.source("in", Utf8).map(|line| line.trim().to_owned()).sink("out", "out", Utf8).on_error(ErrorPolicy::Skip);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"   ")?; // RocketMQ carries no empty body
    /// driver.commit()?;
    /// assert_eq!(driver.counters().skipped, 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.set_policy(policy);
        self
    }

    /// Makes the node build what was said so far.
    fn installed(self) -> Self {
        let (codec, route, attributes) = (self.codec.clone(), self.route.clone(), self.attributes.clone());
        let make = move |assembly: &mut Assembly<'_>| make_sink(&codec, &route, &attributes, assembly);
        self.stream.change(|node| node.make = Make::Room(Arc::new(make)));
        self
    }
}

fn make_sink<T: Data, C: Encode<T> + 'static>(
    codec: &Arc<C>,
    route: &Route<T>,
    attributes: &Attributes<T>,
    assembly: &mut Assembly<'_>,
) -> Result<Box<dyn std::any::Any>> {
    let (sink, guard) = (assembly.sink()?, assembly.guard()?);
    Ok(room::<T>(Sink::new(codec.clone(), sink, route.clone(), attributes.clone(), guard)))
}

impl<T, C> fmt::Debug for SinkBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SinkBuilder").field(&self.stream).finish()
    }
}
