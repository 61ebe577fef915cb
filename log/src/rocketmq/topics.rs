//! Topics: which queues there are, creating them, and the ends of a queue.

use super::Shared;
use super::brokers::{Lane, Way, lock};
use super::client::Route;
use super::code::{self, Request, refusal};
use super::frame::Fields;
use crate::remoting::offsets_with;
use crate::{OffsetRange, Queues, TopicSpec};
use futures_util::future::join_all;
use onceflow_types::{Error, ErrorKind, Offset, Offsets, Partition, Result, Timestamp, check_topic};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause between two looks at a route that does not show a new topic yet.
const ROUTE_PAUSE: Duration = Duration::from_millis(20);
/// Read and write permission (`PermName`).
const PERMISSION_READ_WRITE: u32 = 6;
/// Most queues of a topic on one broker; more is a mistake.
const QUEUES_MAX: u32 = 65_535;

/// Routes as last heard, so that each call need not ask. Asked anew after an error and for unknown queues.
#[derive(Default)]
pub(super) struct Topics(Mutex<BTreeMap<Arc<str>, Known>>);

struct Known {
    route: Route,
    /// Unset by [`Topics::forget`]: ask again, but go on with this when nobody answers.
    fresh: bool,
}

impl Topics {
    fn has(&self, partition: &Partition, stale_too: bool) -> bool {
        let known = lock(&self.0);
        let known = known.get(&partition.topic).filter(|known| known.fresh || stale_too);
        known.and_then(|known| known.route.get(&partition.broker)).is_some_and(|queues| partition.queue < *queues)
    }

    /// The brokers that had the topic when it was last heard of.
    fn brokers(&self, topic: &str) -> Vec<Arc<str>> {
        lock(&self.0).get(topic).map(|known| known.route.keys().cloned().collect()).unwrap_or_default()
    }

    fn learn(&self, topic: &str, route: Option<Route>) {
        match route {
            Some(route) => lock(&self.0).insert(topic.into(), Known { route, fresh: true }),
            None => lock(&self.0).remove(topic),
        };
    }

    /// Makes the next call ask for the route again.
    pub(super) fn forget(&self, topic: &str) {
        if let Some(known) = lock(&self.0).get_mut(topic) {
            known.fresh = false;
        }
    }
}

/// What a broker says about a topic (`TopicConfig`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TopicConfig {
    read_queue_nums: u32,
    write_queue_nums: u32,
}

impl Shared {
    async fn route(&self, topic: &str) -> Result<Route> {
        check_topic(topic)?;
        let Some(route) = self.client.route(topic).await?.filter(|route| !route.is_empty()) else {
            return Err(self.absent(topic).await);
        };
        self.topics.learn(topic, Some(route.clone()));
        Ok(route)
    }

    /// Why the name server knows no such topic. It forgets a broker, and the topics with it, as soon as it loses its
    /// connection to that broker, and has forgotten all of them after its own restart. So only brokers can say that a
    /// topic does not exist, those that are known to have had it above all.
    async fn absent(&self, topic: &str) -> Error {
        let away = |error: Error| error.context(format_args!("name server knows no such topic: topic={topic}"));
        if let Err(error) = self.refresh().await {
            return away(error);
        }
        let had = self.topics.brokers(topic);
        if let Some(broker) = had.into_iter().find(|broker| !self.brokers.knows(broker)) {
            return away(Error::retry(format!("its broker is away: broker={broker}")));
        }
        for (broker, _) in self.brokers.addresses() {
            match self.queues_at(&broker, topic).await {
                Ok(None) => {}
                Ok(Some(_)) => return away(Error::retry(format!("but its broker does: broker={broker}"))),
                Err(error) => return away(error),
            }
        }
        self.topics.learn(topic, None);
        Error::invalid(format!("no such topic: topic={topic}"))
    }

