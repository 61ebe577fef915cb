//! Any events in any order: no panic, and what is over stays over.

use crate::owner_table::{channel, half};
use onceflow_txn::record_checksum;
use onceflow_txn::*;
use onceflow_types::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

fn sealed(epoch: u64, published_through: u64, halves: usize) -> Sealed {
    Sealed {
        offsets: Offsets::default(),
        watermarks: BTreeMap::new(),
        clock: Timestamp::from_millis(0),
        channels: BTreeMap::from([(channel("pay"), Sequence::new(epoch))]),
        tails: Offsets::default(),
        published_through: Epoch::new(published_through),
        changes: vec![epoch as u8],
        halves,
        outbox: vec![],
    }
}

fn opening() -> Opening {
    Opening {
        nonce: Nonce::new(9),
        owner: Owner::default(),
        topology_hash: 7,
        upgrade: false,
        point: None,
        previous: None,
        journal_first: Offset::ZERO,
        internal_sinks: BTreeSet::new(),
        tries_max: 3,
    }
}

/// What happens next: what was asked for, or anything else.
#[derive(Clone, Debug)]
enum Happens {
    /// The action at the front succeeds.
    Well,
    /// ... and its record is in the journal, but nobody says so.
    Weakly,
    /// ... it never happens.
    Not,
    /// An event out of the blue.
    Acknowledged(u64),
    Unknown,
    Read(u64, bool),
    Sealed(u64, usize),
    Prepared(u64),
    Applied,
    Release,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        60 => Just(Happens::Well),
        6 => Just(Happens::Weakly),
        4 => Just(Happens::Not),
        1 => (0u64..12).prop_map(Happens::Acknowledged),
        1 => Just(Happens::Unknown),
        1 => (0u64..12, any::<bool>()).prop_map(|(from, at_end)| Happens::Read(from, at_end)),
        6 => (0u64..3, 0usize..3).prop_map(|(published, halves)| Happens::Sealed(published, halves)),
        1 => (0u64..3).prop_map(Happens::Prepared),
        1 => Just(Happens::Applied),
        1 => Just(Happens::Release),
    ]
}

struct Run {
    coordinator: Coordinator,
    actions: VecDeque<Action>,
    journal: Vec<Vec<u8>>,
    points: Vec<CommitPoint>,
    over: bool,
}

impl Run {
    fn records(&self, from: u64) -> Vec<ReadRecord> {
        let all = (0..).map(Offset::new).zip(&self.journal).skip(from as usize);
        all.map(|(offset, bytes)| ReadRecord {
            offset,
            decoded: decode(bytes).unwrap(),
            checksum: record_checksum(bytes),
        })
        .collect()
    }

    /// The event that the action at the front leads to; `None`: there is none.
    fn outcome(&mut self, weakly: bool, not: bool) -> Option<Event> {
        Some(match self.actions.pop_front()? {
            Action::Read { from, through } => {
                Event::Read { records: self.records(from.get()), at_end: through.is_none() }
            }
            Action::Append { .. } if not => Event::Unknown,
            Action::Append { record, .. } => {
                self.journal.push(record);
                if weakly { Event::Unknown } else { Event::Acknowledged(Offset::new(self.journal.len() as u64 - 1)) }
            }
            Action::Prepare { epoch, halves } => {
                Event::Prepared((0..halves as u64).map(|nth| half(epoch.get(), nth)).collect())
            }
            Action::Apply(permit) => {
                self.points.push(permit.point().clone());
                Event::Applied
            }
            Action::Owned { .. } | Action::Publish(_) | Action::Released | Action::Stop(_) => return None,
        })
    }

