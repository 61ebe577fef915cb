//! A value that one side sets and others wait for: as tokio's `watch`, but whoever waits is woken in the order of waiting.
//! `watch` wakes in a random order, which no seed decides; a simulated job would not run the same way twice.

use crate::sync::{Mutex, MutexGuard};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use tokio::sync::Notify;

/// All who could set the value are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    /// The value was set, or the last sender is gone.
    changed: Notify,
    /// The last receiver is gone.
    closed: Notify,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    version: u64,
    receivers: usize,
    senders: usize,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Every change under the lock is a few assignments, so a poisoned one still guards a whole value.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side that sets the value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// A side that waits for it.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// A value with both its sides.
pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        let state = Mutex::new(State { value, version: 0, receivers: 0, senders: 1 });
        Sender(Arc::new(Shared { state, changed: Notify::new(), closed: Notify::new() }))
    }

    /// Another receiver, which has seen the present value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let mut state = self.0.lock();
        state.receivers += 1;
        Receiver { shared: self.0.clone(), seen: state.version }
    }

    /// Changes the value if `modify` says so; returns that.
    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = {
            let mut state = self.0.lock();
            let modified = modify(&mut state.value);
            state.version += u64::from(modified);
            modified
        };
        if modified {
            self.0.changed.notify_waiters();
        }
        modified
    }

    /// Sets the value.
    pub(crate) fn send(&self, value: T) {
        self.send_if_modified(|old| {
            *old = value;
            true
        });
    }

    /// Whether nobody can see the value any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().receivers == 0
    }

    /// Ends when nobody can see the value any more. Cancel safe.
    pub(crate) async fn closed(&self) {
        loop {
            let mut closed = pin!(self.0.closed.notified());
            closed.as_mut().enable();
            if self.is_closed() {
                return;
            }
            closed.await;
        }
    }
}

impl<T: Clone> Sender<T> {
    /// The present value.
    pub(crate) fn get(&self) -> T {
        self.0.lock().value.clone()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.senders -= 1;
            state.senders
        };
        if left == 0 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T: Clone> Receiver<T> {
    /// The present value; it counts as seen.
    pub(crate) fn get(&mut self) -> T {
        let state = self.shared.lock();
        self.seen = state.version;
        state.value.clone()
    }

    /// Ends when a value is there that was not seen. Cancel safe.
    ///
    /// # Errors
    /// When all senders are gone, and nothing new was left.
    pub(crate) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.shared.lock();
                if state.version != self.seen {
                    self.seen = state.version;
                    return Ok(());
                }
                if state.senders == 0 {
                    return Err(Gone);
                }
            }
            changed.await;
        }
    }

    /// Ends when the value is one that `wanted` takes. Cancel safe.
    ///
    /// # Errors
    /// When all senders are gone, and such a value never came.
    pub(crate) async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), Gone> {
        loop {
            if wanted(&self.get()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.lock().receivers += 1;
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.lock();
            state.receivers -= 1;
            state.receivers
        };
        if left == 0 {
            self.shared.closed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_value_that_was_set_is_seen_once_by_each() {
        let (sender, mut first) = channel(1);
        let mut second = first.clone();
        assert!(first.changed().now_or_never().is_none());
        sender.send(2);
        assert_eq!(first.changed().now_or_never(), Some(Ok(())));
        assert_eq!((first.get(), second.get()), (2, 2));
        assert!(second.changed().now_or_never().is_none());
        assert!(!sender.send_if_modified(|_| false));
        assert!(first.changed().now_or_never().is_none());
        assert_eq!(first.wait_for(|value| *value == 2).now_or_never(), Some(Ok(())));
    }

    #[test]
    fn each_side_learns_that_the_other_is_gone() {
        let (sender, receiver) = channel(());
        let mut other = receiver.clone();
        drop(receiver);
        assert!(!sender.is_closed() && sender.closed().now_or_never().is_none());
        drop(other.clone());
        sender.send(());
        drop(sender);
        assert_eq!(other.changed().now_or_never(), Some(Ok(())), "what was set last is still seen");
        assert_eq!(other.changed().now_or_never(), Some(Err(Gone)));
        let (sender, receiver) = channel(());
        let mut closed = pin!(sender.closed());
        assert!(closed.as_mut().now_or_never().is_none());
        drop(receiver);
        assert!(sender.is_closed());
    }

    #[test]
    fn whoever_waits_is_woken_in_the_order_of_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, receiver) = channel(0);
        let woken = std::rc::Rc::new(std::cell::RefCell::new(vec![]));
        let set = tokio::task::LocalSet::new();
        for number in 0..40 {
            let (mut receiver, woken) = (receiver.clone(), woken.clone());
            set.spawn_local(async move {
                receiver.changed().await.unwrap();
                woken.borrow_mut().push(number);
            });
        }
        set.spawn_local(async move {
            tokio::task::yield_now().await;
            sender.send(1);
        });
        runtime.block_on(set);
        assert_eq!(*woken.borrow(), (0..40).collect::<Vec<_>>());
    }
}
