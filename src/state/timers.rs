//! What is due, by time: the second order in which operators that work with time keep their state.
//!
//! | key, behind the number of the table `name#timers` | value |
//! | --- | --- |
//! | `00` | version `01`, then the time acted on: `i64`, big-endian, top bit flipped |
//! | `01` event time, `02` processing time; then the time as above; then what is due | empty |

use super::{TableId, TaskState};
use onceflow_storage::{KEY_BYTES_MAX, KeyRange, Order, ReadStore};
use onceflow_types::{Error, Name, Result, Timestamp};
use std::ops::Bound;

/// The part of an operator's state that holds its timers.
const PART: &str = "timers";
const VERSION: u8 = 1;
const ACTED_ON: u8 = 0;
/// How many timers are read before they are worked on.
const READ_MAX: usize = 256;
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
    pub(crate) what: Vec<u8>,
}

impl Due {
    /// Whatever is due at `time` is not before this.
    fn from(time: Timestamp) -> Due {
        Due { time, what: vec![] }
    }

    fn is_behind(&self, time: Timestamp, what: &[u8]) -> bool {
        (self.time, self.what.as_slice()) > (time, what)
    }
}

/// The timers of one operator. A timer is its time and what is due then; setting one twice is setting it once.
#[derive(Debug)]
pub(crate) struct Timers {
    name: Name,
    part: String,
    table: Option<TableId>,
    /// Of each kind, the first timer that may be set.
    front: [Due; 2],
    /// What was written as acted on.
    acted_on: Timestamp,
    key: Vec<u8>,
}

impl Timers {
    /// The timers of the operator `name`, not bound to a state yet.
    pub(crate) fn new(name: Name) -> Self {
        Timers::of_part(name, PART.to_owned())
    }

    /// The timers of a part of the operator's state, which are a part of their own.
    pub(crate) fn of_part(name: Name, part: String) -> Self {
        let front = [Due::from(Timestamp::MAX), Due::from(Timestamp::MAX)];
        Timers { name, part, table: None, front, acted_on: Timestamp::MIN, key: vec![] }
    }

    /// Binds them to a task's state; returns the time that was acted on last.
    pub(crate) fn open(&mut self, state: &mut TaskState) -> Result<Timestamp> {
        let table = state.part_of_table(&self.name, &self.part)?;
        self.table = Some(table);
        self.head(ACTED_ON)?;
        let mut value = vec![];
        if state.get(&self.key, &mut value)? {
            self.acted_on = decode(&value).map_err(|e| e.context(&self.name))?;
        }
        for kind in [TimerKind::Event, TimerKind::Processing] {
            // What is committed: nothing lies below it.
            self.find_front(kind, Timestamp::MIN, state)?;
        }
        Ok(self.acted_on)
    }

    fn head(&mut self, word: u8) -> Result<()> {
        let table =
            self.table.ok_or_else(|| Error::bug(format!("timers are used before they are opened: {}", self.name)))?;
        self.key.clear();
        self.key.extend_from_slice(&table.prefix());
        self.key.push(word);
        Ok(())
    }

    fn timer_key(&mut self, kind: TimerKind, time: Timestamp, what: &[u8]) -> Result<()> {
        self.head(kind as u8)?;
        self.key.extend_from_slice(&encode_time(time));
        self.key.extend_from_slice(what);
        check_key_bytes(self.key.len())
    }

    /// Whether a timer for so many bytes can be set. Who changes anything else for a record looks before.
    ///
    /// # Errors
    /// `Record` when they are more than the store allows.
    pub(crate) fn check(bytes: usize) -> Result<()> {
        check_key_bytes(HEAD_BYTES + bytes)
    }

    fn front(&self, kind: TimerKind) -> &Due {
        let [event, processing] = &self.front;
        if kind == TimerKind::Event { event } else { processing }
    }

    fn front_mut(&mut self, kind: TimerKind) -> &mut Due {
        let [event, processing] = &mut self.front;
        if kind == TimerKind::Event { event } else { processing }
    }

    /// The earliest time at which a timer of this kind may be due; [`Timestamp::MAX`] when none is.
    #[inline]
    pub(crate) fn next(&self, kind: TimerKind) -> Timestamp {
        self.front(kind).time
    }

    /// Whether a timer of this kind may be due at `now`. What is set for the end of time never is: that does not come, as
    /// it also stands for nothing at all.
    #[inline]
    pub(crate) fn is_due(&self, kind: TimerKind, now: Timestamp) -> bool {
        self.next(kind) <= now.min(LAST)
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, kind: TimerKind, time: Timestamp, what: &[u8], state: &mut TaskState) -> Result<()> {
        self.timer_key(kind, time, what)?;
        state.put(&self.key, b"");
        if self.front(kind).is_behind(time, what) {
            *self.front_mut(kind) = Due { time, what: what.to_vec() };
        }
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
        self.timer_key(kind, time, what)?;
        state.delete(&self.key);
        Ok(())
    }

