//! The epoch protocol of Onceflow as pure functions: journal records, the fold over them, the owner's and the
//! publisher's decisions, check-back verdicts, and the dedup reader.
//!
//! What it is: facts in, decisions out. Nothing here reads a clock, draws a random number, touches a disk or a network,
//! starts a thread or awaits, so every schedule can be enumerated in a test. What it is not: the engine that carries the
//! decisions out, or a client of a log. `docs/commit-protocol.md` has the protocol, the member `model` the executable
//! model behind it.
//!
//! A program that reads a job's output beside the engine needs [`Identity`] and [`DedupReader`]:
//!
//! ```
//! use onceflow_txn::{ChannelKey, DedupReader, DedupSettings, Identity, Start};
//! use onceflow_types::{Name, Partition, Result, Timestamp};
//! use std::time::Duration;
//!
//! /// `messages`: stored time, the property `ONCEFLOW`, body; of one queue in offset order, from its first message on.
//! fn read_once(job: &Name, queue: &Partition, messages: &[(i64, &[u8], &'static str)]) -> Result<Vec<&'static str>> {
//!     let settings = DedupSettings::new(Duration::from_secs(10), Duration::from_secs(72 * 3600));
//!     let mut reader = DedupReader::new(settings);
//!     reader.begin(queue, Start::First);
//!     let mut out = vec![];
//!     for (stored, property, body) in messages {
//!         let Ok(identity) = Identity::from_property(property) else { continue };
//!         if identity.is_of(job) {
//!             let key = ChannelKey::of(&identity, queue);
//!             let stored = Timestamp::from_millis(*stored);
//!             reader.accept(&key, identity.sequence, identity.floor, *body, stored, &mut out)?;
//!         }
//!     }
//!     Ok(out)
//! }
//! # let (job, queue) = (Name::job("fraud")?, Partition::new("alerts", "broker-a", 0));
//! # assert!(read_once(&job, &queue, &[(5, b"a stranger's", "x")])?.is_empty());
//! # Ok::<(), onceflow_types::Error>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`record`] | [`JournalRecord`] and its bytes: [`Claim`], [`DeltaPart`], [`Commit`], [`Snapshot`], [`Release`]; [`decode`] |
//! | [`body`] | [`EpochBody`]: changes, half handles and outbox of one epoch; [`split`] into parts |
//! | [`fold`] | [`Fold`]: which records are valid, and what they say |
//! | `parts` | Deltas on their way to their Commit; [`recover_body`] reads an epoch again |
//! | [`coordinator`] | [`Coordinator`]: opening, S2 to S4 and Release of one owner |
//! | [`publisher`] | [`Publisher`]: S5, when may which output be made visible |
//! | [`identity`] | [`Identity`] of a message, as a property |
//! | `identity_text` | [`IdentityWriter`], [`IdentityReader`]: many of them in a row |
//! | [`frame`] | [`Frame`]: many records in one message |
//! | [`check_back`] | [`verdict`]: Rollback or Unknown |
//! | [`dedup`] | [`DedupReader`]: each message once, in order |

pub mod body;
pub mod check_back;
pub mod coordinator;
pub mod dedup;
pub mod fold;
pub mod frame;
pub mod identity;
mod identity_text;
mod lz4;
mod parts;
pub mod publisher;
pub mod record;
mod text;

pub use body::{BODY_BYTES_MAX, EpochBody, INLINE_BYTES_MAX, ListedHalf, OutboxBatch, split};
pub use check_back::{Answer, CheckBackView, verdict};
pub use coordinator::{
    Action, Changes, CommitPermit, Coordinator, Event, Opening, PART_BYTES_MAX, PassedOver, REPLAY_HELD_BYTES_MAX,
    ReadRecord, Sealed,
};
pub use dedup::{Accepted, ChannelKey, DedupCounts, DedupReader, DedupSettings, HELD_MAX_DEFAULT, Start};
pub use fold::{Committed, Fold, Folded, Void};
pub use frame::{FRAME_MAGIC, Frame, FrameTime};
pub use identity::{IDENTITY_PROPERTY, Identity, SEQUENCE_MAX};
pub use identity_text::{IdentityReader, IdentityWriter};
pub use parts::recover_body;
pub use publisher::{Item, ItemId, LinkId, PublishPlan, Publisher, Step, Work};
pub use record::{
    Claim, Commit, CommitBody, Decoded, DeltaPart, Foreign, JournalRecord, OWNER_TEXT_BYTES_MAX, Owner, PARTS_MAX,
    RECORD_BODY_BYTES_MAX, RECORD_MAGIC, RECORD_VERSION, Release, Snapshot, SnapshotLocation, decode, record_checksum,
};
