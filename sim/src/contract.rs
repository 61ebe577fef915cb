//! The model keeps the contract of `Log`, as the real ones do.

use crate::clock;
use crate::dice::Dice;
use crate::fault::{Fault, Rates};
use crate::log::SimLog;
use crate::world::{ClientId, Net};
use async_trait::async_trait;
use onceflow::log::{Log, MessageBatch, Queues, TopicSpec};
use onceflow::types::Partition;
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

/// Seed 70520: a Commit arrived late, at the next life of its broker, which had lost what the Commit covered.
#[test]
fn what_is_sent_over_a_link_reaches_one_life_of_the_broker_however_late_it_is() {
    clock::run(async {
        for fault in [Fault::Late, Fault::Twice] {
            let net = Net::new(&["broker-a"], Dice::new(5));
            let pump = net.clone();
            spawn_local(async move { pump.pump().await });
            let log = SimLog::open(&net, ClientId(1), "job");
            log.create_topic(&TopicSpec { topic: "journal".into(), queues: Queues::PerBroker(1) }).await.unwrap();
            let partition = Partition::new("journal", "broker-a", 0);
            let mut batch = MessageBatch::default();
            batch.push(b"", b"claim").unwrap();
            let link = log.append(&partition, &batch).await.unwrap().link;
            let mut rates = Rates::default();
            rates.set(fault, 1_000);
            net.lock().rates = rates;
            let sent = log.append_over(&link, &partition, &batch);
            let crash = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let mut world = net.lock();
                let broker = world.brokers.get_mut("broker-a").unwrap();
                broker.kill();
                broker.start();
            };
            let (_, ()) = tokio::join!(sent, crash);
            // Beyond the latest request and the latest copy.
            tokio::time::sleep(Duration::from_mins(1)).await;
            let stored = net.lock().brokers["broker-a"].end(&partition);
            assert_eq!(stored, if fault == Fault::Late { 1 } else { 2 }, "{fault}");
        }
    });
}