    /// Takes out timers that are due at `now`, in the order of their times, and of what is due for equal ones: the first
    /// few of them. None is left when it returns none.
    pub(crate) fn take_due(&mut self, kind: TimerKind, now: Timestamp, state: &mut TaskState) -> Result<Vec<Due>> {
        if !self.is_due(kind, now) {
            return Ok(vec![]);
        }
        let now = now.min(LAST);
        let due = self.read(kind, now, READ_MAX, state)?;
        for due in &due {
            self.remove(kind, due.time, &due.what, state)?;
        }
        match due.last() {
            // Not only its time: when very many are due at one time, each reading would pass over all that were taken.
            Some(last) if due.len() == READ_MAX => self.front_mut(kind).clone_from(last),
            // All that were due are taken; the next one is behind `now`.
            _ => self.find_front(kind, now.saturating_add(1), state)?,
        }
        Ok(due)
    }

    /// Sets timers again that were taken.
    pub(crate) fn put_back(&mut self, kind: TimerKind, due: &[Due], state: &mut TaskState) -> Result<()> {
        due.iter().try_for_each(|due| self.set(kind, due.time, &due.what, state))
    }

    /// Looks for the first timer that is due at `from` or behind it.
    fn find_front(&mut self, kind: TimerKind, from: Timestamp, state: &TaskState) -> Result<()> {
        *self.front_mut(kind) = Due::from(from);
        let first = self.read(kind, Timestamp::MAX, 1, state)?.pop();
        *self.front_mut(kind) = first.unwrap_or_else(|| Due::from(Timestamp::MAX));
        Ok(())
    }

    /// The first timers from the earliest that may be set to `through`. Nothing below that is looked at: it may be full of
    /// what was removed.
    fn read(&mut self, kind: TimerKind, through: Timestamp, most: usize, state: &TaskState) -> Result<Vec<Due>> {
        self.head(kind as u8)?;
        let mut end = self.key.clone();
        end.extend_from_slice(&encode_time(through));
        // Whatever is due at `through` comes before the next millisecond; at the end of time, before the next kind.
        match through.as_millis().checked_add(1) {
            Some(next) => {
                end.truncate(HEAD_BYTES - 8);
                end.extend_from_slice(&encode_time(Timestamp::from_millis(next)));
            }
            None => {
                end.truncate(HEAD_BYTES - 8);
                if let Some(word) = end.last_mut() {
                    *word += 1;
                }
            }
        }
        // Not by `front`, as the key is changed meanwhile.
        let [event, processing] = &self.front;
        let from = if kind == TimerKind::Event { event } else { processing };
        self.key.extend_from_slice(&encode_time(from.time));
        self.key.extend_from_slice(&from.what);
        let range = KeyRange { start: Bound::Included(&self.key), end: Bound::Excluded(end) };
        let mut cursor = state.overlay().scan(range, Order::Ascending)?;
        let mut due = vec![];
        while due.len() < most
            && let Some((key, _)) = cursor.next()?
        {
            let (head, what) = key.split_at_checked(HEAD_BYTES).ok_or_else(damaged)?;
            let time = head.last_chunk::<8>().map(|time| decode_time(*time)).ok_or_else(damaged)?;
            due.push(Due { time, what: what.to_vec() });
        }
        Ok(due)
    }

    /// Writes the time acted on, if it has moved.
    pub(crate) fn seal(&mut self, acted_on: Timestamp, state: &mut TaskState) -> Result<()> {
        if acted_on > self.acted_on {
            self.head(ACTED_ON)?;
            let mut value = vec![VERSION];
            value.extend_from_slice(&encode_time(acted_on));
            state.put(&self.key, &value);
            self.acted_on = acted_on;
        }
        Ok(())
    }
}

