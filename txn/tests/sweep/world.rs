//! One journal, one sink broker and everything that can go wrong with them.

use onceflow_txn::record_checksum;
use onceflow_txn::{Decoded, Identity, ReadRecord, decode};
use onceflow_types::{Error, HalfHandle, Offset, Partition};
use std::collections::BTreeMap;

/// The broker with the halves: the one that loses power. The outbox goes to another.
pub(crate) const SINK: &str = "broker-s";

/// What becomes of a request whose number a [`Fault`] names, beside that its reply is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Carried out, not acknowledged: a weak status, or a lost reply.
    Weak,
    /// Carried out later: after so many more requests to that broker.
    Late(usize),
    /// Never carried out.
    Lost,
}

/// What may go wrong in one run, beside crashes and pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The journal append of this number.
    Append(usize, Fate),
    /// The request to the sink broker of this number: half, END, plain send or barrier.
    Request(usize, Fate),
    /// The connections to the sink broker are lost before the request of this number.
    Disconnect(usize),
    /// Before this effect of anybody the sink broker loses what it may lose, and comes back.
    SinkPower(usize),
    /// Before this effect of anybody the journal's broker loses what it may lose, and comes back.
    JournalPower(usize),
    /// The last records of the journal cannot be read yet while somebody opens.
    Lag(u64),
}

/// One message in a target queue, or a half on its way there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) identity: Identity,
    pub(crate) payload: String,
}

#[derive(Clone, Debug)]
enum Request {
    Half,
    End(usize),
    Send(Partition, Vec<Message>),
    Barrier,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    /// Seconds.
    pub(crate) now: u64,
    pub(crate) faults: Vec<Fault>,
    pub(crate) journal: Vec<Vec<u8>>,
    journal_durable: usize,
    late_appends: Vec<(usize, Vec<u8>)>,
    pub(crate) appends: usize,
    pub(crate) queues: BTreeMap<Partition, Vec<Message>>,
    queues_durable: BTreeMap<Partition, usize>,
    pub(crate) halves: Vec<(Partition, Message)>,
    late_requests: Vec<(usize, Request)>,
    pub(crate) requests: usize,
    /// Grows with each loss of the sink broker's connections.
    pub(crate) connection: u64,
    /// How many effects all owners have had.
    pub(crate) effects: usize,
}

impl World {
    pub(crate) fn new(faults: Vec<Fault>) -> World {
        World { faults, ..World::default() }
    }

    /// Called before each effect of an owner.
    pub(crate) fn effect(&mut self) {
        let at = self.effects;
        self.effects += 1;
        if self.faults.contains(&Fault::JournalPower(at)) {
            self.journal.truncate(self.journal_durable);
        }
        if self.faults.contains(&Fault::SinkPower(at)) {
            for (target, messages) in self.queues.iter_mut().filter(|(target, _)| &*target.broker == SINK) {
                messages.truncate(self.queues_durable.get(target).copied().unwrap_or(0));
            }
            self.connection += 1;
        }
    }

    // ---- the journal ----

    /// `None`: no SEND_OK.
    pub(crate) fn append(&mut self, record: &[u8]) -> Option<Offset> {
        let number = self.appends;
        self.appends += 1;
        let fate = self.faults.iter().find_map(|fault| match fault {
            Fault::Append(at, fate) if *at == number => Some(*fate),
            _ => None,
        });
        let offset = match fate {
            None => {
                self.journal.push(record.to_vec());
                self.journal_durable = self.journal.len();
                Some(Offset::new(self.journal.len() as u64 - 1))
            }
            Some(Fate::Weak) => {
                self.journal.push(record.to_vec());
                None
            }
            Some(Fate::Late(after)) => {
                self.late_appends.push((number + after, record.to_vec()));
                None
            }
            Some(Fate::Lost) => None,
        };
        for (at, record) in std::mem::take(&mut self.late_appends) {
            if at <= number {
                self.journal.push(record);
            } else {
                self.late_appends.push((at, record));
            }
        }
        offset
    }

    /// The journal's end, as somebody who opens sees it.
    pub(crate) fn visible_end(&self) -> Offset {
        let lag = self.faults.iter().map(|fault| if let Fault::Lag(records) = fault { *records } else { 0 }).sum();
        Offset::new((self.journal.len() as u64).saturating_sub(lag))
    }

    pub(crate) fn end(&self) -> Offset {
        Offset::new(self.journal.len() as u64)
    }

