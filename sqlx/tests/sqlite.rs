//! Rows of a SQLite database: refreshed, of the wrong type, and away.
#![allow(missing_docs, clippy::pedantic, clippy::unwrap_used, reason = "helpers of tests are tests")]

use onceflow::codec::Json;
use onceflow::testing::TestDriver;
use onceflow::types::ErrorKind;
use onceflow::{Dimension, StreamBuilder};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Executor, Sqlite};
use std::path::Path;
use std::time::Duration;

const REFRESH: Duration = Duration::from_secs(60);

fn options(directory: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(directory.join("rates"))
}

fn execute(directory: &Path, statements: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = options(directory).create_if_missing(true).connect().await.unwrap();
        connection.execute(statements).await.unwrap();
    });
}

fn driver(rates: &Dimension<String, i64>) -> onceflow::types::Result<TestDriver> {
    let builder = StreamBuilder::new("job").unwrap();
    let currencies = builder.source("in", Json::<String>::new());
    let joined = currencies.join_dimension(rates, |currency| Some(currency.clone()));
    joined.left(|_, rate| rate.copied()).sink("out", "out", Json::new());
    TestDriver::new(&builder.build().unwrap())
}

#[test]
fn rows_are_those_of_the_database_and_are_asked_for_again() {
    let directory = tempfile::tempdir().unwrap();
    execute(directory.path(), "CREATE TABLE rates (currency TEXT, rate INTEGER); INSERT INTO rates VALUES ('EUR', 2)");
    let query = "SELECT currency, rate FROM rates";
    let rates = onceflow_sqlx::query::<Sqlite, _, _>("rates", options(directory.path()), query).refresh(REFRESH);
    let mut driver = driver(&rates).unwrap();
    for rate in ["2", "2", "3"] {
        driver.send("in", br#""EUR""#).unwrap();
        driver.commit().unwrap();
        assert_eq!(driver.bodies("out").last().unwrap(), rate.as_bytes());
        match rates.status().loads {
            // At the opening, and with the first record, which says what time it is.
            2 if rate == "2" => execute(directory.path(), "UPDATE rates SET rate = 3"),
            loads => assert_eq!(loads, 3),
        }
        driver.advance_time(REFRESH / 2).unwrap();
    }
}

#[test]
fn rows_of_another_type_and_a_database_that_is_away_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let query = "SELECT currency, rate FROM rates";
    let rates = || onceflow_sqlx::query::<Sqlite, _, _>("rates", options(directory.path()), query);
    assert_eq!(driver(&rates()).unwrap_err().kind(), ErrorKind::Retry, "there is no such file");
    execute(directory.path(), "CREATE TABLE rates (currency TEXT, rate TEXT); INSERT INTO rates VALUES ('EUR', 'two')");
    assert_eq!(driver(&rates()).unwrap_err().kind(), ErrorKind::Invalid);
    execute(
        directory.path(),
        "UPDATE rates SET rate = '2'; CREATE TABLE r (currency TEXT, rate INTEGER); INSERT INTO r SELECT * FROM rates; DROP TABLE rates; ALTER TABLE r RENAME TO rates",
    );
    driver(&rates()).unwrap();
}
