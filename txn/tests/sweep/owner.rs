//! An engine around the production coordinator and publisher: one effect a step, so that it can be cut anywhere.

use crate::world::{Message, SINK, World, decode_batch, encode_batch};
use onceflow_txn::{
    Action, Changes, Coordinator, Decoded, Event, Identity, ItemId, JournalRecord, LinkId, ListedHalf, Opening,
    OutboxBatch, Owner as Whose, PublishPlan, Publisher, Sealed, Step, Work,
};
use onceflow_types::{
    Channel, CommitPoint, Epoch, Error, ErrorKind, Generation, Incarnation, Name, Nonce, Offset, Offsets, Partition,
    Sequence, TaskId, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const LEASE: u64 = 10;
pub(crate) const RECORDS: u64 = 6;
const RECORDS_AN_EPOCH: u64 = 2;
const UNPUBLISHED_MAX: usize = 2;
const TRIES_MAX: u32 = 4;

/// A wrong engine. Each must be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutation {
    /// Takes a Commit that it only read for acknowledged.
    DecidesByReading,
    /// Ends the halves before the Commit.
    PublishesBeforeDecided,
    /// Does not publish what an earlier owner, or itself before a restart, has decided.
    ForgetsUnpublished,
    /// Its store does not know where unpublished epochs lie.
    StoreForgetsHandles,
    /// Renews its lease whatever the journal says, and publishes.
    IgnoresNewerClaim,
    /// Reports every acknowledgement at the place that was expected.
    BlindToOffsets,
    /// Starts its channels at 0 after an opening.
    ReusesSequences,
    /// Hands over with output that is not published.
    ReleasesBeforePublished,
    /// Hands over with output that is not proven.
    ReleasesBeforeProven,
    /// Takes an END's reply for proof.
    TrustsEndReplies,
    /// Does not wait for the lease of the old owner.
    SkipsTheWait,
    /// Repeats without looking.
    SkipsTheScan,
    /// Floors say that everything before an epoch is published.
    FloorTooHigh,
    /// Applies an epoch to its store when it is sealed.
    AppliesBeforeDecided,
    /// Goes on behind the input of an epoch that was never decided.
    SkipsInput,
    /// Processes the last epoch's input again.
    RepeatsInput,
}

/// How one run is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    /// The publisher goes first, or only when the task cannot go on without it.
    pub(crate) eager: bool,
    /// Hand over at the end.
    pub(crate) release: bool,
    /// Bytes of incompressible state in each epoch: above 256 KiB they travel in Deltas.
    pub(crate) ballast: usize,
    pub(crate) mutation: Option<Mutation>,
}

