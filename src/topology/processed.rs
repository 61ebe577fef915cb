//! A user's processor in a program.

use super::assembly::{Assembly, room};
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement, Together};
use super::stream::Stream;
use crate::codec::{Data, Key};
use crate::process::{Processor, SideBuffer, SideOutput};
use crate::processor::{ErrorPolicy, ProcessOptions, ProcessRoom};
use crate::state::CACHE_ENTRIES_DEFAULT;
use onceflow_types::{Error, Result};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// Runs a program of your own per key, with state, timers and several outputs; see [`process`](crate::process). `make` makes
    /// one processor for each task, and `name` is the name of the operator, under which its state is kept.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, process::{Process, Processor, Setup, ValueState}, testing::TestDriver, types::Result};
    /// /// What each payment adds to the largest one before it.
    /// #[derive(Default)]
    /// struct Rise {
    ///     largest: ValueState<i64>,
    /// }
    ///
    /// impl Processor<String, i64> for Rise {
    ///     type Output = i64;
    ///     fn open(&mut self, setup: &mut Setup<'_, String>) -> Result<()> {
    ///         self.largest = setup.value("largest")?;
    ///         Ok(())
    ///     }
    ///     fn process(&mut self, cents: i64, cx: &mut Process<'_, String, i64>) -> Result<()> {
    ///         let mut largest = cx.value(&self.largest)?;
    ///         let rise = cents - largest.get().copied().unwrap_or(0);
    ///         if rise > 0 {
    ///             largest.set(cents);
    ///             cx.emit(rise);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("in", Json::<(String, i64)>::new()).key_by(|(card, _)| card.clone());
    /// payments.map_values(|(_, cents)| cents).process("rise", Rise::default).sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for payment in [r#"["c7",5]"#, r#"["c7",3]"#, r#"["c7",9]"#] {
    ///     driver.send("in", payment.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["c7",5]"#, br#"["c7",4]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn process<R: Processor<K, T>>(
        &self,
        name: &str,
        make: impl Fn() -> R + Send + Sync + 'static,
    ) -> Processed<K, R::Output> {
        let Input { stream: input, write } = P::together(self, name);
        let table = input.graph().borrow_mut().name(name);
        let options = ProcessOptions { table, cache_entries: CACHE_ENTRIES_DEFAULT };
        let make = Arc::new(make);
        let node = input
            .add(Kind::Process { options }, Some(ErrorPolicy::Fail), move |assembly| made::<K, T, R>(make(), assembly));
        Processed { stream: KeyedStream::new(Stream::new(input.graph(), node)), node, write }
    }
}

fn made<K: Key, T: Data, R: Processor<K, T>>(processor: R, assembly: &mut Assembly<'_>) -> Result<Box<dyn Any>> {
    let Kind::Process { options } = assembly.kind()? else {
        return Err(Error::bug("node is not a processor"));
    };
    let (guard, time) = (assembly.guard()?, (assembly.clock()?, assembly.own_input()?));
    let (sides, next) = (assembly.sides()?, assembly.next::<(K, R::Output)>()?);
    Ok(room::<(K, T)>(ProcessRoom::new(processor, options, guard, time, sides, next)))
}

/// The stream behind a processor.
pub struct Processed<K, O> {
    stream: KeyedStream<K, O, Together>,
    node: NodeId,
    /// The writing half of the repartition that the operator brought with it.
    write: Option<NodeId>,
}

impl<K: Key, O: Data> Processed<K, O> {
    /// What the processor emits to another output.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, process::{Process, Processor, SideOutput}, testing::TestDriver, types::Result};
    /// const ODD: SideOutput<i64> = SideOutput::new(1);
    /// struct Even;
    /// impl Processor<u8, i64> for Even {
    ///     type Output = i64;
    ///     fn process(&mut self, number: i64, cx: &mut Process<'_, u8, i64>) -> Result<()> {
    ///         if number % 2 != 0 {
    ///             return cx.emit_to(&ODD, number);
    ///         }
    ///         cx.emit(number);
    ///         Ok(())
    ///     }
    /// }
    /// # let builder = StreamBuilder::new("job")?;
    /// # let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// let even = numbers.process("even", || Even);
    /// even.values().sink("even", "even", Json::new());
    /// even.side(&ODD).values().sink("odd", "odd", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"4")?;
    /// driver.send("in", b"7")?;
    /// driver.commit()?;
    /// assert_eq!((driver.bodies("even"), driver.bodies("odd")), (vec![b"4".to_vec()], vec![b"7".to_vec()]));
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn side<U: Data>(&self, output: &SideOutput<U>) -> KeyedStream<K, U, Together> {
        let graph = self.stream.stream.graph();
        let port = output.port;
        // One node takes an output, whoever uses it then.
        let taken = graph.borrow().nodes.iter().position(|node| {
            matches!(node.kind, Kind::Port { port: other, .. } if other == port) && node.inputs == [self.node]
        });
        let add = || {
            self.stream.stream.add(Kind::Port { word: "side", port }, None, |assembly| {
                let next = assembly.next::<(K, U)>()?;
                Ok(Box::new(SideBuffer::boxed(next)))
            })
        };
        let node = taken.map_or_else(add, NodeId);
        KeyedStream::new(Stream::new(graph, node))
    }

    /// What to do with records that the processor cannot work on, its own repartition included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        self.stream.stream.set_policy_with(self.write, policy);
        self
    }

    /// How many entries of each state are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`](crate::state::CACHE_ENTRIES_DEFAULT)].
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::Process { options } = &mut node.kind {
                options.cache_entries = entries_max;
            }
        });
        self
    }
}

impl<K, O> Deref for Processed<K, O> {
    type Target = KeyedStream<K, O, Together>;

    fn deref(&self) -> &KeyedStream<K, O, Together> {
        &self.stream
    }
}

impl<K, O> fmt::Debug for Processed<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Processed").field(&self.stream).finish()
    }
}
