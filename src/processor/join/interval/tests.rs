//! Open rows beside a plain list.

use super::super::rows::{Moment, Place, Range, Rows};
use super::super::{Side, Sided};
use super::open_rows::{Bounds, OpenRows, Visit};
use crate::state::{TaskState, TimerKind, Timers, encode_time};
use crate::testing::commit_point;
use onceflow_storage::{MemoryStore, Order, Overlay};
use onceflow_types::{Name, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

type Value = Sided<u32, String>;
type Open = OpenRows<u32, String>;

fn name() -> Name {
    Name::new("j").unwrap()
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn side(left: bool) -> Side {
    if left { Side::Left } else { Side::Right }
}

fn value(side: Side, number: u64) -> Value {
    match side {
        Side::Left => Sided::Left(u32::try_from(number).unwrap()),
        Side::Right => Sided::Right(format!("{number}")),
    }
}

/// Two keys in three are short, the others do not lie inside a small one.
fn key(of: u8) -> Vec<u8> {
    vec![of; if of % 3 == 2 { 60 } else { 2 }]
}

fn empty() -> TaskState {
    TaskState::open(Overlay::new(Box::new(MemoryStore::default()))).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    /// A row of a key, side and time that is closed so long after now.
    Put {
        key: u8,
        left: bool,
        time: i64,
        closed_in: i64,
        matched: bool,
    },
    /// The rows of a key, side and range of times get a partner, or are only looked at.
    Visit {
        key: u8,
        left: bool,
        first: i64,
        through: i64,
        marks: bool,
    },
    /// Time passes; so many rows are closed at most.
    Pass {
        by: i64,
        most: usize,
    },
    /// The rows of a key and side up to a time are closed.
    Close {
        key: u8,
        left: bool,
        through: i64,
    },
    Seal,
    Commit,
    /// Commits, and goes on with other bounds.
    Reopen(Bounds),
    /// The epoch is dropped, and all goes on from what is committed.
    Abort,
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let tiny = (1usize..12, 1usize..4, 1usize..150);
    let tiny =
        tiny.prop_map(|(rows_max, rows_of_key_max, segment_bytes)| Bounds { rows_max, rows_of_key_max, segment_bytes });
    prop_oneof![4 => tiny, 1 => (1usize..100).prop_map(Bounds::of_entries)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Soon, or in one of many spans of time.
    let closed_in = prop_oneof![4 => 1i64..12, 1 => 12i64..500];
    let put = (0u8..6, any::<bool>(), -10i64..10, closed_in, any::<bool>());
    let visit = (0u8..6, any::<bool>(), -10i64..5, -5i64..10, any::<bool>());
    let step = prop_oneof![
        12 => put.prop_map(|(key, left, time, closed_in, matched)| Step::Put { key, left, time, closed_in, matched }),
        6 => visit.prop_map(|(key, left, first, through, marks)| Step::Visit { key, left, first, through, marks }),
        4 => (prop_oneof![6 => 0i64..5, 1 => 5i64..100], 0usize..20).prop_map(|(by, most)| Step::Pass { by, most }),
        1 => (0u8..6, any::<bool>(), -10i64..10).prop_map(|(key, left, through)| Step::Close { key, left, through }),
        2 => Just(Step::Seal),
        2 => Just(Step::Commit),
        1 => bounds().prop_map(Step::Reopen),
        1 => Just(Step::Abort),
    ];
    vec(step, 0..150)
}

#[derive(Clone, PartialEq, Debug)]
struct Row {
    key: Vec<u8>,
    moment: Moment,
    matched: bool,
    value: Value,
}

/// Rows, and what they should be.
struct Both {
    state: TaskState,
    rows: Open,
    bounds: Bounds,
    list: Vec<Row>,
    now: i64,
    sequence: u64,
    /// List, time and sequence.
    committed: (Vec<Row>, i64, u64),
    epoch: u64,
}

impl Both {
    fn new(bounds: Bounds, mut state: TaskState, list: Vec<Row>) -> Both {
        let mut rows = Open::new(name(), bounds);
        rows.open(&mut state).unwrap();
        let (committed, sequence) = ((list.clone(), 0, 1_000), 1_000);
        Both { state, rows, bounds, list, now: 0, sequence, committed, epoch: 0 }
    }

    fn put(&mut self, key: &[u8], side: Side, time: i64, close: i64, matched: bool) {
        self.sequence += 1;
        let value = value(side, self.sequence);
        let moment = Moment { close, side, place: Place { time, sequence: self.sequence } };
        self.rows.encode(key, &value).unwrap();
        let found = self.rows.look_up(key, side.other(), &mut self.state).unwrap();
        self.rows.put(found, key, moment, matched, value.clone(), &mut self.state).unwrap();
        self.list.push(Row { key: key.to_vec(), moment, matched, value });
    }

    fn visit(&mut self, key: &[u8], side: Side, (first, through): (i64, i64), marks: bool) {
        let found = self.rows.look_up(key, side, &mut self.state).unwrap();
        let (mut visit, mut seen) = (Visit { side, range: Range::new(first, through), marks }, vec![]);
        let mut more = true;
        while more {
            let see = |value: &Value, time| seen.push((time, value.clone()));
            more = self.rows.visit(found, key, &mut visit, &mut self.state, see).unwrap();
        }
        let is_in = |row: &Row| {
            let time = row.moment.place.time;
            row.key == key && row.moment.side == side && time >= first && time <= through
        };
        let mut want: Vec<_> = self.list.iter().filter(|row| is_in(row)).collect();
        want.sort_by_key(|row| row.moment.place);
        let want: Vec<_> = want.into_iter().map(|row| (row.moment.place.time, row.value.clone())).collect();
        assert_eq!(seen, want);
        self.list.iter_mut().filter(|row| is_in(row)).for_each(|row| row.matched |= marks);
    }

    /// Left rows come out alone, right ones never do.
    fn alone(row: &Row) -> Option<Value> {
        (row.moment.side == Side::Left && !row.matched).then(|| row.value.clone())
    }

    fn pass(&mut self, by: i64, most: usize) {
        self.now += by;
        let mut key = vec![];
        for _ in 0..most {
            let keeps = |side| side == Side::Left;
            let closed = self.rows.close_next(at(self.now), keeps, &mut key, &mut self.state).unwrap();
            let first = (0..self.list.len()).min_by_key(|at| self.list[*at].moment);
            let want = first.filter(|at| self.list[*at].moment.close <= self.now).map(|at| self.list.remove(at));
            assert_eq!(closed.is_some(), want.is_some());
            let (Some(closed), Some(want)) = (closed, want) else { break };
            assert_eq!((closed.moment, &key), (want.moment, &want.key));
            assert_eq!(closed.alone, Both::alone(&want));
        }
    }

    fn close(&mut self, key: &[u8], side: Side, through: i64) {
        let mut places = vec![];
        self.rows.places(key, side, through, &mut places, &mut self.state).unwrap();
        let is_in = |row: &Row| row.key == key && row.moment.side == side && row.moment.place.time <= through;
        let mut want: Vec<Row> = self.list.extract_if(.., |row| is_in(row)).collect();
        want.sort_by_key(|row| row.moment.place);
        assert_eq!(places, want.iter().map(|row| (side, row.moment.place)).collect::<Vec<_>>());
        for row in want {
            let alone = self.rows.close(key, row.moment, side == Side::Left, &mut self.state).unwrap();
            assert_eq!(alone, Both::alone(&row));
        }
    }

    fn seal(&mut self) {
        self.rows.seal(at(self.now), &mut self.state).unwrap();
        let (in_segments, by_key) = self.rows.counts(&self.state);
        assert_eq!(in_segments + by_key, self.list.len(), "each row lies in one place");
        if self.list.is_empty() {
            let tables: Vec<_> = ["left", "right", "timers", "open"].map(|part| entries(&mut self.state, part)).into();
            assert_eq!(tables, [0, 0, 0, 0], "nothing is left behind");
        }
    }

    fn commit(&mut self) {
        self.seal();
        self.epoch += 1;
        self.state.overlay_mut().commit(&commit_point(self.epoch)).unwrap();
        self.committed = (self.list.clone(), self.now, self.sequence);
    }

    fn open(&mut self) {
        self.rows = Open::new(name(), self.bounds);
        self.rows.open(&mut self.state).unwrap();
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Put { key: of, left, time, closed_in, matched } => {
                self.put(&key(of), side(left), time, self.now + closed_in, matched);
            }
            Step::Visit { key: of, left, first, through, marks } => {
                self.visit(&key(of), side(left), (first, through), marks);
            }
            Step::Pass { by, most } => self.pass(by, most),
            Step::Close { key: of, left, through } => self.close(&key(of), side(left), through),
            Step::Seal => self.seal(),
            Step::Commit => self.commit(),
            Step::Reopen(bounds) => {
                self.commit();
                self.bounds = bounds;
                self.open();
            }
            Step::Abort => {
                let mut overlay = std::mem::replace(&mut self.state, empty()).into_overlay();
                overlay.discard();
                self.state = TaskState::open(overlay).unwrap();
                (self.list, self.now, self.sequence) = self.committed.clone();
                self.open();
            }
        }
        let first = self.list.iter().map(|row| row.moment.close).min();
        assert_eq!(self.rows.next(), first.map_or(Timestamp::MAX, at));
    }
}

/// What lies in a part of the join's state, beside what is known of it as a whole.
fn entries(state: &mut TaskState, part: &str) -> usize {
    let table = state.part_of_table(&name(), part).unwrap();
    let mut cursor = state.scan(table, Order::Ascending).unwrap();
    let mut count = 0;
    while let Some((key, _)) = cursor.next().unwrap() {
        count += usize::from(key.len() > 3);
    }
    count
}

/// A state as programs wrote it that knew no segments.
fn state_by_key(list: &[Row]) -> TaskState {
    let mut state = empty();
    let (mut rows, mut timers) = (Rows::new(name()), Timers::new(name()));
    rows.open(&mut state).unwrap();
    timers.open(&mut state).unwrap();
    for row in list {
        let Moment { close, side, place } = row.moment;
        rows.put(&row.key, place, row.matched, &row.value, &mut state).unwrap();
        let what = [&[u8::from(side == Side::Right)][..], &place.to_bytes(), &row.key].concat();
        timers.set(TimerKind::Event, at(close), &what, &mut state).unwrap();
    }
    timers.seal(Timestamp::MIN, &mut state).unwrap();
    let store = {
        let mut overlay = state.into_overlay();
        overlay.seal();
        overlay
    };
    TaskState::open(store).unwrap()
}

fn rows_by_key() -> impl Strategy<Value = Vec<Row>> {
    let row = (0u8..6, any::<bool>(), -10i64..10, 1i64..12, any::<bool>());
    vec(row, 0..12).prop_map(|rows| {
        let rows = rows.into_iter().zip(0..);
        rows.map(|((of, left, time, close, matched), sequence)| {
            let (side, place) = (side(left), Place { time, sequence });
            Row { key: key(of), moment: Moment { close, side, place }, matched, value: value(side, sequence) }
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 5_000 }))]

    // Aim: rows are found, marked and closed in order, each once, wherever they lie. Method: beside a plain list, from nothing
    // or from state of an earlier program, with bounds so tiny that rows go to the state and come back all the time, segments
    // are short and written anew, keys have too many rows; with commits, openings and aborts.
    #[test]
    fn open_rows_equal_a_list(before in rows_by_key(), bounds in bounds(), steps in steps()) {
        let state = state_by_key(&before);
        let mut state = if before.is_empty() { empty() } else { state };
        if !before.is_empty() {
            state.overlay_mut().commit(&commit_point(1)).unwrap();
        }
        let mut both = Both::new(bounds, state, before.clone());
        both.epoch = u64::from(!before.is_empty());
        for step in &steps {
            both.run(step);
        }
        both.pass(500, usize::MAX);
        both.seal();
        prop_assert!(both.list.is_empty());
    }
}

// Aim: a stream that goes on and on leaves no more in the state than its open rows, though one of them stays for ever.
#[test]
fn segments_of_closed_rows_go_away() {
    let mut both = Both::new(Bounds { rows_max: 100, rows_of_key_max: 50, segment_bytes: 200 }, empty(), vec![]);
    both.put(&key(1), Side::Left, 0, i64::MAX - 1, false);
    for round in 0..2_000 {
        both.put(&key(u8::try_from(round % 200).unwrap()), side(round % 3 == 0), round, both.now + 20, false);
        if round % 100 == 50 {
            both.put(&key(7), Side::Right, round, both.now + 1_000, false);
        }
        both.pass(1, 3);
        if round % 5 == 0 {
            both.commit();
        }
    }
    assert!(both.list.len() > 10);
    let bytes: usize = {
        let table = both.state.part_of_table(&name(), "open").unwrap();
        let mut cursor = both.state.scan(table, Order::Ascending).unwrap();
        let mut bytes = 0;
        while let Some((key, value)) = cursor.next().unwrap() {
            bytes += key.len() + value.len();
        }
        bytes
    };
    assert!(bytes < 200 * 16 + both.list.len() * 60 * 5 + 1_000, "bytes={bytes} rows={}", both.list.len());
}

#[test]
fn rows_that_come_and_go_within_one_epoch_are_not_written() {
    let mut both = Both::new(Bounds::of_entries(100), empty(), vec![]);
    both.commit();
    for round in 0..1_000 {
        both.put(&key(u8::try_from(round % 200).unwrap()), Side::Left, round, both.now + 1, false);
        both.pass(1, 1);
    }
    both.seal();
    let delta: Vec<_> = both.state.overlay().delta().iter().map(|(key, _)| key.len()).collect();
    assert_eq!(delta, [3, 3], "the header and the time acted on");
}

// Aim: state is read as it has always been written. Method: the bytes themselves.
#[test]
fn the_form_by_key_is_the_old_one() {
    let mut state = empty();
    let mut rows = Open::new(name(), Bounds::of_entries(10));
    rows.open(&mut state).unwrap();
    let tables = ["left", "right", "timers"].map(|part| state.part_of_table(&name(), part).unwrap().prefix());
    let place = [&encode_time(at(5))[..], &9u64.to_be_bytes()].concat();
    let row = [&tables[0][..], b"\x02ab", &place].concat();
    let timer = [&tables[2][..], &[1], &encode_time(at(20)), &[0], &place, b"\x02ab"].concat();
    state.overlay_mut().put(&row, &[0, 1, 77]);
    state.overlay_mut().put(&timer, b"");
    rows = Open::new(name(), Bounds::of_entries(10));
    rows.open(&mut state).unwrap();
    assert_eq!(rows.next(), at(20));
    let (mut key, keeps) = (vec![], |_| true);
    let closed = rows.close_next(at(20), keeps, &mut key, &mut state).unwrap().unwrap();
    assert_eq!((key.as_slice(), closed.moment.place), (&b"\x02ab"[..], Place { time: 5, sequence: 9 }));
    assert_eq!(closed.alone, Some(Sided::Left(77)));
}
