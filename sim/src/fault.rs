//! The faults that a run can have, how often, and how many there were.

use crate::dice::Dice;
use std::fmt;
use std::str::FromStr;

macro_rules! faults {
    ($($name:ident, $word:literal, $doc:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault { $(#[doc = $doc] $name,)* }

        impl Fault {
            /// All kinds.
            pub const ALL: &'static [Fault] = &[$(Fault::$name,)*];

            /// Its word on the command line.
            pub const fn word(self) -> &'static str {
                match self { $(Fault::$name => $word,)* }
            }
        }
    };
}

faults! {
    RequestLost, "request-lost", "A request never arrives.";
    ReplyLost, "reply-lost", "A request is carried out and its reply is lost.";
    Late, "late", "A request arrives after its sender has given it up, or is gone.";
    Twice, "twice", "A request is carried out twice, the second time later.";
    Weak, "weak", "An append or half is stored with a weak status (FLUSH_DISK_TIMEOUT), and not kept.";
    Slow, "slow", "A request or its reply takes long.";
    Lag, "lag", "Queues show messages late.";
    KillProcess, "kill-process", "A process is killed and started again.";
    PauseProcess, "pause-process", "A process stands still for a while, and goes on as if nothing had happened.";
    ProcessPower, "process-power", "The machine of a process loses power: its disk goes back to an earlier state.";
    KillBroker, "kill-broker", "A broker is killed and started again.";
    BrokerPower, "broker-power", "The machine of a broker loses power: what was not acknowledged may be gone.";
    Partition, "partition", "A process and a broker cannot reach each other.";
    Reset, "reset", "A connection breaks.";
    DiskError, "disk-error", "A commit of a store fails; it may have been written.";
    DiskRead, "disk-read", "A read or scan of a store fails.";
    DiskGone, "disk-gone", "A store is damaged or missing when it is opened.";
    Drain, "drain", "A process is stopped cleanly and started again.";
    Retention, "retention", "Journals lose their beginning, as far as a snapshot covers it.";
    NameServer, "name-server", "The name server does not answer for a while.";
    Route, "route", "The name server has forgotten a broker that is away, and its topics with it.";
    Queues, "queues", "The input topic gets another queue on each broker.";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Fault, String> {
        Fault::ALL.iter().copied().find(|fault| fault.word() == word).ok_or_else(|| {
            let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.word()).collect();
            format!("unknown fault {word:?}, known are: {}", known.join(", "))
        })
    }
}

/// How often each kind happens: per thousand calls, or as a weight among the events of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Rates([u32; Fault::ALL.len()]);

impl Default for Rates {
    fn default() -> Self {
        Rates([0; Fault::ALL.len()])
    }
}

/// The longest list of kinds that all happen.
const SHORT_MAX: usize = 4;

impl Rates {
    /// A random mix: each allowed kind is left out in about half of the runs (swarm testing, Groce et al. 2012: a run
    /// with few kinds of faults goes where a run with all of them never does). Of a short list all happen, and often.
    pub(crate) fn mixed(allowed: &[Fault], dice: &mut Dice) -> Self {
        let mut rates = Rates::default();
        let short = allowed.len() <= SHORT_MAX;
        for fault in Fault::ALL {
            let (used, rate) = (dice.happens(550), 1 + u32::try_from(dice.below(60)).unwrap_or(0));
            let rate = if short { rate * 3 } else { rate };
            if (used || short) && allowed.contains(fault) {
                rates.set(*fault, rate);
            }
        }
        rates
    }

    pub(crate) fn set(&mut self, fault: Fault, rate: u32) {
        if let Some(slot) = self.0.get_mut(fault as usize) {
            *slot = rate;
        }
    }

    /// The rate of a kind.
    pub(crate) fn of(&self, fault: Fault) -> u32 {
        self.0.get(fault as usize).copied().unwrap_or(0)
    }
}

/// How often things happened in a run.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    faults: [u64; Fault::ALL.len()],
    /// Questions about halves that reached a process.
    pub check_backs: u64,
    /// Calls of the log.
    pub calls: u64,
    /// Epochs applied to a store.
    pub commits: u64,
    /// Entries that brokers lost; none of them was acknowledged.
    pub entries_lost: u64,
}

impl Counts {
    pub(crate) fn fault(&mut self, fault: Fault) {
        if let Some(count) = self.faults.get_mut(fault as usize) {
            *count += 1;
        }
    }

    /// How many faults of a kind there were.
    pub fn of(&self, fault: Fault) -> u64 {
        self.faults.get(fault as usize).copied().unwrap_or(0)
    }

    /// How many faults there were.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        for (count, more) in self.faults.iter_mut().zip(other.faults) {
            *count += more;
        }
        self.check_backs += other.check_backs;
        self.calls += other.calls;
        self.commits += other.commits;
        self.entries_lost += other.entries_lost;
    }
}
