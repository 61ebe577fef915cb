//! What the engine tells a coordinator, and what the coordinator tells the engine.

use crate::{Claim, Decoded, ListedHalf, OutboxBatch, Owner, PublishPlan, SnapshotLocation};
use onceflow_types::{
    Channel, CommitPoint, Epoch, Error, Generation, Incarnation, Name, Nonce, Offset, Offsets, Partition, Sequence,
    Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// What an opening starts from.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Drawn at random for this opening.
    pub nonce: Nonce,
    /// Who opens.
    pub owner: Owner,
    /// The topology that the owner runs.
    pub topology_hash: u64,
    /// Whether the owner may replace another topology.
    pub upgrade: bool,
    /// The point of the local store or snapshot; `None` when there is none.
    pub point: Option<CommitPoint>,
    /// The Claim at `point.generation`, when it can still be read.
    pub previous: Option<Claim>,
    /// The first offset of the journal that can be read.
    pub journal_first: Offset,
    /// The sinks whose topics only Onceflow reads.
    pub internal_sinks: BTreeSet<Name>,
    /// How often an append is tried before the task is dropped, 1 or more.
    pub tries_max: u32,
}

/// Journal records that an owner read and that changed nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PassedOver {
    /// Void ones: of a fenced owner, late, or sent again.
    pub void: u64,
    /// Not ours, or damaged.
    pub foreign: u64,
}

/// A journal record as it was read.
#[derive(Clone, Debug)]
pub struct ReadRecord {
    /// Its journal offset.
    pub offset: Offset,
    /// What it says.
    pub decoded: Decoded,
    /// The checksum of its bytes.
    pub checksum: u32,
}

/// A sealed epoch (S1): everything but the handles of its half messages.
#[derive(Clone, PartialEq, Debug)]
pub struct Sealed {
    /// The next offset to read, per input partition.
    pub offsets: Offsets,
    /// The watermark of each input.
    pub watermarks: BTreeMap<Partition, Timestamp>,
    /// The processing time of the epoch.
    pub clock: Timestamp,
    /// The next sequence of each channel, after this epoch's output.
    pub channels: BTreeMap<Channel, Sequence>,
    /// Lower bounds of the target queues' positions.
    pub tails: Offsets,
    /// The publisher's word; see [`Publisher::published_through`](crate::Publisher::published_through).
    pub published_through: Epoch,
    /// The changes, as a store's delta encodes them.
    pub changes: Vec<u8>,
    /// How many half messages the epoch has.
    pub halves: usize,
    /// The messages that are sent after the decision.
    pub outbox: Vec<OutboxBatch>,
}

/// What the engine observed.
#[derive(Debug)]
pub enum Event {
    /// The answer to [`Action::Read`]: records from the asked offset on, without gaps. `at_end` when none follows.
    Read {
        /// In offset order.
        records: Vec<ReadRecord>,
        /// Whether the journal's end, as known when the read was asked for, is reached.
        at_end: bool,
    },
    /// The last [`Action::Append`] got SEND_OK at this offset.
    Acknowledged(Offset),
    /// The outcome of the last [`Action::Append`] is unknown: time-out, weak status or lost reply.
    Unknown,
    /// The open epoch is sealed.
    Sealed(Box<Sealed>),
    /// All half messages got SEND_OK; these are the ones to list, in order.
    Prepared(Vec<ListedHalf>),
    /// The last [`Action::Apply`] is done.
    Applied,
    /// The state as of [`Coordinator::snapshot_point`] lies in these messages, acknowledged; everything is still published
    /// and proven. Leads to an append; when that is settled no action follows and the owner goes on.
    Snapshot(SnapshotLocation),
    /// The owner wants to hand over; everything is published and proven.
    Release,
}

/// What the engine must do.
#[derive(Debug)]
pub enum Action {
    /// Read the journal from this offset: to its end, or at least through `through`, waiting for it.
    Read {
        /// The first offset to read.
        from: Offset,
        /// The offset that must be among what is read; `None`: read to the end.
        through: Option<Offset>,
    },
    /// Append these bytes to the journal, once; after a back-off when it is a resend.
    Append {
        /// The record.
        record: Vec<u8>,
        /// Whether the same bytes were sent before.
        resend: bool,
    },
    /// Send this many half messages and wait for SEND_OK of each (S2).
    Prepare {
        /// The epoch.
        epoch: Epoch,
        /// How many.
        halves: usize,
    },
    /// Commit to the store (S4).
    Apply(CommitPermit),
    /// The task is owned: start the publisher with these epochs, then process.
    Owned {
        /// The generation.
        generation: Generation,
        /// The journal's incarnation.
        incarnation: Incarnation,
        /// Decided epochs that may not be published yet.
        plans: Vec<PublishPlan>,
        /// Whether the publish lease must be waited for.
        wait: bool,
    },
    /// The epoch is decided and applied: publish it (S5).
    Publish(PublishPlan),
    /// The task was handed over.
    Released,
    /// Drop the task. `Fenced`: someone newer owns it; `Retry`: open again; other kinds: stop and tell.
    Stop(Error),
}

/// The right to change the store. Only the coordinator makes one, from a Commit that the fold found valid.
#[derive(Debug)]
pub struct CommitPermit {
    pub(super) point: CommitPoint,
    pub(super) changes: Changes,
}

/// Where the changes of a permit are.
#[derive(PartialEq, Eq, Debug)]
pub enum Changes {
    /// In the engine's overlay: the epoch that it sealed last.
    Sealed,
    /// Here, from the journal: the encoding of a store's delta.
    Journal(Vec<u8>),
}

impl CommitPermit {
    /// The point that goes into the same atomic write.
    pub fn point(&self) -> &CommitPoint {
        &self.point
    }

    /// The changes.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }
}
