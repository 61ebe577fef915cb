//! Tables, and joins of streams with them.

use super::assembly::room;
use super::graph::{Kind, NodeId};
use super::keyed_stream::KeyedStream;
use super::placement::{Input, Placement, Together};
use super::sides::{Sides, set_policy};
use super::stream::Stream;
use crate::codec::{Data, Key, StateValue};
use crate::processor::{ErrorPolicy, JoinKind, JoinOptions, JoinRule, Sided, TableJoin};
use crate::state::CACHE_ENTRIES_DEFAULT;
use onceflow_types::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// Takes the stream for the changes of a table: the last value of each key, in the order of the log. If a repartition is
    /// needed that brings keys together, its name is `<name>-table`. Streams are joined with it by
    /// [`join_table`](Self::join_table).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// let rates = builder.source("rates", Json::<(String, i64)>::new()).key_by(|(currency, _)| currency.clone());
    /// let rates = rates.map_values(|(_, rate)| rate).table("rates");
    /// let payments = builder.source("payments", Json::<(String, i64)>::new()).key_by(|(currency, _)| currency.clone());
    /// payments.join_table("worth", &rates).inner(|(_, cents), rate| cents * rate).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for rate in [r#"["EUR",3]"#, r#"["EUR",2]"#] {
    ///     driver.send("rates", rate.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// driver.send("payments", br#"["EUR",10]"#)?;
    /// driver.send("payments", br#"["XXX",10]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"20"], "the last rate counts, and where there is none, nothing comes");
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn table(&self, name: &str) -> Table<K, T> {
        let Input { stream, write } = P::together(self, &format!("{name}-table"));
        Table { changes: KeyedStream::new(stream).map_values(Some), write }
    }

    /// Joins each record with what a table holds under its key when the record comes; changes of the table alone give
    /// nothing. Between a stream and a table of different topics only the order in which a task reads them decides. `name` is
    /// the name of the operator, under which it keeps the table.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let cards = builder.source("cards", Json::<(u32, Option<String>)>::new()).key_by(|(card, _)| *card);
    /// let cards = cards.map_values(|(_, owner)| owner).table("cards").removed_by(Option::is_none);
    /// let uses = builder.source("uses", Json::<(u32, i64)>::new()).key_by(|(card, _)| *card);
    /// let named = uses.join_table("named", &cards).left(|(_, cents), owner| (*cents, owner.cloned().flatten()));
    /// named.values().sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for (card, cents) in [(br#"[7,"Ada"]"#.as_slice(), b"[7,100]".as_slice()), (b"[7,null]", b"[7,200]")] {
    ///     driver.send("cards", card)?;
    ///     driver.commit()?;
    ///     driver.send("uses", cents)?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [br#"[100,"Ada"]"#.as_slice(), b"[200,null]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join_table<R: Data>(&self, name: &str, table: &Table<K, R>) -> JoiningTable<K, T, R> {
        let mut sides = Sides::new(name, self, &table.changes);
        sides.writes.extend(table.write);
        JoiningTable(sides)
    }
}

/// The last value of each key of a stream. A handle: each [join](KeyedStream::join_table) keeps a table of its own.
pub struct Table<K, T> {
    /// `None` removes.
    changes: KeyedStream<K, Option<T>, Together>,
    write: Option<NodeId>,
}

impl<K: Key, T: Data> Table<K, T> {
    /// Which values remove the key's entry.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// let names = builder.source("names", Json::<(u32, String)>::new()).key_by(|(card, _)| *card);
    /// let names = names.map_values(|(_, name)| name).table("names").removed_by(String::is_empty);
    /// let uses = builder.source("uses", Json::<u32>::new()).key_by(|card| *card);
    /// uses.join_table("named", &names).left(|_, name| name.cloned()).values().sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// for name in [r#"[7,"Ada"]"#, r#"[7,""]"#] {
    ///     driver.send("names", name.as_bytes())?;
    ///     driver.commit()?;
    ///     driver.send("uses", b"7")?;
    ///     driver.commit()?;
    /// }
    /// assert_eq!(driver.bodies("out"), [br#""Ada""#.as_slice(), b"null"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    #[must_use]
    pub fn removed_by(self, is_removal: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        let changes = self.changes.map_values(move |value| value.filter(|value| !is_removal(value)));
        Table { changes, write: self.write }
    }
}

