//! The contract suite of [`Log`] on a broker in a container, which it kills.

use crate::job::long;
use async_trait::async_trait;
use onceflow::log::Log;
use onceflow::log::rocketmq::{RocketLog, RocketOptions};
use onceflow_containers::{RocketMq, Setup};
use onceflow_log::contract::{self, Notes, Subject};
use std::sync::Arc;
use std::time::Duration;

/// How often the broker asks about a half message.
const CHECKS_MAX: u32 = 3;

struct Container(RocketMq);

#[async_trait]
impl Subject for Container {
    fn notes(&self) -> Notes {
        Notes {
            visible_within: Duration::from_secs(30),
            check_back_within: Some(Duration::from_secs(20)),
            checks_max: Some(CHECKS_MAX),
            members_within: Some(Duration::from_secs(20)),
        }
    }

    async fn log(&self, group: &str) -> Arc<dyn Log> {
        // With time for a broker that has just come back on a busy machine.
        let request_timeout = Duration::from_secs(30);
        let options = RocketOptions { request_timeout, ..RocketOptions::new(self.0.address(), group) };
        Arc::new(RocketLog::open(options).await.expect("the broker is there"))
    }

    async fn crash(&self) {
        self.0.kill_broker().await.unwrap();
        self.0.start_broker().await.unwrap();
    }
}

async fn keeps_the_contract(version: &str) {
    let setup = Setup::version(version).with("transactionCheckMax", &CHECKS_MAX.to_string());
    // A decided half message is noted as such up to 3 s late, and is asked about until then.
    let setup = setup.with("transactionOpBatchInterval", "200");
    contract::run_all(&Container(RocketMq::start(setup).await.unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn the_newest_version_in_a_container_keeps_the_contract() {
    keeps_the_contract("5.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a broker: cargo xtask test"]
async fn the_oldest_version_in_a_container_keeps_the_contract() {
    if long() {
        keeps_the_contract("5.3.3").await;
    }
}
