//! Opening, S2 to S4, Snapshot and Release of one owner of one task: the only place that decides.
//!
//! ```text
//!  Reading ──► Claiming ──► Idle ──► Preparing ──► Journaling ──► Applying ──► Idle
//!     │            │          │          (S2)       (S2, S3)        (S4)
//!     │            │          ├──► Snapshotting ──► Idle
//!     │            │          └──► Releasing ──► over
//!     └────────────┴────────────── Stop (fenced, out of resends, lost data) from anywhere
//! ```
//!
//! [`Coordinator::step`] takes an [`Event`] that the engine observed and returns the [`Action`]s it must carry out, in
//! order. An action is asked for once; its outcome comes back as one event. After [`Action::Stop`] or
//! [`Action::Released`] the coordinator is over: the task is dropped and, if at all, opened again with a new one.
//!
//! The rules (`docs/commit-protocol.md`):
//!
//! - An append counts when it was acknowledged, never because it was read.
//! - An acknowledgement at the expected offset, on the first try, is folded as it is. Any other makes the owner read
//!   what lies between, **and nothing behind it**, and judge by the fold. So the fold of an owner, and with it every
//!   point that goes into a store, never runs ahead of what is acknowledged.
//! - An acknowledged Claim is always read back, with all that was read before it and that nothing covered then: an
//!   unacknowledged tail may have been lost and replaced meanwhile.
//! - An acknowledgement at or below an offset that was acknowledged before, to this owner or to the writer of its
//!   store, is lost data.
//! - State changes only with a [`CommitPermit`], which only this file can make.

mod exchange;

pub use exchange::{Action, Changes, CommitPermit, Event, Opening, PassedOver, ReadRecord, Sealed};

use crate::record::record_checksum;
use crate::{
    Claim, Commit, CommitBody, Committed, Decoded, DeltaPart, EpochBody, Fold, Folded, INLINE_BYTES_MAX, Item,
    JournalRecord, ListedHalf, OutboxBatch, PublishPlan, Release, Snapshot, SnapshotLocation, Work, recover_body,
    split,
};
use onceflow_types::wire::checksum;
use onceflow_types::{Channel, CommitPoint, Epoch, Error, Generation, Incarnation, Name, Offset, Result, Unpublished};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most bytes of a body in one Delta. With the Commit's own fields it stays below RocketMQ's message limit of 4 MiB.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// Committed changes that were read are held back up to this many bytes until the own Claim is acknowledged, so that a
/// task that another one claims first leaves its store alone. The newest epoch is held whatever its size: nothing shows
/// that its Commit was ever acknowledged, and a loss of the journal's tail must not leave the store ahead of it. Those
/// before it were: their owner went on.
pub const REPLAY_HELD_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
enum Phase {
    Reading,
    Claiming,
    Idle,
    Preparing(Box<Sealed>),
    Journaling { epoch: Epoch, rest: VecDeque<Vec<u8>>, plan: Option<PublishPlan> },
    Applying { plan: PublishPlan },
    Snapshotting,
    Releasing,
    Over,
}

/// An append whose outcome is open.
#[derive(Debug)]
struct Pending {
    record: Vec<u8>,
    tries: u32,
}

/// The owner's side of the protocol. See the [module](self).
#[derive(Debug)]
pub struct Coordinator {
    opening: Opening,
    fold: Fold,
    /// The next offset to read; behind the fold's while records are read again.
    cursor: Offset,
    phase: Phase,
    pending: Option<Pending>,
    /// Set while the owner reads up to its own acknowledged append.
    through: Option<Offset>,
    /// The last offset that is known to be acknowledged.
    acknowledged: Option<Offset>,
    /// What was read before the Claim and may not have been acknowledged, in offset order: about one epoch. Whole records,
    /// as the CRC32C over a record that ends in its own is the same for all of them.
    unproven: VecDeque<(Offset, Decoded)>,
    generation: Option<Generation>,
    /// Where the last valid Commit lies.
    last_commit: Option<Offset>,
    passed_over: PassedOver,
    /// Records before the store's offset, read again for their handles.
    early: Vec<ReadRecord>,
    /// Committed epochs that were read and are not applied yet.
    held: VecDeque<CommitPermit>,
    held_bytes: usize,
    /// Handles and outboxes of decided epochs that may not be published.
    plans: BTreeMap<Epoch, OpenPlan>,
}

