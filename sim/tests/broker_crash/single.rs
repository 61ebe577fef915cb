//! One crash: a life that is cut, one that goes on in its directory, one that begins with an empty directory; and the audit.

use crate::job::{Job, Payment, Total, expected, payment};
use crate::life::{AGAIN, Life, MISSED};
use onceflow::TopicReader;
use onceflow::log::{Log, MessageBatch, Queues, ReadLimit, TopicSpec};
use onceflow::types::{ErrorKind, Result};
use onceflow_sim::{Cut, Victim};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;

/// Payments that are there for the life that is cut, and that come for the second and the third one.
const PAYMENTS: [Range<u64>; 3] = [0..48, 48..64, 64..80];
/// Lives that may give up because the broker is away, one after the other.
const GIVE_UPS_MAX: u32 = 5;
/// Tries to start the broker again.
const STARTS_MAX: u32 = 3;
/// How long the harness tries to reach a broker that was killed.
const TRIES_MAX: u32 = 300;
const TRY_TIME: Duration = Duration::from_millis(200);

/// The broker and what is needed to reach and to kill it.
pub struct Broker {
    pub name_server: String,
    /// Shell commands: SIGKILL; a start that waits until it serves.
    pub kill: String,
    pub start: String,
    pub log: Arc<dyn Log>,
    pub handle: Handle,
}

impl Broker {
    /// Does something at the log; while the broker is away, again and again.
    fn again<T>(&self, mut call: impl AsyncFnMut(&dyn Log) -> Result<T>) -> T {
        self.handle.block_on(async {
            for _ in 0..TRIES_MAX {
                match call(&*self.log).await {
                    Ok(done) => return done,
                    Err(error) if error.kind() == ErrorKind::Retry => tokio::time::sleep(TRY_TIME).await,
                    Err(error) => panic!("{}", error.report()),
                }
            }
            panic!("the broker does not come back");
        })
    }
}

fn shell(command: &str) {
    tried(command).unwrap_or_else(|why| panic!("{why}"));
}

/// Starts the broker; on a very busy machine that takes longer than the command waits, which then gives up.
fn start(command: &str) {
    for _ in 1..STARTS_MAX {
        match tried(command) {
            Ok(()) => return,
            Err(why) => eprintln!("starting the broker again: {why}"),
        }
    }
    shell(command);
}

fn tried(command: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", command]).output().map_err(|error| error.to_string())?;
    let said = || format!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(said()) }
}

/// What a single showed; everything that must be right is right.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    pub payments: u64,
    pub outputs: u64,
    pub lives: u64,
    pub raw_duplicates: u64,
}

/// One crash of the matrix.
pub struct Single<'b> {
    broker: &'b Broker,
    cut: Cut,
    store: String,
    job: Job,
    /// Of the whole run: directories and logs of its lives.
    folder: PathBuf,
    lives: u64,
    restart: Option<JoinHandle<()>>,
    planted: Option<usize>,
}

impl<'b> Single<'b> {
    pub fn new(broker: &'b Broker, job: Job, cut: Cut, store: &str, folder: &Path) -> Self {
        let (store, folder) = (store.to_owned(), folder.to_path_buf());
        Single { broker, cut, store, job, folder, lives: 0, restart: None, planted: None }
    }

    /// The same with a wrong engine, if there is to be one.
    pub fn planted(self, planted: Option<usize>) -> Self {
        Single { planted, ..self }
    }

    /// What the lives logged.
    pub fn log(folder: &Path) -> String {
        std::fs::read_to_string(folder.join("lives.log")).unwrap_or_default()
    }

    /// Aim: a crash exactly there loses and doubles nothing. Method: see the file.
    pub fn run(mut self) -> Shown {
        self.make_topics();
        let [first, second, third] = PAYMENTS;
        self.produce(first);
        let (same, empty) = (self.life("same", Some(self.cut)), self.life("empty", None));
        self.cut_life(&same);
        self.finish_life(&Life { cut: None, ..same }, second);
        self.finish_life(&empty, third);
        self.audit()
    }

    fn life(&self, directory: &str, cut: Option<Cut>) -> Life {
        let directory = self.folder.join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        let (job, store, name_server) = (self.job.clone(), self.store.clone(), self.broker.name_server.clone());
        Life { job, store, directory, name_server, cut, planted: self.planted }
    }

    /// The life that meets the step.
    fn cut_life(&mut self, life: &Life) {
        let (met, status) = self.live(life, None);
        let ended = match self.cut.victim {
            Victim::Broker => matches!(status.code(), Some(0 | AGAIN)),
            Victim::Processor | Victim::Both => status.signal() == Some(9),
        };
        let never = !met && matches!(status.code(), Some(0 | MISSED));
        assert!(!never, "{} never happened", self.cut);
        assert!(met && ended, "the process that was to be cut ended with {status}: {}", self.last_words());
    }

