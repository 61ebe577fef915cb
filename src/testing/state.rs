//! The state that a test sees.

use super::{Seated, TestDriver};
use crate::codec::{Key, StateValue, decode_key, decode_state_value, encode_key};
use crate::state::{Found, TaskState, Types};
use crate::task::Stepped;
use onceflow_types::{Clock, Error, Result};

impl TestDriver {
    /// The committed value of a key in the state of an operator with one value per key, as
    /// [`Runtime::query`](crate::Runtime::query) finds it.
    ///
    /// # Errors
    /// `Invalid` when no operator with such state has that name, or its types are others.
    pub fn value<K: Key, V: StateValue>(&self, name: &str, key: &K) -> Result<Option<V>> {
        let mut bytes = vec![];
        encode_key(key, &mut bytes)?;
        for state in self.states_of(name)? {
            if let Found::Value(value) = state.look(name, Types::of::<K, V>(), &bytes, self.clock.now())? {
                return decode_state_value(&value).map(Some);
            }
        }
        Ok(None)
    }

    /// All keys and committed values of that state, task by task, each in the order of the keys' bytes.
    ///
    /// ```
    /// use onceflow::{StreamBuilder, codec::{Json, Utf8}, testing::TestDriver};
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let words = builder.source("in", Utf8).key_by(|word| word.clone()).partitioned_by_key();
    /// words.count("counts").sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for word in ["a", "b", "a"] {
    ///     driver.send("in", word.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.values::<String, u64>("counts")?, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    /// assert_eq!(driver.value::<String, u64>("counts", &"c".to_owned())?, None);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn values<K: Key, V: StateValue>(&self, name: &str) -> Result<Vec<(K, V)>> {
        let mut all = vec![];
        for state in self.states_of(name)? {
            for (key, value) in state.look_at_all(name, Types::of::<K, V>(), self.clock.now())? {
                all.push((decode_key(&key)?, decode_state_value(&value)?));
            }
        }
        Ok(all)
    }

    /// The state of the tasks of the operator `name`.
    fn states_of(&self, name: &str) -> Result<Vec<&TaskState>> {
        let tasks: Vec<&Seated> = self.tasks.iter().filter(|seated| seated.seat.plan.has_table(name)).collect();
        if tasks.is_empty() {
            return Err(Error::invalid(format!("no operator with state has this name: name={name}")));
        }
        Ok(tasks.into_iter().filter_map(|seated| seated.task.as_ref()).map(Stepped::state).collect())
    }
}
