//! Dimensions of [Onceflow](onceflow) from the rows of a database: a query, whose rows every process of a job holds in
//! memory and asks for again now and then.
//!
//! It is not a source of changes: what happened between two loads is seen with the second one. What that means for a job that
//! is restarted, or reads its input again, is said at [`Dimension`].
//!
//! ```
//! use onceflow::{StreamBuilder, codec::Json, testing::TestDriver};
//! use sqlx::sqlite::SqliteConnectOptions;
//! # use sqlx::{ConnectOptions, Executor};
//! use std::time::Duration;
//!
//! # let directory = tempfile::tempdir()?;
//! # let options = SqliteConnectOptions::new().filename(directory.path().join("bank")).create_if_missing(true);
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! #     let mut bank = options.connect().await?;
//! #     bank.execute("CREATE TABLE limits (card INTEGER, cents INTEGER); INSERT INTO limits VALUES (7, 100)").await?;
//! #     Ok::<(), sqlx::Error>(())
//! # })?;
//! // let options = SqliteConnectOptions::new().filename("bank.sqlite");
//! let limits = onceflow_sqlx::query::<sqlx::Sqlite, i64, i64>("limits", options, "SELECT card, cents FROM limits");
//! let limits = limits.refresh(Duration::from_secs(60));
//!
//! let builder = StreamBuilder::new("job")?;
//! let uses = builder.source("uses", Json::<(i64, i64)>::new());
//! let checked = uses.join_dimension(&limits, |(card, _)| Some(*card)).inner(|(_, cents), limit| cents <= limit);
//! checked.sink("out", "out", Json::new());
//! let mut driver = TestDriver::new(&builder.build()?)?;
//! driver.send("uses", b"[7,101]")?;
//! driver.commit()?;
//! assert_eq!(driver.bodies("out"), [b"false"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use onceflow::Dimension;
use onceflow::codec::{Data, Key};
use onceflow::types::{Error, Result};
use sqlx::{ConnectOptions, Connection, Database, Executor, FromRow, IntoArguments};
use std::thread;
use std::time::Duration;

/// Longest time of a load, with the connection: the tasks of a worker stand still meanwhile.
const LOAD_TIME_MAX: Duration = Duration::from_secs(30);

/// How to reach a database: the options of its connections.
pub type Options<DB> = <<DB as Database>::Connection as Connection>::Options;

/// The rows of a query: key and value. Each load connects, asks once and closes, so its rows are those of one moment. `name` is
/// for logs and metrics.
///
/// The query is to return a small table, with a `LIMIT` where that is not sure: all rows are in memory at once.
///
/// A load that takes longer than 30 s, or cannot be done now, fails with kind `Retry`; one whose rows are no `(K, V)` with kind
/// `Invalid`. See [`Dimension::load`] for what follows. Nothing of the options, which may hold a password, is put into an error.
pub fn query<DB, K, V>(name: &str, options: Options<DB>, query: &str) -> Dimension<K, V>
where
    DB: Database,
    K: Key + Sync + Unpin,
    V: Data + Sync + Unpin,
    (K, V): for<'r> FromRow<'r, DB::Row>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    for<'q> DB::Arguments<'q>: IntoArguments<'q, DB>,
{
    let query = query.to_owned();
    Dimension::load(name, move || load::<DB, K, V>(&options, &query))
}

/// Asks on a thread of its own, as the caller's runs the futures of a job.
fn load<DB, K, V>(options: &Options<DB>, query: &str) -> Result<Vec<(K, V)>>
where
    DB: Database,
    K: Send + Unpin,
    V: Send + Unpin,
    (K, V): for<'r> FromRow<'r, DB::Row>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    for<'q> DB::Arguments<'q>: IntoArguments<'q, DB>,
{
    let ask = async {
        let mut connection = options.connect().await?;
        let rows = sqlx::query_as(query).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok(rows)
    };
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::retry("no runtime to ask a database").with_source(e))?;
        let asked = runtime.block_on(async { tokio::time::timeout(LOAD_TIME_MAX, ask).await });
        asked
            .map_err(|_| Error::retry(format!("database did not answer: waited_ms={}", LOAD_TIME_MAX.as_millis())))?
            .map_err(failed)
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| Err(Error::bug("asking a database panicked")))
}

fn failed(error: sqlx::Error) -> Error {
    use sqlx::Error::{ColumnDecode, ColumnIndexOutOfBounds, ColumnNotFound, Configuration, Decode, TypeNotFound};
    match error {
        ColumnDecode { .. } | ColumnIndexOutOfBounds { .. } | ColumnNotFound(_) | Decode(_) | TypeNotFound { .. } => {
            Error::invalid("rows of the query are no keys and values").with_source(error)
        }
        Configuration(_) => Error::invalid("database cannot be reached that way").with_source(error),
        _ => Error::retry("database did not give the rows").with_source(error),
    }
}
