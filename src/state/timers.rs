//! What is due, by time: the second order in which operators that work with time keep their state.
//!
//! | key, behind the number of the table `name#timers` | value |
//! | --- | --- |
//! | `00` | version `01`, then the time acted on: `i64`, big-endian, top bit flipped |
//! | `01` event time, `02` processing time; then the time as above; then what is due | empty |

mod queue;
mod stored;
#[cfg(test)]
mod tests;

use self::queue::Queue;
use self::stored::Stored;
use super::{SmallBytes, TableId, TaskState};
use onceflow_storage::KEY_BYTES_MAX;
use onceflow_types::{Error, Name, Result, Timestamp};

/// The part of an operator's state that holds its timers.
const PART: &str = "timers";
const VERSION: u8 = 1;
const ACTED_ON: u8 = 0;
/// How many timers are taken before they are worked on.
const TAKEN_MAX: usize = 256;
/// How many timers of a kind are in memory at most, the next ones: 48 bytes each and the tree's own, and 4 MiB at most for
/// all that is longer than lies inside them. So many may wait for the end of an epoch to be written, beside the changed state
/// that an epoch counts.
const TIMERS_MAX: usize = 65_536;
/// The last time at which anything is due.
const LAST: Timestamp = Timestamp::from_millis(i64::MAX - 1);
/// Bytes of a key before what is due: table, kind, time.
const HEAD_BYTES: usize = 11;

/// By which time a timer goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TimerKind {
    Event = 1,
    Processing = 2,
}

/// A timer that is due, and was taken out. In the order in which timers are due.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Due {
    pub(crate) time: Timestamp,
    /// What is due.
    pub(crate) what: SmallBytes,
}

impl Due {
    /// Whatever is due at `time` is not before this.
    fn from(time: Timestamp) -> Due {
        Due { time, what: SmallBytes::EMPTY }
    }
}

/// The timers of one operator. A timer is its time and what is due then; setting one twice is setting it once.
///
/// The next of them are in [memory](queue). Changes reach the state at [`seal`](Self::seal), or earlier when there is no room.
#[derive(Debug)]
pub(crate) struct Timers {
    name: Name,
    part: String,
    in_memory_max: usize,
    /// `None` before they are opened.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    table: TableId,
    event: Queue,
    processing: Queue,
    /// What was written as acted on.
    acted_on: Timestamp,
}

impl Open {
    fn queue(&self, kind: TimerKind) -> &Queue {
        match kind {
            TimerKind::Event => &self.event,
            TimerKind::Processing => &self.processing,
        }
    }
}

impl Timers {
    /// The timers of the operator `name`, not bound to a state yet.
    pub(crate) fn new(name: Name) -> Self {
        Timers::of_part(name, PART.to_owned())
    }

    /// The timers of a part of the operator's state, which are a part of their own.
    pub(crate) fn of_part(name: Name, part: String) -> Self {
        Timers { name, part, in_memory_max: TIMERS_MAX, open: None }
    }

    /// Binds them to a task's state; returns the time that was acted on last.
    pub(crate) fn open(&mut self, state: &mut TaskState) -> Result<Timestamp> {
        let table = state.part_of_table(&self.name, &self.part)?;
        let mut value = vec![];
        let known = state.get(&acted_on_key(table), &mut value)?;
        let acted_on = if known { decode(&value).map_err(|e| e.context(&self.name))? } else { Timestamp::MIN };
        let queue = |kind| Queue::open(Stored::new(table, kind), self.in_memory_max, state);
        let (event, processing) = (queue(TimerKind::Event)?, queue(TimerKind::Processing)?);
        self.open = Some(Open { table, event, processing, acted_on });
        Ok(acted_on)
    }

    fn opened(&mut self) -> Result<&mut Open> {
        let name = &self.name;
        self.open.as_mut().ok_or_else(|| Error::bug(format!("timers are used before they are opened: {name}")))
    }

    fn queue(&mut self, kind: TimerKind) -> Result<&mut Queue> {
        let open = self.opened()?;
        Ok(match kind {
            TimerKind::Event => &mut open.event,
            TimerKind::Processing => &mut open.processing,
        })
    }