    fn event(&mut self, happens: &Happens) -> Option<Event> {
        let epoch = self.coordinator.epoch().get() + 1;
        Some(match happens {
            Happens::Well => return self.outcome(false, false),
            Happens::Weakly => return self.outcome(true, false),
            Happens::Not => return self.outcome(false, true),
            Happens::Acknowledged(offset) => Event::Acknowledged(Offset::new(*offset)),
            Happens::Unknown => Event::Unknown,
            Happens::Read(from, at_end) => Event::Read { records: self.records(*from), at_end: *at_end },
            Happens::Sealed(published, halves) => Event::Sealed(Box::new(sealed(epoch, *published, *halves))),
            Happens::Prepared(halves) => Event::Prepared((0..*halves).map(|nth| half(epoch, nth)).collect()),
            Happens::Applied => Event::Applied,
            Happens::Release => Event::Release,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_event_makes_the_coordinator_panic_and_over_is_over(all in proptest::collection::vec(happens(), 1..80)) {
        let (coordinator, actions) = Coordinator::open(opening()).unwrap();
        let mut run =
            Run { coordinator, actions: actions.into(), journal: vec![], points: vec![], over: false };
        for happens in &all {
            let Some(event) = run.event(happens) else { continue };
            let new = run.coordinator.step(event);
            prop_assert!(!run.over || new.is_empty(), "{happens:?} after the end: {new:?}");
            run.over |= new.iter().any(|action| matches!(action, Action::Stop(_) | Action::Released));
            run.actions.extend(new);
        }
        // Only what the journal's fold says was ever applied, one epoch after the other.
        for (point, epoch) in run.points.iter().zip(1..) {
            prop_assert_eq!(point.epoch, Epoch::new(epoch));
        }
    }
}

/// What happens to the publisher's next step.
#[derive(Clone, Debug)]
enum Publishing {
    Step,
    /// The request at the front of those in flight: answered, unknown and carried out, or unknown and lost.
    Answered,
    Carried,
    Lost,
    Reconnect,
    Half,
    Proof,
    Decided(usize),
    Time(u64),
}

fn publishing() -> impl Strategy<Value = Publishing> {
    prop_oneof![
        30 => Just(Publishing::Step),
        30 => Just(Publishing::Answered),
        3 => Just(Publishing::Carried),
        3 => Just(Publishing::Lost),
        2 => Just(Publishing::Reconnect),
        4 => Just(Publishing::Half),
        4 => Just(Publishing::Proof),
        5 => (0usize..5).prop_map(Publishing::Decided),
        3 => (1u64..9).prop_map(Publishing::Time),
    ]
}

fn item(nth: usize) -> Item {
    let channel = channel(["pay", "log", "mid"][nth % 3]);
    let handle = HalfHandle {
        target: channel.target.clone(),
        commit_log_offset: nth as u64,
        half_queue_offset: 0,
        unique_key: "K".into(),
    };
    let work = if nth.is_multiple_of(3) { Work::End(handle) } else { Work::Send(vec![1]) };
    Item { channel, first: Sequence::new(nth as u64), count: 1, internal: nth % 3 == 2, work }
}

/// A publisher, and a broker that carries out what it is asked for.
struct Sink {
    publisher: Publisher,
    now: u64,
    connection: u64,
    in_flight: VecDeque<ItemId>,
    visible: BTreeMap<ItemId, usize>,
    decided: u64,
}

impl Sink {
    fn link(&self) -> LinkId {
        LinkId { broker: "b".into(), connection: self.connection }
    }

    fn acknowledged_send(&mut self) {
        let ticket = self.publisher.ticket();
        self.publisher.send_acknowledged(&self.link(), ticket);
    }

    fn step(&mut self) {
        match self.publisher.step(Duration::from_secs(self.now)) {
            Step::Idle => {}
            Step::WaitUntil(until) => self.now = self.now.max(until.as_secs()),
            Step::RenewLease => self.publisher.lease_from(Duration::from_secs(self.now)),
            Step::Scan(ids) => {
                self.acknowledged_send();
                let visible = self.visible.clone();
                self.publisher.scanned(&ids, |id| visible.contains_key(&id));
            }
            Step::Prove(_) => self.acknowledged_send(),
            Step::Publish(ids) => self.in_flight.extend(ids),
        }
    }

    fn answer(&mut self, carried: bool, answered: bool) {
        let Some(id) = self.in_flight.pop_front() else { return };
        let end = matches!(self.publisher.item(id).unwrap().work, Work::End(_));
        if carried {
            *self.visible.entry(id).or_default() += 1;
        }
        match (answered, end) {
            (true, true) => self.publisher.ended(id, self.link()),
            (true, false) => self.publisher.sent(id),
            (false, _) => self.publisher.unknown(id),
        }
    }

    fn decide(&mut self, items: usize) {
        self.decided += 1;
        let epoch = Epoch::new(self.decided);
        self.publisher.decided(PublishPlan { epoch, items: (0..items).map(item).collect() });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn everything_is_published_once_and_proven_in_the_end(
        taken_over in 0usize..4,
        all in proptest::collection::vec(publishing(), 1..120),
    ) {
        let publisher = Publisher::new(Epoch::ZERO, Duration::from_secs(10), 2);
        let (in_flight, visible) = (VecDeque::new(), BTreeMap::new());
        let mut sink = Sink { publisher, now: 0, connection: 1, in_flight, visible, decided: 1 };
        let plan = PublishPlan { epoch: Epoch::new(1), items: (0..taken_over).map(item).collect() };
        sink.publisher.take_over(vec![plan], Duration::ZERO, true);
        let mut sizes = vec![taken_over];
        for happens in all {
            match happens {
                Publishing::Step => sink.step(),
                Publishing::Answered => sink.answer(true, true),
                Publishing::Carried => sink.answer(true, false),
                Publishing::Lost => sink.answer(false, false),
                Publishing::Reconnect => sink.connection += 1,
                Publishing::Half => sink.acknowledged_send(),
                Publishing::Proof => sink.publisher.want_proof(),
                Publishing::Decided(items) => {
                    sizes.push(items);
                    sink.decide(items);
                }
                Publishing::Time(seconds) => sink.now += seconds,
            }
            for (id, _) in sink.visible.range(..) {
                prop_assert!(id.epoch.get() <= sink.decided);
            }
        }
        // Undisturbed it comes to an end.
        for _ in 0..2_000 {
            sink.publisher.want_proof();
            sink.answer(true, true);
            sink.step();
        }
        prop_assert_eq!(sink.publisher.published_through(), Epoch::new(sink.decided));
        for (epoch, size) in (1..).map(Epoch::new).zip(sizes) {
            for index in 0..size {
                let copies = sink.visible.get(&ItemId { epoch, index }).copied().unwrap_or(0);
                prop_assert!(copies == 1 || (index % 3 == 2 && copies > 1), "{epoch}.{index}: {copies} copies");
            }
        }
    }
}
