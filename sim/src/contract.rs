//! The model keeps the contract of `Log`, as the real ones do.

use crate::clock;
use crate::dice::Dice;
use crate::log::SimLog;
use crate::world::{ClientId, Net};
use async_trait::async_trait;
use onceflow::log::Log;
use onceflow_log::contract::{self, Notes, Subject};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::spawn_local;

struct Model {
    net: Net,
    clients: AtomicU64,
}

#[async_trait]
impl Subject for Model {
    fn notes(&self) -> Notes {
        Notes {
            visible_within: Duration::from_secs(10),
            check_back_within: Some(Duration::from_secs(15)),
            checks_max: Some(15),
            members_within: Some(Duration::from_secs(15)),
        }
    }

    async fn log(&self, group: &str) -> Arc<dyn Log> {
        let client = ClientId(self.clients.fetch_add(1, Ordering::SeqCst));
        Arc::new(SimLog::open(&self.net, client, group))
    }

    async fn crash(&self) {
        // Killed: loss of power also takes what no append acknowledged, ENDs among it (rule 7).
        for broker in self.net.lock().brokers.values_mut() {
            broker.kill();
            broker.start();
        }
    }
}

#[test]
fn the_model_broker_keeps_the_contract() {
    clock::run(async {
        let model = Model { net: Net::new(&["broker-a", "broker-b"], Dice::new(5)), clients: AtomicU64::new(1) };
        let net = model.net.clone();
        spawn_local(async move { net.pump().await });
        contract::run_all(&model).await;
    });
}
