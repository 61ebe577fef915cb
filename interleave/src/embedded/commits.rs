use super::committer::Committer;
use super::writer::{Shared, Writer};
use onceflow_types::{Error, ErrorKind, Result};
use shuttle::future::block_on;
use shuttle::thread;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

/// Threads that write at the same time, and how much each does.
const WRITERS: u32 = 3;
const CHANGES: u32 = 3;

fn committer(disk: &Shared, fails_from: Option<usize>) -> Arc<Committer> {
    let committer = Committer::grouped(Writer::new(disk, fails_from));
    Arc::new(committer.unwrap_or_else(|error| unreachable!("{}", error.report())))
}

async fn write(committer: &Committer, change: u32) -> Result<()> {
    committer
        .write(move |writer| {
            writer.write(change);
            Ok(())
        })
        .await
}

/// Runs the writers and returns what each was told, by change.
fn run(committer: &Arc<Committer>, told: impl Fn(u32, &Result<()>) + Clone + Send + 'static) {
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (committer, told) = (committer.clone(), told.clone());
            thread::spawn(move || {
                for change in 0..CHANGES {
                    let change = writer * CHANGES + change;
                    told(change, &block_on(write(&committer, change)));
                }
            })
        })
        .collect();
    for writer in writers {
        assert!(writer.join().is_ok(), "a writer panicked");
    }
}

/// Whoever is told that a change is done finds it synced and published, and each writer's changes are in its order.
pub fn an_answer_comes_behind_the_sync() {
    let disk = Shared::default();
    let committer = committer(&disk, None);
    let seen = disk.clone();
    run(&committer, move |change, result| {
        assert!(result.is_ok(), "{result:?}");
        let disk = seen.look();
        let place = disk.written.iter().position(|written| *written == change);
        let kept = place.is_some_and(|place| place < disk.synced && place < disk.published);
        assert!(kept, "change {change} was answered too early: {disk:?}");
    });
    drop(committer);
    let disk = disk.look();
    let mut changes = disk.written.clone();
    changes.sort_unstable();
    assert!(changes.into_iter().eq(0..WRITERS * CHANGES), "each change once: {disk:?}");
    for writer in 0..WRITERS {
        let own = disk.written.iter().filter(|change| **change / CHANGES == writer);
        assert!(own.is_sorted(), "changes of one writer changed places: {disk:?}");
    }
}

/// Once a sync has failed nobody is told of success, and readers see nothing that is not kept.
pub fn after_a_failed_sync_nothing_counts() {
    let disk = Shared::default();
    let committer = committer(&disk, Some(1));
    let seen = disk.clone();
    run(&committer, move |change, result| {
        let disk = seen.look();
        let kept = disk.written.iter().position(|written| *written == change).is_some_and(|place| place < disk.synced);
        assert_eq!(result.is_ok(), kept, "change {change}: {result:?} {disk:?}");
        assert!(result.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::Retry), "{result:?}");
        assert!(disk.published <= disk.synced, "{disk:?}");
    });
}

/// A caller that goes away does not stop what it began, and the end waits for it.
pub fn a_dropped_call_is_finished_before_the_end() {
    let disk = Shared::default();
    let committer = committer(&disk, None);
    let callers: Vec<_> = (0..WRITERS)
        .map(|change| {
            let committer = committer.clone();
            thread::spawn(move || {
                let mut call = pin!(write(&committer, change));
                // Begun, and perhaps done already; the answer goes to nobody.
                let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            })
        })
        .collect();
    // Whoever lets go last waits for the log's thread.
    drop(committer);
    for caller in callers {
        assert!(caller.join().is_ok(), "a caller panicked");
    }
    let disk = disk.look();
    let mut changes = disk.written.clone();
    changes.sort_unstable();
    assert!(changes.into_iter().eq(0..WRITERS) && disk.synced == disk.written.len(), "{disk:?}");
}

/// A change that fails for itself fails for nobody else of its group.
pub fn an_error_is_its_own_callers() {
    let disk = Shared::default();
    let committer = committer(&disk, None);
    let waiting: Vec<_> = (0..2)
        .map(|change| {
            let committer = committer.clone();
            thread::spawn(move || block_on(write(&committer, change)))
        })
        .collect();
    let failed: Result<()> = block_on(committer.write(|_| Err(Error::retry("refused"))));
    assert_eq!(failed.err().map(|error| error.kind()), Some(ErrorKind::Retry), "its own error comes back");
    for waiting in waiting {
        assert!(matches!(waiting.join(), Ok(Ok(()))), "another's error is nobody else's");
    }
}