/// A decided epoch on its way to the publisher.
#[derive(Debug)]
struct OpenPlan {
    plan: PublishPlan,
    /// Whether somebody who is not known to be dead may still publish it: its decider, or a later owner.
    contended: bool,
}

impl Coordinator {
    /// Starts an opening and returns what to do first.
    ///
    /// # Errors
    /// `DataLoss` when the journal begins behind what the store covers. Whether it still holds all output that may be
    /// unpublished is judged at its end.
    pub fn open(opening: Opening) -> Result<(Coordinator, Vec<Action>)> {
        let fold = opening.point.as_ref().map_or_else(Fold::default, Fold::from_point);
        let cursor = first_read(&opening, &fold)?;
        let coordinator = Coordinator {
            fold,
            cursor,
            phase: Phase::Reading,
            pending: None,
            through: None,
            // A point never runs ahead of what its writer had acknowledged, and covers at least one record, its Commit.
            acknowledged: opening.point.as_ref().map(|point| Offset::new(point.journal_next.get().saturating_sub(1))),
            unproven: VecDeque::new(),
            generation: None,
            last_commit: opening.point.as_ref().map(|point| point.commit_offset),
            passed_over: PassedOver::default(),
            early: vec![],
            held: VecDeque::new(),
            held_bytes: 0,
            plans: BTreeMap::new(),
            opening,
        };
        Ok((coordinator, vec![Action::Read { from: cursor, through: None }]))
    }

    /// The last decided epoch.
    pub fn epoch(&self) -> Epoch {
        self.fold.epoch()
    }

    /// The fold, for check-backs and for a fresh start of the sources.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// What was read from the journal and changed nothing.
    pub fn passed_over(&self) -> PassedOver {
        self.passed_over
    }

    /// The next journal offset to read, for a look at newer Claims.
    pub fn cursor(&self) -> Offset {
        self.cursor
    }

    /// What a snapshot that is written now stands for: the fold of an owner between two epochs, with nothing left to
    /// publish, which the caller vouches for. `None` before the first epoch and in any other moment.
    pub fn snapshot_point(&self) -> Option<CommitPoint> {
        let (Phase::Idle, Some(_)) = (&self.phase, self.generation) else { return None };
        let point = self.fold.point()?;
        Some(CommitPoint { published_through: point.epoch, unpublished: vec![], ..point })
    }

    /// What the store of a task stands for between two epochs, or after the Release: every record that was folded. An epoch of
    /// a generation that was released cannot come any more, so a point need not tell of the Release. `None` before the
    /// first epoch and in any other moment; and while output may be unpublished: it hangs from the generation that decided
    /// it, and the point keeps telling whose that was, or its next owner would wait for a lease that nobody has.
    pub fn point_between_epochs(&self) -> Option<CommitPoint> {
        let handed_over = matches!(self.phase, Phase::Over) && self.fold.released();
        let between = matches!(self.phase, Phase::Idle) && self.generation.is_some();
        let point = self.fold.point().filter(|point| (between || handed_over) && point.unpublished.is_empty())?;
        Some(CommitPoint { journal_next: self.fold.next(), ..point })
    }

    /// The newest valid Claim among records read from [`cursor`](Self::cursor) on, if there is one: then the owner is
    /// fenced. Changes nothing: a record that was only read decides nothing.
    pub fn newer_claim(&self, records: &[ReadRecord]) -> Option<Generation> {
        let mut current = self.fold.generation();
        let mut newer = None;
        for record in records {
            let Decoded::Record(JournalRecord::Claim(claim)) = &record.decoded else { continue };
            if record.offset >= self.fold.next()
                && claim.replaces == current
                && Some(claim.incarnation) == self.fold.incarnation()
            {
                current = Some(Generation::new(record.offset.get()));
                newer = current;
            }
        }
        newer
    }

