//! Streams in named, typed branches.

use super::assembly::room;
use super::graph::Kind;
use super::stream::Stream;
use crate::codec::Data;
use crate::processor::Branch;
use std::fmt;
use std::sync::Arc;

/// The port of a branch for the records that it takes; the others are its stream.
const TAKEN: u32 = 1;

impl<T: Data> Stream<T> {
    /// Splits the stream into branches: each record goes to the first branch that takes it, in the order of the program.
    /// [`Split::rest`] are those that none took.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let mut lines = builder.source("in", Utf8).split();
    /// let numbers = lines.branch("numbers", |line| line.parse::<i64>().ok());
    /// let long = lines.branch_if("long", |line| line.len() > 5);
    /// numbers.map(|number| number * 2).sink("numbers", "numbers", Json::new());
    /// long.sink("long", "long", Utf8);
    /// lines.rest().sink("rest", "rest", Utf8);
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for line in ["7", "seventeen", "one", "1000000"] {
    ///     driver.send("in", line.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("numbers"), [b"14".as_slice(), b"2000000"]);
    /// assert_eq!(driver.bodies("long"), [b"seventeen"]);
    /// assert_eq!(driver.bodies("rest"), [b"one"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn split(&self) -> Split<T> {
        Split { rest: self.clone() }
    }
}

/// A stream that is being split; see [`Stream::split`].
pub struct Split<T> {
    rest: Stream<T>,
}

impl<T: Data> Split<T> {
    /// The next branch: what `take` makes of the records that no branch before took and for which it returns something.
    /// `name` is its name in the description of the topology; no state hangs on it.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// let mut lines = builder.source("in", Utf8).split();
    /// lines.branch("numbers", |line| line.parse::<i64>().ok()).sink("numbers", "numbers", Json::new());
    /// lines.branch("lengths", |line| Some(line.len())).sink("lengths", "lengths", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"1000")?;
    /// driver.send("in", b"a thousand")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("numbers"), [b"1000"]);
    /// assert_eq!(driver.bodies("lengths"), [b"10"], "the number was taken before");
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn branch<U: Data>(&mut self, name: &str, take: impl Fn(&T) -> Option<U> + Send + Sync + 'static) -> Stream<U> {
        let (take, graph) = (Arc::new(take), self.rest.graph().clone());
        let label = graph.borrow_mut().name(name).as_str().into();
        let node = self.rest.add(Kind::Operator { word: "branch", label: Some(label) }, None, move |assembly| {
            let (taken, rest) = (assembly.port::<U>(TAKEN)?, assembly.next::<T>()?);
            Ok(room::<T>(Branch::new(take.clone(), taken, rest)))
        });
        self.rest = Stream::new(&graph, node);
        let node = self.rest.add(Kind::Port { word: "taken", port: TAKEN }, None, |assembly| {
            let next = assembly.next::<U>()?;
            Ok(Box::new(next))
        });
        Stream::new(&graph, node)
    }

    /// The next branch: the records that no branch before took and for which `predicate` holds; see [`branch`](Self::branch).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// let mut lines = builder.source("in", Utf8).split();
    /// lines.branch_if("long", |line| line.len() > 3).sink("long", "long", Utf8);
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"seven")?;
    /// driver.send("in", b"six")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("long"), [b"seven"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn branch_if(&mut self, name: &str, predicate: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        self.branch(name, move |value| predicate(value).then(|| value.clone()))
    }

    /// The records that no branch took.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Utf8, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// let mut lines = builder.source("in", Utf8).split();
    /// lines.branch_if("long", |line| line.len() > 3).for_each(|_| ());
    /// lines.rest().sink("rest", "rest", Utf8);
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("in", b"seven")?;
    /// driver.send("in", b"six")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("rest"), [b"six"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn rest(self) -> Stream<T> {
        self.rest
    }
}

impl<T> fmt::Debug for Split<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Split").field(&self.rest).finish()
    }
}
