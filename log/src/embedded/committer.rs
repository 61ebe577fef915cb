//! Group commit: changes that wait at the same time share one sync.
//!
//! A thread of its own does the writing, so that no caller's thread, and no reader on it, waits for the disk.

use super::fault;
use super::writer::Writer;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, mpsc};
use onceflow_types::{Error, Result};
use std::sync::PoisonError;
use tokio::sync::oneshot;

/// Most changes that share a sync.
const GROUP_MAX: usize = 1_024;

/// Writes, and returns what to do when the outcome of the sync is known.
type Job = Box<dyn FnOnce(&mut Writer) -> Finish + Send>;
type Finish = Box<dyn FnOnce(Option<&fjall::Error>) + Send>;

/// How changes get to the writer.
pub(super) enum Committer {
    /// On the caller's thread, without a sync.
    Direct(Box<Mutex<Writer>>),
    /// On a thread that syncs before it answers.
    Grouped { jobs: Option<mpsc::Sender<Job>>, thread: Option<JoinHandle<()>> },
}

impl Committer {
    pub(super) fn direct(writer: Writer) -> Committer {
        Committer::Direct(Box::new(Mutex::new(writer)))
    }

    pub(super) fn grouped(writer: Writer) -> Result<Committer> {
        let (jobs, waiting) = mpsc::channel();
        let thread = Builder::new().name("onceflow-log".to_owned());
        let thread = thread.spawn(move || run(writer, &waiting));
        let thread = thread.map_err(|e| Error::invalid("log's thread cannot be started").with_source(e))?;
        Ok(Committer::Grouped { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Makes a change and waits until it is as durable as promised. Once it has begun, dropping the future does not stop
    /// the change.
    pub(super) async fn write<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    {
        match self {
            Committer::Direct(writer) => {
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                let result = change(&mut writer);
                writer.publish();
                result
            }
            Committer::Grouped { jobs, .. } => {
                let (reply, answer) = oneshot::channel();
                let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job(change, reply)).is_ok());
                if !sent {
                    return Err(fault::failed_before());
                }
                answer.await.unwrap_or_else(|_| Err(Error::retry("log's thread stopped while it was writing")))
            }
        }
    }
}

impl Drop for Committer {
    /// Waits for the thread, so that the directory is free afterwards.
    fn drop(&mut self) {
        if let Committer::Grouped { jobs, thread } = self {
            drop(jobs.take());
            if let Some(Err(_)) = thread.take().map(JoinHandle::join) {
                tracing::error!("log's thread panicked");
            }
        }
    }
}

fn job<T, F>(change: F, reply: oneshot::Sender<Result<T>>) -> Job
where
    T: Send + 'static,
    F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
{
    Box::new(move |writer| {
        let result = change(writer);
        Box::new(move |failed| {
            let result = match failed {
                Some(error) => result.and_then(|_| Err(fault::syncing(error))),
                None => result,
            };
            // Nobody listens any more when the caller dropped the call.
            let _ = reply.send(result);
        })
    })
}

fn run(mut writer: Writer, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut finishes = vec![first(&mut writer)];
        while finishes.len() < GROUP_MAX
            && let Ok(next) = jobs.try_recv()
        {
            finishes.push(next(&mut writer));
        }
        let outcome = writer.sync();
        if outcome.is_ok() {
            writer.publish();
        }
        for finish in finishes {
            finish(outcome.as_ref().err());
        }
    }
}
