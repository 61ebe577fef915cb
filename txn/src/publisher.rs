//! S5: when may which output be made visible, and when is it proven to stay so.
//!
//! The publisher holds the decided epochs of one owner, oldest first, and says what to do next ([`Publisher::step`]).
//! The engine does it and reports what it saw. Time is a parameter: a monotonic [`Duration`] since any fixed instant.
//!
//! The rules (`docs/commit-protocol.md`, S5 and take-over):
//!
//! 1. Epochs are published one after the other. Inside an epoch, ENDs may be in flight together; plain sends go one
//!    after the other in each channel.
//! 2. Nothing external is published without a lease: the request that last showed no newer Claim was *sent* less than
//!    `publish_lease` ago.
//! 3. At take-over, in this order: wait `publish_lease`, renew the lease by reading the journal, scan, publish what is
//!    missing. A clean Release or a known-dead owner makes the wait needless.
//! 4. A missing reply is looked up by a scan behind a barrier before the message is sent again.
//! 5. Neither an END's reply nor a message that was seen in its queue proves durability. A later send to that broker
//!    does, acknowledged over a connection that is not younger than the one that carried the reply (or the barrier before
//!    the look): the same broker process, then. When only younger connections are left, the epoch is looked for again.
//! 6. Channels of internal topics skip wait, lease and scan: their reader drops what comes twice.

use onceflow_types::{Channel, Epoch, HalfHandle, Sequence};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The output of one decided epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishPlan {
    /// The epoch.
    pub epoch: Epoch,
    /// What to make visible; in each channel in the order of its sequences.
    pub items: Vec<Item>,
}

/// One request that makes output visible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Where the output goes.
    pub channel: Channel,
    /// The sequence of its first message.
    pub first: Sequence,
    /// How many sequences it covers, 1 or more.
    pub count: u32,
    /// Whether only Onceflow's own dedup reader reads the topic (rule 6).
    pub internal: bool,
    /// What the request is.
    pub work: Work,
}

/// What makes an item visible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// END(commit) by this handle.
    End(HalfHandle),
    /// One append of these bytes (RocketMQ's batch encoding).
    Send(Vec<u8>),
}

impl Work {
    /// Bytes of the messages of a send.
    fn bytes(&self) -> usize {
        match self {
            Work::End(_) => 0,
            Work::Send(messages) => messages.len(),
        }
    }
}

/// An acknowledgement's connection: broker and number, which grows with each new connection to that broker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkId {
    /// The broker's name.
    pub broker: Arc<str>,
    /// The connection's number.
    pub connection: u64,
}

/// Names an item of a plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ItemId {
    /// The epoch.
    pub epoch: Epoch,
    /// Its place in the plan.
    pub index: usize,
}

/// What the engine does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing until something is reported.
    Idle,
    /// Nothing before this time.
    WaitUntil(Duration),
    /// Read the journal to its end; then [`Publisher::lease_from`] the time at which that read was sent, unless a newer
    /// Claim was found.
    RenewLease,
    /// For the brokers of these items: append to the barrier topic until acknowledged, report
    /// [`Publisher::send_acknowledged`] and read it back; then look for the items in their target queues; then
    /// [`Publisher::scanned`]. It is asked for again until then.
    Scan(Vec<ItemId>),
    /// Append to the barrier topic of these brokers and report [`Publisher::send_acknowledged`].
    Prove(Vec<Arc<str>>),
    /// Start these requests; report each by [`Publisher::ended`], [`Publisher::sent`] or [`Publisher::unknown`].
    Publish(Vec<ItemId>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    InFlight,
    /// Sent, reply missing; external ones need a scan.
    Unknown,
    /// END acknowledged, or seen in its queue; not proven.
    Visible,
    Done,
}

#[derive(Clone, Debug)]
struct Decided {
    plan: PublishPlan,
    states: Vec<State>,
    /// The lane of each item: items of one channel share it.
    lane_of: Vec<usize>,
    lanes: Vec<Lane>,
    /// The waiting items that may go now, external and internal ones.
    ready: [BTreeSet<usize>; 2],
    /// How many items are in which state.
    count: Count,
    /// Bytes of the messages of all sends.
    bytes: usize,
}