impl Setup {
    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

/// What survives a crash when the disk does: changes and point, written together.
#[derive(Clone, Default, Debug)]
pub(crate) struct Store {
    pub(crate) point: Option<CommitPoint>,
    pub(crate) changes: Vec<Vec<u8>>,
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Progress {
    Going,
    /// Nothing to do any more: all input is processed, everything published, and handed over if wanted.
    Done,
    Stopped(Error),
}

pub(crate) struct Owner {
    setup: Setup,
    host: u64,
    pub(crate) store: Store,
    coordinator: Coordinator,
    actions: VecDeque<Action>,
    owned: Option<Owned>,
    released: bool,
    append_sent_at: u64,
    resent: usize,
}

/// What there is only while the task is owned.
struct Owned {
    generation: Generation,
    incarnation: Incarnation,
    publisher: Publisher,
    offsets: Offsets,
    next: BTreeMap<Channel, Sequence>,
    /// First sequences per epoch and channel.
    firsts: Vec<(Epoch, Channel, Sequence)>,
    to_prepare: VecDeque<(Channel, Sequence, Message)>,
    prepared: Vec<ListedHalf>,
    sealed_changes: Vec<u8>,
    in_flight: VecDeque<ItemId>,
    look: Option<Vec<ItemId>>,
    releasing: bool,
}

pub(crate) fn source() -> Partition {
    Partition::new("in", "broker-j", 0)
}

pub(crate) fn task() -> TaskId {
    TaskId { subtopology: Name::new("t").unwrap(), broker: "broker-j".into(), queue: 0 }
}

fn channel(sink: &str) -> Channel {
    let broker = if sink == "pay" { SINK } else { "broker-o" };
    Channel { sink: Name::new(sink).unwrap(), target: Partition::new(sink, broker, 0) }
}

impl Owner {
    /// Begins to open on `host`, with the store that is left there.
    pub(crate) fn open(setup: Setup, host: u64, nonce: u64, store: Store, world: &World) -> Result<Owner, Error> {
        let previous = store.point.as_ref().and_then(|point| {
            let offset = Offset::new(point.generation.get());
            match world.read(offset, world.end(), 1).pop()?.decoded {
                Decoded::Record(JournalRecord::Claim(claim)) => Some(claim),
                _ => None,
            }
        });
        let (coordinator, actions) = Coordinator::open(Opening {
            nonce: Nonce::new(nonce.into()),
            owner: Whose { host: format!("host-{host}"), directory: "/state".into() },
            topology_hash: 7,
            upgrade: false,
            point: store.point.clone(),
            previous,
            journal_first: Offset::ZERO,
            internal_sinks: BTreeSet::from([Name::new("mid").unwrap()]),
            tries_max: TRIES_MAX,
        })?;
        let actions = actions.into();
        Ok(Owner {
            setup,
            host,
            store,
            coordinator,
            actions,
            owned: None,
            released: false,
            append_sent_at: 0,
            resent: 0,
        })
    }

    pub(crate) fn host(&self) -> u64 {
        self.host
    }

    /// Whether a pause here would cut between the lease check and what it allowed.
    pub(crate) fn may_publish_late(&self) -> bool {
        self.owned.as_ref().is_some_and(|owned| !owned.in_flight.is_empty() || owned.look.is_some())
    }

    /// Does one thing.
    pub(crate) fn step(&mut self, world: &mut World) -> Progress {
        match self.try_step(world) {
            Ok(progress) => progress,
            Err(error) => Progress::Stopped(error),
        }
    }

    fn try_step(&mut self, world: &mut World) -> Result<Progress, Error> {
        if self.released {
            return Ok(Progress::Done);
        }
        world.effect();
        let eager = self.setup.eager;
        if (eager && self.publish(world, false)?) || self.act(world)? || self.seal(world) {
            return Ok(Progress::Going);
        }
        if !self.releases_early() && self.publish(world, true)? {
            return Ok(Progress::Going);
        }
        Ok(self.hand_over())
    }

    fn take(&mut self, event: Event) {
        self.actions.extend(self.coordinator.step(event));
    }

    // ---- what the coordinator wants ----

    /// Returns whether there was something to do.
    fn act(&mut self, world: &mut World) -> Result<bool, Error> {
        if self.prepare(world) {
            return Ok(true);
        }
        let Some(action) = self.actions.pop_front() else { return Ok(false) };
        match action {
            Action::Read { from, through } => {
                let end = if through.is_some() { world.end() } else { world.visible_end() };
                let records = world.read(from, end, 3);
                let at_end = from.plus(records.len() as u64) >= end;
                self.take(Event::Read { records, at_end });
            }
            Action::Append { record, resend } => {
                self.resent = if resend { self.resent + 1 } else { 0 };
                self.append(&record, world);
            }
            Action::Prepare { .. } => {}
            Action::Apply(permit) => {
                let changes = match permit.changes() {
                    Changes::Journal(changes) => changes.clone(),
                    Changes::Sealed => self.owned.as_ref().unwrap().sealed_changes.clone(),
                };
                self.apply(changes, permit.point().clone());
                self.take(Event::Applied);
            }
            Action::Owned { generation, incarnation, plans, wait } => {
                self.own(generation, incarnation, plans, wait, world);
            }
            Action::Publish(plan) => {
                let owned = self.owned.as_mut().unwrap();
                owned.publisher.lease_from(Duration::from_secs(self.append_sent_at));
                owned.publisher.decided(plan);
            }
            Action::Released => self.released = true,
            Action::Stop(error) => return Err(error),
        }
        Ok(true)
    }