    /// Lives until one has processed everything, these payments, too.
    fn finish_life(&mut self, life: &Life, payments: Range<u64>) {
        let (_, mut status) = self.live(life, Some(payments));
        for _ in 0..GIVE_UPS_MAX {
            if status.code() != Some(AGAIN) {
                break;
            }
            (_, status) = self.live(life, None);
        }
        assert!(status.success(), "a process after the crash ended with {status}: {}", self.last_words());
    }

    /// What the last process said when it panicked.
    fn last_words(&self) -> String {
        let log = Single::log(&self.folder);
        log.rsplit_once("panicked at")
            .map(|(_, text)| text.lines().take(4).collect::<Vec<_>>().join(" "))
            .unwrap_or_default()
    }

    /// One process from its start to its end, and whether it met its step; these payments come while it lives.
    fn live(&mut self, life: &Life, payments: Option<Range<u64>>) -> (bool, ExitStatus) {
        self.lives += 1;
        let mut child = life.spawn(&self.folder.join("lives.log"));
        let (mut to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        if let Some(payments) = payments {
            self.produce(payments);
        }
        // A process that has ended does not read any more: how it ended shows below.
        let _ = writeln!(to, "finish");
        let mut met = false;
        for line in from.lines().map_while(std::io::Result::ok) {
            met |= line == "cut: met";
            if line == "cut: kill broker" {
                shell(&self.broker.kill);
                let _ = writeln!(to, "killed");
                // Beside it: the processes live through the outage.
                let command = self.broker.start.clone();
                self.restart = Some(std::thread::spawn(move || start(&command)));
            }
        }
        (met, child.wait().unwrap())
    }

    fn make_topics(&self) {
        let outputs = self.job.outputs().map(|(_, topic, _)| (topic, 2));
        for (topic, queues) in outputs.into_iter().chain([(self.job.input(), 1)]) {
            let spec = TopicSpec { topic: (&*topic).into(), queues: Queues::PerBroker(queues) };
            self.broker.again(async |log| log.create_topic(&spec).await);
        }
    }

    fn produce(&self, ids: Range<u64>) {
        let mut batches = vec![MessageBatch::default()];
        for id in ids {
            let body = serde_json::to_vec(&payment(id)).unwrap();
            let last = batches.last_mut().unwrap();
            last.push(&[], &body).unwrap();
            if last.len() >= 8 {
                batches.push(MessageBatch::default());
            }
        }
        for batch in batches.iter().filter(|batch| !batch.is_empty()) {
            // A try without an answer may be in the log: the audit goes by what is there.
            self.broker.again(async |log| {
                let queue = log.partitions(&self.job.input()).await?.remove(0);
                log.append(&queue, batch).await
            });
        }
    }

    /// Compares the reader view of both outputs with what the raw input says it must be.
    fn audit(mut self) -> Shown {
        if let Some(restart) = self.restart.take() {
            restart.join().unwrap();
        }
        let payments = self.payments();
        let mut shown = Shown { payments: payments.len() as u64, lives: self.lives, ..Shown::default() };
        let expected = expected(&payments);
        for (name, topic, _) in self.job.outputs() {
            let (seen, duplicates) = self.reader_view(&topic);
            assert_eq!(seen, expected, "{name}: what readers see");
            // Nobody stood still between its lease check and its END, so nothing explains a copy.
            assert_eq!(duplicates, 0, "{name}: raw duplicates");
            shown.outputs += seen.values().map(|totals| totals.len() as u64).sum::<u64>();
            shown.raw_duplicates += duplicates;
        }
        assert_eq!(shown.outputs, 2 * shown.payments);
        shown
    }

    fn payments(&self) -> Vec<Payment> {
        self.broker.again(async |log| {
            let mut payments = vec![];
            let queue = log.partitions(&self.job.input()).await?.remove(0);
            let range = log.offsets(&queue).await?;
            let mut next = range.first;
            while next < range.next {
                let limit = ReadLimit { records_max: 1_024, bytes_max: 4 << 20, wait_max: Duration::from_millis(100) };
                let batch = log.read(&queue, next, limit).await?;
                let bodies = batch.iter().map(|record| record.body().unwrap().to_vec());
                payments.extend(bodies.map(|body| serde_json::from_slice::<Payment>(&body).unwrap()));
                next = batch.next_offset().unwrap_or(next);
            }
            Ok(payments)
        })
    }

    /// Each card's totals in order, and how many messages were copies.
    fn reader_view(&self, topic: &str) -> (BTreeMap<String, Vec<Total>>, u64) {
        self.broker.again(async |_| {
            let mut reader = TopicReader::open(self.broker.log.clone(), topic, self.job.name()).await?;
            let mut cards: BTreeMap<String, Vec<Total>> = BTreeMap::new();
            for record in reader.read_to_end().await? {
                let total: Total = serde_json::from_slice(&record.body).unwrap();
                cards.entry(total.card.clone()).or_default().push(total);
            }
            assert_eq!(reader.held(), 0, "messages wait for one that never came");
            assert_eq!(reader.counts().foreign, 0, "messages of nobody");
            Ok((cards, reader.counts().dedup.duplicates))
        })
    }
}
