//! Dimensions: small tables from outside, such as currencies, merchants or rules, that every process holds whole.
//!
//! | module | rows come |
//! | --- | --- |
//! | `file` | from the lines of a file |
//! | `topic` | from the messages of a topic |
//! | here | from a function, such as a query of a database |

mod file;
mod topic;

use crate::codec::{Data, Decode, Key};
use crate::time::millis;
use onceflow_log::Log;
use onceflow_types::{Error, Result, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a table counts that was loaded whole, unless it is told otherwise: 1 h.
const REFRESH_DEFAULT: Duration = Duration::from_hours(1);
/// How long a table counts that follows a topic: only what is new is read each time.
const TOPIC_REFRESH_DEFAULT: Duration = Duration::from_secs(1);
/// Most rows of a table, unless it is told otherwise.
const ROWS_MAX_DEFAULT: usize = 1_000_000;
/// When a load that failed is tried again, if the table would count for longer.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A small table that every process of a job holds whole, and reads again now and then. Streams are joined with it by
/// [`Stream::join_dimension`](crate::topology::Stream::join_dimension). A handle: clones share the rows.
///
/// The rows are not part of the job's state. They are loaded when the first task is opened, and once they are older than
/// [`refresh`](Self::refresh), by processing time, when a record comes: so no record meets older ones, unless a load
/// fails. A load happens between two batches, on the worker that needs it; its tasks stand still meanwhile.
///
/// Each record of a committed epoch was joined exactly once. With which rows is a matter of the moment: what was read again
/// after a crash meets the rows of then, what was committed stays as it is.
pub struct Dimension<K, V> {
    refresh: Duration,
    rows_max: usize,
    shared: Arc<Shared<K, V>>,
}

/// The rows of a dimension at one moment.
pub(crate) type Rows<K, V> = Arc<BTreeMap<K, V>>;

/// What a dimension holds, and what became of its loads in this process.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DimensionStatus {
    /// Rows now.
    pub rows: usize,
    /// Loads that succeeded, those without news included.
    pub loads: u64,
    /// Loads that failed, so that the rows of before went on.
    pub failures: u64,
}

struct Shared<K, V> {
    name: Arc<str>,
    source: Box<dyn Load<K, V>>,
    slot: Mutex<Slot<K, V>>,
}

struct Slot<K, V> {
    rows: Option<Rows<K, V>>,
    /// When to load again; `None` for as soon as somebody knows the time.
    due: Option<Timestamp>,
    status: DimensionStatus,
}

/// Where rows come from.
trait Load<K, V>: Send + Sync {
    /// All rows, at most `rows_max`, or `None` when they are those of the last call that succeeded.
    fn load(&self, rows_max: usize) -> Result<Option<BTreeMap<K, V>>>;
}

/// Rows that a user's function returns.
struct Function<F>(F);

impl<K: Key, V: Data, R: IntoIterator<Item = (K, V)>, F: Fn() -> Result<R> + Send + Sync> Load<K, V> for Function<F> {
    fn load(&self, rows_max: usize) -> Result<Option<BTreeMap<K, V>>> {
        let mut rows = BTreeMap::new();
        for (key, value) in (self.0)()? {
            rows.insert(key, value);
            if rows.len() > rows_max {
                return Err(too_many(rows_max));
            }
        }
        Ok(Some(rows))
    }
}

impl<K: Key + Sync, V: Data + Sync> Dimension<K, V> {
    /// The rows that a function returns, such as a query of a database; of rows with one key the last counts. `name` is for
    /// logs and metrics. The function runs on a worker's thread: it must return in time, and must not enter an async runtime
    /// there (let it start a thread for that).
    ///
    /// An error when the first task is opened is the task's: of kind `Retry` it is tried again, of others the job stops. Later
    /// the rows of before go on, and the error is logged and [counted](Self::status).
    ///
    /// ```
    /// use onceflow::{Dimension, StreamBuilder, codec::Json, testing::TestDriver};
    /// # use onceflow::types::Result;
    /// # struct Database;
    /// # impl Database { fn limits(&self) -> Result<Vec<(u32, i64)>> { Ok(vec![(7, 100)]) } }
    /// # let database = Database;
    /// let limits = Dimension::load("limits", move || database.limits()); // a `Vec<(u32, i64)>`
    ///
    /// let builder = StreamBuilder::new("job")?;
    /// let uses = builder.source("uses", Json::<(u32, i64)>::new());
    /// let checked = uses.join_dimension(&limits, |(card, _)| Some(*card)).inner(|(_, cents), limit| cents <= limit);
    /// checked.sink("out", "out", Json::new());
    /// let mut driver = TestDriver::new(&builder.build()?)?;
    /// driver.send("uses", b"[7,101]")?;
    /// driver.commit()?;
    /// assert_eq!(driver.bodies("out"), [b"false"]);
    /// # Ok::<(), onceflow::types::Error>(())
    /// ```
    pub fn load<R, F>(name: &str, load: F) -> Self
    where
        R: IntoIterator<Item = (K, V)>,
        F: Fn() -> Result<R> + Send + Sync + 'static,
    {
        Dimension::new(name, REFRESH_DEFAULT, Function(load))
    }

