//! What is tested: something that keeps data in a directory, lives in a process, and is looked at afterwards.

use onceflow::types::ErrorKind;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// One kind of store or log.
pub trait Subject: Sync {
    /// Its word in orders and in the ledger.
    fn name(&self) -> &'static str;

    /// Whether what was stored is there after the disk was full. A store that is rebuilt whenever it was not closed is not.
    fn outlives_a_full_disk(&self) -> bool {
        true
    }

    /// Takes `steps` steps in `place`, from wherever its data are, and says so. Runs in the process.
    fn live(&self, place: &Path, life: Life, marks: &mut Marks);

    /// Opens what was left, reads all of it, goes on for a step, and opens it again.
    ///
    /// # Errors
    /// Text: what is wrong with what was found.
    fn check(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String>;

    /// Opens what was closed and then damaged, and reads all of it.
    ///
    /// # Errors
    /// Text: other data, or an end that came too early.
    fn check_damaged(&self, place: &Path, life: Life, seen: &Seen) -> Result<Found, String>;
}

/// One life: the same numbers, the same steps.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub seed: u64,
    pub steps: u64,
}

/// What was found, when it is not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The right data, after this many steps.
    Opened(u64),
    /// A typed error.
    Refused(ErrorKind),
}

/// How the process says what it has done.
pub struct Marks(File);

impl Marks {
    pub fn create(path: &Path) -> Marks {
        Marks(File::create(path).unwrap())
    }

    /// One mark; it is in the recording, in the order of the calls, when this returns.
    pub fn say(&mut self, mark: &str) {
        self.0.write_all(format!("{mark}\n").as_bytes()).unwrap();
    }
}

/// What the process has said up to some moment. Steps count from 1.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The last step that it began.
    pub begun: u64,
    /// The last step that was acknowledged.
    pub done: u64,
    /// The last step that a close made durable.
    pub closed: u64,
    /// The last step at which a close began.
    pub closing: u64,
    /// Whether it may be empty: nothing was acknowledged since the beginning, or since it was dropped to be rebuilt.
    pub may_be_empty: bool,
    /// How often it was dropped to be rebuilt.
    pub dropped: u64,
    /// All marks.
    pub marks: Vec<String>,
    /// Power was lost, not only the process.
    pub power_lost: bool,
    /// A fault was injected: what a close could not do it does not say.
    pub faulty: bool,
}

impl Seen {
    pub fn nothing() -> Seen {
        Seen {
            begun: 0,
            done: 0,
            closed: 0,
            closing: 0,
            may_be_empty: true,
            dropped: 0,
            marks: vec![],
            power_lost: true,
            faulty: false,
        }
    }

    /// Takes in further marks.
    pub fn hear(&mut self, text: &[u8]) {
        for mark in String::from_utf8_lossy(text).lines() {
            self.marks.push(mark.to_owned());
            let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
            let step = || rest.parse::<u64>().unwrap();
            match word {
                "opened" => {
                    self.begun = self.begun.max(step());
                    self.may_be_empty = step() == 0;
                }
                "begin" => self.begun = step(),
                "done" => {
                    self.done = step();
                    self.may_be_empty = false;
                }
                "closing" => self.closing = step(),
                "closed" => self.closed = step(),
                "drop" => {
                    (self.done, self.closed, self.may_be_empty) = (0, 0, true);
                    self.dropped += 1;
                }
                _ => {}
            }
        }
    }
}