/// A join of a stream with a table, before it is said what is made of its pairs; see [`KeyedStream::join_table`].
pub struct JoiningTable<K, L, R>(Sides<K, L, Option<R>>);

impl<K: Key, L: Data, R: Data + StateValue> JoiningTable<K, L, R> {
    /// A result for each record whose key is in the table.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// # let builder = StreamBuilder::new("job")?;
    /// # let limits = builder.source("limits", Json::<(u32, i64)>::new()).key_by(|(card, _)| *card).table("limits");
    /// # let uses = builder.source("uses", Json::<(u32, i64)>::new()).key_by(|(card, _)| *card);
    /// let checked = uses.join_table("checked", &limits).inner(|(_, cents), (_, limit)| cents <= limit);
    /// checked.sink("out", "out", Json::new());
    /// # let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("limits", b"[7,100]")?;
    /// driver.commit()?;
    /// driver.send("uses", b"[7,50]")?;
    /// driver.send("uses", b"[8,50]")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"[7,true]"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn inner<O: Data>(self, result: impl Fn(&L, &R) -> O + Send + Sync + 'static) -> TableJoined<K, O> {
        self.by(JoinKind::Inner, move |left, right| Some(result(left?, right?)))
    }

    /// A result for each record, with what the table holds for it, if anything.
    pub fn left<O: Data>(self, result: impl Fn(&L, Option<&R>) -> O + Send + Sync + 'static) -> TableJoined<K, O> {
        self.by(JoinKind::Left, move |left, right| Some(result(left?, right)))
    }

    fn by<O: Data, F>(self, kind: JoinKind, function: F) -> TableJoined<K, O>
    where
        F: Fn(Option<&L>, Option<&R>) -> Option<O> + Send + Sync + 'static,
    {
        let (left, right) = self.0.marked(kind, Sided::Left, Sided::Right);
        let table = left.graph().borrow_mut().name(&self.0.name);
        let options = JoinOptions { table, kind, rule: JoinRule::Table, cache_entries: CACHE_ENTRIES_DEFAULT };
        let function = Arc::new(function);
        let node = left.add(Kind::Join { options }, Some(ErrorPolicy::Fail), move |assembly| {
            let Kind::Join { options } = assembly.kind()? else { return Err(Error::bug("node is not a join")) };
            let (function, guard) = (function.clone(), assembly.guard()?);
            Ok(room::<(K, Sided<L, Option<R>>)>(TableJoin::new(options, function, guard, assembly.next()?)))
        });
        right.flow_into(left.graph(), node);
        TableJoined { stream: KeyedStream::new(Stream::new(left.graph(), node)), writes: self.0.writes }
    }
}

/// The results of a join with a table: a [`KeyedStream`].
pub struct TableJoined<K, O> {
    stream: KeyedStream<K, O, Together>,
    writes: Vec<NodeId>,
}

impl<K: Key, O: Data> TableJoined<K, O> {
    /// What to do with records that the join cannot work on, its own repartitions and the table's included.
    pub fn on_error(self, policy: ErrorPolicy) -> Self {
        set_policy(&self.stream, &self.writes, policy);
        self
    }

    /// How many entries of the table are kept decoded in memory, at least one
    /// [[`CACHE_ENTRIES_DEFAULT`](crate::state::CACHE_ENTRIES_DEFAULT)].
    pub fn cache_entries(self, entries_max: usize) -> Self {
        self.stream.stream.change(|node| {
            if let Kind::Join { options } = &mut node.kind {
                options.cache_entries = entries_max;
            }
        });
        self
    }
}

impl<K, O> Deref for TableJoined<K, O> {
    type Target = KeyedStream<K, O, Together>;

    fn deref(&self) -> &KeyedStream<K, O, Together> {
        &self.stream
    }
}

impl<K, O> fmt::Debug for TableJoined<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableJoined").field(&self.stream).finish()
    }
}

impl<K, T> fmt::Debug for Table<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.changes).finish()
    }
}

impl<K, L, R> fmt::Debug for JoiningTable<K, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoiningTable").field(&self.0.name).finish()
    }
}
