//! How the timers of one kind lie in a task's state.

use super::{Due, HEAD_BYTES, TimerKind, damaged, decode_time, encode_time};
use crate::state::{TableId, TaskState};
use onceflow_storage::{KeyRange, Order, ReadStore};
use onceflow_types::Result;
use std::ops::Bound;

/// Where the timers of one kind lie in a task's state.
#[derive(Debug)]
pub(super) struct Stored {
    /// What their keys begin with: table and kind.
    head: [u8; HEAD_BYTES - 8],
    key: Vec<u8>,
}

impl Stored {
    pub(super) fn new(table: TableId, kind: TimerKind) -> Self {
        let [high, low] = table.prefix();
        Stored { head: [high, low, kind as u8], key: vec![] }
    }

    fn key(&mut self, due: &Due) -> &[u8] {
        self.key.clear();
        self.key.extend_from_slice(&self.head);
        self.key.extend_from_slice(&encode_time(due.time));
        self.key.extend_from_slice(&due.what);
        &self.key
    }

    pub(super) fn put(&mut self, due: &Due, state: &mut TaskState) {
        state.put(self.key(due), b"");
    }

    pub(super) fn delete(&mut self, due: &Due, state: &mut TaskState) {
        state.delete(self.key(due));
    }

    /// Reads timers from `from` on, in order, until `take` has had enough. Nothing before that is looked at: it may be full
    /// of what was deleted.
    pub(super) fn read(&mut self, from: &Due, state: &TaskState, mut take: impl FnMut(Due) -> bool) -> Result<()> {
        let [high, low, kind] = self.head;
        let range =
            KeyRange { start: Bound::Included(self.key(from)), end: Bound::Excluded(vec![high, low, kind + 1]) };
        let mut cursor = state.overlay().scan(range, Order::Ascending)?;
        while let Some((key, _)) = cursor.next()? {
            let (head, what) = key.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
            let time = head.last_chunk::<8>().map(|time| decode_time(*time)).ok_or_else(damaged)?;
            if !take(Due { time, what: what.into() }) {
                break;
            }
        }
        Ok(())
    }
}