    /// Whether a timer for so many bytes can be set. Who changes anything else for a record looks before.
    ///
    /// # Errors
    /// `Record` when they are more than the store allows.
    pub(crate) fn check(bytes: usize) -> Result<()> {
        let bytes = HEAD_BYTES + bytes;
        if bytes > KEY_BYTES_MAX {
            return Err(Error::record(format!("key is too long: bytes={bytes} max={KEY_BYTES_MAX}")));
        }
        Ok(())
    }

    /// The time of the next timer of this kind; [`Timestamp::MAX`] when there is none.
    #[inline]
    pub(crate) fn next(&self, kind: TimerKind) -> Timestamp {
        self.open.as_ref().map_or(Timestamp::MAX, |open| open.queue(kind).front())
    }

    /// Whether a timer of this kind is due at `now`. What is set for the end of time never is: that does not come, as it also
    /// stands for nothing at all.
    #[inline]
    pub(crate) fn is_due(&self, kind: TimerKind, now: Timestamp) -> bool {
        self.next(kind) <= now.min(LAST)
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, kind: TimerKind, time: Timestamp, what: &[u8], state: &mut TaskState) -> Result<()> {
        Timers::check(what.len())?;
        self.queue(kind)?.set(Due { time, what: what.into() }, state);
        Ok(())
    }

    /// Removes a timer; no effect when it is not set.
    pub(crate) fn remove(
        &mut self,
        kind: TimerKind,
        time: Timestamp,
        what: &[u8],
        state: &mut TaskState,
    ) -> Result<()> {
        Timers::check(what.len())?;
        self.queue(kind)?.remove(&Due { time, what: what.into() }, state)
    }

    /// Takes out timers that are due at `now`, in the order of their times, and of what is due for equal ones: the first
    /// few of them. None is left when it returns none.
    pub(crate) fn take_due(&mut self, kind: TimerKind, now: Timestamp, state: &mut TaskState) -> Result<Vec<Due>> {
        let queue = self.queue(kind)?;
        let mut taken = vec![];
        while taken.len() < TAKEN_MAX
            && let Some(due) = queue.take(now, state)?
        {
            taken.push(due);
        }
        Ok(taken)
    }

    /// The next timer of this kind.
    pub(crate) fn first(&self, kind: TimerKind) -> Option<&Due> {
        self.open.as_ref().and_then(|open| open.queue(kind).first())
    }

    /// Takes the next timer of this kind out, if it is due at `now`.
    pub(crate) fn take_first(&mut self, kind: TimerKind, now: Timestamp, state: &mut TaskState) -> Result<Option<Due>> {
        self.queue(kind)?.take(now, state)
    }

    /// Sets timers again that were taken.
    pub(crate) fn put_back(&mut self, kind: TimerKind, due: &[Due], state: &mut TaskState) -> Result<()> {
        let queue = self.queue(kind)?;
        for due in due {
            queue.set(due.clone(), state);
        }
        Ok(())
    }

    /// Writes what has changed into the state; and the time acted on, if it has moved.
    pub(crate) fn seal(&mut self, acted_on: Timestamp, state: &mut TaskState) -> Result<()> {
        let open = self.opened()?;
        open.event.seal(state);
        open.processing.seal(state);
        if acted_on > open.acted_on {
            let mut value = vec![VERSION];
            value.extend_from_slice(&encode_time(acted_on));
            state.put(&acted_on_key(open.table), &value);
            open.acted_on = acted_on;
        }
        Ok(())
    }
}

fn acted_on_key(table: TableId) -> [u8; 3] {
    let [high, low] = table.prefix();
    [high, low, ACTED_ON]
}

/// The bytes of a time, which are in the order of the times.
pub(crate) fn encode_time(time: Timestamp) -> [u8; 8] {
    let bits = u64::from_le_bytes(time.as_millis().to_le_bytes()) ^ (1 << 63);
    bits.to_be_bytes()
}

pub(crate) fn decode_time(bytes: [u8; 8]) -> Timestamp {
    let bits = u64::from_be_bytes(bytes) ^ (1 << 63);
    Timestamp::from_millis(i64::from_le_bytes(bits.to_le_bytes()))
}

fn decode(value: &[u8]) -> Result<Timestamp> {
    match value.split_first() {
        Some((&VERSION, time)) => time.try_into().map(decode_time).map_err(|_| damaged()),
        Some((&version, _)) if version > VERSION => Err(Error::invalid(format!(
            "timers of a newer format, upgrade onceflow: version={version} known={VERSION}"
        ))),
        _ => Err(damaged()),
    }
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("timer is damaged")
}
