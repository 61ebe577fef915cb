//! S1 to S4 of one epoch: carries out what the coordinator says, and nothing else.

use super::publish::link_id;
use super::seal::{Prepared, SealedOutput, Sealing};
use super::{OpenEpoch, Task};
use crate::edge::Backoff;
use crate::planted::{self, Bug};
use crate::stage::Context;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use onceflow_log::{End, Link};
use onceflow_storage::Delta;
use onceflow_txn::{
    Action, Changes, CheckBackView, CommitPermit, Event, ListedHalf, PublishPlan, Sealed, SnapshotLocation, Work,
};
use onceflow_types::{Epoch, Error, ErrorKind, Generation, HalfHandle, Result};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

impl Task {
    /// Seals the open epoch, decides it, applies it and hands it to the publisher. Waits first while too many epochs are
    /// unpublished.
    pub(super) async fn commit_epoch(&mut self) -> Result<()> {
        let begun = self.job.monotonic.now();
        self.wait_for_publisher().await;
        let (sealed, halves) = self.seal()?;
        let actions = self.step(Event::Sealed(Box::new(sealed)));
        self.carry_out(actions, Some(&halves)).await?;
        self.intake.show(&self.line);
        self.output.clear();
        self.open = OpenEpoch::default();
        self.publishing.pace.borrow_mut().committed(self.job.monotonic.now().saturating_sub(begun));
        Ok(())
    }

    /// Hands the task over; the caller has published everything.
    pub(super) async fn release(&mut self) -> Result<()> {
        let actions = self.step(Event::Release);
        self.carry_out(actions, None).await?;
        self.follow_journal()
    }

    /// Tells the journal where a snapshot lies, after all of it was acknowledged; the caller has published everything.
    pub(super) async fn record_snapshot(&mut self, location: SnapshotLocation) -> Result<()> {
        let actions = self.step(Event::Snapshot(location));
        self.carry_out(actions, None).await?;
        self.follow_journal()
    }

    /// S4 without an epoch: the store stands for all that this owner knows of its journal. A journal that loses its records
    /// by age while the job is stopped begins where the store ends then, and not behind it.
    fn follow_journal(&mut self) -> Result<()> {
        match self.coordinator.borrow().point_between_epochs() {
            Some(point) => self.state.overlay_mut().base_mut().commit(&Delta::default(), &point),
            None => Ok(()),
        }
    }

    /// Back-pressure: a task that is ahead of its publishing waits.
    async fn wait_for_publisher(&self) {
        while self.publishing.is_far_ahead() {
            self.publishing.publisher.borrow_mut().want_proof();
            self.publishing.work.notify_one();
            self.publishing.progress.notified().await;
        }
    }

    /// S1.
    fn seal(&mut self) -> Result<(Sealed, Vec<Prepared>)> {
        let now = self.job.clock.now();
        let limits = self.limits();
        let mut cx = Context::new(&mut self.state, &mut self.output, &mut self.counters, now).with_limits(limits);
        if !planted::is(Bug::CacheNotSealed) {
            self.stage.seal(&mut cx)?;
        }
        if !planted::is(Bug::PositionsNotKept) {
            self.intake.seal(&mut self.state);
        }
        let (epoch, generation) = {
            let coordinator = self.coordinator.borrow();
            (coordinator.epoch().next(), coordinator.fold().generation())
        };
        let generation = generation.ok_or_else(|| Error::bug("an epoch without a generation"))?;
        let mut published_through = self.publishing.publisher.borrow().published_through();
        if planted::is(Bug::PublishedWhenDecided) {
            published_through = self.coordinator.borrow().epoch();
        }
        self.channels.published(published_through);
        let sealed_output = self.seal_output(epoch, generation)?;
        let mut changes = Vec::with_capacity(self.state.overlay().delta().bytes());
        self.state.overlay().delta().encode(&mut changes);
        let sealed = Sealed {
            offsets: if planted::is(Bug::OffsetsOneEpochBehind) && !self.reported.borrow().is_empty() {
                self.reported.borrow().clone()
            } else {
                self.offsets.clone()
            },
            watermarks: self.seal_watermarks(),
            clock: now,
            channels: self.channels.seal(epoch),
            tails: self.publishing.tails.borrow_mut().seal(epoch, published_through),
            published_through,
            changes,
            halves: sealed_output.halves.len(),
            outbox: sealed_output.outbox,
        };
        Ok((sealed, sealed_output.halves))
    }

