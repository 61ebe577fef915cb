//! The first record of each key.

use super::keyed_stream::KeyedStream;
use super::placement::Placement;
use super::running::Running;
use crate::codec::{Data, Key};
use crate::state::{Entry, TimeToLive};

impl<K: Key, T: Data, P: Placement<K, T>> KeyedStream<K, T, P> {
    /// The first record of each key within a time to live: the way to make payments that may be sent twice idempotent.
    ///
    /// [`TimeToLive::after_write`] counts from the first record, so that a key comes through once per time to live;
    /// [`TimeToLive::after_access`] counts from the last, so that a key that never rests never comes through again.
    ///
    /// ```
    /// # use onceflow::{StreamBuilder, codec::Json, state::TimeToLive, testing::TestDriver, types::Timestamp};
    /// # use std::time::Duration;
    /// let builder = StreamBuilder::new("job")?;
    /// let payments = builder.source("in", Json::<(String, i64)>::new());
    /// let payments = payments.select_timestamp(|(_, millis)| Timestamp::from_millis(*millis));
    /// let minute = TimeToLive::after_write(Duration::from_secs(60));
    /// payments.key_by(|(id, _)| id.clone()).distinct("once", minute).values().sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// for record in [r#"["p1",0]"#, r#"["p1",59999]"#, r#"["p2",59999]"#, r#"["p1",60000]"#] {
    ///     driver.send("in", record.as_bytes())?;
    /// }
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [br#"["p1",0]"#.as_slice(), br#"["p2",59999]"#, br#"["p1",60000]"#]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn distinct(&self, name: &str, time_to_live: TimeToLive) -> Running<K, T> {
        let first = self.per_key_some(name, "distinct", |seen: &mut Entry<'_, K, ()>, value: &T| {
            if seen.get().is_some() {
                return Ok(None);
            }
            seen.set(());
            Ok(Some(value.clone()))
        });
        first.time_to_live(time_to_live)
    }
}
