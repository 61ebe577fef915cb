//! Who waits for which reply on a connection. Callers come and go on threads of their own; the interleaving tests
//! (`interleave`) try their orders.

use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use tokio::sync::oneshot;

type Callers<T> = BTreeMap<i32, oneshot::Sender<T>>;

/// `None` once the connection has ended: nobody can begin to wait after that, and nobody waits any more.
pub(super) struct Waiting<T>(Mutex<Option<Callers<T>>>);

impl<T> Waiting<T> {
    pub(super) fn new() -> Self {
        Waiting(Mutex::new(Some(Callers::new())))
    }

    pub(super) fn is_open(&self) -> bool {
        self.look(|callers| callers.is_some())
    }

    /// A place for the reply with this number; `None` when the connection has ended.
    pub(super) fn begin(&self, opaque: i32) -> Option<Wait<'_, T>> {
        let (answer, reply) = oneshot::channel();
        self.look(|callers| callers.as_mut().map(|callers| _ = callers.insert(opaque, answer)))?;
        Some(Wait { waiting: self, opaque, reply })
    }

    /// Hands a reply to who waits for it. Says whether somebody did.
    pub(super) fn deliver(&self, opaque: i32, reply: T) -> bool {
        let caller = self.look(|callers| callers.as_mut().and_then(|callers| callers.remove(&opaque)));
        caller.is_some_and(|caller| caller.send(reply).is_ok())
    }

    /// Ends all waiting, for ever.
    pub(super) fn end(&self) {
        // Senders that are dropped wake their receivers: not under the lock.
        drop(self.look(Option::take));
    }

    fn look<R>(&self, at: impl FnOnce(&mut Option<Callers<T>>) -> R) -> R {
        // Nothing panics under this lock; a poisoned map would still be whole.
        at(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A caller's place. A caller that goes away takes it along.
pub(super) struct Wait<'w, T> {
    waiting: &'w Waiting<T>,
    opaque: i32,
    reply: oneshot::Receiver<T>,
}

impl<T> Wait<'_, T> {
    /// The reply; `None` when the connection ends before it comes.
    pub(super) async fn reply(&mut self) -> Option<T> {
        (&mut self.reply).await.ok()
    }
}

impl<T> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        // What was removed is dropped behind the lock.
        drop(self.waiting.look(|callers| callers.as_mut().and_then(|callers| callers.remove(&self.opaque))));
    }
}
