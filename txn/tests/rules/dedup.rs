//! The dedup reader against producers and a queue that repeat, reorder, delay and remove what they may.

use onceflow_txn::*;
use onceflow_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const LEASE_MILLIS: i64 = 10_000;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Message {
    sequence: u64,
    floor: u64,
    stored: i64,
}

/// What a channel's owners do.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Decide an epoch of so many messages.
    Decide(u8),
    /// Publish one message of the oldest unfinished epoch, by choice.
    Publish(u8),
    /// Count what is published whole; the next floors follow.
    Count,
    /// A late copy of a message published not long ago lands, by choice.
    Copy(u8),
    /// A new owner publishes all uncounted epochs again, without looking.
    Repeat,
    /// Time passes.
    Wait(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0u8..4).prop_map(Act::Decide),
        8 => any::<u8>().prop_map(Act::Publish),
        2 => Just(Act::Count),
        3 => any::<u8>().prop_map(Act::Copy),
        1 => Just(Act::Repeat),
        2 => (0u16..8_000).prop_map(Act::Wait),
        1 => (20_000u16..60_000).prop_map(Act::Wait),
    ]
}

/// One epoch's messages that are still to be published, and whether all of them were published once.
struct EpochOut {
    floor: u64,
    sequences: Vec<u64>,
    left: Vec<u64>,
}

/// A sink queue as correct owners fill it: epochs one after the other, in any order inside an epoch, copies at most
/// `gap_wait` late, repetitions by a new owner in order and of everything that is not counted.
fn queue(acts: &[Act]) -> (Vec<Message>, u64) {
    let (mut queue, mut now, mut next, mut floor) = (vec![], 0i64, 0u64, 0u64);
    let mut epochs: VecDeque<EpochOut> = VecDeque::new();
    let mut acts = acts.to_vec();
    // In the end everything is published and counted, and one more epoch tells the reader so.
    acts.extend([Act::Publish(0); 64]);
    acts.extend([Act::Count, Act::Decide(1), Act::Publish(0)]);
    for act in acts {
        match act {
            Act::Decide(messages) if epochs.len() < 4 => {
                let sequences: Vec<u64> = (next..next + u64::from(messages)).collect();
                next += u64::from(messages);
                epochs.push_back(EpochOut { floor, left: sequences.clone(), sequences });
            }
            Act::Publish(choice) => {
                if let Some(epoch) = epochs.iter_mut().find(|epoch| !epoch.left.is_empty()) {
                    let sequence = epoch.left.remove(usize::from(choice) % epoch.left.len());
                    queue.push(Message { sequence, floor: epoch.floor, stored: now });
                }
            }
            Act::Count => {
                while let Some(epoch) = epochs.front().filter(|epoch| epoch.left.is_empty()) {
                    floor = epoch.sequences.last().map_or(floor, |last| last + 1);
                    epochs.pop_front();
                }
            }
            Act::Copy(choice) => {
                let young: Vec<Message> =
                    queue.iter().filter(|m: &&Message| now - m.stored < 2 * LEASE_MILLIS).copied().collect();
                if !young.is_empty() {
                    let copied = young[usize::from(choice) % young.len()];
                    // A copy of a copy would be later than any copy can be.
                    let first = queue.iter().find(|m| m.sequence == copied.sequence).unwrap();
                    if now - first.stored < 2 * LEASE_MILLIS {
                        queue.push(Message { stored: now, ..copied });
                    }
                }
            }
            Act::Repeat => {
                for epoch in &mut epochs {
                    epoch.left.clone_from(&epoch.sequences);
                }
            }
            Act::Wait(millis) => now += i64::from(millis),
            Act::Decide(_) => {}
        }
    }
    (queue, next)
}

fn key(target: &Partition) -> ChannelKey {
    ChannelKey {
        incarnation: Incarnation::new(1),
        task: TaskId { subtopology: Name::new("sum").unwrap(), broker: "b".into(), queue: 0 },
        sink: Name::new("sink").unwrap(),
        target: target.clone(),
    }
}

fn settings() -> DedupSettings {
    DedupSettings::new(Duration::from_millis(LEASE_MILLIS as u64), Duration::from_secs(1_000_000))
}

/// Reads `queue` from `from` on. Before the messages named in `restarts` the reader is lost and comes back from what it
/// had saved at some earlier message, which is read again from there.
fn read(queue: &[Message], from: usize, start: Start, restarts: &BTreeMap<usize, u8>) -> Result<Vec<u64>> {
    let target = Partition::new("out", "b", 0);
    let mut reader = DedupReader::new(settings());
    reader.begin(&target, start);
    let mut restarts = restarts.clone();
    let mut saved: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut out, mut at) = (vec![], from);
    let mut committed: (usize, usize) = (from, 0);
    while at < queue.len() {
        if let Some(kind) = restarts.remove(&at) {
            if kind % 2 == 0 {
                save(&mut reader, &mut saved);
                committed = (at, out.len());
            }
            reader = restored(&saved);
            if committed.0 == from {
                reader.begin(&target, start);
            }
            at = committed.0;
            out.truncate(committed.1);
            continue;
        }
        let message = queue[at];
        let now = Timestamp::from_millis(message.stored);
        let (sequence, floor) = (Sequence::new(message.sequence), Sequence::new(message.floor));
        reader.accept(&key(&target), sequence, floor, message.sequence, now, &mut out)?;
        at += 1;
    }
    assert_eq!(reader.held(), 0, "the last message's floor is above everything");
    Ok(out)
}

