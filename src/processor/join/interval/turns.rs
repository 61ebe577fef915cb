//! The order in which rows in memory are closed.
//!
//! Rows come nearly in the order in which they are closed, and nobody asks for their exact order before it is their turn. So they
//! lie in spans of time, each a plain list of row numbers that is put in order when it is the first one and something of it is
//! due. Only when the first row of all is closed is always known. A row that leaves out of turn, as those do that have no room, is
//! found by its seat.

use super::super::rows::Moment;
use std::collections::BTreeMap;

/// A span has 2 to this power milliseconds: long enough that most rows find theirs and few are made, short enough that its rows
/// stay in the processor's cache while they are put in order and closed.
const SPAN_BITS: u32 = 5;

/// Stands where a row was that left a span in order before its turn: no row has this number.
const GONE: u32 = u32::MAX;

/// Which rows are to be closed, in the order of their moments. Whoever asks says of a row when it is closed: a function that
/// gives the same for a row as long as it is here.
pub(super) struct Turns {
    /// By the time at which they are closed. None is without rows.
    spans: BTreeMap<i64, Span>,
    /// By row: where it lies in its span, so that none is searched for.
    seats: Vec<u32>,
    sorting: Vec<(Moment, u32)>,
}

struct Span {
    /// When the first row of them is closed.
    first: i64,
    /// Whether the rows are in order, the first one last, which is not [`GONE`] then.
    is_sorted: bool,
    rows: Vec<u32>,
    /// How many of them are [`GONE`].
    gone: usize,
}

impl Turns {
    pub(super) fn new() -> Self {
        Turns { spans: BTreeMap::new(), seats: vec![], sorting: vec![] }
    }

    /// When the next row is closed.
    pub(super) fn next(&self) -> Option<i64> {
        self.spans.first_key_value().map(|(_, span)| span.first)
    }

    pub(super) fn insert(&mut self, close: i64, row: u32) {
        let new = || Span { first: close, is_sorted: true, rows: vec![], gone: 0 };
        let span = self.spans.entry(close >> SPAN_BITS).or_insert_with(new);
        span.first = span.first.min(close);
        span.is_sorted &= span.rows.is_empty();
        sit(&mut self.seats, row, span.rows.len());
        span.rows.push(row);
    }

    /// The next row.
    pub(super) fn first(&mut self, moment: impl Fn(u32) -> Option<Moment>) -> Option<(Moment, u32)> {
        let mut first = self.spans.first_entry()?;
        let span = first.get_mut();
        if !span.is_sorted {
            span.sort(&moment, &mut self.sorting, &mut self.seats);
        }
        let row = *span.rows.last()?;
        Some((moment(row)?, row))
    }

    /// Takes the next row out, which [`first`](Self::first) has returned.
    pub(super) fn pop(&mut self, moment: impl Fn(u32) -> Option<Moment>) {
        let Some(mut first) = self.spans.first_entry() else { return };
        let span = first.get_mut();
        span.rows.pop();
        match span.last() {
            Some(row) => span.first = moment(row).map_or(span.first, |moment| moment.close),
            None => _ = first.remove(),
        }
    }

    /// Takes a row out before its turn; says whether it was there.
    pub(super) fn remove(&mut self, close: i64, row: u32, moment: impl Fn(u32) -> Option<Moment>) -> bool {
        let number = close >> SPAN_BITS;
        let Some(span) = self.spans.get_mut(&number) else { return false };
        let seat = self.seats.get(row as usize).map_or(usize::MAX, |seat| *seat as usize);
        if span.rows.get(seat) != Some(&row) {
            return false;
        }
        span.leave(seat, &mut self.seats);
        if span.is_empty() {
            self.spans.remove(&number);
        } else if span.first == close {
            span.find_first(moment);
        }
        true
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.spans.values().map(|span| span.rows.len() - span.gone).sum()
    }
}

fn sit(seats: &mut Vec<u32>, row: u32, seat: usize) {
    let row = row as usize;
    if row >= seats.len() {
        seats.resize(row + 1, 0);
    }
    // There are no more seats than rows, which have numbers of 32 bits.
    if let (Some(place), Ok(seat)) = (seats.get_mut(row), u32::try_from(seat)) {
        *place = seat;
    }
}

impl Span {
    fn is_empty(&self) -> bool {
        self.rows.len() == self.gone
    }

    /// The last row that is there; those behind it are forgotten.
    fn last(&mut self) -> Option<u32> {
        while self.rows.last() == Some(&GONE) {
            self.rows.pop();
            self.gone -= 1;
        }
        self.rows.last().copied()
    }

