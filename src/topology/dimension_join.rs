//! The join with a dimension in a program.

use super::assembly::room;
use super::graph::Kind;
use super::keyed_stream::KeyedStream;
use super::stream::Stream;
use crate::codec::{Data, Key};
use crate::dimension::Dimension;
use crate::processor::DimensionJoin;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

impl<T: Data> Stream<T> {
    /// Joins each record with the row that a [`Dimension`] holds under its key. No repartition is needed, as every process
    /// holds all rows. A record without a key, `None`, matches nothing and is
    /// [counted](crate::stage::Counters::missing_keys).
    ///
    /// ```
    /// use onceflow::{Dimension, StreamBuilder, codec::Json, testing::TestDriver};
    /// use std::time::Duration;
    ///
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// let file = directory.path().join("rates.jsonl");
    /// std::fs::write(&file, "[\"EUR\",2]\n[\"USD\",3]\n").expect("a file");
    /// let rates = Dimension::file("rates", &file, Json::<(String, i64)>::new()).refresh(Duration::from_secs(60));
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("payments", Json::<(String, i64)>::new());
    /// let converted = payments.join_dimension(&rates, |(currency, _)| Some(currency.clone()));
    /// converted.left(|(_, amount), rate| rate.map(|rate| amount * rate)).sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("payments", br#"["EUR",10]"#)?;
    /// driver.send("payments", br#"["XXX",10]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"20".as_slice(), b"null"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join_dimension<K: Key + Sync, V: Data + Sync, F>(
        &self,
        dimension: &Dimension<K, V>,
        key: F,
    ) -> JoiningDimension<T, K, V, F>
    where
        F: Fn(&T) -> Option<K> + Send + Sync + 'static,
    {
        JoiningDimension { stream: self.clone(), dimension: dimension.clone(), key: Arc::new(key) }
    }
}

impl<K: Key, T: Data, P> KeyedStream<K, T, P> {
    /// As [`Stream::join_dimension`]; the results have the key of their records, whatever key the row was looked up by.
    ///
    /// ```
    /// use onceflow::{Dimension, StreamBuilder, codec::Json, testing::TestDriver};
    ///
    /// let names = Dimension::load("names", || Ok(vec![("EUR".to_owned(), "euro".to_owned())]));
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("payments", Json::<(u32, String)>::new()).key_by(|(card, _)| *card);
    /// let named = payments.join_dimension(&names, |_card, (_, currency)| Some(currency.clone()));
    /// named.inner(|(_, _), name| name.clone()).sink("out", "out", Json::new());
    ///
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("payments", br#"[7,"EUR"]"#)?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"[7,"euro"]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn join_dimension<D: Key + Sync, V: Data + Sync>(
        &self,
        dimension: &Dimension<D, V>,
        key: impl Fn(&K, &T) -> Option<D> + Send + Sync + 'static,
    ) -> JoiningKeyedDimension<K, T, P, D, V> {
        let key: PairKey<K, T, D> = Box::new(move |(own, value)| key(own, value));
        JoiningKeyedDimension { joining: self.stream.join_dimension(dimension, key), placement: PhantomData }
    }
}

/// A join with a dimension, before it is said what is made of its pairs; see [`Stream::join_dimension`].
pub struct JoiningDimension<T, K, V, F> {
    stream: Stream<T>,
    dimension: Dimension<K, V>,
    key: Arc<F>,
}

impl<T, K, V, F> JoiningDimension<T, K, V, F>
where
    T: Data,
    K: Key + Sync,
    V: Data + Sync,
    F: Fn(&T) -> Option<K> + Send + Sync + 'static,
{
    /// A result for each record whose key has a row.
    pub fn inner<O: Data>(self, result: impl Fn(&T, &V) -> O + Send + Sync + 'static) -> Stream<O> {
        self.by(move |value, row| Some(result(value, row?)))
    }

    /// A result for each record, with the row of its key, if there is one.
    pub fn left<O: Data>(self, result: impl Fn(&T, Option<&V>) -> O + Send + Sync + 'static) -> Stream<O> {
        self.by(move |value, row| Some(result(value, row)))
    }

    fn by<O: Data>(self, result: impl Fn(&T, Option<&V>) -> Option<O> + Send + Sync + 'static) -> Stream<O> {
        let JoiningDimension { stream, dimension, key } = self;
        let kind = Kind::Operator { word: "dimension join", label: Some(dimension.name().clone()) };
        let result = Arc::new(result);
        let node = stream.add(kind, None, move |assembly| {
            let (dimension, key, result) = (dimension.clone(), key.clone(), result.clone());
            let (out, next) = (vec![], assembly.next::<O>()?);
            Ok(room::<T>(DimensionJoin { dimension, rows: None, key, result, out, next }))
        });
        Stream::new(stream.graph(), node)
    }
}

/// The key of the row that a pair is to meet.
type PairKey<K, T, D> = Box<dyn Fn(&(K, T)) -> Option<D> + Send + Sync>;

/// A join of a keyed stream with a dimension, before it is said what is made of its pairs; see
/// [`KeyedStream::join_dimension`].
pub struct JoiningKeyedDimension<K, T, P, D, V> {
    joining: JoiningDimension<(K, T), D, V, PairKey<K, T, D>>,
    placement: PhantomData<fn() -> P>,
}

impl<K: Key, T: Data, P, D: Key + Sync, V: Data + Sync> JoiningKeyedDimension<K, T, P, D, V> {
    /// As [`JoiningDimension::inner`], of the value.
    pub fn inner<O: Data>(self, result: impl Fn(&T, &V) -> O + Send + Sync + 'static) -> KeyedStream<K, O, P> {
        KeyedStream::new(self.joining.inner(move |(key, value), row| (key.clone(), result(value, row))))
    }

    /// As [`JoiningDimension::left`], of the value.
    pub fn left<O: Data>(self, result: impl Fn(&T, Option<&V>) -> O + Send + Sync + 'static) -> KeyedStream<K, O, P> {
        KeyedStream::new(self.joining.left(move |(key, value), row| (key.clone(), result(value, row))))
    }
}

impl<K, T, P, D, V> fmt::Debug for JoiningKeyedDimension<K, T, P, D, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoiningKeyedDimension").field(&self.joining).finish()
    }
}

impl<T, K, V, F> fmt::Debug for JoiningDimension<T, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoiningDimension").field("dimension", &self.dimension).finish_non_exhaustive()
    }
}
