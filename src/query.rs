//! Questions about state from outside of the tasks that hold it.
//!
//! ```text
//!  Query::get ──► mailbox of each task of the subtopology ──► the task, between two batches, looks into its store
//!             ◄── the value of the last committed epoch   ◄──┘
//! ```

use crate::codec::{Key, StateValue, decode_state_value, encode_key};
use crate::edge::sleep;
use crate::state::{Found, TaskState, Types};
use crate::status::Board;
use futures_util::future::try_join_all;
use onceflow_types::{Clock, Error, Name, Result, TaskId, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Questions that wait for one task; who asks more waits for room.
const WAITING_MAX: usize = 64;
/// Longest wait for one task's answer: it answers between two batches, and not while it commits.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Asks a running job for values of its state, such as a count; made by [`Runtime::query`](crate::Runtime::query). A handle:
/// clones ask the same job, from any thread.
pub struct Query<K, V> {
    mailboxes: Arc<Mailboxes>,
    board: Arc<Board>,
    subtopology: Name,
    table: Arc<str>,
    types: PhantomData<fn(K) -> V>,
}

impl<K: Key, V: StateValue> Query<K, V> {
    pub(crate) fn new(mailboxes: Arc<Mailboxes>, board: Arc<Board>, subtopology: Name, table: &str) -> Self {
        Query { mailboxes, board, subtopology, table: table.into(), types: PhantomData }
    }

    /// The value of a key as of the last epoch that its task committed: a value that is seen here is never taken back. It may be
    /// older than output that is on its way, by an epoch. `None`: no task of the job has a value.
    ///
    /// Values whose time to live is over are not seen: by processing time those of now, by event time those of the epoch.
    ///
    /// # Errors
    /// `Retry` when no task here has the key and some of the job's tasks are not running here: other processes may have it. Or when
    /// a task did not answer within 10 s. `Invalid` when the operator has no one value per key, or one of other types.
    pub async fn get(&self, key: &K) -> Result<Option<V>> {
        let mut bytes = vec![];
        encode_key(key, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        let status = self.board.status();
        let tasks: Vec<&TaskId> = status.keys().filter(|task| task.subtopology == self.subtopology).collect();
        let answers = try_join_all(tasks.iter().map(|task| self.ask(task, &bytes))).await?;
        let mut away = vec![];
        for (task, answer) in tasks.into_iter().zip(answers) {
            match answer {
                Some(Found::Value(value)) => return decode_state_value(&value).map(Some),
                Some(Found::Nothing) => {}
                None => away.push(task.to_string()),
            }
        }
        if away.is_empty() {
            return Ok(None);
        }
        Err(Error::retry(format!("the key may be in tasks that do not run here: table={} tasks={away:?}", self.table)))
    }

    /// `None` when the task does not run here.
    async fn ask(&self, task: &TaskId, key: &Arc<[u8]>) -> Result<Option<Found>> {
        let Some(mailbox) = self.mailboxes.of(task) else { return Ok(None) };
        let (reply, answer) = oneshot::channel();
        let question = Question { table: self.table.clone(), types: Types::of::<K, V>(), key: key.clone(), reply };
        let asked = async {
            if mailbox.send(question).await.is_err() {
                return Ok(None);
            }
            // Else a question that meets the end of the task might lie there for as long as this side is kept.
            drop(mailbox);
            answer.await.map_or(Ok(None), |found| found.map(Some))
        };
        tokio::select! {
            biased;
            found = asked => found,
            () = sleep(ANSWER_TIME_MAX) => Err(Error::retry(format!("task did not answer in time: task={task}"))),
        }
    }
}

impl<K, V> Clone for Query<K, V> {
    fn clone(&self) -> Self {
        let Query { mailboxes, board, subtopology, table, types } = self;
        let (mailboxes, board) = (mailboxes.clone(), board.clone());
        Query { mailboxes, board, subtopology: subtopology.clone(), table: table.clone(), types: *types }
    }
}

impl<K, V> fmt::Debug for Query<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("table", &self.table).finish_non_exhaustive()
    }
}

/// What a task is asked.
#[derive(Debug)]
pub(crate) struct Question {
    table: Arc<str>,
    types: Types,
    key: Arc<[u8]>,
    reply: oneshot::Sender<Result<Found>>,
}

impl Question {
    /// Answers from the committed state. An error is the asker's alone.
    pub(crate) fn answer(self, state: &TaskState, now: Timestamp) {
        // Who asked may be gone.
        let _ = self.reply.send(state.look(&self.table, self.types, &self.key, now));
    }
}

/// Where the tasks that run here can be asked.
#[derive(Default, Debug)]
pub(crate) struct Mailboxes(Mutex<BTreeMap<TaskId, mpsc::Sender<Question>>>);

impl Mailboxes {
    fn of(&self, task: &TaskId) -> Option<mpsc::Sender<Question>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(task).cloned()
    }

    /// Opens a task's mailbox, until what is returned is dropped.
    pub(crate) fn open(self: &Arc<Self>, task: &TaskId) -> Mailbox {
        let (sender, questions) = mpsc::channel(WAITING_MAX);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(task.clone(), sender);
        Mailbox { all: self.clone(), task: task.clone(), questions }
    }
}

/// A task's side: the questions that it is to answer.
#[derive(Debug)]
pub(crate) struct Mailbox {
    all: Arc<Mailboxes>,
    task: TaskId,
    questions: mpsc::Receiver<Question>,
}

impl Mailbox {
    /// The next question. Cancel safe.
    pub(crate) async fn next(&mut self) -> Question {
        match self.questions.recv().await {
            Some(question) => question,
            // Its sender is kept by the mailboxes.
            None => std::future::pending().await,
        }
    }

    /// Answers what has come, as much as fits into a mailbox.
    pub(crate) fn answer_all(&mut self, state: &TaskState, clock: &dyn Clock) {
        for _ in 0..WAITING_MAX {
            let Ok(question) = self.questions.try_recv() else { return };
            question.answer(state, clock.now());
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.task);
    }
}
