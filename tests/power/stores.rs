//! The disk state backends.

#[path = "../../storage/tests/common/point.rs"]
mod point;

use crate::dice::Dice;
use crate::subject::{Found, Life, Marks, Seen, Subject};
use onceflow::storage::{Backend, Delta, KeyRange, MemoryBudget, Order, StateStore, StoreFactory, StoreOptions};
use onceflow::types::{Error, ErrorKind, Name, Result, TaskId};
use point::point;
use std::collections::BTreeMap;
use std::path::Path;

/// A store of one backend. A step is an epoch.
pub struct Store {
    pub backend: Backend,
    pub crash_consistent: bool,
}

const KEYS: u64 = 300;
const CHANGES: u64 = 40;
/// One in so many epochs is followed by a close and an opening.
const CLOSES: u64 = 9;
/// How often a task is opened again after an error.
const OPENINGS_MAX: u32 = 3;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn job() -> Name {
    Name::job("power").unwrap()
}

fn task() -> TaskId {
    TaskId { subtopology: Name::new("subject").unwrap(), broker: "broker-a".into(), queue: 0 }
}

/// The changes of an epoch; epoch 0 is what is loaded before the first.
fn changes(seed: u64, epoch: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut dice = Dice::new(seed << 32 | epoch);
    let count = if epoch == 0 { KEYS } else { CHANGES };
    let change = |number: u64| {
        let key = if epoch == 0 { number } else { dice.below(KEYS) };
        let value = [epoch.to_be_bytes(), key.to_be_bytes(), dice.next().to_be_bytes()].concat();
        let value = value.repeat(dice.below(9) as usize);
        (key.to_be_bytes().to_vec(), (epoch == 0 || dice.below(6) > 0).then_some(value))
    };
    (0..count).map(change).collect()
}

fn delta(seed: u64, epoch: u64) -> Delta {
    let mut delta = Delta::default();
    for (key, value) in changes(seed, epoch) {
        match value {
            Some(value) => delta.put(&key, &value),
            None => delta.delete(&key),
        }
    }
    delta
}

/// The state after an epoch.
fn state(seed: u64, epoch: u64) -> State {
    let mut state = State::new();
    for (key, value) in (0..=epoch).flat_map(|epoch| changes(seed, epoch)) {
        match value {
            Some(value) => state.insert(key, value),
            None => state.remove(&key),
        };
    }
    state
}

fn epoch_of(store: &dyn StateStore) -> Result<u64> {
    Ok(store.commit_point()?.map_or(0, |point| point.epoch.get()))
}

impl Store {
    fn options(&self, place: &Path) -> StoreOptions {
        let mut options = StoreOptions::new(self.backend, place);
        // The smallest buffers, so that tables are written and merged in a short life.
        let bytes = MemoryBudget::BYTES_MIN;
        options.memory = MemoryBudget { write_buffer_bytes: bytes, cache_bytes: bytes };
        options
    }

