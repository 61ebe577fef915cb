//! A job on a broker with access control (S1): the rights that docs/security.md lists are enough, and each of them is
//! needed; one that is taken away stops the job with a typed error, and once it is back nothing is lost or doubled.
//!
//! Needs a broker; `cargo xtask test` starts one.
#![cfg(feature = "rocketmq")]
#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

#[path = "../log/tests/rocketmq/acl.rs"]
mod acl;
mod faulty;

use acl::{KEY, User, master, unique};
use faulty::ledger::{Ledger, entries, memory, quick};
use onceflow::log::Log;
use onceflow::log::rocketmq::RocketLog;
use onceflow::types::{Error, ErrorKind};
use onceflow::{Config, Runtime, topics};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A job, and a user with the rights that it needs.
struct Place {
    ledger: Ledger,
    user: User,
    master: Arc<dyn Log>,
}

impl Place {
    async fn new(name: &str) -> Place {
        let ledger = Ledger { repartition: true, ..Ledger::new(&unique(name)) };
        let master: Arc<dyn Log> = Arc::new(master().await);
        ledger.make_topics(&*master).await;
        let user = User::new(name, &topics::producer_group(&ledger.name()));
        let place = Place { ledger, user, master };
        place.rights().iter().for_each(|(resource, actions)| place.user.allow(resource, actions));
        place
    }

    /// The list of docs/security.md.
    fn rights(&self) -> Vec<(String, &'static str)> {
        let (job, own) = (self.ledger.name(), &self.ledger);
        let internal = ["journal-", "repartition-", "snapshot", "barrier"];
        let mut rights: Vec<_> =
            internal.iter().map(|of| (format!("Topic:{job}-{of}*"), "Pub,Sub,Get,Create")).collect();
        rights.push((format!("Topic:{}", own.input()), "Sub,Get"));
        rights.push((format!("Topic:{}", own.output()), "Pub,Sub,Get"));
        rights.push((format!("Group:{}", topics::producer_group(&job)), "Sub,Get"));
        rights.push((format!("Group:{}", topics::consumer_group(&job)), "Sub,Get"));
        rights
    }

    async fn start(&self) -> Result<(Runtime, Arc<RocketLog>), Error> {
        let log = Arc::new(self.user.open(KEY).await?);
        let config = Config { publish_lease: Duration::from_secs(1), backoff_max: Duration::from_secs(1), ..quick() };
        let runtime = Runtime::builder(self.ledger.topology(), log.clone(), memory()).config(config).start().await;
        match runtime {
            Ok(runtime) => Ok((runtime, log)),
            Err(error) => {
                log.close().await;
                Err(error)
            }
        }
    }
}

/// What ends a job that goes on by itself.
async fn end_of(runtime: &mut Runtime) -> Error {
    let ended = tokio::time::timeout(PATIENCE, runtime.wait()).await;
    ended.unwrap_or_else(|_| panic!("the job goes on: {:#?}", runtime.status())).expect_err("it cannot end well")
}

#[tokio::test]
#[ignore = "needs a broker: cargo xtask test"]
async fn access_control_the_listed_rights_are_enough_and_losing_one_stops_the_job_and_loses_nothing() {
    let place = Place::new("rights").await;
    let all = entries(0, 30);
    place.ledger.produce(&*place.master, &all[..10]).await;
    let (mut runtime, log) = place.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    place.ledger.check(&place.master, &all[..10]).await.unwrap();

    // The output may no longer be written while the job runs.
    let output = format!("Topic:{}", place.ledger.output());
    place.user.forbid(&output);
    place.ledger.produce(&*place.master, &all[10..20]).await;
    let error = end_of(&mut runtime).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report());
    log.close().await;
    place.ledger.check(&place.master, &all[..10]).await.unwrap();

    place.user.allow(&output, "Pub,Sub,Get");
    place.ledger.produce(&*place.master, &all[20..]).await;
    let (mut runtime, log) = place.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    runtime.drain().await.unwrap();
    log.close().await;
    place.ledger.check(&place.master, &all).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a broker: cargo xtask test"]
async fn access_control_each_listed_right_is_needed() {
    let place = Place::new("each").await;
    place.ledger.produce(&*place.master, &entries(0, 4)).await;
    for (resource, actions) in place.rights() {
        place.user.forbid(&resource);
        let error = match place.start().await {
            Err(error) => error,
            Ok((mut runtime, log)) => {
                let error = end_of(&mut runtime).await;
                log.close().await;
                error
            }
        };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{resource}: {}", error.report());
        place.user.allow(&resource, actions);
    }
    let (mut runtime, log) = place.start().await.unwrap();
    assert!(runtime.wait_caught_up(PATIENCE).await.unwrap());
    runtime.drain().await.unwrap();
    log.close().await;
    place.ledger.check(&place.master, &entries(0, 4)).await.unwrap();
}