    /// Takes one event and returns the actions it leads to, in order. After [`Action::Stop`] and [`Action::Released`] no
    /// event leads to anything.
    ///
    /// An event that no action asked for is a bug of the engine and stops the task with kind `Bug`.
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        match self.try_step(event) {
            Ok(actions) => actions,
            Err(error) => self.stop(error),
        }
    }

    fn try_step(&mut self, event: Event) -> Result<Vec<Action>> {
        match event {
            _ if matches!(self.phase, Phase::Over) => Ok(vec![]),
            Event::Read { records, at_end } => self.read(records, at_end),
            Event::Acknowledged(offset) => self.acknowledged(offset),
            Event::Unknown => self.unknown(),
            Event::Sealed(sealed) => self.sealed(sealed),
            Event::Prepared(halves) => self.prepared(halves),
            Event::Applied => Ok(self.applied()),
            Event::Snapshot(location) => self.snapshot(location),
            Event::Release => self.release(),
        }
    }

    fn stop(&mut self, error: Error) -> Vec<Action> {
        self.phase = Phase::Over;
        vec![Action::Stop(error)]
    }

    // ---- reading ----

    fn read(&mut self, records: Vec<ReadRecord>, at_end: bool) -> Result<Vec<Action>> {
        if self.through.is_none() && !matches!(self.phase, Phase::Reading) {
            return Err(Error::bug("journal records that nobody asked for"));
        }
        let mut actions = vec![];
        for record in records {
            // What lies behind the acknowledged append may still be lost.
            if self.through.is_some_and(|through| record.offset > through) {
                break;
            }
            if record.offset != self.cursor {
                return Err(Error::bug(format!(
                    "journal read out of order: at={} given={}",
                    self.cursor, record.offset
                )));
            }
            self.cursor = self.cursor.next();
            if record.offset < self.fold.next() {
                self.reread(record)?;
                continue;
            }
            self.recover_early()?;
            self.fold_read(record)?;
            self.release_held(REPLAY_HELD_BYTES_MAX, &mut actions);
        }
        if self.cursor >= self.fold.next() {
            self.recover_early()?;
        }
        match self.through {
            Some(through) if self.cursor > through => {
                self.through = None;
                actions.extend(self.landed()?);
            }
            Some(_) => actions.push(Action::Read { from: self.cursor, through: self.through }),
            None if at_end => actions.extend(self.claim()?),
            None => actions.push(Action::Read { from: self.cursor, through: None }),
        }
        Ok(actions)
    }

    /// A record that is folded already: one that the store covers, which is checked and kept for its handles, or one that
    /// was read before the Claim and must still be the same.
    fn reread(&mut self, record: ReadRecord) -> Result<()> {
        if let Some((_, before)) = self.unproven.pop_front_if(|(offset, _)| *offset == record.offset) {
            if before != record.decoded {
                return Err(Error::retry(format!(
                    "the journal lost its unacknowledged tail, another record has its place: offset={}",
                    record.offset
                )));
            }
            return Ok(());
        }
        if let Some(point) = &self.opening.point
            && record.offset == point.commit_offset
            && !(record.checksum == point.commit_checksum && made(&record.decoded, point))
        {
            return Err(Error::data_loss(format!(
                "the journal holds another record where the store's last commit was, it was truncated or recreated: \
                     offset={} epoch={}",
                record.offset, point.epoch
            )));
        }
        self.early.push(record);
        Ok(())
    }

    /// Recovers what the store has applied and may not be published, once all of it is read.
    fn recover_early(&mut self) -> Result<()> {
        let early = std::mem::take(&mut self.early);
        let Some(point) = self.opening.point.as_ref().filter(|_| !early.is_empty()) else { return Ok(()) };
        let decider_is_dead = self.previous_is_dead();
        let mut plans = vec![];
        for unpublished in point.unpublished.iter().filter(|unpublished| self.is_readable(unpublished)) {
            let records = early.iter().map(|record| (record.offset, &record.decoded, record.checksum));
            let committed = recover_body(records, unpublished, point.incarnation)?;
            let body = EpochBody::decode(&committed.body)?;
            let plan = plan(unpublished.epoch, body.halves, body.outbox, &self.opening.internal_sinks);
            // Of the Claims before the store's place only the last one is known.
            let contended = committed.commit.generation != point.generation || !decider_is_dead;
            plans.push((unpublished.epoch, OpenPlan { plan, contended }));
        }
        self.plans.extend(plans);
        Ok(())
    }

    fn is_readable(&self, unpublished: &Unpublished) -> bool {
        unpublished.body_from >= self.opening.journal_first
    }

    /// Whether the last known owner ran here: then the lock on our directory shows that it is gone.
    fn previous_is_dead(&self) -> bool {
        self.opening.previous.as_ref().is_some_and(|previous| previous.owner == self.opening.owner)
    }

    fn fold_read(&mut self, record: ReadRecord) -> Result<()> {
        let proven = self.fold.generation().map(|own| Offset::new(own.get())).max(self.last_commit);
        let folded = self.fold.apply(record.offset, &record.decoded, record.checksum)?;
        match folded {
            Folded::Committed(committed) => {
                self.last_commit = Some(committed.offset);
                // Its writer had its Claim acknowledged, and its epoch before.
                while self.unproven.pop_front_if(|(offset, _)| Some(*offset) <= proven).is_some() {}
                self.committed(&committed)?;
            }
            Folded::Claimed { .. } => self.claimed(&record.decoded),
            Folded::Void(_) => self.passed_over.void += 1,
            Folded::Foreign(_) => self.passed_over.foreign += 1,
            _ => {}
        }
        if matches!(self.phase, Phase::Reading) {
            self.unproven.push_back((record.offset, record.decoded));
        }
        self.prune_plans();
        Ok(())
    }

    /// Somebody's valid Claim was read. A new owner may publish what the one before it left.
    fn claimed(&mut self, record: &Decoded) {
        let Decoded::Record(JournalRecord::Claim(claim)) = record else { return };
        if claim.nonce == self.opening.nonce {
            return;
        }
        self.opening.previous = Some(claim.clone());
        if !self.previous_is_dead() {
            self.plans.values_mut().for_each(|open| open.contended = true);
        }
    }

    /// A valid Commit was folded by reading. An own one is applied by the epoch's own path.
    fn committed(&mut self, committed: &Committed) -> Result<()> {
        let own = Some(committed.commit.generation) == self.generation;
        if own {
            return Ok(());
        }
        let body = EpochBody::decode(&committed.body)?;
        let epoch = committed.commit.epoch;
        let plan = plan(epoch, body.halves, body.outbox, &self.opening.internal_sinks);
        self.plans.insert(epoch, OpenPlan { plan, contended: !self.previous_is_dead() });
        let point = self.fold.point().ok_or_else(|| Error::bug("no point after a commit"))?;
        self.held_bytes += body.changes.len();
        self.held.push_back(CommitPermit { point, changes: Changes::Journal(body.changes) });
        Ok(())
    }

    fn prune_plans(&mut self) {
        let published = self.fold.published_through();
        while self.plans.first_key_value().is_some_and(|(epoch, _)| *epoch <= published) {
            self.plans.pop_first();
        }
    }

    /// Hands out held permits, oldest first, until at most `bytes_max` are held or only the newest is left.
    fn release_held(&mut self, bytes_max: usize, actions: &mut Vec<Action>) {
        while self.held_bytes > bytes_max && self.held.len() > 1 {
            let Some(permit) = self.held.pop_front() else { break };
            if let Changes::Journal(changes) = &permit.changes {
                self.held_bytes -= changes.len();
            }
            actions.push(Action::Apply(permit));
        }
    }

    // ---- claiming ----

    fn claim(&mut self) -> Result<Vec<Action>> {
        if let Some(previous) = self.opening.previous.as_ref().filter(|_| !self.opening.upgrade)
            && previous.topology_hash != self.opening.topology_hash
        {
            return Err(Error::invalid(format!(
                "the task was last owned by another topology, allow the upgrade or use another job id: \
                     committed={:016x} given={:016x}",
                previous.topology_hash, self.opening.topology_hash
            )));
        }
        self.check_retention()?;
        let claim = Claim {
            incarnation: self.fold.incarnation().unwrap_or(Incarnation::from(self.opening.nonce)),
            nonce: self.opening.nonce,
            replaces: self.fold.generation(),
            owner: self.opening.owner.clone(),
            topology_hash: self.opening.topology_hash,
        };
        self.phase = Phase::Claiming;
        Ok(self.append(JournalRecord::Claim(claim).encode()))
    }

    /// Before anybody is fenced: an owner that cannot publish what was decided is no owner.
    fn check_retention(&self) -> Result<()> {
        let unpublished = self.opening.point.iter().flat_map(|point| &point.unpublished);
        let mut lost = unpublished.filter(|unpublished| unpublished.epoch > self.fold.published_through());
        match lost.find(|unpublished| !self.is_readable(unpublished)) {
            None => Ok(()),
            Some(lost) => Err(Error::data_loss(format!(
                "the journal no longer holds the output of a decided epoch that may be unpublished, retention was shorter \
                 than the outage: epoch={} needed_from={} journal_first={}",
                lost.epoch, lost.body_from, self.opening.journal_first
            ))),
        }
    }

    fn owned(&mut self) -> Result<Vec<Action>> {
        if self.fold.nonce() != Some(self.opening.nonce) {
            return Err(Error::fenced(format!(
                "another instance claimed the task first: current={:?}",
                self.fold.generation()
            )));
        }
        let generation = self.fold.generation().ok_or_else(|| Error::bug("a claimed journal without generation"))?;
        let incarnation = self.fold.incarnation().ok_or_else(|| Error::bug("a claimed journal without incarnation"))?;
        self.generation = Some(generation);
        self.phase = Phase::Idle;
        self.held_bytes = 0;
        let mut actions: Vec<Action> = self.held.drain(..).map(Action::Apply).collect();
        // After a Release everything is published, so there is nothing to wait for.
        let wait = self.plans.values().any(|open| open.contended);
        let plans = std::mem::take(&mut self.plans).into_values().map(|open| open.plan).collect();
        actions.push(Action::Owned { generation, incarnation, plans, wait });
        Ok(actions)
    }

    // ---- appending ----

    fn append(&mut self, record: Vec<u8>) -> Vec<Action> {
        debug_assert!(self.pending.is_none(), "one append at a time");
        self.pending = Some(Pending { record: record.clone(), tries: 1 });
        vec![Action::Append { record, resend: false }]
    }

    fn unknown(&mut self) -> Result<Vec<Action>> {
        let tries_max = self.opening.tries_max;
        let pending = self.pending.as_mut().ok_or_else(|| Error::bug("an outcome without an append"))?;
        if pending.tries >= tries_max {
            return Err(Error::retry(format!("journal append not acknowledged: tries={tries_max}")));
        }
        pending.tries += 1;
        Ok(vec![Action::Append { record: pending.record.clone(), resend: true }])
    }

    fn acknowledged(&mut self, offset: Offset) -> Result<Vec<Action>> {
        let pending = self.pending.take().ok_or_else(|| Error::bug("an acknowledgement without an append"))?;
        if let Some(known) = self.acknowledged.filter(|known| offset <= *known) {
            return Err(Error::data_loss(format!(
                "the journal lost acknowledged records, it was truncated or recreated: acknowledged={known} appended_at={offset}"
            )));
        }
        self.acknowledged = Some(offset);
        if offset < self.cursor {
            return Err(Error::retry(format!(
                "the journal lost its unacknowledged tail: read_to={} appended_at={offset}",
                self.cursor
            )));
        }
        let claiming = matches!(self.phase, Phase::Claiming);
        if offset == self.cursor && offset == self.fold.next() && pending.tries == 1 && !claiming {
            let record = crate::decode(&pending.record)?;
            self.fold.apply(offset, &record, record_checksum(&pending.record))?;
            self.cursor = offset.next();
            return self.landed();
        }
        if let Some((unproven, _)) = self.unproven.front() {
            self.cursor = *unproven;
        }
        self.through = Some(offset);
        Ok(vec![Action::Read { from: self.cursor, through: self.through }])
    }

    /// Everything up to an own acknowledged append is folded.
    fn landed(&mut self) -> Result<Vec<Action>> {
        if matches!(self.phase, Phase::Claiming) {
            return self.owned();
        }
        if self.fold.generation() != self.generation {
            return Err(Error::fenced(format!(
                "a newer claim owns the task: own={:?} current={:?}",
                self.generation,
                self.fold.generation()
            )));
        }
        match &mut self.phase {
            Phase::Journaling { epoch, rest, plan } => match rest.pop_front() {
                Some(next) => Ok(self.append(next)),
                None if self.fold.epoch() == *epoch => {
                    let plan = plan.take().ok_or_else(|| Error::bug("an epoch decided twice"))?;
                    self.decided(plan)
                }
                None => Err(Error::retry(format!("own commit is void: epoch={epoch} last={}", self.fold.epoch()))),
            },
            // Its record changes nothing in the fold, so there is nothing to look for.
            Phase::Snapshotting => {
                self.phase = Phase::Idle;
                Ok(vec![])
            }
            Phase::Releasing if self.fold.released() => {
                self.phase = Phase::Over;
                Ok(vec![Action::Released])
            }
            Phase::Releasing => Err(Error::retry("own release is void")),
            _ => Err(Error::bug("an acknowledgement in a phase without appends")),
        }
    }

    // ---- epochs ----

    fn sealed(&mut self, sealed: Box<Sealed>) -> Result<Vec<Action>> {
        if !matches!(self.phase, Phase::Idle) {
            return Err(Error::bug("an epoch was sealed before the last one was applied"));
        }
        let epoch = self.fold.epoch().next();
        self.check_sealed(&sealed, epoch)?;
        let halves = sealed.halves;
        self.phase = Phase::Preparing(sealed);
        if halves == 0 { self.prepared(vec![]) } else { Ok(vec![Action::Prepare { epoch, halves }]) }
    }

    /// What every reader of the journal checks, before it is written: a Commit that fails there stops the task for good.
    fn check_sealed(&self, sealed: &Sealed, epoch: Epoch) -> Result<()> {
        if sealed.published_through >= epoch {
            return Err(Error::bug(format!(
                "published beyond the last epoch: epoch={epoch} given={}",
                sealed.published_through
            )));
        }
        let Some(last) = self.fold.point() else { return Ok(()) };
        match last.channels.iter().find(|(channel, next)| sealed.channels.get(channel).is_none_or(|now| now < *next)) {
            None => Ok(()),
            Some((channel, next)) => Err(Error::bug(format!(
                "an epoch takes back the sequence of a channel: epoch={epoch} sink={} target={} next={next}",
                channel.sink, channel.target
            ))),
        }
    }

    fn prepared(&mut self, halves: Vec<ListedHalf>) -> Result<Vec<Action>> {
        let Phase::Preparing(sealed) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return Err(Error::bug("half messages without a sealed epoch"));
        };
        if halves.len() != sealed.halves {
            return Err(Error::bug(format!(
                "half messages missing: sealed={} prepared={}",
                sealed.halves,
                halves.len()
            )));
        }
        let (Some(generation), Some(incarnation)) = (self.generation, self.fold.incarnation()) else {
            return Err(Error::bug("an epoch without an owner"));
        };
        let epoch = self.fold.epoch().next();
        let body = EpochBody { changes: sealed.changes, halves, outbox: sealed.outbox };
        let encoded = body.encode()?;
        let mut rest = VecDeque::new();
        let body_field = if encoded.len() <= INLINE_BYTES_MAX {
            CommitBody::Inline(encoded)
        } else {
            let parts = split(&encoded, PART_BYTES_MAX);
            let count = u32::try_from(parts.len()).map_err(|_| Error::bug("too many parts"))?;
            for (part, bytes) in (0u32..).zip(parts) {
                let delta = DeltaPart { incarnation, generation, epoch, part, parts: count, bytes: bytes.to_vec() };
                rest.push_back(JournalRecord::Delta(delta).encode());
            }
            CommitBody::Parts { parts: count, checksum: checksum(&encoded) }
        };
        let commit = Commit {
            incarnation,
            generation,
            epoch,
            offsets: sealed.offsets,
            watermarks: sealed.watermarks,
            clock: sealed.clock,
            channels: sealed.channels,
            tails: sealed.tails,
            published_through: sealed.published_through,
            body: body_field,
        };
        rest.push_back(JournalRecord::Commit(Box::new(commit)).encode());
        let plan = Some(plan(epoch, body.halves, body.outbox, &self.opening.internal_sinks));
        let first = rest.pop_front().ok_or_else(|| Error::bug("an epoch without records"))?;
        self.phase = Phase::Journaling { epoch, rest, plan };
        Ok(self.append(first))
    }

    /// The point of no return is behind: the Commit is acknowledged and valid.
    fn decided(&mut self, plan: PublishPlan) -> Result<Vec<Action>> {
        let point = self.fold.point().ok_or_else(|| Error::bug("no point after a commit"))?;
        self.phase = Phase::Applying { plan };
        Ok(vec![Action::Apply(CommitPermit { point, changes: Changes::Sealed })])
    }

    fn applied(&mut self) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Applying { plan } => vec![Action::Publish(plan)],
            // A replayed epoch: nothing follows from it.
            other => {
                self.phase = other;
                vec![]
            }
        }
    }

    fn snapshot(&mut self, location: SnapshotLocation) -> Result<Vec<Action>> {
        let Some(point) = self.snapshot_point() else {
            return Err(Error::bug("a snapshot by someone who is not an idle owner with an epoch"));
        };
        self.phase = Phase::Snapshotting;
        let snapshot = Snapshot {
            incarnation: point.incarnation,
            generation: point.generation,
            epoch: point.epoch,
            through: point.journal_next,
            commit_offset: point.commit_offset,
            commit_checksum: point.commit_checksum,
            location,
        };
        Ok(self.append(JournalRecord::Snapshot(Box::new(snapshot)).encode()))
    }

    fn release(&mut self) -> Result<Vec<Action>> {
        let (Phase::Idle, Some(generation), Some(incarnation)) =
            (&self.phase, self.generation, self.fold.incarnation())
        else {
            return Err(Error::bug("a release by someone who is not an idle owner"));
        };
        self.phase = Phase::Releasing;
        let release = Release { incarnation, generation, epoch: self.fold.epoch() };
        Ok(self.append(JournalRecord::Release(release).encode()))
    }
}

