//! Carries the plan out. The three kinds of faults go on beside each other and so overlap at random.

use crate::dice::Dice;
use crate::plan::{Server, Strike};
use crate::proxy::{Fault, Proxy};
use crate::seats::{Processor, Program};
use crate::servers::Servers;
use crate::watch::{Blow, Watch};
use onceflow::types::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often the processors are looked at.
const LOOK_TIME: Duration = Duration::from_millis(200);
/// Pause before a processor that gave up because the broker was away is started again.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// What was done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) processor_kills: u64,
    pub(crate) pauses: u64,
    pub(crate) broker_kills: u64,
    pub(crate) name_server_kills: u64,
    pub(crate) network_faults: u64,
    /// Processors that ended by themselves because the broker was away, and were started again.
    pub(crate) gave_up: u64,
}

/// The processors and whoever strikes them.
pub(crate) struct Fleet {
    program: Program,
    running: Vec<Processor>,
    /// A directory for the process that takes over from a paused one.
    spare: String,
    watch: Arc<Watch>,
    dice: Dice,
    pub(crate) tally: Tally,
}

impl Fleet {
    pub(crate) fn start(program: Program, processes: u32, watch: Arc<Watch>, dice: Dice) -> Result<Fleet> {
        let seats = (0..processes).map(|number| program.start(&format!("seat-{number}")));
        let running = seats.collect::<Result<_>>()?;
        Ok(Fleet { program, running, spare: "seat-spare".to_owned(), watch, dice, tally: Tally::default() })
    }

    pub(crate) async fn strike(&mut self, began: Instant, plan: &[(Duration, Strike)]) -> Result<()> {
        for (moment, strike) in plan {
            self.look_until(began + *moment).await?;
            match strike {
                Strike::Kill => self.kill().await?,
                Strike::Pause => self.pause().await?,
            }
        }
        Ok(())
    }

    /// Waits, and keeps the processors running.
    pub(crate) async fn look_until(&mut self, moment: Instant) -> Result<()> {
        loop {
            self.look().await?;
            if Instant::now() >= moment {
                return Ok(());
            }
            sleep_until(moment.min(Instant::now() + LOOK_TIME)).await;
        }
    }

    /// Starts again who gave up. Whoever ended for another reason has found something that must not happen.
    async fn look(&mut self) -> Result<()> {
        for processor in &mut self.running {
            let Some(status) = processor.ended() else { continue };
            let seat = processor.seat.clone();
            let words = self.program.last_words(&seat);
            if status.code() != Some(i32::from(crate::AWAY)) {
                return Err(Error::bug(format!("a processor ended: seat={seat} status={status}\n{words}")));
            }
            eprintln!("soak: a processor gave up: seat={seat}\n{words}");
            self.tally.gave_up += 1;
            sleep(AWAY_PAUSE).await;
            *processor = self.program.start(&seat)?;
        }
        Ok(())
    }

    /// One of the processors, taken out.
    fn victim(&mut self) -> Processor {
        let number = self.dice.between(0, self.running.len() as u64);
        self.running.swap_remove(usize::try_from(number).unwrap_or(0))
    }

    /// SIGKILL, and the same directory again: at once, or after a moment in which nobody works.
    async fn kill(&mut self) -> Result<()> {
        let victim = self.victim();
        let seat = victim.seat.clone();
        self.watch.struck(Blow::Kill);
        victim.kill()?;
        self.tally.processor_kills += 1;
        if self.dice.percent(30) {
            sleep(Duration::from_millis(self.dice.between(100, 3_000))).await;
        }
        self.running.push(self.program.start(&seat)?);
        Ok(())
    }

    /// SIGSTOP, another process takes over, SIGCONT; both go on for a while, then one of them is killed.
    async fn pause(&mut self) -> Result<()> {
        if self.dice.percent(25) {
            // The one that takes over then has nothing but the journal.
            self.program.wipe(&self.spare)?;
        }
        let zombie = self.victim();
        zombie.signal("STOP")?;
        self.watch.struck(Blow::Pause);
        let spare = std::mem::take(&mut self.spare);
        self.running.push(self.program.start(&spare)?);
        let pause = Duration::from_millis(self.dice.between(10_000, 20_000));
        self.look_until(Instant::now() + pause).await?;
        zombie.signal("CONT")?;
        self.running.push(zombie);
        let beside = Duration::from_millis(self.dice.between(1_000, 6_000));
        self.look_until(Instant::now() + beside).await?;
        self.tally.pauses += 1;
        let last_two = self.running.len().saturating_sub(2);
        let one = last_two + usize::from(self.dice.percent(50));
        let loser = self.running.swap_remove(one);
        self.spare.clone_from(&loser.seat);
        self.watch.struck(Blow::Kill);
        self.tally.processor_kills += 1;
        loser.kill()
    }

    /// Stops all of them cleanly; the longest time one took.
    pub(crate) async fn stop(self, time_max: Duration) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        for processor in self.running {
            let seat = processor.seat.clone();
            let stopped = processor.stop(time_max).await;
            let time = stopped.map_err(|error| error.context(self.program.last_words(&seat)))?;
            longest = longest.max(time);
        }
        Ok(longest)
    }
}

/// Kills servers, one at a time: a name server and its broker are never away together for long.
pub(crate) async fn strike_servers(
    servers: &Servers,
    began: Instant,
    plan: &[(Duration, Server)],
    watch: &Watch,
    mut dice: Dice,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for (moment, server) in plan {
        sleep_until(began + *moment).await;
        if *server == Server::Broker {
            watch.struck(Blow::Broker);
            servers.kill("broker").await?;
            tally.broker_kills += 1;
        } else {
            servers.kill("name-server").await?;
            tally.name_server_kills += 1;
        }
        sleep(Duration::from_millis(dice.between(0, 5_000))).await;
        servers.start().await?;
    }
    Ok(tally)
}

/// The ways from the processors to the servers.
pub(crate) struct Network {
    pub(crate) broker: Proxy,
    pub(crate) name_server: Proxy,
}

impl Network {
    /// Misbehaves at the planned moments, mostly towards the broker, and is sound at the end; how often it did.
    pub(crate) async fn strike(&self, began: Instant, plan: &[Duration], mut dice: Dice) -> u64 {
        for moment in plan {
            sleep_until(began + *moment).await;
            let (fault, ms) = Fault::draw(&mut dice);
            let proxies = match dice.between(0, 6) {
                0 => vec![&self.name_server],
                1 => vec![&self.broker, &self.name_server],
                _ => vec![&self.broker],
            };
            for proxy in &proxies {
                proxy.set(fault);
            }
            sleep(Duration::from_millis(ms)).await;
            for proxy in &proxies {
                proxy.set(Fault::None);
            }
        }
        plan.len() as u64
    }
}
