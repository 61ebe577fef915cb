//! Compares the reader view of the output with what the raw input asks for.

mod card;

use crate::channel::{Channel, Item, Seen};
use crate::dump::Message;
use crate::identity::{Identity, PROPERTY};
use crate::report::Report;
use card::{Card, Figures, Payment};
use serde::Deserialize;
use std::collections::BTreeMap;

/// RocketMQ's name for a message that a client sent.
const STORED: &str = "UNIQ_KEY";
/// A message that became visible by an END names the producer group that may end it.
const OF_A_HALF: &str = "PGROUP";

/// A payment, as the input topic holds it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct In {
    id: u64,
    card: String,
    amount: i64,
}

/// A record of the output: the card's figures once payment `id` was in them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Out {
    card: String,
    id: u64,
    count: u64,
    sum: i64,
    min: i64,
    max: i64,
}

/// Task, sink and output queue.
type ChannelId = (String, String, u32);

/// See the module.
pub(crate) struct Judge {
    job: String,
    cards: BTreeMap<String, Card>,
    channels: BTreeMap<ChannelId, Channel<Out>>,
    /// Generation and epoch of the last message that a channel handed on.
    last: BTreeMap<ChannelId, (u64, u64)>,
    /// By task and epoch.
    generations: BTreeMap<(String, u64), u64>,
    report: Report,
}

impl Judge {
    pub(crate) fn new(job: &str) -> Self {
        Judge {
            job: job.to_owned(),
            cards: BTreeMap::new(),
            channels: BTreeMap::new(),
            last: BTreeMap::new(),
            generations: BTreeMap::new(),
            report: Report::default(),
        }
    }

    /// Takes a message of the input, all of them before the first output.
    ///
    /// # Errors
    /// When it is no payment: nobody but the run's producer writes there.
    pub(crate) fn input(&mut self, message: &Message) -> Result<(), String> {
        let payment: In = serde_json::from_str(&message.body).map_err(|e| format!("no payment: {e}: {message:?}"))?;
        self.report.figures.input += 1;
        let card = self.cards.entry(payment.card).or_default();
        card.payments.push(Payment { queue: message.queue, id: payment.id, amount: payment.amount });
        Ok(())
    }

    /// Takes a message of the output.
    pub(crate) fn output(&mut self, message: &Message) {
        let text = message.properties.get(PROPERTY).map_or("", String::as_str);
        let body: Option<Out> = serde_json::from_str(&message.body).ok();
        let identity = Identity::parse(text).filter(|identity| identity.job == self.job);
        let (Some(identity), Some(body)) = (identity, body) else {
            return self.report.fault(|f| &mut f.foreign, || format!("foreign message: {message:?}"));
        };
        let id = (identity.task.clone(), identity.sink.clone(), message.queue);
        let item = Item::new(identity, (text, &message.body), message.properties.get(STORED), body);
        match self.channels.entry(id.clone()).or_default().take(item) {
            Seen::Next(items) => items.into_iter().for_each(|item| self.hand_on(&id, &item)),
            Seen::Waits => {}
            Seen::Copy { of_one_stored } => self.copy(message, of_one_stored),
            Seen::Conflict => {
                self.report
                    .fault(|f| &mut f.conflicting, || format!("not the message that has its number: {message:?}"));
            }
        }
    }

    /// An exact copy. Of a half there is one reason: it was ended twice. Two halves of one record must never both become
    /// visible, as one of them is no part of the decision.
    fn copy(&mut self, message: &Message, of_one_stored: bool) {
        let half = message.properties.contains_key(OF_A_HALF);
        let figures = &mut self.report.figures;
        match (half, of_one_stored) {
            (true, true) => figures.ended_again += 1,
            (false, _) => figures.sent_again += 1,
            (true, false) => {
                return self
                    .report
                    .fault(|f| &mut f.conflicting, || format!("another half of one record: {message:?}"));
            }
        }
        figures.raw_duplicates += 1;
    }

    /// A record enters the reader view.
    fn hand_on(&mut self, channel: &ChannelId, item: &Item<Out>) {
        let Identity { task, generation, epoch, .. } = &item.identity;
        let now = (*generation, *epoch);
        let before = self.last.insert(channel.clone(), now).unwrap_or(now);
        if before.0 > now.0 || before.1 > now.1 {
            self.report
                .fault(|f| &mut f.torn, || format!("mixed epochs: channel={channel:?} {before:?} before {now:?}"));
        }
        let decided = *self.generations.entry((task.clone(), *epoch)).or_insert(*generation);
        if decided != *generation {
            self.report.fault(
                |f| &mut f.torn,
                || format!("an epoch of two generations: task={task} epoch={epoch} {decided} and {generation}"),
            );
        }
        let Out { card, id, count, sum, min, max } = &item.content;
        let figures = Figures { count: *count, sum: *sum, min: *min, max: *max };
        self.report.figures.outputs += 1;
        match self.cards.get_mut(card) {
            Some(found) => found.output(channel.2, *id, figures),
            None => self.report.fault(|f| &mut f.foreign, || format!("no such card: {:?}", item.content)),
        }
    }

    /// The end of both topics.
    pub(crate) fn verdict(mut self) -> Report {
        for (id, channel) in std::mem::take(&mut self.channels) {
            self.left(&id, channel);
        }
        for (name, card) in &self.cards {
            card.judge(name, &mut self.report);
        }
        self.report
    }

    /// What waits in a channel for ever: epochs that are torn. It is handed on all the same, so that only what is missing
    /// counts as lost.
    fn left(&mut self, id: &ChannelId, channel: Channel<Out>) {
        let (mut expected, rest) = channel.rest();
        for item in rest {
            let Identity { generation, epoch, sequence, .. } = item.identity;
            if sequence != expected {
                let before = self.last.get(id).copied();
                if before == Some((generation, epoch)) {
                    let words = || format!("torn epoch: channel={id:?} epoch={epoch} missing={expected}..{sequence}");
                    self.report.fault(|f| &mut f.torn, words);
                }
            }
            expected = sequence + 1;
            self.hand_on(id, &item);
        }
    }
}

#[cfg(test)]
mod tests;
