//! The batch implementation: it looks at everything again at every step. All numbers are milliseconds.

use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    Hopping { size: i64, slide: i64, offset: i64 },
    Berlin,
    Session { gap: i64 },
    Sliding { size: i64 },
    Count { records: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Close,
    Update,
    Every(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    pub cut: Cut,
    pub when: When,
    pub deltas: bool,
    pub lateness: i64,
}

/// What happens to a window operator, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Record {
        key: u8,
        time: i64,
        id: u64,
    },
    /// No record older than this is on time from here on.
    Watermark(i64),
}

/// A window, and the records in its result, sorted.
pub type Row = (i64, i64, Vec<u64>);
/// A record, and a window that it is late for.
pub type Late = (i64, i64, u64);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Output {
    pub rows: BTreeMap<u8, Vec<Row>>,
    pub late: BTreeMap<u8, Vec<Late>>,
}

#[derive(Clone, Copy)]
struct Kept {
    time: i64,
    id: u64,
    /// Whether it was part of a result.
    shown: bool,
}

/// A window that is not gone.
struct Open {
    start: i64,
    end: i64,
    records: Vec<Kept>,
}

pub fn run(program: Program, events: &[Event]) -> Output {
    let mut output = Output::default();
    let mut keys: Vec<u8> = events
        .iter()
        .filter_map(|event| match event {
            Event::Record { key, .. } => Some(*key),
            Event::Watermark(_) => None,
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let mut one = OneKey { program, watermark: i64::MIN, open: vec![], all: vec![], rows: vec![], late: vec![] };
        for event in events {
            match event {
                Event::Record { key: other, time, id } if *other == key => one.record(*time, *id),
                Event::Record { .. } => {}
                Event::Watermark(to) => one.advance(*to),
            }
        }
        output.rows.insert(key, one.rows);
        output.late.insert(key, one.late);
    }
    output.rows.retain(|_, rows| !rows.is_empty());
    output.late.retain(|_, late| !late.is_empty());
    output
}

struct OneKey {
    program: Program,
    watermark: i64,
    open: Vec<Open>,
    /// Every record that was not late: for looks back and counts.
    all: Vec<(i64, u64)>,
    rows: Vec<Row>,
    late: Vec<Late>,
}

impl OneKey {
    fn record(&mut self, time: i64, id: u64) {
        match self.program.cut {
            Cut::Hopping { size, slide, offset } => {
                let mut start = time - size + 1;
                while start <= time {
                    if (start - offset) % slide == 0 {
                        self.put(start, start + size, time, id);
                    }
                    start += 1;
                }
            }
            Cut::Berlin => {
                let (start, end) = berlin_day(time);
                self.put(start, end, time, id);
            }
            Cut::Session { gap } => self.session(gap, time, id),
            Cut::Sliding { size } => self.sliding(size, time, id),
            Cut::Count { records } => {
                self.all.push((time, id));
                if self.all.len() == records {
                    let start = self.all.iter().map(|(time, _)| *time).min().unwrap();
                    let end = self.all.iter().map(|(time, _)| *time).max().unwrap() + 1;
                    let ids = self.all.drain(..).map(|(_, id)| id).collect();
                    self.row(start, end, ids);
                }
            }
        }
    }

    fn is_gone(&self, end: i64) -> bool {
        self.watermark >= end + self.program.lateness
    }

    fn row(&mut self, start: i64, end: i64, mut ids: Vec<u64>) {
        ids.sort_unstable();
        self.rows.push((start, end, ids));
    }

    fn put(&mut self, start: i64, end: i64, time: i64, id: u64) {
        if self.is_gone(end) {
            self.late.push((start, end, id));
            return;
        }
        if !self.open.iter().any(|open| open.start == start) {
            self.open.push(Open { start, end, records: vec![] });
        }
        let at = self.open.iter().position(|open| open.start == start).unwrap();
        self.open[at].records.push(Kept { time, id, shown: false });
        if self.program.when == When::Update {
            self.show(at);
        }
    }

    fn session(&mut self, gap: i64, time: i64, id: u64) {
        let near = |open: &Open| {
            open.records.iter().any(|kept| (kept.time - time).abs() <= gap) || {
                // Inside it, between two of its records.
                let (first, last) = bounds(open);
                first <= time && time <= last
            }
        };
        let (mut touched, rest): (Vec<Open>, Vec<Open>) = std::mem::take(&mut self.open).into_iter().partition(near);
        self.open = rest;
        let mut records: Vec<Kept> = touched.drain(..).flat_map(|open| open.records).collect();
        records.push(Kept { time, id, shown: false });
        let mut merged = Open { start: 0, end: 0, records };
        let (first, last) = bounds(&merged);
        (merged.start, merged.end) = (first, last + gap + 1);
        if self.is_gone(merged.end) {
            self.late.push((merged.start, merged.end, id));
            return;
        }
        self.open.push(merged);
        if self.program.when == When::Update {
            self.show(self.open.len() - 1);
        }
    }

    fn sliding(&mut self, size: i64, time: i64, id: u64) {
        let (start, end) = (time - size + 1, time + 1);
        if self.is_gone(end) {
            self.late.push((start, end, id));
            return;
        }
        self.all.push((time, id));
        let ids = self.all.iter().filter(|(other, _)| start <= *other && *other < end).map(|(_, id)| *id).collect();
        self.row(start, end, ids);
    }

    /// A result of an open window, if there is anything new in it.
    fn show(&mut self, at: usize) {
        let open = &mut self.open[at];
        if open.records.iter().all(|kept| kept.shown) {
            return;
        }
        let deltas = self.program.deltas;
        let ids = open.records.iter().filter(|kept| !deltas || !kept.shown).map(|kept| kept.id).collect();
        open.records.iter_mut().for_each(|kept| kept.shown = true);
        let (start, end) = (open.start, open.end);
        self.row(start, end, ids);
    }

    fn advance(&mut self, to: i64) {
        if to <= self.watermark {
            return;
        }
        // All moments at which some window fires, in order; of windows at one moment the earlier one first.
        let mut moments: Vec<(i64, i64, bool)> = vec![];
        for open in &self.open {
            let gone = open.end + self.program.lateness;
            if let When::Every(every) = self.program.when {
                moments.extend(steps(open.start, every, open.end).map(|at| (at, open.start, false)));
                moments.push((open.end, open.start, false));
                moments.extend(steps(open.end, every, gone).map(|at| (at, open.start, false)));
            }
            moments.push((gone, open.start, true));
        }
        moments.retain(|(at, ..)| self.watermark < *at && *at <= to);
        moments.sort_unstable();
        for (_, start, goes) in moments {
            let Some(at) = self.open.iter().position(|open| open.start == start) else { continue };
            self.show(at);
            if goes {
                self.open.remove(at);
            }
        }
        self.watermark = to;
    }
}

fn bounds(open: &Open) -> (i64, i64) {
    let times = || open.records.iter().map(|kept| kept.time);
    (times().min().unwrap(), times().max().unwrap())
}

/// `from + every`, `from + 2 every`, … below `end`.
fn steps(from: i64, every: i64, end: i64) -> impl Iterator<Item = i64> {
    (1..).map(move |step| from + step * every).take_while(move |at| *at < end)
}

/// The day of Berlin in 2024, whose clocks were an hour ahead of UTC, and two from 31 March to 27 October, 01:00 UTC.
fn berlin_day(time: i64) -> (i64, i64) {
    const HOUR: i64 = 3_600_000;
    let ahead = |at: i64| if (1_711_846_800_000..1_729_990_800_000).contains(&at) { 2 * HOUR } else { HOUR };
    let is_midnight = |at: i64| (at + ahead(at)) % (24 * HOUR) == 0;
    let mut start = time - time.rem_euclid(HOUR);
    while !is_midnight(start) {
        start -= HOUR;
    }
    let mut end = start + HOUR;
    while !is_midnight(end) {
        end += HOUR;
    }
    (start, end)
}
