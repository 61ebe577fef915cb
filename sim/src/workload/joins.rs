//! What goes joined with what comes: each record is a row of both sides, by its `from` on the left and by its `to` on the
//! right.

use super::{Expected, Jobs, OUTPUT, Posting, Record, Sum, millis, posting};
use onceflow::JoinWindow;
use onceflow::codec::Json;
use onceflow::topology::{StreamBuilder, Topology};
use onceflow::types::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far the records of a pair may lie apart.
const NEAR: Duration = Duration::from_secs(2);

impl Jobs {
    /// Nothing is late, as in the windows; rows without a partner come out when a phase ends.
    pub(super) fn joins(&self) -> Result<Topology> {
        let builder = StreamBuilder::new("job")?;
        let records = super::timed(&builder);
        let side = |name: &str, key: fn(&Record) -> &str, sign: i64| {
            let postings = records.map(move |record| posting(&record, key(&record), sign * record.amount));
            postings.key_by(|posting| posting.key.clone()).repartition(name).queues(2).map_values(|posting| posting)
        };
        let (gone, come) = (side("by-from", |record| &record.from, -1), side("by-to", |record| &record.to, 1));
        let joined = gone.join("pairs", &come, JoinWindow::within(NEAR)).left(row).cache_entries(self.cache_entries);
        joined.values().sink("out", OUTPUT, Json::<Sum>::new()).key(|sum| sum.key.clone()).delivery(self.delivery);
        builder.build()
    }
}

/// A result has a key of its own, so that it is told when it comes twice, or not.
fn row(gone: &Posting, come: Option<&Posting>) -> Sum {
    let key = row_key(gone.id / 2, come.map(|come| come.id / 2));
    Sum { id: gone.id / 2, key, count: 1, total: come.map_or(gone.value, |come| gone.value + 3 * come.value) }
}

fn row_key(gone: u64, come: Option<u64>) -> String {
    come.map_or_else(|| format!("{gone} alone"), |come| format!("{gone} with {come}"))
}

/// The rows that were sent, by the key under which their partners are.
#[derive(Clone, Default, Debug)]
pub(super) struct Rows {
    gone: BTreeMap<String, Vec<Row>>,
    come: BTreeMap<String, Vec<Row>>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    id: u64,
    time: i64,
    amount: i64,
}

impl Expected {
    /// Each pair of near records once, and each record that has no partner on the other side alone.
    pub(super) fn join(&mut self, record: &Record) {
        let row = Row { id: record.id, time: record.time, amount: record.amount };
        self.rows.come.entry(record.to.clone()).or_default().push(row);
        self.rows.gone.entry(record.from.clone()).or_default().push(row);
        let near = |other: &&Row| (other.time - row.time).abs() <= millis(NEAR);
        let (rows, keys) = (&self.rows, &mut self.keys);
        let pair = |gone: Row, come: Row| (gone.id, row_key(gone.id, Some(come.id)), 3 * come.amount - gone.amount);
        let as_left: Vec<_> =
            rows.come.get(&record.from).into_iter().flatten().filter(near).map(|come| pair(row, *come)).collect();
        if as_left.is_empty() {
            keys.entry(row_key(row.id, None)).or_default().insert(row.id, -row.amount);
        }
        let as_right = rows.gone.get(&record.to).into_iter().flatten().filter(near).map(|gone| pair(*gone, row));
        for (gone, key, total) in as_left.into_iter().chain(as_right) {
            keys.remove(&row_key(gone, None));
            keys.entry(key).or_default().insert(gone, total);
        }
    }
}