/// The plain sends of one channel: one at a time (rule 1).
#[derive(Clone, Default, Debug)]
struct Lane {
    waiting: BTreeSet<usize>,
    /// How many are in flight or of unknown outcome.
    open: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    waiting_external: usize,
    waiting: usize,
    in_flight: usize,
    unknown: usize,
    visible: usize,
}

/// A visible item that waits for its proof.
#[derive(Clone, Copy, Debug)]
struct Unproven {
    id: ItemId,
    /// The number of its END or look.
    end: u64,
    connection: u64,
}

/// Publishes the decided epochs of one owner. See the [module](self) for the rules.
#[derive(Clone, Debug)]
pub struct Publisher {
    lease: Duration,
    in_flight_max: usize,
    /// No external output before this time (rule 3).
    wait_until: Option<Duration>,
    lease_until: Option<Duration>,
    /// Epochs not yet acknowledged, then epochs acknowledged and not yet proven, oldest first.
    epochs: VecDeque<Decided>,
    /// The last epoch that was handed in.
    last: Epoch,
    /// How many items have become visible: orders them and the sends that prove them.
    ends: u64,
    /// By broker, in the order in which they became visible.
    unproven: BTreeMap<Arc<str>, VecDeque<Unproven>>,
    /// The first connection to each broker that carried an acknowledgement since the last scan was asked for: that
    /// broker process was there before the look.
    scan_links: BTreeMap<Arc<str>, u64>,
    prove_wanted: bool,
    proving: bool,
}

impl Publisher {
    /// A publisher that starts behind `published_through`. `lease` is the publish lease; at most `in_flight_max`
    /// requests are under way at once.
    pub fn new(published_through: Epoch, lease: Duration, in_flight_max: usize) -> Self {
        Publisher {
            lease,
            in_flight_max: in_flight_max.max(1),
            wait_until: None,
            lease_until: None,
            epochs: VecDeque::new(),
            last: published_through,
            ends: 0,
            unproven: BTreeMap::new(),
            scan_links: BTreeMap::new(),
            prove_wanted: false,
            proving: false,
        }
    }

    /// Takes over epochs that an earlier owner decided. `claimed_at` is when the own Claim was read back; `wait` is
    /// false after a Release and when the old owner is known to be dead (rule 3).
    pub fn take_over(&mut self, plans: Vec<PublishPlan>, claimed_at: Duration, wait: bool) {
        self.wait_until = wait.then(|| claimed_at.saturating_add(self.lease));
        for plan in plans {
            self.push(plan, true);
        }
    }

    /// Adds an epoch that this owner decided.
    pub fn decided(&mut self, plan: PublishPlan) {
        self.push(plan, false);
    }

    fn push(&mut self, plan: PublishPlan, taken_over: bool) {
        assert!(plan.epoch > self.last, "epochs are published in order: last={} given={}", self.last, plan.epoch);
        self.last = plan.epoch;
        self.epochs.push_back(Decided::new(plan, taken_over));
        self.settle();
    }

    /// The request that showed no newer Claim was sent at `sent_at` (a Commit at its expected place, or a journal read).
    pub fn lease_from(&mut self, sent_at: Duration) {
        let until = sent_at.saturating_add(self.lease);
        self.lease_until = Some(self.lease_until.map_or(until, |known| known.max(until)));
    }

    /// Every epoch up to this one is published and proven.
    pub fn published_through(&self) -> Epoch {
        match self.epochs.front() {
            Some(oldest) => Epoch::new(oldest.plan.epoch.get() - 1),
            None => self.last,
        }
    }

    /// How many epochs are decided and not yet published and proven.
    pub fn unpublished(&self) -> usize {
        self.epochs.len()
    }

    /// Bytes of their messages that are sent: what is kept to be sent again.
    pub fn unpublished_bytes(&self) -> usize {
        self.epochs.iter().map(|decided| decided.bytes).sum()
    }

    /// Asks for proof of what is acknowledged, without waiting for the next epoch's sends: before a Release, and when
    /// the bound on unpublished epochs is reached.
    pub fn want_proof(&mut self) {
        self.prove_wanted = !self.epochs.is_empty();
    }