    /// A row gets up. Where they are in order they stay so: nobody takes its seat.
    fn leave(&mut self, seat: usize, seats: &mut Vec<u32>) {
        if self.is_sorted {
            if let Some(place) = self.rows.get_mut(seat) {
                *place = GONE;
                self.gone += 1;
            }
            self.last();
            return;
        }
        self.rows.swap_remove(seat);
        if let Some(moved) = self.rows.get(seat).filter(|moved| **moved != GONE) {
            sit(seats, *moved, seat);
        }
    }

    fn sort(&mut self, moment: impl Fn(u32) -> Option<Moment>, sorting: &mut Vec<(Moment, u32)>, seats: &mut Vec<u32>) {
        sorting.extend(self.rows.iter().filter_map(|row| Some((moment(*row)?, *row))));
        sorting.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        self.rows.clear();
        for (_, row) in sorting.drain(..) {
            sit(seats, row, self.rows.len());
            self.rows.push(row);
        }
        (self.is_sorted, self.gone) = (true, 0);
    }

    /// One of the rows that were closed first is gone. Others of the same time are mostly found soon.
    fn find_first(&mut self, moment: impl Fn(u32) -> Option<Moment>) {
        let mut least = i64::MAX;
        // From the end, where the first one lies when they are in order.
        for moment in self.rows.iter().rev().filter_map(|row| moment(*row)) {
            least = least.min(moment.close);
            if least == self.first || self.is_sorted {
                break;
            }
        }
        self.first = least;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Side;
    use super::super::super::rows::Place;
    use super::super::slab::Slab;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert {
            close: i64,
            left: bool,
            time: i64,
        },
        /// So many rows are closed that are due at a time, at most.
        Close {
            now: i64,
            most: usize,
        },
        /// One of the rows is removed out of its turn.
        Remove(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Within a span, near each other, anywhere, and at both ends of time.
        let close =
            prop_oneof![6 => 0i64..20, 6 => -150i64..150, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
        let step = prop_oneof![
            8 => (close.clone(), any::<bool>(), 0i64..3).prop_map(|(close, left, time)| Step::Insert { close, left, time }),
            2 => (close, 0usize..12).prop_map(|(now, most)| Step::Close { now, most }),
            3 => any::<prop::sample::Index>().prop_map(Step::Remove),
        ];
        vec(step, 0..200)
    }

    /// Turns, and what they should be.
    struct Both {
        slab: Slab<Moment>,
        turns: Turns,
        want: BTreeMap<Moment, u32>,
    }

    impl Both {
        fn insert(&mut self, close: i64, left: bool, time: i64, sequence: u64) {
            let side = if left { Side::Left } else { Side::Right };
            let moment = Moment { close, side, place: Place { time, sequence } };
            let row = self.slab.insert(moment).unwrap();
            self.turns.insert(close, row);
            self.want.insert(moment, row);
        }

        fn close(&mut self, now: i64, most: usize) {
            for _ in 0..most {
                let moment = |row| self.slab.get(row).copied();
                let first = self.turns.first(moment);
                assert_eq!(first, self.want.first_key_value().map(|(moment, row)| (*moment, *row)));
                let Some((_, row)) = first.filter(|(moment, _)| moment.close <= now) else { break };
                self.turns.pop(moment);
                self.slab.take(row).unwrap();
                self.want.pop_first();
            }
        }

        fn remove(&mut self, of: prop::sample::Index) {
            if self.want.is_empty() {
                return;
            }
            let (moment, row) = self.want.iter().nth(of.index(self.want.len())).unwrap();
            let (moment, row) = (*moment, *row);
            self.want.remove(&moment);
            self.slab.take(row).unwrap();
            let slab = &self.slab;
            assert!(self.turns.remove(moment.close, row, |row| slab.get(row).copied()));
            assert!(!self.turns.remove(moment.close, row, |row| slab.get(row).copied()), "it is gone");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 5_000 }))]

        // Aim: rows have their turns in the order of their moments, and when the next one is closed is always known. Method:
        // beside a map that is in order all the time; rows come to spans that are in order already, leave from everywhere.
        #[test]
        fn turns_equal_an_ordered_map(steps in steps()) {
            let mut both = Both { slab: Slab::new(), turns: Turns::new(), want: BTreeMap::new() };
            for (step, sequence) in steps.iter().zip(0..) {
                match step {
                    Step::Insert { close, left, time } => both.insert(*close, *left, *time, sequence),
                    Step::Close { now, most } => both.close(*now, *most),
                    Step::Remove(of) => both.remove(*of),
                }
                prop_assert_eq!(both.turns.next(), both.want.keys().next().map(|moment| moment.close));
                prop_assert_eq!(both.turns.len(), both.want.len());
            }
            both.close(i64::MAX, usize::MAX);
            prop_assert_eq!((both.turns.next(), both.want.len(), both.turns.spans.len()), (None, 0, 0));
        }
    }
}
