//! Joins by their definitions, over everything that came. All numbers are milliseconds.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    Interval { before: i64, after: i64, grace: i64 },
    Latest { live: i64 },
    Table,
    Window { size: i64, lateness: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    pub rule: Rule,
    /// Whose records come out alone.
    pub left_alone: bool,
    pub right_alone: bool,
}

/// A record, and how far event time had come before it, at the join.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub is_left: bool,
    pub key: Option<u8>,
    pub time: i64,
    pub id: u64,
    pub watermark: i64,
}

/// The numbers of a left and a right record.
pub type Pair = (Option<u64>, Option<u64>);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Output {
    /// Sorted.
    pub pairs: Vec<Pair>,
    /// Of both sides, sorted.
    pub late: Vec<u64>,
}

impl Output {
    fn pair(&mut self, one: &Arrival, other: &Arrival) {
        let (left, right) = if one.is_left { (one, other) } else { (other, one) };
        self.pairs.push((Some(left.id), Some(right.id)));
    }

    fn alone(&mut self, program: Program, record: &Arrival) {
        if record.is_left && program.left_alone {
            self.pairs.push((Some(record.id), None));
        } else if !record.is_left && program.right_alone {
            self.pairs.push((None, Some(record.id)));
        }
    }
}

/// `end` is how far event time comes in the end. `arrivals` are those of one task.
pub fn run(program: Program, arrivals: &[Arrival], end: i64) -> Output {
    let mut output = Output::default();
    match program.rule {
        Rule::Interval { before, after, grace } => interval(program, before, after, grace, arrivals, end, &mut output),
        Rule::Latest { live } => latest(program, live, arrivals, &mut output),
        Rule::Table => table(program, arrivals, &mut output),
        Rule::Window { size, lateness } => window(program, size, lateness, arrivals, end, &mut output),
    }
    output.pairs.sort_unstable();
    output.late.sort_unstable();
    output
}

fn comes_out(program: Program, record: &Arrival) -> bool {
    record.key.is_some() || if record.is_left { program.left_alone } else { program.right_alone }
}

fn interval(
    program: Program,
    before: i64,
    after: i64,
    grace: i64,
    arrivals: &[Arrival],
    end: i64,
    output: &mut Output,
) {
    // The last watermark at which a record's row is open.
    let open_through = |record: &Arrival| record.time + grace + if record.is_left { after } else { before };
    let on_time = |record: &&Arrival| record.watermark <= open_through(record);
    output.late.extend(arrivals.iter().filter(|one| comes_out(program, one) && !on_time(one)).map(|one| one.id));
    let rows: Vec<&Arrival> = arrivals.iter().filter(on_time).collect();
    let mut matched = vec![false; rows.len()];
    for (second, now) in rows.iter().enumerate() {
        for (first, row) in rows.iter().enumerate().take(second) {
            let (left, right) = if row.is_left { (row, now) } else { (now, row) };
            let near = (left.time - before..=left.time + after).contains(&right.time);
            if row.is_left != now.is_left
                && row.key.is_some()
                && row.key == now.key
                && near
                && now.watermark <= open_through(row)
            {
                output.pair(row, now);
                (matched[first], matched[second]) = (true, true);
            }
        }
    }
    for (row, matched) in rows.iter().zip(matched) {
        if !matched && (row.key.is_none() || end > open_through(row)) {
            output.alone(program, row);
        }
    }
}

fn latest(program: Program, live: i64, arrivals: &[Arrival], output: &mut Output) {
    let is_alive = |record: &Arrival, watermark: i64| record.time + live > watermark;
    output.late.extend(
        arrivals.iter().filter(|one| comes_out(program, one) && !is_alive(one, one.watermark)).map(|one| one.id),
    );
    for (at, now) in arrivals.iter().enumerate().filter(|(_, one)| is_alive(one, one.watermark)) {
        let of_other = arrivals[..at].iter().filter(|one| one.is_left != now.is_left && one.key == now.key);
        let alive = of_other.filter(|one| is_alive(one, one.watermark) && is_alive(one, now.watermark));
        match alive.filter(|_| now.key.is_some()).max_by_key(|one| one.time) {
            Some(other) => output.pair(now, other),
            None => output.alone(program, now),
        }
    }
}

fn table(program: Program, arrivals: &[Arrival], output: &mut Output) {
    for (at, now) in arrivals.iter().enumerate().filter(|(_, one)| one.is_left) {
        match arrivals[..at].iter().rfind(|one| !one.is_left && one.key == now.key && now.key.is_some()) {
            Some(other) => output.pair(now, other),
            None => output.alone(program, now),
        }
    }
}

fn window(program: Program, size: i64, lateness: i64, arrivals: &[Arrival], end: i64, output: &mut Output) {
    let gone_at = |record: &Arrival| record.time - record.time.rem_euclid(size) + size + lateness;
    let on_time = |record: &&Arrival| record.watermark < gone_at(record);
    output.late.extend(arrivals.iter().filter(|one| comes_out(program, one) && !on_time(one)).map(|one| one.id));
    let complete: Vec<&Arrival> = arrivals.iter().filter(on_time).filter(|one| gone_at(one) <= end).collect();
    for one in &complete {
        let others = complete.iter().filter(|other| {
            let together = other.key == one.key && one.key.is_some() && gone_at(other) == gone_at(one);
            other.is_left != one.is_left && together
        });
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            output.alone(program, one);
        }
        others.iter().filter(|_| one.is_left).for_each(|other| output.pair(one, other));
    }
}