    fn seal_output(&mut self, epoch: Epoch, generation: Generation) -> Result<SealedOutput> {
        let mut sealing = Sealing {
            job: &self.job.topology.job,
            task: &self.id,
            incarnation: self.publishing.incarnation,
            generation,
            epoch,
            sources: &self.sources,
            config: &self.job.config,
            channels: &mut self.channels,
            time: None,
            sealed: SealedOutput::default(),
        };
        for ((plan, targets), output) in self.plan.sinks.iter().zip(&self.targets).zip(self.output.sinks()) {
            let said = output.watermark().filter(|_| plan.timed);
            sealing.time = said.map(|said| self.tellings.words(said));
            for (target, queue) in targets.iter().zip(output.queues()) {
                match sealing.time {
                    Some(time) if queue.is_empty() => {
                        if self.tellings.tell(&plan.name, target, time, self.job.monotonic.now()) {
                            sealing.watermark_only(plan, target)?;
                        }
                    }
                    Some(time) => {
                        sealing.queue(plan, target, queue)?;
                        self.tellings.told(&plan.name, target, time, self.job.monotonic.now());
                    }
                    None => sealing.queue(plan, target, queue)?,
                }
            }
        }
        Ok(sealing.sealed)
    }

    fn step(&self, event: Event) -> VecDeque<Action> {
        self.coordinator.borrow_mut().step(event).into()
    }

    /// Carries out actions: of an epoch, with its half messages, or of something that no record was read for.
    async fn carry_out(&mut self, mut actions: VecDeque<Action>, epoch: Option<&[Prepared]>) -> Result<()> {
        // An epoch covers what was read since the Claim, and must not outlive it: see `link`.
        let over = epoch.map(|_| self.link.clone());
        let mut backoff = Backoff::new(self.job.config.backoff_first, self.job.config.backoff_max);
        while let Some(action) = actions.pop_front() {
            let event = match action {
                Action::Prepare { .. } => Event::Prepared(self.prepare(epoch.unwrap_or_default()).await?),
                Action::Append { record, resend } => self.append(over.as_ref(), &record, resend, &mut backoff).await?,
                Action::Read { from, .. } => {
                    let records = self.publishing.journal.read(from, true).await?;
                    Event::Read { records, at_end: false }
                }
                Action::Apply(permit) => {
                    self.apply(&permit)?;
                    Event::Applied
                }
                Action::Publish(plan) => {
                    self.publish(plan);
                    continue;
                }
                Action::Released => return Ok(()),
                Action::Stop(error) => return Err(error),
                Action::Owned { .. } => return Err(Error::bug("an owner was opened twice")),
            };
            actions.extend(self.step(event));
        }
        Ok(())
    }

    /// S2: every half message until SEND_OK, several at once; the handles come back in order.
    async fn prepare(&self, halves: &[Prepared]) -> Result<Vec<ListedHalf>> {
        let stored: RefCell<Vec<HalfHandle>> = RefCell::default();
        let sends = stream::iter(halves.iter().map(|half| self.prepare_one(half, &stored)));
        let listed = sends.buffered(self.job.config.requests_in_flight_max).try_collect().await;
        if listed.is_err() {
            self.roll_back(&stored.take()).await;
        }
        if planted::is(Bug::EndsBeforeDecided) {
            let handles = stored.take();
            for handle in handles {
                let _ = self.job.log.end(&handle, End::Commit).await;
            }
        }
        listed
    }

    async fn prepare_one(&self, half: &Prepared, stored: &RefCell<Vec<HalfHandle>>) -> Result<ListedHalf> {
        let config = &self.job.config;
        let mut backoff = Backoff::new(config.backoff_first, config.backoff_max);
        for tries in 1.. {
            let ticket = self.publishing.publisher.borrow().ticket();
            match self.job.log.prepare(&half.channel.target, &half.message).await {
                Ok(prepared) => {
                    self.publishing.publisher.borrow_mut().send_acknowledged(&link_id(&prepared.link), ticket);
                    stored.borrow_mut().push(prepared.handle.clone());
                    self.line.count(|counters| counters.halves += 1);
                    return Ok(ListedHalf {
                        channel: half.channel.clone(),
                        sequence: half.sequence,
                        handle: prepared.handle,
                    });
                }
                Err(error) if error.kind() == ErrorKind::Retry && tries < config.tries_max => {
                    // The try that got no answer may have left an orphan; it is never listed.
                    self.line.count(|counters| counters.half_retries += 1);
                    backoff.wait(&*self.job.entropy).await;
                }
                Err(error) => return Err(error.context(format!("half message to {}", half.channel.target))),
            }
        }
        Err(Error::bug("tries ran out without an error"))
    }