fn check_key_bytes(bytes: usize) -> Result<()> {
    if bytes > KEY_BYTES_MAX {
        return Err(Error::record(format!("key is too long: bytes={bytes} max={KEY_BYTES_MAX}")));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::commit_point;
    use onceflow_storage::{MemoryStore, Overlay};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Set(bool, i64, u8),
        Remove(bool, i64, u8),
        Take(bool, i64),
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let time = prop_oneof![8 => -20i64..20, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
        let step = prop_oneof![
            5 => (any::<bool>(), time.clone(), 0u8..4).prop_map(|(kind, time, what)| Step::Set(kind, time, what)),
            2 => (any::<bool>(), time.clone(), 0u8..4).prop_map(|(kind, time, what)| Step::Remove(kind, time, what)),
            3 => (any::<bool>(), time).prop_map(|(kind, time)| Step::Take(kind, time)),
            1 => Just(Step::Reopen),
        ];
        vec(step, 0..60)
    }

    fn kind(event: bool) -> TimerKind {
        if event { TimerKind::Event } else { TimerKind::Processing }
    }

    proptest! {
        // Aim: timers come in order, each once, across commits. Method: beside a plain set, with times at both ends.
        #[test]
        fn timers_equal_a_sorted_set(steps in steps()) {
            let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap();
            let name = Name::new("t").unwrap();
            let mut timers = Timers::new(name.clone());
            timers.open(&mut state).unwrap();
            let (mut set, mut epoch) = (BTreeSet::new(), 0);
            for step in steps {
                match step {
                    Step::Set(event, time, what) => {
                        timers.set(kind(event), Timestamp::from_millis(time), &[what], &mut state).unwrap();
                        set.insert((event, time, what));
                    }
                    Step::Remove(event, time, what) => {
                        timers.remove(kind(event), Timestamp::from_millis(time), &[what], &mut state).unwrap();
                        set.remove(&(event, time, what));
                    }
                    Step::Take(event, now) => {
                        let due = timers.take_due(kind(event), Timestamp::from_millis(now), &mut state).unwrap();
                        // What is set for the end of time is never due.
                        let last = now.min(i64::MAX - 1);
                        let want: Vec<_> =
                            set.iter().filter(|(e, time, _)| *e == event && *time <= last).copied().collect();
                        let got: Vec<_> = due.iter().map(|due| (event, due.time.as_millis(), due.what[0])).collect();
                        prop_assert_eq!(&got, &want);
                        set.retain(|timer| !want.contains(timer));
                        prop_assert!(timers.take_due(kind(event), Timestamp::from_millis(now), &mut state).unwrap().is_empty());
                    }
                    Step::Reopen => {
                        epoch += 1;
                        timers.seal(Timestamp::from_millis(epoch), &mut state).unwrap();
                        state.overlay_mut().commit(&commit_point(epoch.unsigned_abs())).unwrap();
                        timers = Timers::new(name.clone());
                        prop_assert_eq!(timers.open(&mut state).unwrap(), Timestamp::from_millis(epoch));
                    }
                }
            }
        }
    }

    #[test]
    fn more_timers_than_are_read_at_once_come_in_pieces() {
        let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap();
        let mut timers = Timers::new(Name::new("t").unwrap());
        timers.open(&mut state).unwrap();
        for number in 0..u16::try_from(READ_MAX).unwrap() * 2 + 7 {
            timers.set(TimerKind::Event, Timestamp::from_millis(5), &number.to_be_bytes(), &mut state).unwrap();
        }
        let mut pieces = vec![];
        loop {
            let due = timers.take_due(TimerKind::Event, Timestamp::from_millis(9), &mut state).unwrap();
            if due.is_empty() {
                break;
            }
            pieces.push(due.len());
        }
        assert_eq!(pieces, [READ_MAX, READ_MAX, 7]);
    }

    // Aim: what is taken of very many timers of one time is not passed over by the next reading, and nothing is missed that
    // was set below it meanwhile.
    #[test]
    fn a_reading_begins_behind_what_was_taken() {
        let mut state = TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap();
        let mut timers = Timers::new(Name::new("t").unwrap());
        timers.open(&mut state).unwrap();
        let (time, now) = (Timestamp::from_millis(5), Timestamp::from_millis(9));
        let set = |timers: &mut Timers, state: &mut TaskState, number: u16| {
            timers.set(TimerKind::Event, time, &number.to_be_bytes(), state).unwrap();
        };
        let count = u16::try_from(READ_MAX).unwrap();
        for number in 0..count * 2 {
            set(&mut timers, &mut state, number);
        }
        let taken = timers.take_due(TimerKind::Event, now, &mut state).unwrap();
        assert_eq!(timers.front(TimerKind::Event), taken.last().unwrap(), "where the next reading begins");
        timers.put_back(TimerKind::Event, taken.get(READ_MAX - 2..).unwrap(), &mut state).unwrap();
        set(&mut timers, &mut state, 3);
        let due = timers.take_due(TimerKind::Event, now, &mut state).unwrap();
        let numbers: Vec<_> = due.iter().map(|due| u16::from_be_bytes(due.what.clone().try_into().unwrap())).collect();
        let want: Vec<_> = [3].into_iter().chain(count - 2..count * 2 - 3).collect();
        assert_eq!(numbers, want);
    }
}
