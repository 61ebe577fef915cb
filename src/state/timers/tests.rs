//! Timers beside a sorted set.

use super::*;
use crate::testing::commit_point;
use onceflow_storage::{MemoryStore, Order, Overlay};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Set(bool, i64, u8),
    Remove(bool, i64, u8),
    Take(bool, i64),
    /// Takes what is due, then sets all but the first few of it again.
    PutBack(bool, i64, usize),
    Seal,
    Commit,
    Reopen,
    /// The epoch is dropped, and all goes on from what is committed.
    Abort,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = prop_oneof![8 => -20i64..20, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    let step = prop_oneof![
        8 => (any::<bool>(), time.clone(), 0u8..4).prop_map(|(kind, time, what)| Step::Set(kind, time, what)),
        2 => (any::<bool>(), time.clone(), 0u8..4).prop_map(|(kind, time, what)| Step::Remove(kind, time, what)),
        3 => (any::<bool>(), time.clone()).prop_map(|(kind, time)| Step::Take(kind, time)),
        1 => (any::<bool>(), time, 0usize..4).prop_map(|(kind, time, from)| Step::PutBack(kind, time, from)),
        1 => Just(Step::Seal),
        1 => Just(Step::Commit),
        1 => Just(Step::Reopen),
        1 => Just(Step::Abort),
    ];
    vec(step, 0..120)
}

fn kind(event: bool) -> TimerKind {
    if event { TimerKind::Event } else { TimerKind::Processing }
}

/// Short for most, and too long to lie inside a timer for some.
fn what(of: u8) -> Vec<u8> {
    vec![of; if of == 3 { 100 } else { 1 }]
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn empty() -> TaskState {
    TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap()
}

fn opened(timers_max: usize, state: &mut TaskState) -> Timers {
    let mut timers = Timers { in_memory_max: timers_max, ..Timers::new(Name::new("t").unwrap()) };
    timers.open(state).unwrap();
    timers
}

/// The timers that lie in the state.
fn stored(timers: &Timers, state: &TaskState) -> usize {
    let mut cursor = state.scan(timers.open.as_ref().unwrap().table, Order::Ascending).unwrap();
    let mut count = 0;
    while let Some((key, _)) = cursor.next().unwrap() {
        count += usize::from(key.get(2) != Some(&ACTED_ON));
    }
    count
}

/// Timers, and what they should be.
struct Both {
    state: TaskState,
    timers: Timers,
    timers_max: usize,
    set: BTreeSet<(bool, i64, Vec<u8>)>,
    committed: BTreeSet<(bool, i64, Vec<u8>)>,
    epoch: i64,
}

impl Both {
    fn new(timers_max: usize) -> Both {
        let mut state = empty();
        let timers = opened(timers_max, &mut state);
        Both { state, timers, timers_max, set: BTreeSet::new(), committed: BTreeSet::new(), epoch: 0 }
    }

    fn first(&self, event: bool) -> i64 {
        self.set.iter().find(|(of, ..)| *of == event).map_or(i64::MAX, |(_, time, _)| *time)
    }

    fn take(&mut self, event: bool, now: i64) -> Vec<Due> {
        // What is set for the end of time is never due.
        let last = now.min(i64::MAX - 1);
        let want: Vec<_> = self.set.iter().filter(|(of, time, _)| *of == event && *time <= last).cloned().collect();
        assert_eq!(self.timers.is_due(kind(event), at(now)), !want.is_empty());
        let due = self.timers.take_due(kind(event), at(now), &mut self.state).unwrap();
        let got: Vec<_> = due.iter().map(|due| (event, due.time.as_millis(), due.what.to_vec())).collect();
        assert_eq!(got, want);
        self.set.retain(|timer| !want.contains(timer));
        assert!(self.timers.take_due(kind(event), at(now), &mut self.state).unwrap().is_empty());
        due
    }

    fn seal(&mut self) {
        self.timers.seal(at(self.epoch), &mut self.state).unwrap();
        assert_eq!(stored(&self.timers, &self.state), self.set.len(), "all is written, and nothing is left behind");
    }

    fn commit(&mut self) {
        self.epoch += 1;
        self.seal();
        self.state.overlay_mut().commit(&commit_point(self.epoch.unsigned_abs())).unwrap();
        self.committed.clone_from(&self.set);
    }

    fn open(&mut self) {
        self.timers = Timers { in_memory_max: self.timers_max, ..Timers::new(Name::new("t").unwrap()) };
        let acted_on = self.timers.open(&mut self.state).unwrap();
        assert_eq!(acted_on, if self.epoch == 0 { Timestamp::MIN } else { at(self.epoch) });
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Set(event, time, of) => {
                self.timers.set(kind(event), at(time), &what(of), &mut self.state).unwrap();
                self.set.insert((event, time, what(of)));
            }
            Step::Remove(event, time, of) => {
                self.timers.remove(kind(event), at(time), &what(of), &mut self.state).unwrap();
                self.set.remove(&(event, time, what(of)));
            }
            Step::Take(event, now) => drop(self.take(event, now)),
            Step::PutBack(event, now, from) => {
                let due = self.take(event, now);
                let back = due.get(from..).unwrap_or_default();
                self.timers.put_back(kind(event), back, &mut self.state).unwrap();
                self.set.extend(back.iter().map(|due| (event, due.time.as_millis(), due.what.to_vec())));
            }
            Step::Seal => self.seal(),
            Step::Commit => self.commit(),
            Step::Reopen => {
                self.commit();
                self.open();
            }
            Step::Abort => {
                self.state.overlay_mut().discard();
                let store = std::mem::replace(&mut self.state, empty()).into_overlay().into_base();
                self.state = TaskState::open(Overlay::new(store)).unwrap();
                self.set.clone_from(&self.committed);
                self.open();
            }
        }
        for event in [false, true] {
            assert_eq!(self.timers.next(kind(event)), at(self.first(event)));
        }
    }
}