    /// Why the route of a topic does not show this queue; see [`absent`](Self::absent).
    async fn absent_queue(&self, partition: &Partition) -> Error {
        let behind =
            |why: &str| Error::retry(format!("name server does not show the queue: {why}: partition={partition}"));
        if !self.brokers.knows(&partition.broker) {
            return behind("its broker is away");
        }
        match self.queues_at(&partition.broker, &partition.topic).await {
            Ok(Some(queues)) if partition.queue < queues => behind("but its broker does"),
            Ok(_) => Error::invalid(format!("no such queue: partition={partition}")),
            Err(error) => error,
        }
    }

    pub(super) async fn partitions(&self, topic: &str) -> Result<Vec<Partition>> {
        let route = self.route(topic).await?;
        let topic: Arc<str> = topic.into();
        let queues = |(broker, queues): (Arc<str>, u32)| {
            let topic = topic.clone();
            (0..queues).map(move |queue| Partition::new(topic.clone(), broker.clone(), queue))
        };
        Ok(route.into_iter().flat_map(queues).collect())
    }

    /// Makes sure that a queue exists, without asking when that is known.
    ///
    /// # Errors
    /// `Invalid` when it does not, `Retry` when nobody can say.
    pub(super) async fn check_partition(&self, partition: &Partition) -> Result<()> {
        if self.topics.has(partition, false) {
            return Ok(());
        }
        let asked = match self.refresh().await {
            Ok(()) => self.route(&partition.topic).await.map(drop),
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) if self.topics.has(partition, false) => Ok(()),
            Ok(()) => Err(self.absent_queue(partition).await),
            // The name server is needed to learn, not to go on.
            Err(error) if error.kind() == ErrorKind::Retry && self.topics.has(partition, true) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn create_topic(&self, spec: &TopicSpec) -> Result<()> {
        check_topic(&spec.topic)?;
        self.refresh().await?;
        let wanted: Route = match &spec.queues {
            Queues::PerBroker(queues) => {
                self.brokers.addresses().into_iter().map(|(broker, _)| (broker, *queues)).collect()
            }
            Queues::SameAs(other) => self.route(other).await?,
        };
        if let Some((broker, queues)) = wanted.iter().find(|(_, queues)| !(1..=QUEUES_MAX).contains(*queues)) {
            return Err(Error::invalid(format!("queues must be 1 to {QUEUES_MAX}: broker={broker} queues={queues}")));
        }
        for (broker, queues) in &wanted {
            if self.queues_at(broker, &spec.topic).await?.is_none_or(|present| present < *queues) {
                self.create_at(broker, &spec.topic, *queues).await?;
            }
        }
        self.await_route(&spec.topic, &wanted).await
    }

    /// How many queues a topic has at a broker, by the broker itself.
    async fn queues_at(&self, broker: &str, topic: &str) -> Result<Option<u32>> {
        let fields = Fields::default().text("topic", topic).value("lo", true);
        let deadline = self.brokers.deadline();
        let (reply, _) =
            self.brokers.call(broker, Way::Any(Lane::Read), Request::TopicConfig, fields, &[], deadline).await?;
        match reply.code {
            code::SUCCESS => {
                let config: TopicConfig = serde_json::from_slice(&reply.body)
                    .map_err(|error| reply.malformed("body", "topic settings").with_source(error))?;
                Ok(Some(config.read_queue_nums.min(config.write_queue_nums)))
            }
            code::TOPIC_NOT_EXIST => Ok(None),
            _ => Err(refusal("topic settings", &reply)),
        }
    }

    async fn create_at(&self, broker: &str, topic: &str, queues: u32) -> Result<()> {
        let fields = Fields::default()
            .text("topic", topic)
            .text("defaultTopic", topic)
            .value("readQueueNums", queues)
            .value("writeQueueNums", queues)
            .value("perm", PERMISSION_READ_WRITE)
            .text("topicFilterType", "SINGLE_TAG")
            .value("topicSysFlag", 0)
            .value("order", false);
        let deadline = self.brokers.deadline();
        let call =
            self.brokers.call(broker, Way::Any(Lane::Read), Request::UpdateAndCreateTopic, fields, &[], deadline);
        let (reply, _) = call.await?;
        if reply.code == code::SUCCESS {
            return Ok(());
        }
        Err(refusal("create topic", &reply).context(format_args!("topic={topic} broker={broker}")))
    }

    /// Brokers tell the name server a moment later.
    async fn await_route(&self, topic: &str, wanted: &Route) -> Result<()> {
        let deadline = self.brokers.deadline();
        loop {
            let route = self.client.route(topic).await?.unwrap_or_default();
            if wanted.iter().all(|(broker, queues)| route.get(broker).is_some_and(|present| present >= queues)) {
                self.topics.learn(topic, Some(route));
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::retry(format!("name server does not show the new topic yet: topic={topic}")));
            }
            sleep(ROUTE_PAUSE).await;
        }
    }

