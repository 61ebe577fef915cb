//! What can be said about an operator with state, and about a repartition.

use super::graph::{Kind, Node, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Together};
use crate::codec::{Data, Key, StateValue};
use crate::processor::{Emit, ErrorPolicy, PerKeyOptions};
use crate::state::{Migration, TimeToLive};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The stream behind an operator with state.
pub struct Running<K, O> {
    pub(super) stream: KeyedStream<K, O, Together>,
    /// The writing half of the repartition that the operator brought with it.
    pub(super) write: Option<NodeId>,
}

impl<K: Key, O: Data> Running<K, O> {
    /// When to put values out.
    ///
    /// ```
    /// # use onceflow::{Emit, StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone());
    /// words.count("counts").emit(Emit::PerEpoch).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"a")?;
    /// driver.send("in", b"a")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["a",2]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn emit(self, emit: Emit) -> Self {
        self.change(|options| options.emit = emit)
    }

    /// How many entries of the state are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`]](crate::state::CACHE_ENTRIES_DEFAULT).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.len());
    /// words.count("counts").cache_entries(1_000).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"ab")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[2,1]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.change(|options| options.cache_entries = entries_max)
    }

    /// What to do with records that the operator cannot work on, its own repartition included.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let sums = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8).sum("sums", |number| *number);
    /// sums.on_error(ErrorPolicy::dead_letter("out-of-range")).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in [i64::MAX, 1, -7] {
    ///     driver.send("in", number.to_string().as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out").len(), 2);
    /// assert_eq!(driver.bodies("out-of-range").len(), 1);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.stream.set_policy_with(self.write, policy);
        self
    }

    /// How long the value of a key lives \[for ever\]: a key that is not used any more is forgotten, so that state does not
    /// grow. An example is at [`TimeToLive`]. Values from before there was a time to live begin to age when they are used
    /// next. Which time it goes by must not be changed under one name.
    pub fn time_to_live(self, time_to_live: TimeToLive) -> Self {
        self.change(|options| options.time_to_live = Some(time_to_live))
    }

    /// How values that an earlier program wrote become values of the present type; an example is at [`Migration`]. `A` is the
    /// operator's type of state: what [`aggregate`](KeyedStream::aggregate) puts out, what [`scan`](KeyedStream::scan)
    /// begins with, the [`State`](crate::Accumulator::State) of an accumulator.
    ///
    /// Building the topology fails with `Invalid` when `A` is another type than that.
    pub fn migration<A: StateValue>(self, migration: Migration<A>) -> Self {
        self.change(|options| options.migration = Some(Arc::new(migration)))
    }

    fn change(self, change: impl FnOnce(&mut PerKeyOptions)) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::PerKey { options, .. } = &mut node.kind {
                change(options);
            }
        });
        self
    }
}

/// The stream behind a repartition topic.
pub struct Repartitioned<K, T> {
    pub(super) stream: KeyedStream<K, T, Together>,
    pub(super) write: NodeId,
}

impl<K: Key, T: Data> Repartitioned<K, T> {
    pub(super) fn into_input(self) -> Input<K, T> {
        Input { stream: self.stream.stream, write: Some(self.write) }
    }

    /// The number of queues of the topic [8]: how many tasks share the work behind it. Fixed once the job has run.
    ///
    /// ```
    /// # use onceflow::{ErrorPolicy, StreamBuilder, codec::{Json, Utf8}};
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone());
    /// words.repartition("by-word").queues(32).on_error(ErrorPolicy::Skip).count("counts");
    /// let topology = builder.build()?;
    /// let repartition = topology.subtopologies.iter().flat_map(|part| &part.sinks).next();
    /// assert_eq!(repartition.and_then(|sink| sink.queues), Some(32));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn queues(self, number: u32) -> Self {
        self.change(|node| {
            if let Kind::RepartitionWrite { queues, .. } = &mut node.kind {
                *queues = number;
            }
        })
    }

    /// What to do with records that cannot be written to the topic.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.change(|node| node.policy = Some(policy))
    }

    fn change(self, change: impl FnOnce(&mut Node)) -> Self {
        if let Some(node) = self.stream.stream.graph().borrow_mut().node_mut(self.write) {
            change(node);
        }
        self
    }
}

macro_rules! handle {
    ($name:ident) => {
        impl<K, T> Deref for $name<K, T> {
            type Target = KeyedStream<K, T, Together>;

            fn deref(&self) -> &KeyedStream<K, T, Together> {
                &self.stream
            }
        }

        impl<K, T> fmt::Debug for $name<K, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.stream).finish()
            }
        }
    };
}
handle!(Running);
handle!(Repartitioned);
