//! Which call meets which fault.

use onceflow::types::ErrorKind;
use std::ops::Range;
use std::time::Duration;

/// What a caller asks of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    Append,
    Prepare,
    End,
    Read,
}

/// What can happen to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Not carried out, no reply.
    RequestLost,
    /// Carried out, no reply.
    ReplyLost,
    /// Carried out, answered with a status that promises nothing: for the caller the same as no reply.
    WeakStatus,
    /// Carried out twice; the reply is that of the second time.
    Twice,
    /// Carried out twice; the reply is that of the first time.
    TwiceFirstReply,
    /// Carried out; the reply takes this long.
    Delayed(Duration),
    /// Not carried out, answered with an error of this kind.
    Refused(ErrorKind),
    /// No reply; carried out behind the n-th later changing call, 1 or more.
    Late(usize),
    /// The broker was started again before it: carried out over a new connection.
    Reconnected,
    /// For ENDs: answered as done, but the broker is killed before the message is on disk, and started again.
    Forgotten,
    /// The process dies: this call is its last, and no later one is carried out.
    Death { carried_out: bool },
}

/// Which calls a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct On {
    calls: Vec<Call>,
    topic: Option<String>,
}

impl On {
    /// Calls of one kind to a topic.
    pub fn of(call: Call, topic: &str) -> Self {
        On { calls: vec![call], topic: Some(topic.to_owned()) }
    }

    /// Appends, prepares and ENDs to any topic.
    pub fn changes() -> Self {
        On { calls: vec![Call::Append, Call::Prepare, Call::End], topic: None }
    }
}

pub(super) struct Rule {
    on: On,
    numbers: Range<usize>,
    fault: Fault,
    pub(super) matched: usize,
    pub(super) fired: usize,
}

impl Rule {
    pub(super) fn new(on: On, numbers: Range<usize>, fault: Fault) -> Self {
        Rule { on, numbers, fault, matched: 0, fired: 0 }
    }

    /// Counts a call, and says what happens to it.
    pub(super) fn meet(&mut self, call: Call, topic: &str) -> Option<Fault> {
        let ours = self.on.calls.contains(&call) && self.on.topic.as_ref().is_none_or(|own| own == topic);
        if !ours {
            return None;
        }
        self.matched += 1;
        let fires = self.numbers.contains(&self.matched);
        self.fired += usize::from(fires);
        fires.then_some(self.fault)
    }
}