    /// As the engine opens a task: what is `Corrupt` is dropped and opened again, once.
    fn open(&self, place: &Path, marks: &mut Marks) -> Result<Box<dyn StateStore>> {
        let options = self.options(place);
        let store = match options.open(&job(), &task()) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                marks.say("drop");
                options.destroy(&job(), &task())?;
                options.open(&job(), &task())?
            }
            other => other?,
        };
        marks.say(&format!("opened {}", epoch_of(&*store)?));
        Ok(store)
    }

    fn steps(&self, place: &Path, life: Life, last: &mut Option<u64>, marks: &mut Marks) -> Result<()> {
        let mut store = self.open(place, marks)?;
        let mut epoch = epoch_of(&*store)?;
        let last = *last.get_or_insert(epoch + life.steps);
        while epoch < last {
            if epoch == 0 {
                store.load(&delta(life.seed, 0))?;
            }
            epoch += 1;
            marks.say(&format!("begin {epoch}"));
            store.commit(&delta(life.seed, epoch), &point(epoch))?;
            marks.say(&format!("done {epoch}"));
            let closes = Dice::new(life.seed ^ epoch << 8).below(CLOSES) == 0;
            if closes || epoch == last {
                marks.say(&format!("closing {epoch}"));
                drop(store);
                marks.say(&format!("closed {epoch}"));
                store = self.open(place, marks)?;
                epoch = epoch_of(&*store)?;
            }
        }
        Ok(())
    }

    /// Reads everything, in both orders and key by key. The inner text says what is wrong.
    fn read(store: &dyn StateStore, seed: u64) -> Result<Result<u64, String>> {
        let epoch = epoch_of(store)?;
        let mut wanted = if epoch == 0 { State::new() } else { state(seed, epoch) };
        for order in [Order::Ascending, Order::Descending] {
            let mut found = State::new();
            let mut cursor = store.scan(KeyRange::all(), order)?;
            while let Some((key, value)) = cursor.next()? {
                found.insert(key.to_vec(), value.to_vec());
            }
            if found != wanted {
                let differ = wanted.iter().filter(|(key, value)| found.get(*key) != Some(*value)).count();
                let (entries, wanted) = (found.len(), wanted.len());
                return Ok(Err(format!(
                    "other data: epoch={epoch} {order:?} entries={entries} wanted={wanted} differ={differ}"
                )));
            }
        }
        let mut value = vec![];
        for key in (0..KEYS).map(|key| key.to_be_bytes().to_vec()) {
            let found = store.get(&key, &mut value)?.then(|| value.clone());
            if found != wanted.remove(&key) {
                return Ok(Err(format!("other data: epoch={epoch} key={key:?}")));
            }
        }
        Ok(Ok(epoch))
    }

    fn is_allowed(&self, epoch: u64, seen: &Seen) -> Result<(), String> {
        let least = match (seen.power_lost, seen.faulty) {
            (true, true) => 0,
            (true, false) => seen.closed,
            // Without loss of power what was acknowledged is with the operating system.
            (false, _) => seen.done,
        };
        let empty = epoch == 0 && seen.may_be_empty;
        if (epoch < least || epoch > seen.begun || epoch == 0) && !empty {
            return Err(format!("epoch {epoch} is not from {least} to {}", seen.begun));
        }
        let closed = epoch == seen.closed || epoch == seen.closing;
        if !self.crash_consistent && !seen.faulty && !closed && !empty {
            return Err(format!("opened at epoch {epoch} without a clean close, but is not crash-consistent"));
        }
        Ok(())
    }
}

impl Subject for Store {
    fn name(&self) -> &'static str {
        self.backend.as_str()
    }

    fn outlives_a_full_disk(&self) -> bool {
        self.crash_consistent
    }

    fn live(&self, place: &Path, life: Life, marks: &mut Marks) {
        let mut last = None;
        for _ in 0..OPENINGS_MAX {
            let Err(error) = self.steps(place, life, &mut last, marks) else { return };
            marks.say(&format!("failed {error:?}").replace('\n', " "));
            // As a worker does: these two are tried again, others stop the job.
            if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Retry) {
                return;
            }
        }
    }

    fn check_damaged(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
        let read = || Store::read(&*self.options(place).open(&job(), &task())?, life.seed);
        match read() {
            Ok(Ok(epoch)) if epoch == seen.closed => Ok(Found::Opened(epoch)),
            Ok(Ok(epoch)) => Err(format!("another epoch: found={epoch} closed={}", seen.closed)),
            Ok(Err(text)) => Err(text),
            // `Invalid` where the damage hides that this is a store at all.
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => {
                Ok(Found::Refused(error.kind()))
            }
            Err(error) => Err(format!("{error:?}")),
        }
    }

    fn check(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String> {
        let options = self.options(place);
        let read = |options: &StoreOptions| -> Result<Result<u64, String>> {
            let mut store = options.open(&job(), &task())?;
            assert_eq!(store.crash_consistent(), self.crash_consistent);
            let epoch = Store::read(&*store, life.seed)?;
            if let Ok(epoch) = epoch {
                if epoch == 0 {
                    store.load(&delta(life.seed, 0))?;
                }
                store.commit(&delta(life.seed, epoch + 1), &point(epoch + 1))?;
            }
            Ok(epoch)
        };
        let refused = |error: Error| match error.kind() {
            ErrorKind::Corrupt => {
                options.destroy(&job(), &task()).map_err(|e| format!("cannot be dropped: {e:?}"))?;
                let store = options.open(&job(), &task()).map_err(|e| format!("cannot be rebuilt: {e:?}"))?;
                match epoch_of(&*store) {
                    Ok(0) => Ok(Found::Refused(ErrorKind::Corrupt)),
                    other => Err(format!("not empty after it was dropped: {other:?}")),
                }
            }
            _ => Err(format!("not an error to rebuild after: {error:?}")),
        };
        let epoch = match read(&options) {
            Ok(epoch) => epoch?,
            Err(error) => return refused(error),
        };
        self.is_allowed(epoch, seen)?;
        match read(&options) {
            Ok(Ok(again)) if again == epoch + 1 => Ok(Found::Opened(epoch)),
            Ok(again) => Err(format!("went on from epoch {epoch} and closed, then: {again:?}")),
            Err(error) => Err(format!("opened at epoch {epoch}, went on and closed, then: {error:?}")),
        }
    }
}
