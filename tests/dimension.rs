//! Dimensions: rows from files, topics and functions, refreshed, across crashes.
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use onceflow::codec::Json;
use onceflow::testing::{CrashPoint, TestDriver};
use onceflow::topology::Topology;
use onceflow::types::{Error, ErrorKind};
use onceflow::{Dimension, StreamBuilder};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const REFRESH: Duration = Duration::from_secs(60);

type Rates = Dimension<String, i64>;

/// `in` holds currencies, `null` for none; `out` gets each with its rate.
fn looked_up(rates: &Rates) -> Topology {
    let builder = StreamBuilder::new("job").unwrap();
    let currencies = builder.source("in", Json::<Option<String>>::new());
    let joined = currencies.join_dimension(rates, Option::clone);
    joined.left(|currency, rate| (currency.clone(), rate.copied())).sink("out", "out", Json::new());
    builder.build().unwrap()
}

fn rates(file: &Path) -> Rates {
    Dimension::file("rates", file, Json::<(String, i64)>::new()).refresh(REFRESH)
}

fn send(driver: &mut TestDriver, body: &str) {
    driver.send("in", body.as_bytes()).unwrap();
    driver.commit().unwrap();
}

fn outputs(driver: &TestDriver) -> Vec<String> {
    driver.bodies("out").into_iter().map(|body| String::from_utf8(body).unwrap()).collect()
}