    pub(super) async fn offsets(&self, partition: &Partition) -> Result<OffsetRange> {
        let (first, next) = futures_util::future::try_join(
            self.offset_of(partition, Request::MinOffset, queue_fields(partition)),
            self.offset_of(partition, Request::MaxOffset, queue_fields(partition)),
        )
        .await?;
        // Two questions: retention may have moved the first past an end that was asked for earlier.
        Ok(OffsetRange { first: first.min(next), next })
    }

    pub(super) async fn offset_at(&self, partition: &Partition, time: Timestamp) -> Result<Offset> {
        let fields = queue_fields(partition).value("timestamp", time.as_millis().max(0)).text("boundaryType", "lower");
        self.offset_of(partition, Request::SearchOffsetByTimestamp, fields).await
    }

    async fn offset_of(&self, partition: &Partition, request: Request, fields: Fields<'_>) -> Result<Offset> {
        let (reply, _) = self.call(partition, Lane::Read, request, fields, &[]).await?;
        if reply.code == code::SUCCESS { reply.offset("offset") } else { Err(refusal("offset", &reply)) }
    }

    pub(super) async fn find_unique_key(&self, partition: &Partition, key: &str, max: u32) -> Result<Vec<Offset>> {
        let fields = Fields::default()
            .text("topic", &*partition.topic)
            .text("key", key)
            .value("maxNum", max)
            .value("beginTimestamp", 0)
            .value("endTimestamp", i64::MAX)
            .text("_UNIQUE_KEY_QUERY", "true");
        let (reply, _) = self.call(partition, Lane::Read, Request::QueryMessage, fields, &[]).await?;
        match reply.code {
            code::SUCCESS => {
                offsets_with(&reply.body, partition.queue, key).map_err(|reason| reply.malformed("body", reason))
            }
            code::QUERY_NOT_FOUND => Ok(vec![]),
            _ => Err(refusal("look up by UNIQ_KEY", &reply)),
        }
    }

    pub(super) async fn report_offsets(&self, group: &str, offsets: &Offsets) -> Result<()> {
        let report = |(partition, next): (&Partition, Offset)| {
            let partition = partition.clone();
            async move {
                let fields = queue_fields(&partition).text("consumerGroup", group).value("commitOffset", next.get());
                let (reply, _) = self.call(&partition, Lane::Read, Request::UpdateConsumerOffset, fields, &[]).await?;
                if reply.code == code::SUCCESS { Ok(()) } else { Err(refusal("consumer offset", &reply)) }
            }
        };
        let reports = join_all(offsets.iter().map(report)).await;
        reports.into_iter().collect()
    }
}

/// Topic and queue number, as most requests name them.
pub(super) fn queue_fields(partition: &Partition) -> Fields<'_> {
    Fields::default().text("topic", &*partition.topic).value("queueId", partition.queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_route_is_asked_again_but_still_serves() {
        let topics = Topics::default();
        let queue = |number| Partition::new("t", "b", number);
        topics.learn("t", Some([("b".into(), 2)].into()));
        assert!(topics.has(&queue(1), false) && !topics.has(&queue(2), false));
        topics.forget("t");
        assert!(!topics.has(&queue(1), false) && topics.has(&queue(1), true));
        topics.learn("t", None);
        assert!(!topics.has(&queue(1), true));
    }
}
