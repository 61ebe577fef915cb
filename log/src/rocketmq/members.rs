//! Who is in a consumer group.
//!
//! A member sends every master broker three requests on one connection: a heartbeat that registers it as a consumer of the
//! group, without subscriptions; its *beat*, a consumer offset that grows, in a queue of its own of the group's
//! retry topic, which nobody ever reads; and the question who is registered. RocketMQ's tools show the members.
//!
//! | a member | is gone |
//! | --- | --- |
//! | leaves (UNREGISTER_CLIENT), or its connection closes, as with any process that ends | at the next look, when the broker no longer lists it |
//! | hangs, is paused, or is cut off without a closed connection | when its beat has stood still for `member_silence_max`; the broker itself would list it for 120 s (`channelExpiredTimeout`) |
//! | is registered at a broker that was started again, and has not told the new one yet | not before `member_silence_max` |
//!
//! Who registers in the group but has no beat is no member: another program. A broker that does not answer is counted,
//! and what it said last goes on to count. Whoever one broker has as a member is one.

use super::Shared;
use super::brokers::{Lane, Way, lock};
use super::code::{self, Request, refusal};
use super::frame::Fields;
use crate::MemberId;
use crate::remoting::{Reply, RocketCounters};
use futures_util::future::join_all;
use onceflow_types::{Clock, Error, Result, wire};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// A broker, and a group.
type Place = (Arc<str>, Arc<str>);

/// Members of each group, as each broker has them.
#[derive(Default)]
pub(super) struct Members(Mutex<BTreeMap<Place, Seen>>);

/// What one broker said of one group.
#[derive(Default)]
struct Seen {
    looked_at: Option<Instant>,
    heard: BTreeMap<MemberId, Heard>,
}

struct Heard {
    beat: u64,
    /// When this beat was seen first.
    at: Instant,
    silent: bool,
    /// The connection over which it was listed last.
    connection: u64,
}

/// One look at a broker.
struct Look {
    /// The connection over which it was said: another one may lead to another life of the broker.
    connection: u64,
    /// Whoever is registered, with the beat of those who have one.
    listed: BTreeMap<MemberId, u64>,
}

/// Body of the answer to [`Request::ConsumersOfGroup`] (`GetConsumerListByGroupResponseBody`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsumerList {
    consumer_id_list: Vec<String>,
}

impl Seen {
    /// Takes over what was seen. The time of silence runs only while somebody looks.
    fn take(&mut self, look: Look, now: Instant, silence_max: Duration) {
        let away = self.looked_at.is_none_or(|looked_at| now - looked_at > silence_max / 2);
        for heard in self.heard.values_mut().filter(|_| away) {
            heard.at = now;
        }
        let connection = look.connection;
        // Whoever was never listed over this connection may not have told this life of the broker yet.
        self.heard.retain(|member, heard| look.listed.contains_key(member) || heard.connection != connection);
        for (member, beat) in look.listed {
            let heard = self.heard.entry(member).or_insert(Heard { beat, at: now, silent: false, connection });
            heard.connection = connection;
            if heard.beat != beat {
                (heard.beat, heard.at) = (beat, now);
            }
        }
        for heard in self.heard.values_mut() {
            heard.silent = now - heard.at > silence_max;
        }
        // Who is silent and not listed is forgotten.
        self.heard.retain(|_, heard| heard.connection == connection || !heard.silent);
        self.looked_at = Some(now);
    }

    fn members(&self) -> impl Iterator<Item = MemberId> {
        self.heard.iter().filter(|(_, heard)| !heard.silent).map(|(member, _)| member.clone())
    }
}

