//! What will happen when: made from the seed before the run begins.

use crate::dice::Dice;
use std::time::Duration;

/// So many of each fault in so much time.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) time: Duration,
    pub(crate) processor_kills: u64,
    pub(crate) pauses: u64,
    pub(crate) broker_kills: u64,
    pub(crate) name_server_kills: u64,
    pub(crate) network_faults: u64,
}

/// What happens to a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strike {
    Kill,
    Pause,
}

/// Which server is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    Broker,
    NameServer,
}

/// Moments since the beginning of the run, in order.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) processors: Vec<(Duration, Strike)>,
    pub(crate) servers: Vec<(Duration, Server)>,
    pub(crate) network: Vec<Duration>,
}

/// So many of 100 kills come right after the one before them: into the start of the next process.
const AT_ONCE_PERCENT: u64 = 15;

impl Plan {
    pub(crate) fn new(seed: u64, wish: &Wish) -> Plan {
        let mut dice = Dice::new(seed, 1);
        let strikes = mixed(&mut dice, &[(Strike::Kill, wish.processor_kills), (Strike::Pause, wish.pauses)]);
        let servers =
            mixed(&mut dice, &[(Server::Broker, wish.broker_kills), (Server::NameServer, wish.name_server_kills)]);
        let mut processors = spread(&mut dice, wish.time, strikes);
        hurry(&mut dice, &mut processors);
        let servers = spread(&mut dice, wish.time, servers);
        let nothing = (0..wish.network_faults).map(|_| ()).collect();
        let network = spread(&mut dice, wish.time, nothing).into_iter().map(|(moment, ())| moment).collect();
        Plan { processors, servers, network }
    }
}

/// All of them, in random order.
fn mixed<T: Copy>(dice: &mut Dice, counts: &[(T, u64)]) -> Vec<T> {
    let mut all: Vec<(u64, T)> =
        counts.iter().flat_map(|(what, count)| (0..*count).map(|_| *what)).map(|what| (dice.draw(), what)).collect();
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, what)| what).collect()
}

/// One random moment in each of as many equal slots, so that they neither pile up nor leave the run in peace.
fn spread<T>(dice: &mut Dice, time: Duration, all: Vec<T>) -> Vec<(Duration, T)> {
    let slot_ms = ms(time) / (all.len() as u64).max(1);
    let moment = |(number, what)| (Duration::from_millis(slot_ms * number + dice.between(0, slot_ms)), what);
    (0..).zip(all).map(moment).collect()
}

fn hurry(dice: &mut Dice, strikes: &mut [(Duration, Strike)]) {
    let mut last = Duration::ZERO;
    for (moment, strike) in strikes {
        if *strike == Strike::Kill && dice.percent(AT_ONCE_PERCENT) {
            *moment = (*moment).min(last + Duration::from_millis(dice.between(50, 1_500)));
        }
        last = *moment;
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_what_was_wished_in_order_and_in_time() {
        let wish = Wish {
            time: Duration::from_hours(1),
            processor_kills: 200,
            pauses: 10,
            broker_kills: 20,
            name_server_kills: 5,
            network_faults: 60,
        };
        let plan = Plan::new(9, &wish);
        let count = |what| plan.processors.iter().filter(|(_, strike)| *strike == what).count();
        assert_eq!((count(Strike::Kill), count(Strike::Pause)), (200, 10));
        assert_eq!(plan.servers.iter().filter(|(_, server)| *server == Server::Broker).count(), 20);
        assert_eq!((plan.servers.len(), plan.network.len()), (25, 60));
        assert!(plan.processors.is_sorted_by_key(|(moment, _)| *moment));
        assert!(plan.servers.is_sorted_by_key(|(moment, _)| *moment));
        assert!(plan.network.is_sorted());
        assert!(plan.processors.last().is_some_and(|(moment, _)| *moment < wish.time));
        assert_eq!(Plan::new(9, &wish).processors, plan.processors);
        assert_ne!(Plan::new(8, &wish).processors, plan.processors);
    }
}