    fn apply(&mut self, changes: Vec<u8>, mut point: CommitPoint) {
        if self.setup.is(Mutation::StoreForgetsHandles) {
            point.unpublished.clear();
        }
        if !self.setup.is(Mutation::AppliesBeforeDecided) || self.owned.is_none() {
            self.store.changes.push(changes);
        }
        self.store.point = Some(point);
    }

    fn append(&mut self, record: &[u8], world: &mut World) {
        let sent_at = world.now;
        let event = match world.append(record) {
            Some(offset) => {
                self.append_sent_at = sent_at;
                let blind = self.setup.is(Mutation::BlindToOffsets) && self.owned.is_some() && self.resent == 0;
                Event::Acknowledged(if blind { self.coordinator.cursor() } else { offset })
            }
            None if self.setup.is(Mutation::DecidesByReading) && self.owned.is_some() => {
                match world.journal.iter().position(|written| written == record) {
                    Some(offset) => Event::Acknowledged(Offset::new(offset as u64)),
                    None => Event::Unknown,
                }
            }
            None => Event::Unknown,
        };
        self.take(event);
    }

    fn own(
        &mut self,
        generation: Generation,
        incarnation: Incarnation,
        plans: Vec<PublishPlan>,
        wait: bool,
        world: &World,
    ) {
        let setup = self.setup;
        let point = self.coordinator.fold().point();
        let through = point.as_ref().map_or(Epoch::ZERO, |point| point.published_through);
        let (offsets, mut next) = point.map(|point| (point.offsets, point.channels)).unwrap_or_default();
        let firsts =
            plans.iter().flat_map(|plan| plan.items.iter().map(|item| (plan.epoch, item.channel.clone(), item.first)));
        let firsts = firsts.collect();
        if setup.is(Mutation::ReusesSequences) {
            next.clear();
        }
        let mut publisher = Publisher::new(through, Duration::from_secs(LEASE), 2);
        publisher.lease_from(Duration::from_secs(self.append_sent_at));
        if !setup.is(Mutation::ForgetsUnpublished) {
            let wait = wait && !setup.is(Mutation::SkipsTheWait);
            publisher.take_over(plans, Duration::from_secs(world.now), wait);
        }
        self.owned = Some(Owned {
            generation,
            incarnation,
            publisher,
            offsets,
            next,
            firsts,
            to_prepare: VecDeque::new(),
            prepared: vec![],
            sealed_changes: vec![],
            in_flight: VecDeque::new(),
            look: None,
            releasing: false,
        });
    }

    // ---- epochs ----