impl Shared {
    pub(super) async fn members(&self, group: &str, own: &MemberId) -> Result<BTreeSet<MemberId>> {
        if self.brokers.addresses().is_empty() {
            self.refresh().await?;
        }
        let brokers = self.brokers.addresses();
        let looks = join_all(brokers.iter().map(|(broker, _)| self.look(broker, group, own))).await;
        let (now, mut failed) = (Instant::now(), None);
        let mut known = lock(&self.members.0);
        known.retain(|(broker, _), _| brokers.iter().any(|(name, _)| name == broker));
        let mut answers = 0;
        for ((broker, _), look) in brokers.iter().zip(looks) {
            match look {
                Ok(look) => {
                    let seen = known.entry((broker.clone(), group.into())).or_default();
                    seen.take(look, now, self.options.member_silence_max);
                    answers += 1;
                }
                Err(error) => {
                    RocketCounters::add(&self.counters.member_looks_failed);
                    tracing::debug!(broker = &**broker, group, error = error.report(), "members not known");
                    failed = Some(error);
                }
            }
        }
        if answers == 0 {
            return Err(failed.unwrap_or_else(|| Error::retry("no broker to ask for members")));
        }
        let of_group = known.iter().filter(|((_, of), _)| **of == *group);
        let mut members: BTreeSet<MemberId> = of_group.flat_map(|(_, seen)| seen.members()).collect();
        members.insert(own.clone());
        Ok(members)
    }

    /// Tells one broker that `own` is there, and asks who else is.
    async fn look(&self, broker: &str, group: &str, own: &MemberId) -> Result<Look> {
        self.register(broker, group, own).await?;
        let beat = u64::try_from(self.clock.now().as_millis()).unwrap_or(1);
        let beating = beat_fields(group, own).value("commitOffset", beat);
        self.ask_of_group(broker, Request::UpdateConsumerOffset, beating, "member's beat").await?;
        let (reply, connection) = self.ask(broker, Request::ConsumersOfGroup, group_field(group)).await?;
        if reply.code != code::SUCCESS {
            return Err(refusal("members", &reply));
        }
        let list: ConsumerList = serde_json::from_slice(&reply.body)
            .map_err(|error| reply.malformed("body", "consumer list").with_source(error))?;
        // What is no member id is no member.
        let ids: Vec<MemberId> = list.consumer_id_list.iter().filter_map(|id| MemberId::new(id).ok()).collect();
        let beats = join_all(ids.iter().map(|member| self.beat_of(broker, group, member))).await;
        let mut listed = BTreeMap::new();
        for (member, beat) in ids.into_iter().zip(beats) {
            if let Some(beat) = beat? {
                listed.insert(member, beat);
            }
        }
        Ok(Look { connection, listed })
    }

    /// `None` for one that never had a beat.
    async fn beat_of(&self, broker: &str, group: &str, member: &MemberId) -> Result<Option<u64>> {
        let fields = beat_fields(group, member).value("setZeroIfNotFound", false);
        let (reply, _) = self.ask(broker, Request::QueryConsumerOffset, fields).await?;
        match reply.code {
            code::SUCCESS => Ok(Some(reply.offset("offset")?.get()).filter(|beat| *beat > 0)),
            code::QUERY_NOT_FOUND => Ok(None),
            _ => Err(refusal("member's beat", &reply)),
        }
    }

    pub(super) async fn leave(&self, group: &str, own: &MemberId) -> Result<()> {
        let brokers = self.brokers.addresses();
        let leave_one = |broker: Arc<str>| async move {
            let fields = Fields::default().text("clientID", own.as_str()).text("consumerGroup", group);
            self.ask_of_group(&broker, Request::UnregisterClient, fields, "end of a membership").await
        };
        let left = join_all(brokers.into_iter().map(|(broker, _)| leave_one(broker))).await;
        lock(&self.members.0).retain(|(_, of), _| **of != *group);
        left.into_iter().collect()
    }

    async fn ask_of_group(&self, broker: &str, request: Request, fields: Fields<'_>, what: &str) -> Result<()> {
        let (reply, _) = self.ask(broker, request, fields).await?;
        if reply.code == code::SUCCESS { Ok(()) } else { Err(refusal(what, &reply)) }
    }

