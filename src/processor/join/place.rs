//! Where a join stands in its stage: its clock, what comes behind it, and where late records go.

use super::Sided;
use crate::codec::{Data, Key};
use crate::processor::{Guard, InputClock, Push};
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::{Input, Progress, Watermark};
use onceflow_types::{Result, Timestamp};

/// Where a join stands in its stage.
pub(crate) struct JoinPlace<K, L, R, O> {
    pub(crate) guard: Guard,
    pub(crate) clock: InputClock,
    pub(crate) input: Input,
    pub(crate) next: Box<dyn Push<(K, O)>>,
    pub(crate) late: LateRecords<K, L, R>,
}

/// The records of both sides that came too late, and those who take them.
pub(crate) struct LateRecords<K, L, R> {
    left: Vec<Record<(K, L)>>,
    right: Vec<Record<(K, R)>>,
    next_left: Box<dyn Push<(K, L)>>,
    next_right: Box<dyn Push<(K, R)>>,
}

impl<K: Key, L: Data, R: Data> LateRecords<K, L, R> {
    pub(crate) fn new(next_left: Box<dyn Push<(K, L)>>, next_right: Box<dyn Push<(K, R)>>) -> Self {
        LateRecords { left: vec![], right: vec![], next_left, next_right }
    }
}

impl<K: Key, L: Data, R: Data, O: Data> JoinPlace<K, L, R, O> {
    /// Puts a record aside that came too late. It is behind all watermarks, so it tells none.
    pub(super) fn put_late(&mut self, record: Record<(K, Sided<L, R>)>) {
        let Record { value: (key, value), timestamp, origin, .. } = record;
        let watermark = Timestamp::MIN;
        match value {
            Sided::Left(value) => self.late.left.push(Record { value: (key, value), timestamp, watermark, origin }),
            Sided::Right(value) => self.late.right.push(Record { value: (key, value), timestamp, watermark, origin }),
        }
    }

    /// Hands on what came too late, then the results.
    pub(super) fn flush(&mut self, out: &mut Vec<Record<(K, O)>>, cx: &mut Context<'_>) -> Result<()> {
        let mut cx = cx.of_input(self.input);
        let late = self.late.left.len() + self.late.right.len();
        if late > 0 {
            cx.counters.late += late as u64;
            self.guard.count_late(late);
            self.late.next_left.push(&mut self.late.left, &mut cx)?;
            self.late.next_right.push(&mut self.late.right, &mut cx)?;
        }
        self.next.push(out, &mut cx)
    }

    pub(super) fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.next.open(state)?;
        self.late.next_left.open(state)?;
        self.late.next_right.open(state)
    }

    /// Tells those behind how far the results have come.
    pub(super) fn advance(&mut self, time: Timestamp, cx: &mut Context<'_>) -> Result<()> {
        let progress = Progress { input: self.input, watermark: Watermark { time, idle: self.clock.watermark().idle } };
        let mut cx = cx.of_input(self.input);
        self.late.next_left.advance(progress, &mut cx)?;
        self.late.next_right.advance(progress, &mut cx)?;
        self.next.advance(progress, &mut cx)
    }

    pub(super) fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.late.next_left.seal(cx)?;
        self.late.next_right.seal(cx)?;
        self.next.seal(cx)
    }
}