proptest! {
    // Aim: timers come in order, each once, across commits, aborts and openings, however few of them are in memory. Method:
    // beside a plain set, with times at both ends, and with what the state holds at each seal.
    #[test]
    fn timers_equal_a_sorted_set(steps in steps(), timers_max in 1usize..12) {
        let mut both = Both::new(timers_max);
        for step in &steps {
            both.run(step);
        }
    }
}

#[test]
fn more_timers_than_are_taken_at_once_come_in_pieces() {
    let mut state = empty();
    let mut timers = opened(100, &mut state);
    for number in 0..u16::try_from(TAKEN_MAX).unwrap() * 2 + 7 {
        timers.set(TimerKind::Event, at(5), &number.to_be_bytes(), &mut state).unwrap();
    }
    let mut pieces = vec![];
    loop {
        let due = timers.take_due(TimerKind::Event, at(9), &mut state).unwrap();
        if due.is_empty() {
            break;
        }
        pieces.push(due.len());
    }
    assert_eq!(pieces, [TAKEN_MAX, TAKEN_MAX, 7]);
}

#[test]
fn timers_that_are_set_and_taken_within_one_epoch_leave_no_trace() {
    let mut state = empty();
    let mut timers = opened(100, &mut state);
    for millis in 0..1_000 {
        timers.set(TimerKind::Event, at(millis), b"what", &mut state).unwrap();
        timers.take_due(TimerKind::Event, at(millis), &mut state).unwrap();
    }
    timers.seal(Timestamp::MIN, &mut state).unwrap();
    // The numbers of the table and of nothing else.
    let changes = state.overlay().delta().iter().filter(|(key, _)| key.get(..2) != Some(&[0, 0])).count();
    assert_eq!(changes, 0);
}

#[test]
fn memory_is_bounded_in_timers_and_in_bytes() {
    let mut state = empty();
    let mut timers = opened(100, &mut state);
    for number in 0..10_000u32 {
        let what = number.to_be_bytes();
        timers.set(TimerKind::Event, at(i64::from(number)), &what, &mut state).unwrap();
        timers.set(TimerKind::Processing, at(-i64::from(number)), &what.repeat(250), &mut state).unwrap();
    }
    for timers_max in [100, 8] {
        let open = timers.open.as_ref().unwrap();
        assert!(open.event.timers() > timers_max / 3 && open.event.timers() <= timers_max);
        assert!(open.processing.timers() > 0 && open.processing.timers() <= timers_max.min(7));
        timers.seal(at(1), &mut state).unwrap();
        timers = opened(8, &mut state);
    }
}

// Aim: what was taken is not passed over by the next reading, and nothing is missed that was set below it meanwhile. Method:
// many timers of one time, a few of them in memory; each reading tells how far it looked.
#[test]
fn a_reading_begins_behind_what_was_taken() {
    let mut state = empty();
    let mut timers = opened(8, &mut state);
    let set = |timers: &mut Timers, state: &mut TaskState, number: u16| {
        timers.set(TimerKind::Event, at(5), &number.to_be_bytes(), state).unwrap();
    };
    let count = u16::try_from(TAKEN_MAX).unwrap();
    for number in 0..count * 2 {
        set(&mut timers, &mut state, number);
    }
    let taken = timers.take_due(TimerKind::Event, at(9), &mut state).unwrap();
    let end = timers.open.as_ref().unwrap().event.end().unwrap().clone();
    assert!(end > *taken.last().unwrap(), "where the next reading begins");
    timers.put_back(TimerKind::Event, taken.get(TAKEN_MAX - 2..).unwrap(), &mut state).unwrap();
    set(&mut timers, &mut state, 3);
    let due = timers.take_due(TimerKind::Event, at(9), &mut state).unwrap();
    let numbers: Vec<_> = due.iter().map(|due| u16::from_be_bytes((*due.what).try_into().unwrap())).collect();
    let want: Vec<_> = [3].into_iter().chain(count - 2..count * 2 - 3).collect();
    assert_eq!(numbers, want);
}
