//! One branch of a split stream.

use super::Push;
use crate::codec::Data;
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::Progress;
use onceflow_types::Result;
use std::sync::Arc;

/// Records that `take` takes go one way, the others another.
///
/// As behind [`Branches`](super::Branches), a record is through its branch before the next one starts: where branches meet
/// again, order must not depend on batches. Records that follow each other on the same way go together.
pub(crate) struct Branch<T, U, F> {
    take: Arc<F>,
    taken: Vec<Record<U>>,
    left: Vec<Record<T>>,
    next_taken: Box<dyn Push<U>>,
    next: Box<dyn Push<T>>,
}

impl<T, U, F> Branch<T, U, F> {
    pub(crate) fn new(take: Arc<F>, next_taken: Box<dyn Push<U>>, next: Box<dyn Push<T>>) -> Self {
        Branch { take, taken: vec![], left: vec![], next_taken, next }
    }
}

impl<T: Data, U: Data, F: Fn(&T) -> Option<U> + Send + Sync> Push<T> for Branch<T, U, F> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.next_taken.open(state)?;
        self.next.open(state)
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        for record in records.drain(..) {
            if let Some(value) = (self.take)(&record.value) {
                if !self.left.is_empty() {
                    self.next.push(&mut self.left, cx)?;
                }
                self.taken.push(record.with(value));
            } else {
                if !self.taken.is_empty() {
                    self.next_taken.push(&mut self.taken, cx)?;
                }
                self.left.push(record);
            }
        }
        // One of them is empty.
        self.next_taken.push(&mut self.taken, cx)?;
        self.next.push(&mut self.left, cx)
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.next_taken.advance(progress, cx)?;
        self.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.next_taken.seal(cx)?;
        self.next.seal(cx)
    }
}
