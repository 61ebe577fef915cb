//! Heartbeats: the request by which a broker learns what a connection is for. All of them are sent from here.
//!
//! | sent by | on the lane | registers |
//! | --- | --- | --- |
//! | the start, then every `keep_alive` | for writes | the producer group, so that the broker asks there about its halves |
//! | every `keep_alive`, once it is open | for reads | nothing; it keeps the connection alive |
//! | a look at the members of a consumer group | for reads | the member |
//!
//! A broker takes what is new in a heartbeat and forgets nothing of earlier ones, so those for reads do not disturb each
//! other. Each carries a signature when there are credentials: one that is answered well proves them.

use super::Shared;
use super::brokers::{Lane, Way};
use super::code::{self, Request, refusal};
use super::frame::Fields;
use crate::MemberId;
use onceflow_types::Result;
use serde_json::{Value, json};

impl Shared {
    /// Shows a broker that a lane is in use; on the lane for writes it registers the producer group.
    pub(super) async fn heartbeat(&self, broker: &str, lane: Lane) -> Result<()> {
        let client = format!("{}@{}", self.options.instance, std::process::id());
        let producers = match lane {
            Lane::Write => json!([{ "groupName": self.options.group }]),
            Lane::Read => json!([]),
        };
        let body = json!({ "clientID": client, "producerDataSet": producers, "consumerDataSet": [] });
        self.send_heartbeat(broker, lane, &body).await
    }

    /// Registers a member of a consumer group, without subscriptions.
    pub(super) async fn register(&self, broker: &str, group: &str, own: &MemberId) -> Result<()> {
        let consumer = json!({
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": false,
        });
        let body = json!({ "clientID": own.as_str(), "producerDataSet": [], "consumerDataSet": [consumer] });
        self.send_heartbeat(broker, Lane::Read, &body).await
    }

    async fn send_heartbeat(&self, broker: &str, lane: Lane, body: &Value) -> Result<()> {
        let (body, deadline) = (body.to_string(), self.brokers.deadline());
        let call =
            self.brokers.call(broker, Way::Any(lane), Request::Heartbeat, Fields::default(), body.as_bytes(), deadline);
        let (reply, _) = call.await?;
        if reply.code == code::SUCCESS { Ok(()) } else { Err(refusal("heartbeat", &reply)) }
    }
}