    /// The item of an id from [`step`](Self::step).
    pub fn item(&self, id: ItemId) -> Option<&Item> {
        self.epochs.iter().find(|decided| decided.plan.epoch == id.epoch)?.plan.items.get(id.index)
    }

    /// What to do at `now`. Requests that [`Step::Publish`] names count as in flight from here on.
    pub fn step(&mut self, now: Duration) -> Step {
        let Some(head) = self.epochs.iter_mut().find(|decided| !decided.acknowledged()) else {
            return self.prove();
        };
        if head.needs_lease() {
            if let Some(until) = self.wait_until.filter(|until| now < *until) {
                // Internal channels do not wait (rule 6).
                let internal = head.take_ready(self.in_flight_max, true);
                return if internal.is_empty() { Step::WaitUntil(until) } else { Step::Publish(internal) };
            }
            self.wait_until = None;
            if self.lease_until.is_none_or(|until| now >= until) {
                return Step::RenewLease;
            }
            if head.count.unknown > 0 {
                if head.count.in_flight > 0 {
                    return Step::Idle;
                }
                self.scan_links.clear();
                return Step::Scan(head.unknown());
            }
        }
        let ready = head.take_ready(self.in_flight_max, false);
        if ready.is_empty() { Step::Idle } else { Step::Publish(ready) }
    }

    fn prove(&mut self) -> Step {
        if !self.prove_wanted || self.proving || self.epochs.is_empty() {
            return Step::Idle;
        }
        self.proving = true;
        let unproven = self.unproven.iter().filter(|(_, unproven)| !unproven.is_empty());
        Step::Prove(unproven.map(|(broker, _)| broker.clone()).collect())
    }

    /// A barrier that [`Step::Prove`] asked for could not be appended; it will be asked for again.
    pub fn prove_failed(&mut self) {
        self.proving = false;
    }

    /// The END of an item was acknowledged over `link`.
    pub fn ended(&mut self, id: ItemId, link: LinkId) {
        if self.finish(id, State::Visible) {
            self.wait_for_proof(id, link);
        }
    }

    fn wait_for_proof(&mut self, id: ItemId, link: LinkId) {
        let unproven = Unproven { id, end: self.ends, connection: link.connection };
        self.ends += 1;
        self.unproven.entry(link.broker).or_default().push_back(unproven);
    }

    /// The append of an item was acknowledged without reservation: published and proven.
    pub fn sent(&mut self, id: ItemId) {
        self.finish(id, State::Done);
    }

    /// The outcome of an item's request is unknown.
    pub fn unknown(&mut self, id: ItemId) {
        self.finish(id, State::Unknown);
    }

    /// Returns whether there is such an item.
    fn finish(&mut self, id: ItemId, state: State) -> bool {
        let Some(decided) = self.find(id) else { return false };
        assert_eq!(decided.states.get(id.index), Some(&State::InFlight), "a report for an item that is not in flight");
        decided.set(id.index, state);
        self.settle();
        true
    }

    fn find(&mut self, id: ItemId) -> Option<&mut Decided> {
        self.epochs.iter_mut().find(|decided| decided.plan.epoch == id.epoch)
    }

    /// A scan asked for by [`Step::Scan`] is done; `visible` says which of its items are in their queues. Those wait for
    /// their proof like an acknowledged END: what was written after the barrier is seen as well.
    pub fn scanned(&mut self, asked: &[ItemId], mut visible: impl FnMut(ItemId) -> bool) {
        for id in asked {
            let seen = visible(*id);
            let Some(decided) = self.find(*id).filter(|decided| decided.states.get(id.index) == Some(&State::Unknown))
            else {
                continue;
            };
            if !seen {
                decided.set(id.index, State::Waiting);
                continue;
            }
            decided.set(id.index, State::Visible);
            let Some(broker) = decided.plan.items.get(id.index).map(|item| item.channel.target.broker.clone()) else {
                continue;
            };
            // Without a barrier's connection nothing is ever proven by it, and the next send leads to another look.
            let connection = self.scan_links.get(&broker).copied().unwrap_or(0);
            self.wait_for_proof(*id, LinkId { broker, connection });
        }
        self.settle();
    }