fn save(reader: &mut DedupReader<u64>, saved: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    reader.changes(
        |item, to| to.extend(item.to_le_bytes()),
        |key, value| {
            match value {
                Some(value) => saved.insert(key.to_vec(), value.to_vec()),
                None => saved.remove(key),
            };
        },
    );
}

fn restored(saved: &BTreeMap<Vec<u8>, Vec<u8>>) -> DedupReader<u64> {
    let mut reader = DedupReader::new(settings());
    for (key, value) in saved {
        reader.restore(key, value, |bytes| Ok(u64::from_le_bytes(bytes.try_into().unwrap()))).unwrap();
    }
    reader
}

fn restarts() -> impl Strategy<Value = BTreeMap<usize, u8>> {
    proptest::collection::btree_map(0usize..80, any::<u8>(), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_reader_from_the_first_message_on_sees_each_once_in_order(acts in vec(act(), 0..80), restarts in restarts()) {
        let (queue, count) = queue(&acts);
        prop_assert_eq!(read(&queue, 0, Start::First, &restarts).unwrap(), (0..count).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_from_the_middle_sees_what_is_new_once_in_order_and_never_stops(
        acts in vec(act(), 0..60), restarts in restarts(),
    ) {
        let (queue, _) = queue(&acts);
        for from in 0..queue.len() {
            let restarts = restarts.iter().map(|(at, kind)| (from + at, *kind)).collect();
            let out = read(&queue, from, Start::Middle, &restarts).unwrap();
            prop_assert!(out.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", out);
            let before: BTreeSet<u64> = queue[..from].iter().map(|message| message.sequence).collect();
            let seen: BTreeSet<u64> = out.into_iter().collect();
            for message in &queue[from..] {
                prop_assert!(seen.contains(&message.sequence) || before.contains(&message.sequence), "lost {:?}", message);
            }
        }
    }

    #[test]
    fn a_reader_from_the_first_message_on_notices_what_is_lost(acts in vec(act(), 0..80), lost: prop::sample::Index) {
        let (queue, count) = queue(&acts);
        let lost = lost.index(usize::try_from(count).unwrap()) as u64;
        let rest: Vec<Message> = queue.iter().filter(|message| message.sequence != lost).copied().collect();
        if rest.iter().any(|message| message.floor > lost) && rest[0].floor == 0 {
            prop_assert_eq!(read(&rest, 0, Start::First, &BTreeMap::new()).unwrap_err().kind(), ErrorKind::DataLoss);
        }
    }

    /// Changes written epoch by epoch give the same entries as writing everything once.
    #[test]
    fn only_what_changed_is_written_and_it_is_enough(acts in vec(act(), 0..60), saves in vec(any::<bool>(), 60)) {
        let (queue, _) = queue(&acts);
        let target = Partition::new("out", "b", 0);
        let (mut often, mut once) = (DedupReader::new(settings()), DedupReader::new(settings()));
        let (mut saved_often, mut saved_once) = (BTreeMap::new(), BTreeMap::new());
        let mut out = vec![];
        for (message, save_now) in queue.iter().zip(saves) {
            for reader in [&mut often, &mut once] {
                let (sequence, floor) = (Sequence::new(message.sequence), Sequence::new(message.floor));
                let now = Timestamp::from_millis(message.stored);
                reader.accept(&key(&target), sequence, floor, message.sequence, now, &mut out).unwrap();
            }
            if save_now {
                save(&mut often, &mut saved_often);
            }
        }
        save(&mut often, &mut saved_often);
        save(&mut once, &mut saved_once);
        prop_assert_eq!(&saved_often, &saved_once);
        let mut nothing = BTreeMap::new();
        save(&mut restored(&saved_once), &mut nothing);
        save(&mut often, &mut nothing);
        prop_assert_eq!(nothing, BTreeMap::new());
    }

    #[test]
    fn hostile_entries_are_refused(key in vec(any::<u8>(), 0..60), value in vec(any::<u8>(), 0..60)) {
        let mut reader: DedupReader<u64> = DedupReader::new(settings());
        prop_assert!(reader.restore(&key, &value, |_| Ok(0)).is_err());
    }
}

#[test]
fn every_cut_and_every_extra_byte_of_an_entry_is_refused() {
    let target = Partition::new("out", "b", 0);
    let mut reader = DedupReader::new(settings());
    let (mut out, mut saved) = (vec![], BTreeMap::new());
    for sequence in [0, 5, 3] {
        reader
            .accept(&key(&target), Sequence::new(sequence), Sequence::ZERO, sequence, Timestamp::MIN, &mut out)
            .unwrap();
    }
    save(&mut reader, &mut saved);
    let (key, value) = saved.pop_first().unwrap();
    let restore = |key: &[u8], value: &[u8]| DedupReader::new(settings()).restore(key, value, |_| Ok(0u64));
    restore(&key, &value).unwrap();
    for len in 0..value.len() {
        assert!(restore(&key, &value[..len]).is_err(), "value cut at {len}");
    }
    for len in 0..key.len() {
        assert!(restore(&key[..len], &value).is_err(), "key cut at {len}");
    }
    assert!(restore(&key, &[&value[..], &[0]].concat()).is_err());
    assert!(restore(&[&key[..], &[0]].concat(), &value).is_err());
}