    /// Housekeeping for a dropped epoch: without it the broker would ask about each half until it gives up.
    async fn roll_back(&self, stored: &[HalfHandle]) {
        for handle in stored {
            match self.job.log.end(handle, End::Rollback).await {
                Ok(_) => self.line.count(|counters| counters.halves_rolled_back += 1),
                // The check-back will be answered with a rollback.
                Err(_) => return,
            }
        }
    }

    /// One try to append a record of the own generation, over this connection or any.
    async fn append(
        &mut self,
        over: Option<&Link>,
        record: &[u8],
        resend: bool,
        backoff: &mut Backoff,
    ) -> Result<Event> {
        if resend {
            self.line.count(|counters| counters.append_retries += 1);
            backoff.wait(&*self.job.entropy).await;
        }
        let ticket = self.publishing.publisher.borrow().ticket();
        match self.publishing.journal.append(over, record).await {
            Ok(appended) => {
                let mut publisher = self.publishing.publisher.borrow_mut();
                publisher.send_acknowledged(&link_id(&appended.link), ticket);
                self.append_sent_at = Some(appended.sent_at);
                self.line.count(|counters| counters.journal_bytes += record.len() as u64);
                Ok(Event::Acknowledged(appended.offset))
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                tracing::debug!(task = %self.id, error = %error.report(), "journal append not acknowledged");
                if planted::is(Bug::UnansweredAppendIsDone) {
                    return Ok(Event::Acknowledged(self.coordinator.borrow().cursor()));
                }
                if over.is_some_and(|link| !self.publishing.journal.is_open(link)) {
                    // Another life of the broker may have begun, without what was read in this one: read it again.
                    return Err(error.context("the connection of the claim is gone"));
                }
                Ok(Event::Unknown)
            }
            Err(error) => Err(error.context("journal")),
        }
    }

    /// S4. A crash before, during or after it leaves the same state: the journal replays onto the store's point.
    fn apply(&mut self, permit: &CommitPermit) -> Result<()> {
        if *permit.changes() != Changes::Sealed {
            return Err(Error::bug("an epoch from the journal while owning"));
        }
        let point = permit.point();
        assert!(point.offsets.at_or_after(&self.reported.borrow()), "a committed offset went back");
        self.reported.replace(point.offsets.clone());
        self.state.overlay_mut().commit(point)
    }

    /// Hands a decided epoch to the publisher, and its facts to whoever answers check-backs.
    fn publish(&mut self, plan: PublishPlan) {
        self.show_check_backs(&plan);
        let publishing = &self.publishing;
        let mut publisher = publishing.publisher.borrow_mut();
        // The acknowledged Commit showed that no newer Claim was there when it was sent.
        if let Some(sent_at) = self.append_sent_at.take() {
            publisher.lease_from(sent_at);
        }
        publishing.pace.borrow_mut().decided(plan.epoch, plan.items.len(), self.job.monotonic.now());
        publisher.decided(plan);
        publishing.backlog.set(publisher.unpublished_bytes());
        publishing.work.notify_one();
        let (epoch, passed) = {
            let coordinator = self.coordinator.borrow();
            (coordinator.epoch(), coordinator.passed_over())
        };
        let shown = std::mem::replace(&mut self.passed_over, passed);
        self.line.update(|status| {
            status.protocol.void_records += passed.void - shown.void;
            status.protocol.foreign_records += passed.foreign - shown.foreign;
            status.epoch = epoch;
            status.published_through = publisher.published_through();
            status.offsets.clone_from(&self.reported.borrow());
            status.time_behind = self.state.times().is_behind();
            status.protocol.epochs += 1;
        });
    }

    /// From here on check-backs about this epoch's halves are answered by its list.
    fn show_check_backs(&self, plan: &PublishPlan) {
        let mut views = self.job.views.lock().unwrap_or_else(PoisonError::into_inner);
        let coordinator = self.coordinator.borrow();
        let view = views.entry(self.id.clone()).or_insert_with(|| CheckBackView::of(coordinator.fold()));
        view.advance(coordinator.fold());
        view.list(plan.epoch, listed_keys(plan));
    }

    /// The task is no longer owned here: its check-backs are answered Unknown.
    fn forget_check_backs(&self) {
        self.job.views.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The UNIQ_KEYs of a plan's halves.
pub(super) fn listed_keys(plan: &PublishPlan) -> impl Iterator<Item = Arc<str>> {
    plan.items.iter().filter_map(|item| match &item.work {
        Work::End(handle) => Some(handle.unique_key.clone()),
        Work::Send(_) => None,
    })
}

impl Drop for Task {
    fn drop(&mut self) {
        self.forget_check_backs();
    }
}
