use crate::signal::{Gone, channel};
use shuttle::future::block_on;
use shuttle::thread;

/// What a job is told, as in `Control`: it only grows.
const DRAIN: u32 = 1;
const ABORT: u32 = 2;

/// A set value reaches each one that waits, whenever it began to wait: there is no lost wake-up (a deadlock here).
pub fn nobody_waits_for_what_was_set() {
    let (sender, receiver) = channel(0);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut receiver = receiver.clone();
            thread::spawn(move || block_on(receiver.wait_for(|value| *value == ABORT)))
        })
        .collect();
    drop(receiver);
    let other = sender.clone();
    let second = thread::spawn(move || other.send(ABORT));
    sender.send_if_modified(|value| {
        let first = *value == 0;
        *value = (*value).max(DRAIN);
        first
    });
    assert!(second.join().is_ok());
    for waiting in waiting {
        assert!(matches!(waiting.join(), Ok(Ok(()))), "an abort was not seen");
    }
}

/// Two that stop a job at once: the drain never hides the abort, and who waits for either sees one.
pub fn a_drain_does_not_undo_an_abort() {
    let (sender, mut receiver) = channel(0);
    let stops: Vec<_> = [DRAIN, ABORT]
        .into_iter()
        .map(|wanted| {
            let sender = sender.clone();
            thread::spawn(move || {
                sender.send_if_modified(|value| {
                    let grows = *value < wanted;
                    *value = (*value).max(wanted);
                    grows
                })
            })
        })
        .collect();
    assert_eq!(block_on(receiver.wait_for(|value| *value != 0)), Ok(()));
    assert_eq!(block_on(receiver.wait_for(|value| *value == ABORT)), Ok(()));
    for stop in stops {
        assert!(stop.join().is_ok());
    }
    assert_eq!(receiver.get(), ABORT);
}

/// Who waits for a value learns that it will never come, whoever goes first; what was set before is still seen.
pub fn the_last_sender_wakes_whoever_waits() {
    let (sender, receiver) = channel(0);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut receiver = receiver.clone();
            thread::spawn(move || (block_on(receiver.changed()), block_on(receiver.changed())))
        })
        .collect();
    drop(receiver);
    let other = sender.clone();
    let second = thread::spawn(move || drop(other));
    sender.send(DRAIN);
    drop(sender);
    assert!(second.join().is_ok());
    for waiting in waiting {
        assert!(matches!(waiting.join(), Ok((Ok(()), Err(Gone)))), "one value, then the end");
    }
}

/// Who waits for the receivers' end sees it, though others are made and dropped meanwhile.
pub fn the_last_receiver_wakes_whoever_waits() {
    let (sender, receiver) = channel(0);
    let watched = sender.clone();
    let waiting = thread::spawn(move || block_on(watched.closed()));
    let made = receiver.clone();
    let second = thread::spawn(move || drop(made.clone()));
    drop(receiver);
    assert!(second.join().is_ok());
    assert!(waiting.join().is_ok());
    assert!(sender.is_closed());
}