/// Where an opening starts to read, or why the journal cannot be used.
fn first_read(opening: &Opening, fold: &Fold) -> Result<Offset> {
    let first = opening.journal_first;
    if first > fold.next() {
        return Err(Error::data_loss(format!(
            "the journal begins behind what the local state covers, restore a snapshot or reset the task: \
             journal_first={first} covered_to={}",
            fold.next()
        )));
    }
    let Some(point) = &opening.point else { return Ok(fold.next()) };
    // The store's last Commit is read again where it can be: another record in its place means lost data. Output that
    // may be unpublished and lies before the journal's first record may have been published since; the end will tell.
    let from = point.read_from().min(point.commit_offset);
    Ok(from.max(first))
}

/// Whether a record is the Commit that `point` stands for.
fn made(record: &Decoded, point: &CommitPoint) -> bool {
    let Decoded::Record(JournalRecord::Commit(commit)) = record else { return false };
    commit.incarnation == point.incarnation
        && commit.generation <= point.generation
        && commit.epoch == point.epoch
        && commit.offsets == point.offsets
        && commit.watermarks == point.watermarks
        && commit.clock == point.clock
        && commit.channels == point.channels
        && commit.tails == point.tails
}

/// What makes a body's output visible.
fn plan(epoch: Epoch, halves: Vec<ListedHalf>, outbox: Vec<OutboxBatch>, internal: &BTreeSet<Name>) -> PublishPlan {
    let is_internal = |channel: &Channel| internal.contains(&channel.sink);
    let ends = halves.into_iter().map(|half| Item {
        internal: is_internal(&half.channel),
        channel: half.channel,
        first: half.sequence,
        count: 1,
        work: Work::End(half.handle),
    });
    let sends = outbox.into_iter().map(|batch| Item {
        internal: is_internal(&batch.channel),
        channel: batch.channel,
        first: batch.first,
        count: batch.count,
        work: Work::Send(batch.messages),
    });
    PublishPlan { epoch, items: ends.chain(sends).collect() }
}
