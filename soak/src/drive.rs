//! The run from beginning to end.

use crate::dice::Dice;
use crate::faults::{Fleet, Network, Tally, strike_servers};
use crate::job::{self, INPUT, Mode, QUEUES};
use crate::ledger::{self, Ledger, Verdict};
use crate::plan::{Plan, Wish};
use crate::producer::Input;
use crate::proxy::{Proxy, Rewrite};
use crate::seats::Program;
use crate::servers::Servers;
use crate::tail;
use crate::watch::Watch;
use onceflow::log::rocketmq::{RocketLog, RocketOptions};
use onceflow::log::{Log, Queues, TopicSpec};
use onceflow::types::{Clock, Error, ErrorKind, Result, SystemClock};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch as signal;
use tokio::time::{Instant, interval, sleep, timeout};

/// Everything must be processed so soon after the last fault.
const DRAIN_TIME_MAX: Duration = Duration::from_mins(2);
/// A clean stop may take so long: the engine's own bound, and a little for the process.
const STOP_TIME_MAX: Duration = Duration::from_secs(40);
/// What a run may take beyond the time of its faults: start, drain, dump and audit.
const OVERTIME_MAX: Duration = Duration::from_mins(20);
/// How often a line says how far the run is.
const REPORT_TIME: Duration = Duration::from_secs(30);
/// How often the driver looks whether all input is processed.
const LOOK_TIME: Duration = Duration::from_millis(100);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// How long faults go on
    #[arg(long, value_name = "N")]
    minutes: u64,
    /// SIGKILLs of processors, those at the end of a pause not counted
    #[arg(long, value_name = "K")]
    processor_kills: u64,
    /// SIGKILLs of the broker
    #[arg(long, value_name = "B")]
    broker_kills: u64,
    /// SIGKILLs of the name server
    #[arg(long, value_name = "S")]
    name_server_kills: u64,
    /// Processors stopped for 10 to 20 s while another one takes over
    #[arg(long, value_name = "P")]
    pauses: u64,
    /// Times at which the network misbehaves for 1 to 10 s
    #[arg(long, value_name = "F")]
    network_faults: u64,
    /// Plans the faults [default: from the time of day]
    #[arg(long, value_name = "X")]
    seed: Option<u64>,
    /// How output reaches its readers
    #[arg(long, value_enum)]
    delivery: Mode,
    /// Where the state is kept
    #[arg(long, value_parser = ["fjall", "rocksdb", "sled"])]
    store: String,
    /// Processors at a time
    #[arg(long, value_name = "N")]
    processes: u32,
    /// Input records a second
    #[arg(long, value_name = "R")]
    rate: u64,
    /// Different keys
    #[arg(long, value_name = "C")]
    cards: u64,
    /// The publish lease of the processors
    #[arg(long, value_name = "MS")]
    lease_ms: u64,
    /// The name server
    #[arg(long)]
    name_server: SocketAddr,
    /// The broker, as the name server tells its address
    #[arg(long)]
    broker: SocketAddr,
    /// The folder of the broker instance
    #[arg(long)]
    instance: PathBuf,
    /// The program behind `cargo xtask`
    #[arg(long)]
    xtask: PathBuf,
    /// The auditor
    #[arg(long)]
    auditor: PathBuf,
    /// Where state, logs and dumps go
    #[arg(long)]
    folder: PathBuf,
    /// The broker's version, for the ledger
    #[arg(long)]
    version: String,
    /// The commit, for the ledger
    #[arg(long)]
    commit: String,
}

/// Runs and prints the ledger line. Anything but a clean verdict is an error.
pub(crate) async fn run(args: Args) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| SystemClock.now().as_millis().unsigned_abs());
    eprintln!("soak: seed={seed}");
    let time_max = Duration::from_secs(args.minutes * 60) + OVERTIME_MAX;
    let ledger = timeout(time_max, Run { args, seed }.whole()).await;
    let ledger = ledger.map_err(|_| Error::bug(format!("the run hangs: limit={time_max:?}")))??;
    println!("{ledger}");
    if ledger.drain > DRAIN_TIME_MAX {
        return Err(Error::bug(format!("input was left when faults had ended long ago: seed={seed}")));
    }
    if ledger.verdict.is_clean() { Ok(()) } else { Err(Error::bug(format!("the promise is broken: seed={seed}"))) }
}