    /// S1, when the task is idle, has input and may go on.
    fn seal(&mut self, world: &World) -> bool {
        let setup = self.setup;
        let Some(owned) = &mut self.owned else { return false };
        let from = owned.offsets.get(&source()).map_or(0, Offset::get);
        if owned.releasing || from >= RECORDS || owned.publisher.unpublished() >= UNPUBLISHED_MAX {
            if owned.publisher.unpublished() > 0 && !setup.is(Mutation::ReleasesBeforeProven) {
                owned.publisher.want_proof();
            }
            return false;
        }
        let epoch = self.coordinator.epoch().next();
        let to = (from + RECORDS_AN_EPOCH).min(RECORDS);
        let published_through = owned.publisher.published_through();
        owned.firsts.retain(|(of, ..)| *of > published_through);
        let mut offsets = owned.offsets.clone();
        offsets.set(&source(), Offset::new(to));
        // What the epoch does names its owner, so that the work of a void epoch is told from that of the valid one.
        let mark = format!("records {from} to {to} by {}", owned.generation);
        // Two halves of one channel, so that their ENDs may arrive in any order.
        let halves: Vec<_> = (0..2).map(|_| owned.message(channel("pay"), epoch, &mark, setup)).collect();
        let batches = [("log", 2), ("mid", 1)].map(|(sink, count)| {
            let channel = channel(sink);
            let messages: Vec<_> = (0..count).map(|_| owned.message(channel.clone(), epoch, &mark, setup)).collect();
            let first = messages[0].1;
            let messages: Vec<Message> = messages.into_iter().map(|(_, _, message)| message).collect();
            OutboxBatch { channel, first, count, messages: encode_batch(&messages) }
        });
        let mut changes = mark.into_bytes();
        changes.extend(ballast(setup.ballast, epoch.get()));
        owned.sealed_changes.clone_from(&changes);
        owned.prepared.clear();
        owned.to_prepare = halves.into();
        let sealed = Sealed {
            offsets: offsets.clone(),
            watermarks: BTreeMap::new(),
            clock: Timestamp::from_millis(world.now as i64),
            channels: owned.next.clone(),
            tails: Offsets::default(),
            published_through,
            changes: changes.clone(),
            halves: owned.to_prepare.len(),
            outbox: batches.into(),
        };
        match setup.mutation {
            Some(Mutation::RepeatsInput) if epoch.get() == 1 => {}
            Some(Mutation::SkipsInput) => owned.offsets.set(&source(), Offset::new(to + 1)),
            _ => owned.offsets = offsets,
        }
        if setup.is(Mutation::AppliesBeforeDecided) {
            self.store.changes.push(changes);
        }
        self.take(Event::Sealed(Box::new(sealed)));
        true
    }

    /// S2: one half. Returns whether there was one.
    fn prepare(&mut self, world: &mut World) -> bool {
        let early = self.setup.is(Mutation::PublishesBeforeDecided);
        let Some(owned) = &mut self.owned else { return false };
        let Some((channel, sequence, message)) = owned.to_prepare.front().cloned() else { return false };
        let ticket = owned.publisher.ticket();
        let Some(handle) = world.prepare(&channel.target, message) else { return true };
        owned.publisher.send_acknowledged(&link(&channel, world), ticket);
        if early {
            world.commit_half(&handle);
        }
        owned.to_prepare.pop_front();
        owned.prepared.push(ListedHalf { channel, sequence, handle });
        if owned.to_prepare.is_empty() {
            let halves = owned.prepared.clone();
            self.take(Event::Prepared(halves));
        }
        true
    }

    // ---- what the publisher wants ----

    /// Returns whether there was something to do. Who has nothing else to do may wait.
    fn publish(&mut self, world: &mut World, may_wait: bool) -> Result<bool, Error> {
        let setup = self.setup;
        let Some(owned) = &mut self.owned else { return Ok(false) };
        if let Some(ids) = owned.look.take() {
            let blind = setup.is(Mutation::SkipsTheScan);
            let visible: Vec<ItemId> =
                ids.iter().copied().filter(|id| !blind && owned.is_visible(*id, world)).collect();
            owned.publisher.scanned(&ids, |id| visible.contains(&id));
            return Ok(true);
        }
        if let Some(id) = owned.in_flight.pop_front() {
            owned.request(id, world, setup);
            return Ok(true);
        }
        match owned.publisher.step(Duration::from_secs(world.now)) {
            Step::Idle => return Ok(false),
            Step::WaitUntil(until) => {
                if !may_wait {
                    return Ok(false);
                }
                world.now = world.now.max(until.as_secs());
            }
            Step::RenewLease => {
                let records = world.read(self.coordinator.cursor(), world.end(), usize::MAX);
                let newer = self.coordinator.newer_claim(&records);
                if let Some(newer) = newer.filter(|_| !setup.is(Mutation::IgnoresNewerClaim)) {
                    return Err(Error::fenced(format!("a newer claim: {newer}")));
                }
                owned.publisher.lease_from(Duration::from_secs(world.now));
            }
            Step::Scan(ids) => {
                let brokers: BTreeSet<_> =
                    ids.iter().map(|id| owned.publisher.item(*id).unwrap().channel.target.broker.clone()).collect();
                if brokers.iter().all(|broker| owned.barrier(broker, world)) {
                    owned.look = Some(ids);
                }
            }
            Step::Prove(brokers) => {
                if !brokers.iter().all(|broker| owned.barrier(broker, world)) {
                    owned.publisher.prove_failed();
                }
            }
            Step::Publish(ids) => owned.in_flight = ids.into(),
        }
        Ok(true)
    }