#[test]
fn a_file_is_read_again_when_its_rows_are_too_old() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rates");
    fs::write(&file, "[\"EUR\",2]\r\n\n[\"USD\",1]\n[\"USD\",3]").unwrap();
    let rates = rates(&file);
    let mut driver = TestDriver::new(&looked_up(&rates)).unwrap();
    send(&mut driver, r#""EUR""#);
    send(&mut driver, r#""USD""#);
    fs::write(&file, "[\"EUR\",20]").unwrap();
    driver.advance_time(REFRESH - Duration::from_millis(1)).unwrap();
    send(&mut driver, r#""EUR""#);
    driver.advance_time(Duration::from_millis(1)).unwrap();
    send(&mut driver, r#""EUR""#);
    send(&mut driver, r#""USD""#);
    assert_eq!(outputs(&driver), [r#"["EUR",2]"#, r#"["USD",3]"#, r#"["EUR",2]"#, r#"["EUR",20]"#, r#"["USD",null]"#]);
    assert_eq!((rates.status().rows, rates.status().failures), (1, 0));
}

#[test]
fn an_inner_join_leaves_out_what_has_no_row_and_a_missing_key_matches_nothing() {
    let rates: Rates = Dimension::load("rates", || Ok([("EUR".to_owned(), 2)]));
    let builder = StreamBuilder::new("job").unwrap();
    let currencies = builder.source("in", Json::<Option<String>>::new());
    let joined = currencies.join_dimension(&rates, Option::clone).inner(|_, rate| *rate);
    joined.sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    for body in [r#""EUR""#, r#""XXX""#, "null"] {
        send(&mut driver, body);
    }
    assert_eq!(outputs(&driver), ["2"]);
    assert_eq!(driver.counters().missing_keys, 1);
}

#[test]
fn a_key_that_holds_none_is_missing_also_when_such_a_row_is_there() {
    let rates = Dimension::load("rates", || Ok([(None::<String>, 7), (Some("EUR".to_owned()), 2)]));
    let builder = StreamBuilder::new("job").unwrap();
    let currencies = builder.source("in", Json::<Option<String>>::new());
    let joined = currencies.join_dimension(&rates, |currency| Some(currency.clone()));
    joined.left(|_, rate| rate.copied()).sink("out", "out", Json::new());
    let mut driver = TestDriver::new(&builder.build().unwrap()).unwrap();
    send(&mut driver, "null");
    send(&mut driver, r#""EUR""#);
    assert_eq!(outputs(&driver), ["null", "2"]);
    assert_eq!(driver.counters().missing_keys, 1);
}

#[test]
fn every_task_holds_all_rows_without_a_repartition() {
    let rates: Rates = Dimension::load("rates", || Ok([("EUR".to_owned(), 2), ("USD".to_owned(), 3)]));
    let topology = looked_up(&rates);
    assert_eq!(topology.subtopologies.len(), 1);
    let mut driver = TestDriver::with_queues(&topology, &[("in", 4)]).unwrap();
    for queue in 0..4 {
        for body in [br#""EUR""#, br#""USD""#] {
            driver.send_with("in", queue, b"", body).unwrap();
        }
    }
    driver.commit().unwrap();
    let mut outputs = outputs(&driver);
    outputs.sort();
    let want: Vec<_> = [r#"["EUR",2]"#; 4].into_iter().chain([r#"["USD",3]"#; 4]).collect();
    assert_eq!(outputs, want);
}

#[test]
fn without_rows_no_task_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rates");
    let error = TestDriver::new(&looked_up(&rates(&file))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    fs::write(&file, "[\"EUR\",2]\n[\"USD\"]").unwrap();
    let error = TestDriver::new(&looked_up(&rates(&file))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("line=2"), "{error}");
    fs::write(&file, "[\"EUR\",2]\n[\"USD\",3]").unwrap();
    let error = TestDriver::new(&looked_up(&rates(&file).rows_max(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    TestDriver::new(&looked_up(&rates(&file).rows_max(2))).unwrap();
}

#[test]
fn a_load_that_fails_later_keeps_the_rows_of_before_and_is_counted_and_tried_again() {
    let answer = Arc::new(Mutex::new(Ok(2)));
    let asked = answer.clone();
    let load = move || asked.lock().unwrap().map(|rate| [("EUR".to_owned(), rate)]).map_err(|()| Error::retry("away"));
    let rates: Rates = Dimension::load("rates", load).refresh(REFRESH);
    let mut driver = TestDriver::new(&looked_up(&rates)).unwrap();
    send(&mut driver, r#""EUR""#);
    *answer.lock().unwrap() = Err(());
    driver.advance_time(REFRESH).unwrap();
    send(&mut driver, r#""EUR""#);
    assert_eq!(rates.status().failures, 1);
    send(&mut driver, r#""EUR""#);
    assert_eq!(rates.status().failures, 1, "not with every record");
    *answer.lock().unwrap() = Ok(3);
    driver.advance_time(Duration::from_secs(10)).unwrap();
    send(&mut driver, r#""EUR""#);
    assert_eq!(outputs(&driver), [r#"["EUR",2]"#, r#"["EUR",2]"#, r#"["EUR",2]"#, r#"["EUR",3]"#]);
}

#[test]
fn a_crash_joins_again_what_was_not_decided_and_nothing_that_was() {
    // Aim: each record comes out once, whatever the rows are by then. Method: the rate is another one with every load.
    for (point, want) in [(None, 2), (Some(CrashPoint::BeforeDecide), 2), (Some(CrashPoint::AfterDecide), 1)] {
        let rate = Arc::new(AtomicI64::new(1));
        let asked = rate.clone();
        let load = move || Ok([("EUR".to_owned(), asked.load(Ordering::SeqCst))]);
        let rates: Rates = Dimension::load("rates", load).refresh(Duration::ZERO);
        let mut driver = TestDriver::new(&looked_up(&rates)).unwrap();
        driver.send("in", br#""EUR""#).unwrap();
        match point {
            None => {
                driver.process().unwrap();
                driver.abort().unwrap();
            }
            Some(point) => assert!(driver.crash_at(point).unwrap()),
        }
        rate.store(2, Ordering::SeqCst);
        driver.commit().unwrap();
        assert_eq!(outputs(&driver), [format!(r#"["EUR",{want}]"#)], "{point:?}");
    }
}

#[cfg(feature = "embedded")]
mod topic {
    use super::*;
    use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions};
    use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};

    /// A log with the topic `rates`, whose messages are appended from outside any async runtime.
    struct Outside {
        log: Arc<dyn Log>,
        runtime: tokio::runtime::Runtime,
        _directory: tempfile::TempDir,
    }

    impl Outside {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path(), EmbeddedOptions::default()).unwrap());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let outside = Outside { log, runtime, _directory: directory };
            outside.queues(1);
            outside
        }

        fn queues(&self, queues: u32) {
            let spec = TopicSpec { topic: "rates".into(), queues: Queues::PerBroker(queues) };
            self.runtime.block_on(self.log.create_topic(&spec)).unwrap();
        }

        fn change(&self, queue: usize, body: &str) {
            let mut batch = MessageBatch::default();
            batch.push(&[], body.as_bytes()).unwrap();
            self.runtime.block_on(async {
                let queues = self.log.partitions("rates").await.unwrap();
                self.log.append(&queues[queue], &batch).await.unwrap();
            });
        }

        fn rates(&self) -> Rates {
            Dimension::topic(self.log.clone(), "rates", Json::<(String, Option<i64>)>::new())
        }
    }

    #[test]
    fn a_topic_is_read_whole_and_followed_and_its_new_queues_are_found() {
        let outside = Outside::new();
        for change in [r#"["EUR",1]"#, r#"["EUR",2]"#, r#"["USD",3]"#, r#"["GBP",4]"#, r#"["GBP",null]"#] {
            outside.change(0, change);
        }
        let rates = outside.rates();
        let mut driver = TestDriver::new(&looked_up(&rates)).unwrap();
        for currency in [r#""EUR""#, r#""USD""#, r#""GBP""#] {
            send(&mut driver, currency);
        }
        assert_eq!(outputs(&driver), [r#"["EUR",2]"#, r#"["USD",3]"#, r#"["GBP",null]"#]);
        outside.queues(2);
        outside.change(0, r#"["USD",null]"#);
        outside.change(1, r#"["CHF",5]"#);
        driver.advance_time(Duration::from_secs(1)).unwrap();
        for currency in [r#""EUR""#, r#""USD""#, r#""CHF""#] {
            send(&mut driver, currency);
        }
        assert_eq!(outputs(&driver)[3..], [r#"["EUR",2]"#, r#"["USD",null]"#, r#"["CHF",5]"#]);
        assert_eq!(rates.status().rows, 2);
    }

    #[test]
    fn a_message_that_is_no_row_is_not_passed_over() {
        let outside = Outside::new();
        outside.change(0, r#"["EUR",1]"#);
        let rates = outside.rates();
        let mut driver = TestDriver::new(&looked_up(&rates)).unwrap();
        outside.change(0, "never");
        outside.change(0, r#"["EUR",2]"#);
        for failures in 1..3 {
            driver.advance_time(Duration::from_secs(1)).unwrap();
            send(&mut driver, r#""EUR""#);
            assert_eq!(rates.status().failures, failures);
        }
        assert_eq!(outputs(&driver), [r#"["EUR",1]"#; 2]);
        let error = TestDriver::new(&looked_up(&outside.rates())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("offset=1"), "{error}");
    }
}