struct Run {
    args: Args,
    seed: u64,
}

impl Run {
    async fn whole(&self) -> Result<Ledger> {
        let args = &self.args;
        let log = self.open_log().await?;
        let outputs: Vec<String> = args.delivery.outputs().iter().map(|(name, _)| job::topic(name)).collect();
        let watch = Arc::new(Watch::default());
        let mut tail = tokio::spawn(tail::follow(log.clone(), outputs.clone(), watch.clone()));
        let (stop, stopped) = signal::channel(false);
        let input = Input { seed: self.seed, cards: args.cards, rate: args.rate };
        let mut producer = tokio::spawn(input.write(log.clone(), stopped));
        let network = self.network().await?;
        let broken = self.broken(&*log, &outputs, &watch, &network);
        let (mut fleet, tally) = tokio::select! {
            done = broken => done?,
            ended = &mut tail => return Err(early("tail", ended)),
            ended = &mut producer => return Err(early("producer", ended)),
        };
        // A receiver that is gone is a producer that has ended, which shows below.
        let _ = stop.send(true);
        let began = Instant::now();
        producer.await.map_err(|e| Error::bug("the producer ended").with_source(e))??;
        let drain = self.drained(&*log, &outputs, &watch, &mut fleet, began).await?;
        if tail.is_finished() {
            return Err(early("tail", tail.await));
        }
        tail.abort();
        let gave_up = fleet.tally.gave_up;
        let stop = fleet.stop(STOP_TIME_MAX).await?;
        eprintln!("soak: drained in {drain:?}, stopped in {stop:?}, now the audit");
        let verdict = ledger::sum(&self.audited(&outputs).await?);
        Ok(Ledger {
            version: args.version.clone(),
            delivery: args.delivery.word(),
            store: args.store.clone(),
            processes: args.processes,
            minutes: args.minutes,
            seed: self.seed,
            commit: args.commit.clone(),
            tally: Tally { gave_up, ..tally },
            verdict,
            recovery: ledger::recovery(&watch),
            drain,
            stop,
        })
    }

    async fn open_log(&self) -> Result<Arc<dyn Log>> {
        let options = RocketOptions::new(self.args.name_server.to_string(), "soak-driver");
        let log: Arc<dyn Log> = Arc::new(RocketLog::open(options).await?);
        let outputs = self.args.delivery.outputs();
        let topics = outputs.iter().map(|(name, _)| job::topic(name)).chain([INPUT.to_owned()]);
        for topic in topics {
            log.create_topic(&TopicSpec { topic: topic.into(), queues: Queues::PerBroker(QUEUES) }).await?;
        }
        Ok(log)
    }

    /// The part with faults; when it ends, nothing is broken any more.
    async fn broken(
        &self,
        log: &dyn Log,
        outputs: &[String],
        watch: &Arc<Watch>,
        network: &Network,
    ) -> Result<(Fleet, Tally)> {
        let args = &self.args;
        let program = self.program(&network.name_server);
        let plan = Plan::new(self.seed, &self.wish());
        let servers = Servers { xtask: args.xtask.clone(), directory: args.instance.clone() };
        let began = Instant::now();
        let mut fleet = Fleet::start(program, args.processes, watch.clone(), Dice::new(self.seed, 2))?;
        let striking = async {
            let strikes = async {
                fleet.strike(began, &plan.processors).await?;
                fleet.look_until(began + self.wish().time).await
            };
            let servers = strike_servers(&servers, began, &plan.servers, watch, Dice::new(self.seed, 3));
            let faults = network.strike(began, &plan.network, Dice::new(self.seed, 4));
            // The first of them that fails ends the run.
            let faults = async { Ok(faults.await) };
            let ((), servers, network_faults) = tokio::try_join!(strikes, servers, faults)?;
            Ok(Tally { network_faults, ..servers })
        };
        let tally = tokio::select! {
            tally = striking => tally?,
            never = self.report(log, outputs, watch, began) => never,
        };
        let tally = Tally { processor_kills: fleet.tally.processor_kills, pauses: fleet.tally.pauses, ..tally };
        eprintln!("soak: faults have ended: {tally:?}");
        Ok((fleet, tally))
    }