    fn releases_early(&self) -> bool {
        self.setup.is(Mutation::ReleasesBeforePublished) && self.owned.is_some()
    }

    /// The end: everything proven, then Release.
    fn hand_over(&mut self) -> Progress {
        let early = self.releases_early() || self.setup.is(Mutation::ReleasesBeforeProven);
        let Some(owned) = &mut self.owned else { return Progress::Going };
        if owned.releasing {
            return Progress::Going;
        }
        if owned.publisher.unpublished() > 0 && !early {
            owned.publisher.want_proof();
            return Progress::Going;
        }
        if !self.setup.release {
            return Progress::Done;
        }
        owned.releasing = true;
        self.take(Event::Release);
        Progress::Going
    }
}

impl Owned {
    fn message(&mut self, channel: Channel, epoch: Epoch, payload: &str, setup: Setup) -> (Channel, Sequence, Message) {
        let slot = self.next.entry(channel.clone()).or_default();
        let sequence = *slot;
        *slot = sequence.next();
        let open = self.firsts.iter().filter(|(_, of, _)| *of == channel).map(|(_, _, first)| *first).min();
        let high = setup.is(Mutation::FloorTooHigh);
        let floor = if high { sequence } else { open.unwrap_or(sequence).min(sequence) };
        self.firsts.push((epoch, channel.clone(), sequence));
        let identity = Identity {
            job: Name::job("job").unwrap(),
            incarnation: self.incarnation,
            task: task(),
            generation: self.generation,
            epoch,
            sink: channel.sink.clone(),
            sequence,
            floor,
            source: None,
        };
        (channel, sequence, Message { identity, payload: payload.to_owned() })
    }

    fn request(&mut self, id: ItemId, world: &mut World, setup: Setup) {
        let item = self.publisher.item(id).unwrap().clone();
        let ticket = self.publisher.ticket();
        match item.work {
            Work::End(handle) if world.commit_half(&handle) => {
                if setup.is(Mutation::TrustsEndReplies) {
                    self.publisher.sent(id);
                } else {
                    self.publisher.ended(id, link(&item.channel, world));
                }
            }
            Work::Send(bytes) if world.send(&item.channel.target, decode_batch(&bytes).unwrap()) => {
                self.publisher.sent(id);
                self.publisher.send_acknowledged(&link(&item.channel, world), ticket);
            }
            Work::End(_) | Work::Send(_) => self.publisher.unknown(id),
        }
    }

    fn barrier(&mut self, broker: &Arc<str>, world: &mut World) -> bool {
        let ticket = self.publisher.ticket();
        let done = world.barrier(broker);
        if done {
            let link = LinkId { broker: broker.clone(), connection: world.connection };
            self.publisher.send_acknowledged(&link, ticket);
        }
        done
    }

    fn is_visible(&self, id: ItemId, world: &World) -> bool {
        let item = self.publisher.item(id).unwrap();
        let queue = world.queues.get(&item.channel.target);
        queue
            .into_iter()
            .flatten()
            .any(|message| message.identity.incarnation == self.incarnation && message.identity.sequence == item.first)
    }
}

fn link(channel: &Channel, world: &World) -> LinkId {
    LinkId { broker: channel.target.broker.clone(), connection: world.connection }
}

fn ballast(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(byte).collect()
}

/// What a stopped owner does next.
pub(crate) fn may_open_again(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Retry | ErrorKind::Fenced)
}
