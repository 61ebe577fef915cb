//! Where streams part and meet.

use super::Push;
use crate::codec::Data;
use crate::record::Record;
use crate::stage::Context;
use crate::state::TaskState;
use crate::time::Progress;
use onceflow_types::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard};

/// The end of a stream that nobody uses further.
pub(crate) struct End;

impl<T: Data> Push<T> for End {
    fn open(&mut self, _: &mut TaskState) -> Result<()> {
        Ok(())
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, _: &mut Context<'_>) -> Result<()> {
        records.clear();
        Ok(())
    }

    fn advance(&mut self, _: Progress, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }

    fn seal(&mut self, _: &mut Context<'_>) -> Result<()> {
        Ok(())
    }
}

/// A stream that is used more than once.
///
/// Each record goes through every branch before the next one does. Handing on whole batches would be quicker and wrong:
/// where branches meet again, the second record of one would come before the first of the other, and how records happen
/// to be batched would show in the output.
pub(crate) struct Branches<T> {
    branches: Vec<Box<dyn Push<T>>>,
    one: Vec<Record<T>>,
}

impl<T> Branches<T> {
    pub(crate) fn new(branches: Vec<Box<dyn Push<T>>>) -> Self {
        Branches { branches, one: Vec::with_capacity(1) }
    }
}

impl<T: Data> Push<T> for Branches<T> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        self.branches.iter_mut().try_for_each(|branch| branch.open(state))
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        let Some((last, others)) = self.branches.split_last_mut() else { return Ok(()) };
        for record in records.drain(..) {
            for branch in &mut *others {
                self.one.push(record.clone());
                branch.push(&mut self.one, cx)?;
            }
            self.one.push(record);
            last.push(&mut self.one, cx)?;
        }
        Ok(())
    }

    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.branches.iter_mut().try_for_each(|branch| branch.advance(progress, cx))
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        self.branches.iter_mut().try_for_each(|branch| branch.seal(cx))
    }
}

/// One of several ways into a room. The lock is never waited for: a task is worked on by one thread, and a topology has
/// no cycle.
pub(crate) struct Merge<T> {
    room: Arc<Mutex<Room<T>>>,
}

struct Room<T> {
    next: Box<dyn Push<T>>,
    ways: usize,
    /// How many ways have been opened, and sealed in this epoch: the room is sealed when nothing can come any more.
    opened: usize,
    sealed: usize,
}

impl<T> Merge<T> {
    /// A room without a way in; [`way`](Self::way) makes them.
    pub(crate) fn new(next: Box<dyn Push<T>>) -> Self {
        Merge { room: Arc::new(Mutex::new(Room { next, ways: 0, opened: 0, sealed: 0 })) }
    }

    /// One more way into the room.
    pub(crate) fn way(&self) -> Result<Self> {
        self.room()?.ways += 1;
        Ok(Merge { room: self.room.clone() })
    }

    fn room(&self) -> Result<MutexGuard<'_, Room<T>>> {
        self.room.try_lock().map_err(|_| Error::bug("a room of a topology was entered twice"))
    }
}

impl<T: Data> Push<T> for Merge<T> {
    fn open(&mut self, state: &mut TaskState) -> Result<()> {
        let mut room = self.room()?;
        room.opened += 1;
        if room.opened == 1 { room.next.open(state) } else { Ok(()) }
    }

    fn push(&mut self, records: &mut Vec<Record<T>>, cx: &mut Context<'_>) -> Result<()> {
        self.room()?.next.push(records, cx)
    }

    /// Each input comes by its own way, or by all of them after its records went by all of them.
    fn advance(&mut self, progress: Progress, cx: &mut Context<'_>) -> Result<()> {
        self.room()?.next.advance(progress, cx)
    }

    fn seal(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let mut room = self.room()?;
        room.sealed += 1;
        if room.sealed < room.ways {
            return Ok(());
        }
        room.sealed = 0;
        room.next.seal(cx)
    }
}