    async fn network(&self) -> Result<Network> {
        let args = &self.args;
        let broker = Proxy::start(args.broker, None, self.seed).await?;
        let rewrite = Rewrite::new(&args.broker.to_string(), &broker.address().to_string());
        let rewrite = rewrite.ok_or_else(|| Error::invalid("the broker's port must have five digits"))?;
        let name_server = Proxy::start(args.name_server, Some(rewrite), self.seed + 1).await?;
        Ok(Network { broker, name_server })
    }

    fn wish(&self) -> Wish {
        Wish {
            time: Duration::from_secs(self.args.minutes * 60),
            processor_kills: self.args.processor_kills,
            pauses: self.args.pauses,
            broker_kills: self.args.broker_kills,
            name_server_kills: self.args.name_server_kills,
            network_faults: self.args.network_faults,
        }
    }

    fn program(&self, name_server: &Proxy) -> Program {
        let args = &self.args;
        let words = [
            ("--name-server", name_server.address().to_string()),
            ("--store", args.store.clone()),
            ("--delivery", args.delivery.word().to_owned()),
            ("--lease-ms", args.lease_ms.to_string()),
        ];
        let words = words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        Program { words, folder: args.folder.clone() }
    }

    /// Says how far the run is, and never ends.
    async fn report(&self, log: &dyn Log, outputs: &[String], watch: &Watch, began: Instant) -> Tally {
        let mut tick = interval(REPORT_TIME);
        loop {
            tick.tick().await;
            let input = written(log).await.map_or_else(|_| "?".to_owned(), |input| input.to_string());
            let read: Vec<u64> = outputs.iter().map(|topic| watch.outputs(topic)).collect();
            eprintln!("soak: {:>5} s input={input} outputs={read:?}", began.elapsed().as_secs());
        }
    }

    /// Waits until every output topic holds one record for each input message; how long that took.
    async fn drained(
        &self,
        log: &dyn Log,
        outputs: &[String],
        watch: &Watch,
        fleet: &mut Fleet,
        began: Instant,
    ) -> Result<Duration> {
        while began.elapsed() <= DRAIN_TIME_MAX {
            fleet.look_until(Instant::now() + LOOK_TIME).await?;
            match written(log).await {
                Ok(input) if outputs.iter().all(|topic| watch.outputs(topic) >= input) => return Ok(began.elapsed()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Retry => sleep(LOOK_TIME).await,
                Err(error) => return Err(error),
            }
        }
        let read: Vec<u64> = outputs.iter().map(|topic| watch.outputs(topic)).collect();
        eprintln!("soak: NOT DRAINED in {DRAIN_TIME_MAX:?}: input={:?} outputs={read:?}", written(log).await);
        Ok(began.elapsed())
    }

    /// Has the topics written to files by a plain consumer, and has the auditor judge them.
    async fn audited(&self, outputs: &[String]) -> Result<Vec<Verdict>> {
        let args = &self.args;
        let servers = Servers { xtask: args.xtask.clone(), directory: args.instance.clone() };
        let file = |topic: &str| args.folder.join(format!("{topic}.jsonl"));
        let mut verdicts = Vec::new();
        servers.dump(&args.name_server.to_string(), INPUT, &file(INPUT)).await?;
        for topic in outputs {
            servers.dump(&args.name_server.to_string(), topic, &file(topic)).await?;
            verdicts.push(Verdict::by(&args.auditor, &file(INPUT), &file(topic))?);
        }
        Ok(verdicts)
    }
}

/// How many messages the input topic holds.
async fn written(log: &dyn Log) -> Result<u64> {
    let mut all = 0;
    for partition in log.partitions(INPUT).await? {
        all += log.offsets(&partition).await?.next.get();
    }
    Ok(all)
}

fn early(who: &str, ended: std::result::Result<Result<()>, tokio::task::JoinError>) -> Error {
    match ended {
        Ok(Ok(())) => Error::bug(format!("the {who} ended by itself")),
        Ok(Err(error)) => error.context(format_args!("the {who} ended")),
        Err(error) => Error::bug(format!("the {who} ended")).with_source(error),
    }
}
