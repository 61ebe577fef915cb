//! Messages of the model through both dedup readers.

use crate::rules;
use onceflow_model::world::{self, Msg};
use onceflow_txn::{ChannelKey, DedupReader, DedupSettings, Start};
use onceflow_types::{ErrorKind, Incarnation, Name, Partition, Sequence, TaskId, Timestamp};
use std::time::Duration;

/// What the product's reader hands on, whether it holds anything, and before which message it reported lost data.
struct View {
    handed_on: Vec<Msg>,
    holds: bool,
    lost_at: Option<usize>,
}

fn product(queue: &[Msg], start: Start) -> View {
    let target = Partition::new("out", "b", 0);
    let key = ChannelKey {
        incarnation: Incarnation::new(1),
        task: TaskId { subtopology: Name::new("sum").unwrap(), broker: "b".into(), queue: 0 },
        sink: Name::new("sink").unwrap(),
        target: target.clone(),
    };
    let mut reader = DedupReader::new(DedupSettings::new(Duration::from_secs(10), Duration::from_secs(1_000)));
    reader.begin(&target, start);
    let (mut handed_on, mut lost_at) = (vec![], None);
    for (at, message) in queue.iter().enumerate() {
        let (sequence, floor) = (Sequence::new(message.seq.into()), Sequence::new(message.floor.into()));
        // Time stands still: the model knows none, so no gap may be passed by it.
        if let Err(error) = reader.accept(&key, sequence, floor, *message, Timestamp::MIN, &mut handed_on) {
            assert_eq!(error.kind(), ErrorKind::DataLoss);
            lost_at = Some(at);
            break;
        }
    }
    View { handed_on, holds: reader.held() > 0, lost_at }
}

/// Both readers on one queue, from every place and from the first message on. Returns whether the product's reader
/// reported lost data when it had read the queue whole.
pub(crate) fn compare(queue: &[Msg]) -> bool {
    let rules = rules();
    for from in 0..=queue.len() {
        let view = product(&queue[from..], Start::Middle);
        let (handed_on, holds) = world::read(queue, from, true, &rules);
        assert_eq!((view.handed_on, view.holds, view.lost_at), (handed_on, holds, None), "from {from}: {queue:?}");
    }
    let view = product(queue, Start::First);
    let read = view.lost_at.unwrap_or(queue.len());
    let (handed_on, holds) = world::read(&queue[..read], 0, false, &rules);
    assert_eq!((&view.handed_on, view.holds), (&handed_on, holds), "{queue:?}");
    if let Some(lost_at) = view.lost_at {
        // The model's reader passes there what the product's reports: a sequence below the floor is nowhere in the queue.
        let floor = queue[lost_at].floor;
        let missing = |sequence: u8| queue[..=lost_at].iter().all(|message| message.seq != sequence);
        assert!((0..floor).any(missing), "{queue:?}");
    }
    view.lost_at.is_some()
}

fn enumerate(queue: &mut Vec<Msg>, depth: usize, lost: &mut u64) {
    *lost += u64::from(compare(queue));
    if depth == 0 {
        return;
    }
    for seq in 0..4 {
        for floor in 0..=seq {
            // Copies of a message are identical, whoever repeats it.
            if queue.iter().any(|message| message.seq == seq && message.floor != floor) {
                continue;
            }
            queue.push(Msg { generation: 0, epoch: 1, seq, half: 0, floor, origin: queue.len() as u8 });
            enumerate(queue, depth - 1, lost);
            queue.pop();
        }
    }
}

#[test]
fn both_readers_agree_on_every_short_queue() {
    let mut lost = 0;
    enumerate(&mut vec![], 5, &mut lost);
    assert!(lost > 1_000, "{lost}");
}
