//! Running values per key by an accumulator.

use super::keyed_stream::KeyedStream;
use super::placement::Placement;
use super::running::Running;
use crate::accumulator::{Accumulator, Avg, By, Max, Min};
use crate::codec::{Data, Key, StateValue};
use crate::processor::Number;
use crate::state::Entry;

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// The smallest so far of what `part` takes from each value. Floats will not do, as they have no order: take them in whole
    /// units, or say with [`reduce`](Self::reduce) what becomes of a NaN.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// numbers.min("smallest", |number| *number).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in ["5", "3", "4"] {
    ///     driver.send("in", number.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"5", b"3", b"3"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn min<V: StateValue + Data + Ord>(
        &self,
        name: &str,
        part: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Running<K, V> {
        self.accumulated(name, "min", By::<_, V, Min>::new(part))
    }

    /// The largest so far of what `part` takes from each value. For floats see [`min`](Self::min).
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// numbers.max("largest", |number| *number).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in ["5", "3", "6"] {
    ///     driver.send("in", number.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"5", b"5", b"6"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn max<V: StateValue + Data + Ord>(
        &self,
        name: &str,
        part: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Running<K, V> {
        self.accumulated(name, "max", By::<_, V, Max>::new(part))
    }

    /// The mean so far of what `number` takes from each value. A record whose sum is out of range, or for floats no finite
    /// number, goes to the error policy and changes nothing.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// numbers.avg("mean", |number| *number).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in ["5", "2"] {
    ///     driver.send("in", number.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"5.0", b"3.5"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn avg<N: Number>(&self, name: &str, number: impl Fn(&T) -> N + Send + Sync + 'static) -> Running<K, f64> {
        self.accumulated(name, "avg", By::<_, N, Avg>::new(number))
    }

    /// What an [`Accumulator`] makes of the values so far.
    ///
    /// ```
    /// # use onceflow::{Accumulator, StreamBuilder, codec::Json, testing::TestDriver, types::Result};
    /// /// How far apart the values are.
    /// struct Spread;
    ///
    /// impl Accumulator<i64> for Spread {
    ///     type State = (i64, i64);
    ///     type Output = i64;
    ///     fn first(&self, value: &i64) -> Result<(i64, i64)> {
    ///         Ok((*value, *value))
    ///     }
    ///     fn add(&self, state: &mut (i64, i64), value: &i64) -> Result<()> {
    ///         *state = (state.0.min(*value), state.1.max(*value));
    ///         Ok(())
    ///     }
    ///     fn merge(&self, state: &mut (i64, i64), other: &(i64, i64)) -> Result<()> {
    ///         *state = (state.0.min(other.0), state.1.max(other.1));
    ///         Ok(())
    ///     }
    ///     fn result(&self, state: &(i64, i64)) -> i64 {
    ///         state.1 - state.0
    ///     }
    /// }
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let numbers = builder.source("in", Json::<i64>::new()).key_by(|_| 0u8);
    /// numbers.aggregate_with("spread", Spread).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for number in ["5", "2", "4"] {
    ///     driver.send("in", number.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"0", b"3", b"3"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn aggregate_with<G: Accumulator<T>>(&self, name: &str, accumulator: G) -> Running<K, G::Output> {
        self.accumulated(name, "aggregate", accumulator)
    }

    fn accumulated<G: Accumulator<T>>(&self, name: &str, word: &'static str, accumulator: G) -> Running<K, G::Output> {
        self.per_key(name, word, move |entry: &mut Entry<'_, K, G::State>, value: &T| {
            if entry.get().is_none() {
                let first = accumulator.first(value)?;
                let result = accumulator.result(&first);
                entry.set(first);
                return Ok(result);
            }
            let state = entry.get_mut().ok_or_else(|| onceflow_types::Error::bug("a state is gone"))?;
            accumulator.add(state, value)?;
            Ok(accumulator.result(state))
        })
    }
}
