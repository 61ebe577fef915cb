//! Runs one schedule: owners one after the other, cut at given effects, then calm and a fresh owner.

use crate::check::check;
use crate::owner::{Owner, Progress, Setup, Store, may_open_again};
use crate::world::{Fault, World};

/// More effects than any schedule needs: who needs more is stuck.
const EFFECTS_MAX: usize = 2_000;

/// How an owner is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The process dies; it comes back on the same host with its disk.
    Crash,
    /// The machine dies; another one takes over.
    LosesDisk,
    /// The process is only paused; another one takes over meanwhile.
    Pause,
}

/// When paused owners go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resume {
    /// After so many effects of the last owner: all they can do, at once.
    At(usize),
    /// After so many effects of the last owner: in turn with it.
    InTurn(usize),
    /// When everybody else is done.
    Last,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    pub(crate) setup: Setup,
    pub(crate) faults: Vec<Fault>,
    /// Effects of each owner before its cut.
    pub(crate) cuts: Vec<(usize, Cut)>,
    pub(crate) resume: Resume,
}

/// What a schedule came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// To its end, with so many effects of the last owner.
    Whole(usize),
    /// An owner was done before it could be cut: the same schedule as a shorter one.
    TooShort,
}

struct Runner {
    setup: Setup,
    world: World,
    nonce: u64,
    paused: Vec<Owner>,
    /// Disks of machines that are out of the game.
    stores: Vec<Store>,
    raw_once: bool,
    effects: usize,
}

/// Runs a schedule and checks what it leaves behind.
pub(crate) fn run(schedule: &Schedule) -> Result<Ran, String> {
    let world = World::new(schedule.faults.clone());
    // What is carried out after the queue was looked at comes twice, and so does what a paused owner was about to do.
    let raw_once = schedule.faults.is_empty();
    let mut runner =
        Runner { setup: schedule.setup, world, nonce: 0, paused: vec![], stores: vec![], raw_once, effects: 0 };
    let ran = runner.run(schedule);
    ran.map_err(|what| format!("{what}\n  in {schedule:?}"))
}

impl Runner {
    fn run(&mut self, schedule: &Schedule) -> Result<Ran, String> {
        let (mut host, mut store) = (1, Store::default());
        for (effects, cut) in &schedule.cuts {
            let mut owner = self.open(host, store)?;
            for _ in 0..*effects {
                owner = match self.step(owner)? {
                    Some(owner) => owner,
                    None => return Ok(Ran::TooShort),
                };
            }
            (host, store) = self.cut(owner, *cut);
        }
        let mut last = self.open(host, store)?;
        let mut effects = 0;
        loop {
            let others = match schedule.resume {
                Resume::At(at) if at == effects => usize::MAX,
                Resume::InTurn(from) if effects >= from => 1,
                _ => 0,
            };
            if others > 0 && !self.paused.is_empty() {
                // While the others go on the last one is paused, perhaps between its lease check and what it allowed.
                self.raw_once &= !last.may_publish_late();
                self.run_paused(others)?;
            }
            last = match self.step(last)? {
                Some(owner) => owner,
                None => break,
            };
            effects += 1;
        }
        self.run_paused(usize::MAX)?;
        self.world.calm();
        // One owner that knows nothing and is not disturbed brings everything to an end.
        let mut fresh = self.open(99, Store::default())?;
        while let Some(owner) = self.step(fresh)? {
            fresh = owner;
        }
        check(&self.world, &self.stores.iter().collect::<Vec<_>>(), self.raw_once)?;
        Ok(Ran::Whole(effects))
    }

    fn open(&mut self, host: u64, store: Store) -> Result<Owner, String> {
        self.nonce += 1;
        Owner::open(self.setup, host, self.nonce, store, &self.world).map_err(|error| error.report())
    }

    /// One effect; an owner that was stopped opens again. `None`: it is done.
    fn step(&mut self, mut owner: Owner) -> Result<Option<Owner>, String> {
        self.effects += 1;
        if self.effects > EFFECTS_MAX {
            return Err("stuck".into());
        }
        match owner.step(&mut self.world) {
            Progress::Going => Ok(Some(owner)),
            Progress::Done => {
                self.stores.push(owner.store);
                Ok(None)
            }
            Progress::Stopped(error) if may_open_again(&error) => {
                self.world.faults.retain(|fault| !matches!(fault, Fault::Lag(_)));
                let (host, store) = (owner.host(), owner.store);
                self.open(host, store).map(Some)
            }
            Progress::Stopped(error) => Err(format!("stopped: {}", error.report())),
        }
    }

    fn cut(&mut self, owner: Owner, cut: Cut) -> (u64, Store) {
        let host = owner.host();
        match cut {
            Cut::Crash => (host, owner.store),
            Cut::LosesDisk => (host + 1, Store::default()),
            Cut::Pause => {
                self.raw_once &= !owner.may_publish_late();
                self.paused.push(owner);
                (host + 1, Store::default())
            }
        }
    }

    /// Paused owners go on, until they are done or stopped: those do not open again.
    fn run_paused(&mut self, effects: usize) -> Result<(), String> {
        for mut owner in std::mem::take(&mut self.paused) {
            let mut left = effects;
            let going = loop {
                if left == 0 {
                    break true;
                }
                left -= 1;
                self.effects += 1;
                if self.effects > EFFECTS_MAX {
                    return Err("stuck".into());
                }
                match owner.step(&mut self.world) {
                    Progress::Going => {}
                    Progress::Done => break false,
                    Progress::Stopped(error) if may_open_again(&error) => break false,
                    Progress::Stopped(error) => return Err(format!("stopped: {}", error.report())),
                }
            };
            if going {
                // Its next pause may cut between a lease check and what it allowed, and the other one goes on meanwhile.
                self.raw_once &= !owner.may_publish_late();
                self.paused.push(owner);
            } else {
                self.stores.push(owner.store);
            }
        }
        Ok(())
    }
}