    /// The lines of a file, each a row; empty lines are none, and of rows with one key the last counts. Whoever changes the
    /// file renames a whole one into its place: of a file that is being written, half may be read. `name` is for logs and
    /// metrics. A file that cannot be read is an error of kind `Retry`, a line that is no row one of kind `Invalid`; see
    /// [`load`](Self::load) for what follows.
    pub fn file<C: Decode<(K, V)> + 'static>(name: &str, path: impl AsRef<Path>, codec: C) -> Self {
        Dimension::new(name, REFRESH_DEFAULT, file::FileRows::new(path.as_ref(), codec))
    }

    /// The messages of a topic, each a change: the last value of a key counts, `None` removes. Each process reads all queues
    /// from their first message, then what is new. Onceflow's own output is read without its duplicates.
    ///
    /// Keys need a queue each, as between queues there is no order. The topic must keep what counts: a process that starts when
    /// retention has removed a row does not know it, while others may.
    pub fn topic<C: Decode<(K, Option<V>)> + 'static>(log: Arc<dyn Log>, topic: &str, codec: C) -> Self {
        Dimension::new(topic, TOPIC_REFRESH_DEFAULT, topic::TopicRows::new(log, topic, codec))
    }

    fn new(name: &str, refresh: Duration, source: impl Load<K, V> + 'static) -> Self {
        let slot = Mutex::new(Slot { rows: None, due: None, status: DimensionStatus::default() });
        let shared = Arc::new(Shared { name: name.into(), source: Box::new(source), slot });
        Dimension { refresh, rows_max: ROWS_MAX_DEFAULT, shared }
    }

    /// How old rows may be when a record meets them [1 h; 1 s for a topic].
    #[must_use]
    pub fn refresh(self, refresh: Duration) -> Self {
        Dimension { refresh, ..self }
    }

    /// Most rows [1,000,000]. A load of more fails with kind `Invalid`.
    #[must_use]
    pub fn rows_max(self, rows_max: usize) -> Self {
        Dimension { rows_max, ..self }
    }

    /// What it holds now, and what became of the loads so far.
    pub fn status(&self) -> DimensionStatus {
        self.slot().status
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    fn slot(&self) -> MutexGuard<'_, Slot<K, V>> {
        // What a panic left is whole: a slot changes in one place, behind the load.
        self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows that are there, else those of a first load.
    ///
    /// # Errors
    /// What the load returns.
    pub(crate) fn open(&self) -> Result<Rows<K, V>> {
        let mut slot = self.slot();
        match &slot.rows {
            Some(rows) => Ok(rows.clone()),
            None => self.load_into(&mut slot),
        }
    }

    /// The rows for what comes at `now`, instead of those in hand. While another task loads, those in hand will do.
    pub(crate) fn renew(&self, rows: &mut Rows<K, V>, now: Timestamp) {
        let mut slot = match self.shared.slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if slot.due.is_none_or(|due| due <= now) {
            let loaded = self.load_into(&mut slot);
            let wait = if loaded.is_ok() { self.refresh } else { self.refresh.min(RETRY_AFTER) };
            slot.due = Some(now.saturating_add(millis(wait)));
            if let Err(error) = loaded {
                self.keep_old(&mut slot, &error);
            }
        }
        if let Some(new) = &slot.rows
            && !Arc::ptr_eq(new, rows)
        {
            *rows = new.clone();
        }
    }

    fn load_into(&self, slot: &mut Slot<K, V>) -> Result<Rows<K, V>> {
        let named = |error: Error| error.context(format!("dimension {}", self.shared.name));
        if let Some(rows) = self.shared.source.load(self.rows_max).map_err(named)? {
            slot.status.rows = rows.len();
            slot.rows = Some(Arc::new(rows));
        }
        slot.status.loads += 1;
        metrics::counter!("onceflow_dimension_loads_total", "dimension" => self.shared.name.to_string()).increment(1);
        slot.rows.clone().ok_or_else(|| named(Error::bug("a first load has no rows")))
    }

    fn keep_old(&self, slot: &mut Slot<K, V>, error: &Error) {
        slot.status.failures += 1;
        metrics::counter!("onceflow_dimension_failures_total", "dimension" => self.shared.name.to_string())
            .increment(1);
        tracing::warn!(dimension = %self.shared.name, error = %error.report(), "rows of before go on, as the load failed");
    }
}

#[cold]
fn too_many(rows_max: usize) -> Error {
    Error::invalid(format!("dimension has too many rows: max={rows_max}"))
}

impl<K, V> Clone for Dimension<K, V> {
    fn clone(&self) -> Self {
        Dimension { shared: self.shared.clone(), ..*self }
    }
}

impl<K, V> fmt::Debug for Dimension<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dimension { refresh, rows_max, shared } = self;
        f.debug_struct("Dimension")
            .field("name", &shared.name)
            .field("refresh", refresh)
            .field("rows_max", rows_max)
            .finish_non_exhaustive()
    }
}