    /// Taken when a send is issued, and handed to [`send_acknowledged`](Self::send_acknowledged) with its SEND_OK: it
    /// says which ENDs had been acknowledged before.
    pub fn ticket(&self) -> u64 {
        self.ends
    }

    /// A send issued with `ticket` got SEND_OK over `link`: proves what had become visible before it over connections to
    /// that broker that are not older (rule 5). What became visible over connections that are gone becomes unknown.
    pub fn send_acknowledged(&mut self, link: &LinkId, ticket: u64) {
        self.proving = false;
        self.scan_links.entry(link.broker.clone()).or_insert(link.connection);
        while let Some(unproven) =
            self.unproven.get_mut(&link.broker).and_then(|all| all.pop_front_if(|first| first.end < ticket))
        {
            let proven = link.connection <= unproven.connection;
            if let Some(decided) = self.find(unproven.id) {
                decided.set(unproven.id.index, if proven { State::Done } else { State::Unknown });
            }
        }
        self.settle();
    }

    /// Drops what is published and proven from the front.
    fn settle(&mut self) {
        while self.epochs.front().is_some_and(Decided::proven) {
            self.epochs.pop_front();
        }
        if self.epochs.is_empty() {
            self.prove_wanted = false;
        }
    }
}

impl Decided {
    fn new(plan: PublishPlan, taken_over: bool) -> Self {
        let mut numbers: BTreeMap<&Channel, usize> = BTreeMap::new();
        let number = |item| {
            let next = numbers.len();
            *numbers.entry(item).or_insert(next)
        };
        let lane_of: Vec<usize> = plan.items.iter().map(|item| &item.channel).map(number).collect();
        let lanes = vec![Lane::default(); lane_of.iter().max().map_or(0, |last| last + 1)];
        // `Done` counts nowhere, so that the first `set` of each item counts it.
        let states = vec![State::Done; plan.items.len()];
        let bytes = plan.items.iter().map(|item| item.work.bytes()).sum();
        let (ready, count) = (<[BTreeSet<usize>; 2]>::default(), Count::default());
        let mut decided = Decided { plan, states, lane_of, lanes, ready, count, bytes };
        let first = if taken_over { State::Unknown } else { State::Waiting };
        (0..decided.states.len()).for_each(|index| decided.set(index, first));
        decided
    }

    /// The only place where an item's state changes.
    fn set(&mut self, index: usize, state: State) {
        let (Some(item), Some(slot), Some(lane)) = (
            self.plan.items.get(index),
            self.states.get_mut(index),
            self.lane_of.get(index).and_then(|lane| self.lanes.get_mut(*lane)),
        ) else {
            return;
        };
        // An internal message of unknown fate is simply sent again (rule 6).
        let state = if state == State::Unknown && item.internal { State::Waiting } else { state };
        let external = usize::from(!item.internal);
        let [of_external, of_internal] = &mut self.ready;
        let ready = if item.internal { of_internal } else { of_external };
        match slot {
            State::Waiting => {
                self.count.waiting -= 1;
                self.count.waiting_external -= external;
                ready.remove(&index);
            }
            State::InFlight => self.count.in_flight -= 1,
            State::Unknown => self.count.unknown -= 1,
            State::Visible => self.count.visible -= 1,
            State::Done => {}
        }
        match state {
            State::Waiting => {
                self.count.waiting += 1;
                self.count.waiting_external += external;
            }
            State::InFlight => self.count.in_flight += 1,
            State::Unknown => self.count.unknown += 1,
            State::Visible => self.count.visible += 1,
            State::Done => {}
        }
        match item.work {
            Work::End(_) if state == State::Waiting => {
                ready.insert(index);
            }
            Work::End(_) => {}
            Work::Send(_) => lane.moved(index, *slot, state, ready),
        }
        *slot = state;
    }

    fn proven(&self) -> bool {
        self.acknowledged() && self.count.visible == 0
    }

    fn acknowledged(&self) -> bool {
        self.count.waiting + self.count.in_flight + self.count.unknown == 0
    }

    /// Whether external output is still to be published or looked up.
    fn needs_lease(&self) -> bool {
        self.count.waiting_external + self.count.unknown > 0
    }