    pub(crate) fn read(&self, from: Offset, end: Offset, records_max: usize) -> Vec<ReadRecord> {
        let records = (from.get()..end.get()).take(records_max).map(|offset| {
            let bytes = &self.journal[offset as usize];
            ReadRecord { offset: Offset::new(offset), decoded: decoded(bytes), checksum: record_checksum(bytes) }
        });
        records.collect()
    }

    // ---- the sink broker ----

    /// Takes the number of a request; `None`: all goes well.
    fn request(&mut self) -> Option<Fate> {
        let number = self.requests;
        self.requests += 1;
        if self.faults.contains(&Fault::Disconnect(number)) {
            self.connection += 1;
        }
        self.faults.iter().find_map(|fault| match fault {
            Fault::Request(at, fate) if *at == number => Some(*fate),
            _ => None,
        })
    }

    /// Returns whether the request was answered. `durable`: the broker of which the answer says
    /// that all before it is safe.
    fn ask(&mut self, request: Request, durable: Option<&str>) -> bool {
        let fate = self.request();
        let answered = self.fulfil(fate, request, durable);
        // What is late comes behind the request that it was late for: also between a barrier and the look after it.
        let number = self.requests - 1;
        for (at, request) in std::mem::take(&mut self.late_requests) {
            if at <= number {
                self.carry_out(&request);
            } else {
                self.late_requests.push((at, request));
            }
        }
        answered
    }

    fn fulfil(&mut self, fate: Option<Fate>, request: Request, durable: Option<&str>) -> bool {
        match fate {
            None => {
                self.carry_out(&request);
                let safe = self.queues.iter().filter(|(target, _)| Some(&*target.broker) == durable);
                self.queues_durable.extend(safe.map(|(target, all)| (target.clone(), all.len())));
                true
            }
            Some(Fate::Weak) => {
                self.carry_out(&request);
                false
            }
            Some(Fate::Late(after)) => {
                self.late_requests.push((self.requests - 1 + after, request));
                false
            }
            Some(Fate::Lost) => false,
        }
    }

    fn carry_out(&mut self, request: &Request) {
        match request {
            Request::Half | Request::Barrier => {}
            Request::End(half) => {
                let (target, message) = self.halves[*half].clone();
                self.queues.entry(target).or_default().push(message);
            }
            Request::Send(target, messages) => {
                self.queues.entry(target.clone()).or_default().extend(messages.iter().cloned());
            }
        }
    }

    pub(crate) fn prepare(&mut self, target: &Partition, message: Message) -> Option<HalfHandle> {
        let number = self.halves.len();
        self.halves.push((target.clone(), message));
        let handle = HalfHandle {
            target: target.clone(),
            commit_log_offset: number as u64,
            half_queue_offset: number as u64,
            unique_key: format!("K{number}").into(),
        };
        self.ask(Request::Half, Some(&target.broker)).then_some(handle)
    }

    pub(crate) fn commit_half(&mut self, handle: &HalfHandle) -> bool {
        self.ask(Request::End(handle.commit_log_offset as usize), None)
    }

    pub(crate) fn send(&mut self, target: &Partition, messages: Vec<Message>) -> bool {
        self.ask(Request::Send(target.clone(), messages), Some(&target.broker))
    }

    pub(crate) fn barrier(&mut self, broker: &str) -> bool {
        self.ask(Request::Barrier, Some(broker))
    }

    /// Faults stop: what is on its way arrives.
    pub(crate) fn calm(&mut self) {
        // A power loss behind the last effect.
        self.effect();
        self.faults.clear();
        self.journal.extend(std::mem::take(&mut self.late_appends).into_iter().map(|(_, record)| record));
        for (_, request) in std::mem::take(&mut self.late_requests) {
            self.carry_out(&request);
        }
    }
}

pub(crate) fn decoded(bytes: &[u8]) -> Decoded {
    decode(bytes).unwrap()
}

// ---- outbox batches: `identity TAB payload LF` for each message ----

pub(crate) fn encode_batch(messages: &[Message]) -> Vec<u8> {
    let lines = messages.iter().map(|message| format!("{}\t{}\n", message.identity.to_property(), message.payload));
    lines.collect::<String>().into_bytes()
}

pub(crate) fn decode_batch(bytes: &[u8]) -> Result<Vec<Message>, Error> {
    let text = std::str::from_utf8(bytes).unwrap();
    let message = |line: &str| {
        let (identity, payload) = line.split_once('\t').unwrap();
        Ok(Message { identity: Identity::from_property(identity.as_bytes())?, payload: payload.to_owned() })
    };
    text.lines().map(message).collect()
}
