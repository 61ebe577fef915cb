//! The join with a dimension in a program.

use super::assembly::room;
use super::graph::Kind;
use super::stream::Stream;
use crate::codec::{Data, Key};
use crate::dimension::Dimension;
use crate::processor::DimensionJoin;
use std::fmt;
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

impl<T, K, V, F> fmt::Debug for JoiningDimension<T, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoiningDimension").field("dimension", &self.dimension).finish_non_exhaustive()
    }
}