    fn unknown(&self) -> Vec<ItemId> {
        let unknown = self.states.iter().enumerate().filter(|(_, state)| **state == State::Unknown);
        unknown.map(|(index, _)| ItemId { epoch: self.plan.epoch, index }).collect()
    }

    /// Moves items that may go now to in flight, in their order; during the wait only internal ones.
    fn take_ready(&mut self, in_flight_max: usize, internal_only: bool) -> Vec<ItemId> {
        let mut taken = vec![];
        while self.count.in_flight < in_flight_max {
            let [external, internal] = &self.ready;
            let external = external.first().filter(|_| !internal_only);
            let Some(index) = external.into_iter().chain(internal.first()).min().copied() else { break };
            self.set(index, State::InFlight);
            taken.push(ItemId { epoch: self.plan.epoch, index });
        }
        taken
    }
}

impl Lane {
    /// A send of this channel went from one state to another: keeps in `ready` the first waiting one, when none is open.
    fn moved(&mut self, index: usize, from: State, to: State, ready: &mut BTreeSet<usize>) {
        let is_open = |state| matches!(state, State::InFlight | State::Unknown);
        if let Some(first) = self.waiting.first() {
            ready.remove(first);
        }
        self.open = self.open + usize::from(is_open(to)) - usize::from(is_open(from));
        if to == State::Waiting {
            self.waiting.insert(index);
        } else {
            self.waiting.remove(&index);
        }
        if let Some(first) = self.waiting.first().filter(|_| self.open == 0) {
            ready.insert(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceflow_types::{Name, Partition};

    const LEASE: Duration = Duration::from_secs(10);

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn item(queue: u32, first: u64, internal: bool, send: bool) -> Item {
        let target = Partition::new("out", "broker-a", queue);
        let handle = HalfHandle {
            target: target.clone(),
            commit_log_offset: first,
            half_queue_offset: first,
            unique_key: format!("K{first}").into(),
        };
        Item {
            channel: Channel { sink: Name::new("sink").unwrap(), target },
            first: Sequence::new(first),
            count: 1,
            internal,
            work: if send { Work::Send(vec![1]) } else { Work::End(handle) },
        }
    }

    fn plan(epoch: u64, items: Vec<Item>) -> PublishPlan {
        PublishPlan { epoch: Epoch::new(epoch), items }
    }

    fn id(epoch: u64, index: usize) -> ItemId {
        ItemId { epoch: Epoch::new(epoch), index }
    }

    fn link(connection: u64) -> LinkId {
        LinkId { broker: "broker-a".into(), connection }
    }

    fn publisher() -> Publisher {
        let mut publisher = Publisher::new(Epoch::ZERO, LEASE, 64);
        publisher.lease_from(second(0));
        publisher
    }

    #[test]
    fn an_end_counts_as_published_only_after_a_later_send_over_the_same_connection() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![item(0, 0, false, false)]));
        let early = publisher.ticket();
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 0)]));
        publisher.ended(id(1, 0), link(1));
        publisher.send_acknowledged(&link(1), early);
        assert_eq!(publisher.published_through(), Epoch::ZERO, "the send was issued before the END's reply");
        let ticket = publisher.ticket();
        publisher.send_acknowledged(&link(1), ticket);
        assert_eq!(publisher.published_through(), Epoch::new(1));
    }

    #[test]
    fn a_lost_connection_means_a_scan_and_only_the_missing_are_ended_again() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![item(0, 0, false, false), item(1, 0, false, false)]));
        publisher.step(second(1));
        publisher.ended(id(1, 0), link(1));
        publisher.ended(id(1, 1), link(1));
        let ticket = publisher.ticket();
        publisher.send_acknowledged(&link(2), ticket);
        assert_eq!(publisher.step(second(2)), Step::Scan(vec![id(1, 0), id(1, 1)]));
        publisher.scanned(&[id(1, 0), id(1, 1)], |asked| asked.index == 0);
        assert_eq!(publisher.step(second(2)), Step::Publish(vec![id(1, 1)]));
    }

    #[test]
    fn a_take_over_waits_then_renews_then_scans_then_publishes() {
        let mut publisher = Publisher::new(Epoch::new(4), LEASE, 64);
        publisher.take_over(vec![plan(5, vec![item(0, 7, false, false)])], second(100), true);
        assert_eq!(publisher.step(second(101)), Step::WaitUntil(second(110)));
        assert_eq!(publisher.step(second(110)), Step::RenewLease);
        publisher.lease_from(second(110));
        assert_eq!(publisher.step(second(111)), Step::Scan(vec![id(5, 0)]));
        publisher.scanned(&[id(5, 0)], |_| false);
        assert_eq!(publisher.step(second(111)), Step::Publish(vec![id(5, 0)]));
        assert_eq!(publisher.published_through(), Epoch::new(4));
    }

    #[test]
    fn internal_channels_repeat_at_once_while_external_ones_wait() {
        let mut publisher = Publisher::new(Epoch::ZERO, LEASE, 64);
        publisher.take_over(vec![plan(1, vec![item(0, 0, false, true), item(1, 0, true, true)])], second(0), true);
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 1)]));
        publisher.unknown(id(1, 1));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 1)]));
        publisher.sent(id(1, 1));
        assert_eq!(publisher.step(second(1)), Step::WaitUntil(second(10)));
    }

    #[test]
    fn a_lease_that_ran_out_stops_external_output() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![item(0, 0, false, true)]));
        assert_eq!(publisher.step(second(10)), Step::RenewLease);
        publisher.lease_from(second(10));
        assert_eq!(publisher.step(second(11)), Step::Publish(vec![id(1, 0)]));
    }

    #[test]
    fn plain_sends_of_a_channel_go_one_after_the_other_and_channels_side_by_side() {
        let mut publisher = publisher();
        let items = vec![item(0, 0, false, true), item(0, 5, false, true), item(1, 0, false, true)];
        publisher.decided(plan(1, items));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 0), id(1, 2)]));
        assert_eq!(publisher.step(second(1)), Step::Idle);
        publisher.sent(id(1, 0));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 1)]));
        publisher.unknown(id(1, 1));
        publisher.sent(id(1, 2));
        assert_eq!(publisher.step(second(1)), Step::Scan(vec![id(1, 1)]));
    }

    #[test]
    fn a_later_epoch_waits_for_the_acknowledgements_of_the_one_before() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![item(0, 0, false, false)]));
        publisher.decided(plan(2, vec![item(1, 0, false, false)]));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 0)]));
        assert_eq!(publisher.step(second(1)), Step::Idle);
        publisher.ended(id(1, 0), link(1));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(2, 0)]));
    }

    #[test]
    fn an_epoch_without_output_is_published_when_it_is_decided() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![]));
        assert_eq!(publisher.published_through(), Epoch::new(1));
    }

    #[test]
    fn proof_is_asked_for_once_and_again_after_a_failure() {
        let mut publisher = publisher();
        publisher.decided(plan(1, vec![item(0, 0, false, false)]));
        publisher.step(second(1));
        publisher.ended(id(1, 0), link(3));
        assert_eq!(publisher.step(second(1)), Step::Idle);
        publisher.want_proof();
        assert_eq!(publisher.step(second(1)), Step::Prove(vec!["broker-a".into()]));
        assert_eq!(publisher.step(second(1)), Step::Idle);
        publisher.prove_failed();
        assert_eq!(publisher.step(second(1)), Step::Prove(vec!["broker-a".into()]));
    }

    #[test]
    fn requests_in_flight_are_bounded() {
        let mut publisher = Publisher::new(Epoch::ZERO, LEASE, 2);
        publisher.lease_from(second(0));
        publisher.decided(plan(1, (0..5).map(|n| item(0, n, false, false)).collect()));
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 0), id(1, 1)]));
        publisher.unknown(id(1, 0));
        assert_eq!(publisher.step(second(1)), Step::Idle, "a scan waits until nothing is in flight");
        publisher.ended(id(1, 1), link(1));
        assert_eq!(publisher.step(second(1)), Step::Scan(vec![id(1, 0)]));
        publisher.scanned(&[id(1, 0)], |_| true);
        assert_eq!(publisher.step(second(1)), Step::Publish(vec![id(1, 2), id(1, 3)]));
    }
}
