//! Wrong engines, logs and stores: the simulation must find each (goal G1c). Those of the engine need the feature `planted`.

use crate::fault::Fault;
use crate::workload::Workload;
#[cfg(feature = "planted")]
use onceflow::planted::Bug;

/// Something wrong, planted into a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plant {
    /// In the engine.
    #[cfg(feature = "planted")]
    Engine(Bug),
    /// An END without an answer counts as carried out.
    UnansweredEndIsDone,
    /// An append that was stored with a weak status counts as acknowledged.
    WeakStatusIsOk,
    /// Epochs go over any connection (decision 0024 left out).
    AnyConnection,
    /// All acknowledgements of a broker seem to come over one connection, whatever happened to it.
    OneConnection,
    /// Unknown is answered to the broker as a commit of the half.
    CheckBackCommits,
    /// All owners draw the same nonce.
    SameNonce,
    /// A store writes state and point in two steps.
    TwoWrites,
    /// A scan that fails looks like the end of the data.
    ScanEndsEarly,
    /// An entry that cannot be read looks like none.
    UnreadableIsAbsent,
    /// A store says that a write that failed was done.
    WriteErrorIgnored,
}

/// A plant with the runs in which it is looked for.
#[derive(Clone, Debug)]
pub struct Search {
    /// What is planted.
    pub plant: Plant,
    /// The workload, when only one can show it.
    pub workload: Option<Workload>,
    /// The kinds of faults of its runs.
    pub faults: Vec<Fault>,
}

impl Search {
    fn any(plant: Plant) -> Self {
        Search { plant, workload: None, faults: Fault::ALL.to_vec() }
    }

    fn with(plant: Plant, workload: Option<Workload>, faults: &[Fault]) -> Self {
        Search { plant, workload, faults: faults.to_vec() }
    }

    /// Every plant.
    pub fn all() -> Vec<Search> {
        let power = [Fault::BrokerPower, Fault::ReplyLost, Fault::Weak, Fault::Reset, Fault::Late, Fault::Partition];
        let mut all = vec![
            Search::any(Plant::UnansweredEndIsDone),
            Search::with(Plant::WeakStatusIsOk, None, &power),
            Search::with(Plant::AnyConnection, Some(Workload::Chain), &power),
            Search::with(Plant::OneConnection, None, &power),
            Search::any(Plant::CheckBackCommits),
            Search::any(Plant::SameNonce),
            Search::with(Plant::TwoWrites, None, &[Fault::ProcessPower, Fault::KillProcess, Fault::Drain]),
            Search::with(Plant::ScanEndsEarly, None, &[Fault::DiskRead, Fault::KillProcess]),
            Search::any(Plant::UnreadableIsAbsent),
            Search::any(Plant::WriteErrorIgnored),
        ];
        all.extend(engine());
        all
    }
}

#[cfg(feature = "planted")]
fn engine() -> Vec<Search> {
    let any = [
        Bug::EndsBeforeDecided,
        Bug::UnansweredAppendIsDone,
        Bug::OffsetsOneEpochBehind,
        Bug::SequencesStartAgain,
        Bug::PositionsNotKept,
        Bug::NoDedup,
        Bug::MaximumOnly,
        Bug::ReleasesUnpublished,
        Bug::ForgetsUnpublished,
        Bug::PublishedWhenDecided,
        Bug::CacheNotSealed,
    ];
    let mut all: Vec<Search> = any.into_iter().map(|bug| Search::any(Plant::Engine(bug))).collect();
    let torn = Plant::Engine(Bug::FirstOfBatchIsEnough);
    all.push(Search::with(torn, Some(Workload::Counts), &[Fault::BrokerPower, Fault::ReplyLost, Fault::Weak]));
    all
}

#[cfg(not(feature = "planted"))]
fn engine() -> Vec<Search> {
    vec![]
}

impl Plant {
    /// Plants it for this thread, as far as it lies in the engine.
    pub(crate) fn begin(plant: Option<Plant>) {
        #[cfg(feature = "planted")]
        onceflow::planted::plant(match plant {
            Some(Plant::Engine(bug)) => Some(bug),
            _ => None,
        });
        #[cfg(not(feature = "planted"))]
        let _ = plant;
    }
}
