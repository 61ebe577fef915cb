//! Users and rights of the broker with access control that `cargo xtask test` starts. `ONCEFLOW_ACL_ADMIN` is the beginning
//! of a shell command that runs RocketMQ's admin tool on it as its super user.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use onceflow_log::rocketmq::{Credentials, RocketLog, RocketOptions};
use onceflow_types::{Clock, Result, SystemClock};
use std::process::Command;
use std::time::Duration;

/// What `cargo xtask test` sets.
fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

/// A name that no other run has.
pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}-{}", SystemClock.now(), std::process::id())
}

pub(crate) fn admin(words: &str) {
    let command = format!("{} {words}", environment("ONCEFLOW_ACL_ADMIN"));
    let output = Command::new("sh").arg("-c").arg(&command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("success"), "{words}: {said}");
}

fn options(user: &str, key: &str, group: &str) -> RocketOptions {
    let address = environment("ONCEFLOW_ACL_NAME_SERVER");
    let credentials = Some(Credentials::new(user, key));
    RocketOptions { credentials, start_time_max: Duration::ZERO, ..RocketOptions::new(address, group) }
}

/// The super user's log.
pub(crate) async fn master() -> RocketLog {
    let (user, key) = (environment("ONCEFLOW_ACL_USER"), environment("ONCEFLOW_ACL_PASSWORD"));
    RocketLog::open(options(&user, &key, &unique("master"))).await.unwrap()
}

/// Somebody who may do nothing at first.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) group: String,
}

pub(crate) const KEY: &str = "first-key";

impl User {
    pub(crate) fn new(name: &str, group: &str) -> User {
        let user = User { name: unique(name), group: group.to_owned() };
        admin(&format!("createUser -c DefaultCluster -u {} -p {KEY} -t Normal", user.name));
        user
    }

    pub(crate) fn allow(&self, resource: &str, actions: &str) {
        let who = format!("-c DefaultCluster -s User:{}", self.name);
        admin(&format!("createAcl {who} -r '{resource}' -a {actions} -d Allow"));
    }

    pub(crate) fn forbid(&self, resource: &str) {
        admin(&format!("deleteAcl -c DefaultCluster -s User:{} -r '{resource}'", self.name));
    }

    pub(crate) fn of_group(&self) -> String {
        format!("Group:{}", self.group)
    }

    pub(crate) async fn open(&self, key: &str) -> Result<RocketLog> {
        RocketLog::open(options(&self.name, key, &self.group)).await
    }
}