    /// Always over the connection on which the member is registered.
    async fn ask(&self, broker: &str, request: Request, fields: Fields<'_>) -> Result<(Reply, u64)> {
        let deadline = self.brokers.deadline();
        let (reply, link) = self.brokers.call(broker, Way::Any(Lane::Read), request, fields, &[], deadline).await?;
        Ok((reply, link.connection))
    }
}

fn group_field(group: &str) -> Fields<'_> {
    Fields::default().text("consumerGroup", group)
}

/// The queue that stands for a member. The heartbeat makes the topic (`MixAll.getRetryTopic`); the queue need not exist.
fn beat_fields<'f>(group: &'f str, member: &MemberId) -> Fields<'f> {
    let queue = wire::checksum(member.as_str().as_bytes()) & 0x7fff_ffff;
    group_field(group).text("topic", format!("%RETRY%{group}")).value("queueId", queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MAX: Duration = Duration::from_secs(10);

    struct Watch(Seen, Instant);

    impl Watch {
        fn new() -> Watch {
            Watch(Seen::default(), Instant::now())
        }

        /// A look after some seconds, over a connection, at members with their beats.
        fn look(&mut self, after: u64, connection: u64, listed: &[(&str, u64)]) -> Vec<String> {
            self.1 += Duration::from_secs(after);
            let listed = listed.iter().map(|(member, beat)| (MemberId::new(member).unwrap(), *beat)).collect();
            self.0.take(Look { connection, listed }, self.1, SILENCE_MAX);
            self.0.members().map(|member| member.to_string()).collect()
        }
    }

    #[test]
    fn one_that_is_no_longer_listed_is_gone_at_once() {
        let mut watch = Watch::new();
        assert_eq!(watch.look(0, 1, &[("a", 1), ("b", 1)]), ["a", "b"]);
        assert_eq!(watch.look(2, 1, &[("a", 2)]), ["a"]);
    }

    #[test]
    fn one_whose_beat_stands_still_is_gone_after_the_bound_and_back_with_its_next_beat() {
        let mut watch = Watch::new();
        for beat in 1..=6 {
            assert_eq!(watch.look(2, 1, &[("a", beat), ("b", 1)]), ["a", "b"], "{beat}");
        }
        assert_eq!(watch.look(2, 1, &[("a", 7), ("b", 1)]), ["a"]);
        assert_eq!(watch.look(2, 1, &[("a", 8), ("b", 2)]), ["a", "b"]);
    }

    #[test]
    fn a_broker_that_was_started_again_may_not_know_everybody_yet() {
        let mut watch = Watch::new();
        assert_eq!(watch.look(2, 1, &[("a", 1), ("b", 1)]), ["a", "b"]);
        assert_eq!(watch.look(2, 2, &[("a", 2)]), ["a", "b"], "a new connection");
        assert_eq!(watch.look(2, 2, &[("a", 3), ("b", 2)]), ["a", "b"]);
        for beat in 4..=8 {
            assert_eq!(watch.look(2, 3, &[("a", beat)]), ["a", "b"], "{beat}");
        }
        assert_eq!(watch.look(2, 3, &[("a", 9)]), ["a"], "b had its time to tell the new broker");
    }

    #[test]
    fn whoever_did_not_look_does_not_call_others_silent() {
        let mut watch = Watch::new();
        assert_eq!(watch.look(0, 1, &[("a", 1), ("b", 1)]), ["a", "b"]);
        // Paused for a minute; b has not beaten since the last look.
        assert_eq!(watch.look(60, 1, &[("a", 1), ("b", 1)]), ["a", "b"]);
        for beat in 2..7 {
            assert_eq!(watch.look(2, 1, &[("a", beat), ("b", 1)]), ["a", "b"]);
        }
        assert_eq!(watch.look(2, 1, &[("a", 7), ("b", 1)]), ["a"]);
    }
}
